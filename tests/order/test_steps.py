"""Plans of steps: what holds of every one of them, and a few small ones written out."""

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datago.order.steps import Phase, StepPlan

remainders, unevens = st.sampled_from(["keep", "drop"]), st.sampled_from(["keep", "drop", "pad"])


@st.composite
def bucket_numbers(draw):
    """Buckets of samples, a few of which cannot be used: of few and of many kinds, evenly and unevenly many of each."""
    kinds = draw(st.integers(1, 12))
    rng = numpy.random.default_rng(draw(st.integers(0, 2**32)))
    found = (kinds * rng.random(draw(st.integers(0, 150))) ** draw(st.sampled_from([1, 4]))).astype(
        draw(st.sampled_from(["i1", "i4", "i8"]))
    )
    found[rng.random(len(found)) < draw(st.sampled_from([0, 0.1]))] = -1
    return found


def ranks_of(steps, step):
    return [steps.batch(step, rank) for rank in range(steps.world_size)]


def check(buckets, steps, batch_size, remainder, uneven, out):
    """Holds a plan to all that it promises, where the samples of `out` were used before."""
    seen, per_bucket = [], {}
    for step in range(len(steps)):
        bucket, parts = steps.bucket(step), ranks_of(steps, step)
        sizes = [len(samples) for samples, _ in parts]
        assert 1 <= min(sizes) and max(sizes) <= batch_size and max(sizes) - min(sizes) <= (uneven == "keep")
        for samples, valid in parts:
            assert (buckets[samples] == bucket).all() and len(samples) == len(valid) and samples.dtype == numpy.int64
            assert len(set(samples.tolist())) == len(samples)
            seen += samples[valid].tolist()
        whole = numpy.concatenate([samples[valid] for samples, valid in parts])
        assert set(numpy.concatenate([samples for samples, _ in parts]).tolist()) == set(whole.tolist())  # repeated within the step
        per_bucket.setdefault(bucket, []).append(len(whole))
        if uneven == "drop" or remainder == "drop":
            assert all(valid.all() for _, valid in parts)
    assert len(set(seen)) == len(seen) and not out & set(seen)
    usable = set(numpy.flatnonzero(buckets >= 0).tolist()) - out
    assert set(seen) <= usable
    whole, expected = steps.world_size * batch_size, 0
    for bucket in {int(buckets[sample]) for sample in usable}:
        count = sum(int(buckets[sample]) == bucket for sample in usable)
        rest = count % whole if remainder == "keep" else 0
        short = rest - rest % steps.world_size if uneven == "drop" else rest
        expected += count // whole + (short > 0)
        sizes = sorted(per_bucket.get(bucket, []), reverse=True)
        assert sizes == [whole] * (count // whole) + [short] * (short > 0)
        spares = [steps.spares(bucket, rank) for rank in range(steps.world_size)]
        left_out = [sample for samples, valid in spares for sample in samples[valid].tolist()]
        if sizes:
            assert sorted(left_out) == sorted(s for s in usable - set(seen) if buckets[s] == bucket)
            assert all(set(samples[~valid].tolist()) <= set(seen) and not valid.all() for samples, valid in spares)
        else:
            assert not any(len(samples) for samples, _ in spares)
    assert len(steps) == expected
    if remainder == "keep" and uneven != "drop":
        assert set(seen) == usable
    return set(seen)


@settings(max_examples=200)
@given(bucket_numbers(), st.integers(1, 8), st.integers(1, 5), st.booleans(), remainders, unevens, st.integers(0, 2**64 - 1))
def test_every_plan_of_three_epochs(buckets, world_size, batch_size, shuffle, remainder, uneven, seed):
    for epoch in range(3):
        options = {"seed": seed, "epoch": epoch, "shuffle": shuffle, "remainder": remainder, "uneven": uneven}
        check(buckets, StepPlan(buckets, world_size, batch_size, **options), batch_size, remainder, uneven, set())


@settings(max_examples=200)
@given(bucket_numbers(), st.data(), remainders, unevens, st.booleans(), st.integers(0, 2))
def test_every_point_of_resuming_with_other_ranks(buckets, data, remainder, uneven, shuffle, epoch):
    """Phase after phase ends at some step, and at every step of the last one the rest is planned for another number of ranks."""
    options = {"seed": 7, "epoch": epoch, "shuffle": shuffle, "remainder": remainder, "uneven": uneven}
    history, out = [], set()
    for _ in range(data.draw(st.integers(0, 2))):
        world_size, batch_size = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 4))
        steps = StepPlan(buckets, world_size, batch_size, history=history, **options)
        done = data.draw(st.integers(0, len(steps)))
        out |= {s for step in range(done) for samples, valid in ranks_of(steps, step) for s in samples[valid].tolist()}
        history.append((world_size, batch_size, done))
    before, world_size = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 8))
    steps = StepPlan(buckets, before, 3, history=history, **options)
    points = range(len(steps) + 1) if len(steps) < 12 else {0, 1, len(steps) // 2, len(steps) - 1, len(steps)}
    for done in points:
        used = {s for step in range(done) for samples, valid in ranks_of(steps, step) for s in samples[valid].tolist()}
        rest = StepPlan(buckets, world_size, 2, history=[*history, Phase(before, 3, done)], **options)
        check(buckets, rest, 2, remainder, uneven, out | used)


def test_spares_that_were_taken_do_not_come_again():
    buckets = numpy.zeros(11, int)
    first = StepPlan(buckets, 2, 2, remainder="drop")
    taken = first.spares(0, 1)[0][:1]
    assert len(first) == 2 and [len(first.spares(0, rank)[0]) for rank in range(2)] == [2 + 8, 1 + 8]
    used = {s for step in range(1) for samples, _ in ranks_of(first, step) for s in samples.tolist()} | set(taken.tolist())
    rest = StepPlan(buckets, 3, 2, remainder="drop", history=[Phase(2, 2, 1, taken.tolist())])
    assert {s for samples, _ in ranks_of(rest, 0) for s in samples.tolist()} == set(range(11)) - used and len(rest) == 1


def written(buckets, *arguments, **options):
    """bucket: samples of rank 0 | of rank 1 …, a star before repetitions."""
    steps, lines = StepPlan(buckets, *arguments, **options), []
    for step in range(len(steps)):
        parts = (" ".join("*" * (not v) + str(s) for s, v in zip(*part, strict=True)) for part in ranks_of(steps, step))
        lines.append(f"{steps.bucket(step)}: {' | '.join(parts)}")
    return lines


def test_small_plans_in_listing_order():
    buckets = [3, 5, 3, 3, -1, 5, 3, 3, 5, 3, 3, 3, 3]  # nine of bucket 3, three of bucket 5
    full = ["3: 0 3 | 2 6", "3: 7 10 | 9 11"]
    assert written(buckets, 2, 2, shuffle=False) == [full[0], "5: 1 8 | 5", full[1], "3: 12 | *12"]
    assert written(buckets, 2, 2, shuffle=False, uneven="pad") == [full[0], "5: 1 8 | 5 *1", full[1], "3: 12 | *12"]
    assert written(buckets, 2, 2, shuffle=False, uneven="drop") == [full[0], "5: 1 | 5", full[1]]
    assert written(buckets, 2, 2, shuffle=False, remainder="drop") == full
    assert written(buckets, 1, 4, shuffle=False, history=[(2, 2, 1)]) == ["5: 1 5 8", "3: 7 9 10 11", "3: 12"]


def test_the_same_seed_gives_the_same_plan_for_ever():
    buckets = numpy.arange(12) % 3
    assert written(buckets, 2, 2, seed=2026) == ["1: 1 10 | 7 4", "2: 11 8 | 2 5", "0: 6 0 | 9 3"]
    assert written(buckets, 2, 2, seed=2026, epoch=1) != written(buckets, 2, 2, seed=2026)


def test_steps_of_a_bucket_are_spread_over_the_epoch():
    steps = StepPlan(numpy.repeat([0, 1], 4000), 2, 5, seed=3)
    first = sum(steps.bucket(step) for step in range(400))
    assert len(steps) == 800 and 160 < first < 240  # 200 are expected, with a deviation of 7


@pytest.mark.parametrize("buckets, arguments, options, match", [
    ([0.5], (1, 1), {}, "buckets: got an array of float64"),
    ([[1]], (1, 1), {}, r"of shape \(1, 1\)"),
    ([1], (0, 1), {}, "world_size: got 0"),
    ([1], (1, 0), {}, "batch_size: got 0"),
    ([1], (1, 1), {"remainder": "pad"}, "remainder: got 'pad'"),
    ([1], (1, 1), {"uneven": "cut"}, "uneven: got 'cut'"),
    ([1], (1, 1), {"history": [(1, 1, 2)]}, r"history\[0\]: 2 steps are done, the plan had 1"),
])  # fmt: skip
def test_what_makes_no_sense_is_said(buckets, arguments, options, match):
    with pytest.raises(ValueError, match=match):
        StepPlan(buckets, *arguments, **options)


def test_steps_and_ranks_beyond_the_plan():
    steps = StepPlan([0, 0], 2, 1)
    for call in (lambda: steps.batch(1, 0), lambda: steps.batch(-1, 0), lambda: steps.bucket(1)):
        with pytest.raises(IndexError, match="the plan has 1"):
            call()
    for call in (lambda: steps.batch(0, 2), lambda: steps.spares(0, -1)):
        with pytest.raises(IndexError, match="world_size is 2"):
            call()
    assert len(StepPlan([], 4, 4)) == 0 and len(StepPlan([-1, -1], 4, 4)) == 0
