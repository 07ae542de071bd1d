import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datago.order import plan

counts, worlds, workers = st.integers(0, 200), st.integers(1, 9), st.integers(1, 4)
uneven = st.sampled_from(["keep", "drop", "pad"])


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_a_permutation_has_every_index_once(count):
    assert sorted(plan.permutation(count, 5)) == list(range(count))


def test_the_same_seed_gives_the_same_order_for_ever():
    assert plan.permutation(12, 2026).tolist() == [11, 2, 6, 9, 1, 7, 10, 0, 4, 8, 5, 3]
    assert plan.permutation(12, plan.key(2026, 1)).tolist() == [1, 4, 3, 7, 8, 11, 10, 0, 2, 5, 6, 9]
    assert plan.permutation(12, plan.key(2**64 - 1, 2**63 - 1)).tolist() == [1, 9, 7, 2, 8, 4, 11, 0, 3, 6, 10, 5]


def test_positions_are_uniform():
    """Where 0 lands over 4000 seeds: each of 8 places about 500 times; chi-squared with 7 degrees of freedom, 1 in 10,000."""
    for keys in (range(4000), [plan.key(7, epoch) for epoch in range(4000)]):
        places = numpy.bincount([plan.permutation(8, key).tolist().index(0) for key in keys], minlength=8)
        assert ((places - 500) ** 2 / 500).sum() < 29.9


def shares(count, world_size, workers, uneven):
    """What each rank reads, over its workers."""
    streams = world_size * workers
    return [
        [plan.share(count, rank + world_size * worker, streams, world_size, uneven).tolist() for worker in range(workers)]
        for rank in range(world_size)
    ]


@given(counts, worlds, workers)
def test_every_sample_is_read_once_and_streams_are_balanced(count, world_size, workers):
    parts = [part for rank in shares(count, world_size, workers, "keep") for part in rank]
    assert sorted(sum(parts, [])) == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(counts, worlds, workers)
def test_ranks_of_equal_length(count, world_size, workers):
    dropped = [sum(rank, []) for rank in shares(count, world_size, workers, "drop")]
    assert {len(part) for part in dropped} == {count // world_size}
    assert sorted(sum(dropped, [])) == list(range(count - count % world_size))
    padded = [sum(rank, []) for rank in shares(count, world_size, workers, "pad")]
    assert {len(part) for part in padded} == {-(-count // world_size)}
    seen = sorted(sum(padded, []))
    assert set(seen) == set(range(count)) and len(seen) - count < world_size
    assert all(len(set(part)) == len(part) for part in padded if count >= world_size)


@given(st.integers(0, 10**6), workers)
def test_a_limit_is_divided_over_workers(limit, workers):
    parts = [plan.portion(limit, worker, workers) for worker in range(workers)]
    assert sum(parts) == limit and max(parts) - min(parts) <= 1


@given(counts, st.data())
def test_gaps_are_what_ranges_leave(count, data):
    done = data.draw(st.sets(st.integers(0, 250)))
    ranges = []
    for position in sorted(done):
        ranges.append([position, position + 1])
    left = [i for begin, end in plan.gaps(ranges, count) for i in range(begin, end)]
    assert left == [i for i in range(count) if i not in done]


@given(counts, st.integers(0, 2**64 - 1), st.integers(0, 1000), st.data())
def test_resuming_with_other_ranks_again_and_again_reads_the_rest_once(count, seed, epoch, data):
    """Every stream stops where it likes, also out of order; the next number of streams reads what is left."""
    order = plan.permutation(count, plan.key(seed, epoch))
    phases, seen = [], []
    for _ in range(data.draw(st.integers(1, 3))):
        world_size, workers = data.draw(worlds), data.draw(st.integers(1, 2))
        left, done = plan.remaining(order, phases), []
        for stream in range(world_size * workers):
            own = left[plan.share(len(left), stream, world_size * workers, world_size)]
            handed = sorted(data.draw(st.sets(st.integers(0, max(0, len(own) - 1)), max_size=len(own))))
            done.append([[position, position + 1] for position in handed])
            seen += own[handed].tolist()
        phases.append({"world_size": world_size, "uneven": "keep", "done": done})
    rest = plan.remaining(order, phases).tolist()
    assert sorted(seen + rest) == list(range(count))
    assert [i for i in order.tolist() if i in set(rest)] == rest
