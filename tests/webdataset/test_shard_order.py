"""The order of shards and their samples, and how ranks share them."""

import itertools
import json
import random
import time

import network
import numpy
import pytest
from conftest import jpeg, opened, threads_left
from tars import PIXEL, config, flat, ids, in_turn, shards, tar, write_index

from datago import DatagoClient, SourceError
from datago import config as configuration
from datago.checkpoint import resume
from datago.engine._progress import Progress
from datago.order import plan
from datago.sources import open_source

# ---- order ----


@pytest.mark.parametrize("lanes", [1, 2, 3, 8])
def test_each_lane_gives_one_sample_in_turn(tmp_path, lanes):
    lists = shards(tmp_path, [3, 7, 0, 1, 40, 5])
    top = config(tmp_path / "*.tar", ordered=True, concurrent_downloads=lanes)
    assert ids(top)[0] == in_turn(lists, lanes)
    order = plan.permutation(6, plan.key(7, 2))
    assert ids({**top, "seed": 7, "epoch": 2})[0] == in_turn([lists[number] for number in order], lanes)


def test_seed_and_epoch_decide(tmp_path):
    shards(tmp_path, [4] * 8)
    top = config(tmp_path / "*.tar", ordered=True)
    runs = {what: ids({**top, "seed": what[0], "epoch": what[1]})[0] for what in ((1, 0), (1, 1), (2, 0))}
    assert len(set(map(tuple, runs.values()))) == 3
    with DatagoClient({**top, "seed": 1}) as client:
        for epoch in (0, 1):
            client.set_epoch(epoch)
            client.start()
            assert [sample.id for sample in client] == runs[1, epoch]
    assert (
        ids({**top, "source_config": {**top["source_config"], "random_sampling": True}})[0]
        != ids({**top, "source_config": {**top["source_config"], "random_sampling": True}})[0]
    )  # 8! orders of shards


@pytest.mark.network
def test_the_order_does_not_depend_on_the_network(tmp_path):
    lists = shards(tmp_path, [30, 1, 12, 25, 30, 9])

    def said(request):
        time.sleep(random.random() / 10)
        body = (tmp_path / request.target[1:]).read_bytes()
        request.sock.sendall(network.answer(length=len(body)))
        for begin in range(0, len(body), 4000):
            time.sleep(random.random() / 50)
            request.sock.sendall(body[begin : begin + 4000])

    with network.serve(said) as server:
        top = config(server.url + "/{000000..000005}.tar", ordered=True, concurrent_downloads=3)
        assert ids(top)[0] == in_turn(lists, 3)


def test_a_seeded_source_enumerates_in_its_order_without_ordered(tmp_path):
    lists = shards(tmp_path, [5, 2, 9])
    order = [lists[number] for number in plan.permutation(3, plan.key(3, 0))]
    source = opened(config(tmp_path / "*.tar", seed=3))
    assert [entry.id for batch in source.batches() for entry in batch] == in_turn(order, 2)


def test_a_shuffle_buffer_with_a_seed(tmp_path):
    lists = shards(tmp_path, [20] * 6)
    top = config(tmp_path / "*.tar", ordered=True, seed=5, shuffle_buffer=30)
    first, again, other = (ids({**top, "epoch": epoch})[0] for epoch in (0, 0, 1))
    assert first == again != other and sorted(first) == sorted(flat(lists))
    # mixed by more than the shards are: neighbours in a shard are far apart
    places = {name: place for place, name in enumerate(first)}
    steps = [places[b] - places[a] for part in lists for a, b in itertools.pairwise(part)]
    assert min(steps) < 0 and numpy.std(steps) > 5
    part, state = ids(top, most=50)
    rest, _ = ids(top, json.loads(json.dumps(state)))
    assert part == first[:50] and sorted(part + rest) == sorted(first)


def test_positions_are_the_same_in_every_pass(tmp_path):
    shards(tmp_path, [5, 3, 8, 2])
    top = config(tmp_path / "*.tar", seed=4)
    runs = [{e.id: e.position for batch in opened(top).batches() for e in batch} for top in (top, {**top, "ordered": True})]
    assert runs[0] == runs[1] and len(set(runs[0].values())) == 18


def test_nobody_waits_for_batches_that_nobody_wants(tmp_path):
    """A generator that is closed early ends its threads, stop() or not."""
    shards(tmp_path, [50] * 8)
    for top in (config(tmp_path / "*.tar"), config(tmp_path / "*.tar", ordered=True)):
        batches = opened(top).batches()
        next(batches)
        batches.close()
    assert not threads_left("datago shards")


# ---- ranks ----


def parts(top, world, workers=1):
    """What every stream reads, by the source alone."""
    found = []
    for worker in range(workers):
        for rank in range(world):
            parsed = configuration.parse({**top, "source_config": {**top["source_config"], "rank": rank, "world_size": world}})
            run = resume.begin(parsed, parsed.epoch, worker, workers)
            run.draw()
            source = open_source(parsed, run, Progress())
            source.open()
            found.append([entry.id for batch in source.batches() for entry in batch])
    return found


@pytest.mark.parametrize("world, workers", [(2, 1), (2, 3), (3, 4)])
@pytest.mark.parametrize("options", [{}, {"seed": 3}, {"random_sampling": True}])
def test_every_sample_once_over_ranks_and_workers(tmp_path, world, workers, options):
    lists = shards(tmp_path, [7, 1, 30, 4, 0, 12, 3])
    found = parts(config(tmp_path / "*.tar", **options), world, workers)
    assert sorted(flat(found)) == sorted(flat(lists))
    index = write_index(tmp_path, lists)
    assert sorted(flat(parts(config(tmp_path / "*.tar", shard_index=index, **options), world, workers))) == sorted(flat(lists))


def test_ranks_agree_on_samples_wherever_the_shards_lie(tmp_path):
    """Three ranks, three machines, two shards: each mounts them somewhere else, and one sample is broken. What would be a query or
    fragment of a url is a part of a path."""
    found, failed = [], []
    for rank, name in enumerate(("a", "mnt/other", "b?c#d")):
        (folder := tmp_path / name).mkdir(parents=True)
        wanted = flat(shards(folder, [30, 40]))
        (folder / "000000.tar").write_bytes(tar([("s0_0.png", b""), *((f"s0_{i}.png", PIXEL) for i in range(1, 30))]))
        client = DatagoClient(config(str(folder / "{000000..000001}.tar"), rank=rank, world_size=3))
        samples = list(client)
        found += [sample.id for sample in samples]
        assert {sample.source for sample in samples} == {str(folder / "000000.tar"), str(folder / "000001.tar")}
        failed += [failure["name"] for failure in client.stats()["last_failures"]]
    assert sorted(found) == sorted(set(wanted) - {"s0_0"}) and len(failed) == 1


def test_a_common_seed_gives_a_rank_other_shards_in_other_epochs(tmp_path):
    shards(tmp_path, [1] * 12)
    runs = [set(ids(config(tmp_path / "*.tar", seed=1, epoch=epoch, rank=0, world_size=2))[0]) for epoch in range(3)]
    assert all(len(run) == 6 for run in runs) and runs[0] != runs[1] != runs[2]
    runs = [set(ids(config(tmp_path / "*.tar", random_sampling=True, rank=0, world_size=2))[0]) for _ in range(3)]
    assert runs[0] == runs[1] == runs[2] == {f"s{s}_0" for s in range(0, 12, 2)}  # they cannot agree on anything else


def test_a_failure_of_a_sample_is_that_of_one_rank(tmp_path):
    members = [(name, data) for i in (0, 1, 2, 0, 1) for name, data in ((f"{i}.jpg", jpeg()), (f"{i}.txt", b"x"))]
    (tmp_path / "s.tar").write_bytes(tar(members))
    failed = []
    for rank in range(3):
        with DatagoClient(config(tmp_path / "s.tar", rank=rank, world_size=3)) as client:
            try:
                list(client)
            except SourceError:  # this rank has nothing else, or nothing at all
                pass
            failed += [failure["name"] for failure in client.stats()["last_failures"]]
    assert sorted(failed) == [f"{tmp_path}/s.tar:{i}" for i in (0, 1)]


def test_fewer_samples_than_ranks(tmp_path):
    shards(tmp_path, [3])
    found = []
    for rank in range(8):
        try:
            found += ids(config(tmp_path / "*.tar", rank=rank, world_size=8))[0]
        except SourceError as error:
            assert f"rank {rank} of world_size 8 has no sample: 3 in 1 shards" in str(error)
    assert sorted(found) == ["s0_0", "s0_1", "s0_2"]


def test_limit_is_each_ranks(tmp_path):
    shards(tmp_path, [5] * 4)
    for limit, wanted in ((3, 3), (10, 10), (10**12, 10)):
        for rank in range(2):
            assert len(ids(config(tmp_path / "*.tar", rank=rank, world_size=2, limit=limit))[0]) == wanted
