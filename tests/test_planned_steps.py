"""Planned steps, end to end: ranks and workers read a folder, and have one bucket at each of as many steps."""

import json
import logging
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy
import pytest
from conftest import check_accounts, config, jpeg, threads_left

import datago.batches
import datago.dataset
from datago import DatagoBatchDataset, SourceError
from datago.order.plan import portion

CROP = {"crop_and_resize": True, "default_image_size": 32, "downsampling_ratio": 8, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2.0}
SHAPES = (32, 32), (48, 30), (30, 48), (50, 25), (25, 50), (40, 36)
pytestmark = pytest.mark.timeout(120)


def make(root, count, rng, shapes=SHAPES, truncated=(), garbage=()):
    """Pictures of random shapes; what is truncated has a good header and no pixels, garbage not even that. The names of the good ones."""
    root.mkdir(exist_ok=True)
    for number in range(count):
        data = jpeg(*shapes[rng.integers(len(shapes))], seed=number)
        if number in truncated:
            data = data[: data.rindex(b"\xff\xda") + 14]
        (root / f"{number:03}.jpg").write_bytes(b"\xff\xd8\xff" if number in garbage else data)
    return {f"{number:03}.jpg" for number in set(range(count)) - set(truncated) - set(garbage)}


def dataset(root, rank, world_size, size=4, sizes_cache=None, **arguments):
    top = {"seed": 5, "max_failures": 1.0} | {
        k: arguments.pop(k) for k in ("seed", "epoch", "uneven", "limit", "memory_limit") if k in arguments
    }
    found = config(root, image_config=CROP, **top)
    found["source_config"] |= {"rank": rank, "world_size": world_size}
    arguments = {"steps": "planned", "sizes_cache": sizes_cache or f"{root}.sizes"} | arguments
    return DatagoBatchDataset(found, size, **arguments)


class Rank:
    """What a DataLoader with so many workers does, without processes: it takes batches from them in turn."""

    def __init__(self, monkeypatch, root, rank, world_size, workers=0, states=None, **arguments):
        self.lanes = [dataset(root, rank, world_size, **arguments) for _ in range(max(1, workers))]
        self._info = [
            SimpleNamespace(id=worker, num_workers=workers, seed=worker) if workers else None for worker in range(max(1, workers))
        ]
        self._patch = monkeypatch
        for lane in self.lanes:
            if states is not None:
                lane.load_state_dict(json.loads(json.dumps(states)))
        self._batches = self._read()

    def _worker(self, number):
        for module in (datago.batches, datago.dataset):
            self._patch.setattr(module, "get_worker_info", lambda: self._info[number])

    def _read(self):
        iterators = {}
        for number, lane in enumerate(self.lanes):
            self._worker(number)
            iterators[number] = iter(lane)
        while iterators:
            for number in list(iterators):
                self._worker(number)
                batch = next(iterators[number], None)
                if batch is None:
                    del iterators[number]
                else:
                    yield seen(batch)

    def take(self, count=10**6):
        return [batch for _, batch in zip(range(count), self._batches, strict=False)]

    def states(self):
        found = []
        for number, lane in enumerate(self.lanes):
            self._worker(number)
            found.append(lane.state_dict())
        return found


def seen(batch):
    width, height = batch["bucket"]
    assert tuple(batch["image"].shape) == (len(batch["id"]), 3, height, width)
    names = [os.path.basename(name) for name in batch["id"]]
    return tuple(batch["bucket"]), names, [bool(one) for one in batch["valid"]]


def check_steps(ranks):
    """As many steps, and one bucket at each, on all ranks; the names of what is valid, which no two have."""
    assert len({len(steps) for steps in ranks}) == 1, [len(steps) for steps in ranks]
    for parts in zip(*ranks, strict=True):
        assert len({bucket for bucket, _, _ in parts}) == 1
    valid = [name for steps in ranks for _, names, good in steps for name, one in zip(names, good, strict=True) if one]
    assert len(valid) == len(set(valid))
    return set(valid)


CASES = [(seed, world_size, workers) for seed, (world_size, workers) in enumerate((w, k) for w in (1, 2, 3, 4) for k in (0, 1, 2))]


@pytest.mark.parametrize("seed, world_size, workers", CASES)
def test_all_ranks_have_the_steps_of_the_plan(tmp_path, monkeypatch, seed, world_size, workers):
    rng = numpy.random.default_rng(seed)
    count = int(rng.integers(12, 90))
    good = make(tmp_path / "a", count, rng)
    for remainder, uneven in (("keep", "keep"), ("keep", "pad"), ("keep", "drop"), ("drop", "keep")):
        options = {"remainder": remainder, "uneven": uneven, "size": int(rng.integers(1, 6)), "epoch": int(rng.integers(3))}
        if remainder == "drop":
            options["size"] = 1
        readers = [Rank(monkeypatch, tmp_path / "a", rank, world_size, workers, **options) for rank in range(world_size)]
        ranks = [reader.take() for reader in readers]
        names = check_steps(ranks)
        assert all(len(lane) == len(ranks[0]) for reader in readers for lane in reader.lanes)
        if remainder == "keep" and uneven != "drop":
            assert names == good
        again = Rank(monkeypatch, tmp_path / "a", 0, world_size, workers, **options).take()
        assert again == ranks[0]


@pytest.mark.parametrize("seed, world_size, workers", CASES)
def test_a_pass_goes_on_where_it_was(tmp_path, monkeypatch, seed, world_size, workers):
    """With the same ranks exactly as if it had not ended, with others with what was left; also where pictures fail."""
    rng = numpy.random.default_rng(100 + seed)
    count = int(rng.integers(30, 80))
    bad = rng.choice(count, 4, replace=False).tolist()
    make(tmp_path / "a", count, rng, truncated=bad[:3], garbage=bad[3:])
    options = {"remainder": "keep", "uneven": ("keep", "pad", "drop")[seed % 3], "size": 3, "epoch": 1}
    whole = [Rank(monkeypatch, tmp_path / "a", rank, world_size, workers, **options).take() for rank in range(world_size)]
    cut = int(rng.integers(1, len(whole[0])))
    firsts, states = [], []
    for rank in range(world_size):
        reader = Rank(monkeypatch, tmp_path / "a", rank, world_size, workers, **options)
        firsts.append(reader.take(cut))
        states.append(reader.states())
    rests = [Rank(monkeypatch, tmp_path / "a", rank, world_size, workers, states[rank], **options).take() for rank in range(world_size)]
    assert [first + rest for first, rest in zip(firsts, rests, strict=True)] == whole
    used = check_steps(firsts)
    every = [state for of_rank in states for state in of_rank]
    for others, other_workers in ((world_size % 4 + 1, 0), (2, 2) if (world_size, workers) != (2, 2) else (1, 2)):
        other = [Rank(monkeypatch, tmp_path / "a", rank, others, other_workers, every, **{**options, "size": 2}) for rank in range(others)]
        parts = [reader.take(2) for reader in other]
        third = [state for reader in other for state in reader.states()]  # and once more with another number
        rest = check_steps([part + reader.take() for part, reader in zip(parts, other, strict=True)])
        assert not rest & used
        if options["uneven"] != "drop":
            assert len(used | rest) >= count - 4 and not used & rest
        last = (
            check_steps([Rank(monkeypatch, tmp_path / "a", rank, 3, 0, third, **options).take() for rank in range(3)])
            if others != 3
            else set()
        )
        assert not last & (used | check_steps(parts))
        if options["uneven"] != "drop" and others != 3:
            assert len(last | used | check_steps(parts)) == count - 4


@pytest.mark.parametrize("uneven, remainder", [("keep", "keep"), ("pad", "keep"), ("drop", "keep"), ("keep", "drop")])
def test_others_come_in_the_place_of_what_fails(tmp_path, monkeypatch, uneven, remainder):
    rng = numpy.random.default_rng(7)
    bad = list(range(3, 90, 9))
    good = make(tmp_path / "a", 90, rng, SHAPES[:3], truncated=bad, garbage=(1, 50))
    options = {"uneven": uneven, "remainder": remainder, "size": 4}
    readers = [Rank(monkeypatch, tmp_path / "a", rank, 2, **options) for rank in range(2)]
    ranks = [reader.take() for reader in readers]
    names = check_steps(ranks)
    assert names <= good and (names == good or "drop" in (uneven, remainder))
    counts = [check_accounts(reader.lanes[0]._running.stats()) or reader.lanes[0]._running.stats() for reader in readers]
    assert sum(sum(stats["failures"].values()) for stats in counts) >= len(bad) + 2 - 2 * ("drop" in (uneven, remainder))
    assert all(stats["in_flight"] == 0 for stats in counts)
    if remainder == "drop":
        assert all(len(one) == 4 for steps in ranks for _, one, _ in steps)
        left_out = 90 - 2 - 8 * len(ranks[0])
        repeated = sum(not one for steps in ranks for _, _, good in steps for one in good)
        assert left_out and repeated < len(bad)  # what was left out came first
    assert [Rank(monkeypatch, tmp_path / "a", rank, 2, **options).take() for rank in range(2)] == ranks


def test_a_bucket_without_a_good_picture(tmp_path, monkeypatch):
    rng = numpy.random.default_rng(1)
    make(tmp_path / "a", 20, rng, SHAPES[:1])
    for number in range(3):
        (tmp_path / "a" / f"z{number}.jpg").write_bytes(jpeg(50, 25)[:-300])
    for rank in range(2):
        reader = Rank(monkeypatch, tmp_path / "a", rank, 2)
        with pytest.raises(SourceError, match="no picture of the bucket 40 x 16 is good|no picture of the bucket"):
            reader.take()
        check_accounts(reader.lanes[0]._running.stats())


def test_the_bucket_is_the_one_of_the_plan(tmp_path, monkeypatch):
    """Sizes that are given count, also where the picture has another one."""
    make(tmp_path / "a", 12, numpy.random.default_rng(1), SHAPES[:1])
    sizes = {f"{number:03}.jpg": [25, 50] if number < 6 else [50, 25] for number in range(12)}
    (tmp_path / "sizes.json").write_text(json.dumps(sizes))
    array = numpy.array(list(sizes.values()))
    found = []
    for given in (sizes, tmp_path / "sizes.json", array, sizes.__getitem__):
        ranks = [Rank(monkeypatch, tmp_path / "a", rank, 2, sizes=given, size=3).take() for rank in range(2)]
        check_steps(ranks)
        found.append(ranks)
    assert found[0] == found[1] == found[2] == found[3]
    for bucket, names, _ in [step for steps in found[0] for step in steps]:
        assert all((bucket[0] < bucket[1]) == (int(name[:3]) < 6) for name in names)
    del sizes["003.jpg"]  # read from its header: square
    ranks = [Rank(monkeypatch, tmp_path / "a", rank, 2, sizes=sizes, size=3).take() for rank in range(2)]
    assert {names[0] for steps in ranks for bucket, names, _ in steps if bucket[0] == bucket[1]} == {"003.jpg"}


@pytest.mark.parametrize("sizes, match", [
    (numpy.zeros((3, 2), int), r"wanted integers of shape \(12, 2\)"),
    (lambda name: "ab", "sizes: "),
    ("/nowhere.json", "sizes: .*nowhere"),
])  # fmt: skip
def test_sizes_that_make_no_sense(tmp_path, monkeypatch, sizes, match):
    make(tmp_path / "a", 12, numpy.random.default_rng(1))
    with pytest.raises(SourceError, match=match):
        Rank(monkeypatch, tmp_path / "a", 0, 2, sizes=sizes).take()


def test_sizes_are_kept(tmp_path, monkeypatch):
    make(tmp_path / "a", 12, numpy.random.default_rng(1))
    first = Rank(monkeypatch, tmp_path / "a", 0, 2, sizes_cache=tmp_path / "kept").take()
    assert [path.suffix for path in (tmp_path / "kept").iterdir()] == [".sizes"]
    monkeypatch.setattr(
        "datago.checkpoint.sizes.read_sizes", lambda paths, *_: (numpy.zeros((len(paths), 2), int), []) if not paths else 1 / 0
    )
    assert Rank(monkeypatch, tmp_path / "a", 0, 2, sizes_cache=tmp_path / "kept").take() == first


def test_without_a_folder_sizes_go_with_the_process(tmp_path):
    make(tmp_path / "a", 12, numpy.random.default_rng(1))
    (tmp_path / "temporary").mkdir()
    script = f"""
import glob, tempfile
from datago import DatagoBatchDataset
found = DatagoBatchDataset({config(tmp_path / "a", image_config=CROP)!r}, 4, steps="planned")
assert len(found) == len(list(found)) > 0
print(len(glob.glob(tempfile.gettempdir() + "/datago-sizes*")))
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr
    assert not list((tmp_path / "temporary").iterdir())


def test_a_limit_ends_all_ranks_at_one_step(tmp_path, monkeypatch):
    make(tmp_path / "a", 60, numpy.random.default_rng(1))
    for limit in (1, 4, 10, 17):
        readers = [Rank(monkeypatch, tmp_path / "a", rank, 2, limit=limit, size=3) for rank in range(2)]
        ranks = [reader.take() for reader in readers]
        check_steps(ranks)
        assert sum(len(names) for _, names, _ in ranks[0]) == limit and len(readers[0].lanes[0]) == len(ranks[0])
    assert portion(17, 0, 1) == 17


def test_a_memory_limit_bounds_the_batches(tmp_path, monkeypatch):
    make(tmp_path / "a", 60, numpy.random.default_rng(1))
    one = 4 * 3 * 40 * 24
    with pytest.raises(ValueError, match="memory_limit"):
        dataset(tmp_path / "a", 0, 2, memory_limit=3 * one)
    readers = [Rank(monkeypatch, tmp_path / "a", rank, 2, memory_limit=10 * one) for rank in range(2)]
    check_steps([reader.take() for reader in readers])
    assert all(reader.lanes[0]._running.stats()["memory"]["peak"] <= 10 * one for reader in readers)


def test_what_does_not_fit_is_said(tmp_path, monkeypatch):
    make(tmp_path / "a", 30, numpy.random.default_rng(1))
    root = tmp_path / "a"
    reader = Rank(monkeypatch, root, 0, 2)
    reader.take(2)
    state = reader.states()
    with pytest.raises(ValueError, match="batch_size: 4 when the state was taken, 2 now"):
        Rank(monkeypatch, root, 0, 2, states=state, size=2).take()
    with pytest.raises(ValueError, match="steps: 'planned' when the state was taken, 'not planned' in the config"):
        Rank(monkeypatch, root, 0, 2, states=state, steps="own")
    with pytest.raises(ValueError, match="remainder: 'keep' when the state was taken"):
        Rank(monkeypatch, root, 0, 2, states=state, remainder="drop")
    with pytest.raises(ValueError, match="steps: got 'planned', and all ranks need one order"):
        DatagoBatchDataset(
            config(root, image_config=CROP) | {"source_config": {"root_path": str(root), "random_sampling": True}}, 4, steps="planned"
        )
    with pytest.raises(ValueError, match="steps: got 'even'"):
        dataset(root, 0, 2, steps="even")
    with pytest.raises(SourceError, match="no batch of 40 for each of 2 ranks"):
        Rank(monkeypatch, root, 0, 2, size=40, remainder="drop").take()


def test_what_is_taken_by_default(tmp_path, monkeypatch, caplog):
    make(tmp_path / "a", 30, numpy.random.default_rng(1))
    root = tmp_path / "a"
    assert "valid" in next(iter(dataset(root, 0, 2, steps=None)))
    assert "valid" not in next(iter(dataset(root, 0, 1, steps=None))) and not caplog.records
    unseeded = dataset(root, 0, 2, steps=None, seed=None)
    unseeded._stepping._lack = "for a reason"
    with caplog.at_level(logging.WARNING):
        assert "valid" not in next(iter(unseeded)) and "valid" not in next(iter(unseeded))
    said = [record.getMessage() for record in caplog.records if record.name == "datago"]
    assert len(said) == 1 and "2 ranks may take unequal numbers of batches" in said[0] and "for a reason" in said[0]


def test_a_pass_that_is_closed_while_others_are_wanted(tmp_path):
    """Nothing is left behind, whenever that is."""
    make(tmp_path / "a", 40, numpy.random.default_rng(1), SHAPES[:2], truncated=range(0, 40, 3))
    for steps in range(4):
        found = iter(dataset(tmp_path / "a", 0, 2, size=2))
        for _ in range(steps):
            next(found)
        found.close()
    assert not threads_left()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_in_a_data_loader(tmp_path, workers):
    torch_data = pytest.importorskip("torch.utils.data")
    good = make(tmp_path / "a", 50, numpy.random.default_rng(1), truncated=(4, 9))
    ranks = []
    for rank in range(2):
        loader = torch_data.DataLoader(dataset(tmp_path / "a", rank, 2), batch_size=None, num_workers=workers)
        ranks.append([seen(batch) for batch in loader])
        assert len(loader) == len(ranks[-1])
    assert check_steps(ranks) == good


def test_a_picture_without_a_class_is_replaced(tmp_path):
    """Its class is looked up before it is read; and a loop that is told of each failure goes on behind it."""
    rng = numpy.random.default_rng(3)
    (tmp_path / "a").mkdir()
    for folder in ("cat", "dog"):
        make(tmp_path / "a" / folder, 9, rng, SHAPES[:2])
    make(tmp_path / "a", 3, rng, SHAPES[:1])
    steps, told = [], []
    for rank in range(2):
        top = config(tmp_path / "a", image_config=CROP, on_error=lambda failure: told.append(os.path.basename(failure.name)))
        top["source_config"] |= {"rank": rank, "world_size": 2}
        batches = DatagoBatchDataset(top, 4, steps="planned", sizes_cache=tmp_path / "kept", classes="folder")
        steps.append([(seen(batch), batch["target"].tolist(), batch["id"]) for batch in batches])
        assert len(batches) == len(steps[-1])
    assert sorted(set(told)) == ["000.jpg", "001.jpg", "002.jpg"]
    for _, targets, paths in steps[0] + steps[1]:
        assert targets == [("cat", "dog").index(os.path.basename(os.path.dirname(path))) for path in paths]
    assert len(steps[0]) == len(steps[1])
