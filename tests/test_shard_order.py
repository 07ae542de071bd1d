"""Order, ranks and resume of the WebDataset source."""

import gzip
import json
import os
import random
import subprocess
import sys
import time
from collections import deque

import network
import numpy
import pytest
from conftest import jpeg, opened
from test_sample import saved
from test_shards import tar
from test_webdataset import config, read, server  # noqa: F401

from datago import DatagoClient, SourceError, plan, resume
from datago import config as configuration
from datago._progress import Progress
from datago.sources import open_source

PIXEL = saved(numpy.full((8, 8, 3), 99, numpy.uint8))


def shards(folder, sizes, suffix=".tar", pack=bytes):
    """Shards of that many samples, named s<shard>_<sample>: a list of lists of their ids."""
    ids = [[f"s{s}_{i}" for i in range(size)] for s, size in enumerate(sizes)]
    for s, names in enumerate(ids):
        (folder / f"{s:06d}{suffix}").write_bytes(pack(tar([(f"{name}.png", PIXEL) for name in names])))
    return ids


def flat(lists):
    return [item for part in lists for item in part]


def in_turn(lists, lanes):
    """The order that webdataset.py promises, by another way than its own: list j of k lanes begins as lists j, j + k …"""
    queues = [deque(flat(lists[lane::lanes])) for lane in range(lanes)]
    order = []
    while any(queues):
        order += [queue.popleft() for queue in queues if queue]
    return order


def ids(configuration, state=None, most=None, timeout=20):
    """The ids of the next samples, and the state behind the last one."""
    with DatagoClient(configuration) as client:
        if state is not None:
            client.load_state_dict(state)
        found = []
        while (most is None or len(found) < most) and (sample := client.get_sample(timeout=timeout)) is not None:
            found.append(sample.id)
        return found, client.state_dict()


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
    assert ids({**top, "source_config": {**top["source_config"], "random_sampling": True}})[0] != ids(
        {**top, "source_config": {**top["source_config"], "random_sampling": True}})[0]  # 8! orders of shards


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
    steps = [places[b] - places[a] for part in lists for a, b in zip(part, part[1:], strict=False)]
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
    import threading

    shards(tmp_path, [50] * 8)
    for top in (config(tmp_path / "*.tar"), config(tmp_path / "*.tar", ordered=True)):
        batches = opened(top).batches()
        next(batches)
        batches.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "datago shards"]


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


# ---- the index ----

def write_index(folder, lists, **changed):
    """A wids index of what `shards` wrote, where some shards (s<number>) have another count."""
    path = folder / "index.json"
    counts = {f"{s:06d}.tar": changed.get(f"s{s}", len(names)) for s, names in enumerate(lists)}
    shardlist = [{"url": url, "nsamples": count, "filesize": 0} for url, count in counts.items()]
    path.write_text(json.dumps({"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": shardlist}))
    return str(path)


@pytest.mark.parametrize("world", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("options", [{}, {"seed": 6}, {"random_sampling": True}])
def test_equal_counts_known_before_the_first_sample(tmp_path, world, options):
    lists = shards(tmp_path, [1, 5, 9])
    index = write_index(tmp_path, lists)
    every = sorted(flat(lists))
    for uneven in ("keep", "drop", "pad"):
        promised, found = [], []
        for rank in range(world):
            top = config(tmp_path / "*.tar", uneven=uneven, shard_index=index, rank=rank, world_size=world, **options)
            promised.append(opened(top).count())
            found.append(ids(top)[0])
        assert [len(part) for part in found] == promised
        own = [sorted(set(part)) for part in found]
        if uneven == "keep":
            assert sorted(flat(found)) == every and sum(promised) == 15
            continue
        assert len(set(promised)) == 1
        if uneven == "drop":
            assert own == [sorted(part) for part in found] and len(set(flat(found))) == world * promised[0]
        else:
            assert sorted(flat(own)) == every  # each is there, and what is read twice is a rank's own
            assert all(max(map(part.count, part)) - min(map(part.count, part)) <= 1 for part in found)
        if world > 3:
            assert promised[0] == 15 // world + (uneven == "pad" and 15 % world > 0)


def test_no_count_without_an_index(tmp_path):
    shards(tmp_path, [2])
    assert opened(config(tmp_path / "*.tar")).count() is None


def test_what_fails_is_replaced_where_counts_are_promised(tmp_path):
    lists = shards(tmp_path, [10, 12])
    (tmp_path / "000000.tar").write_bytes(tar([(f"{name}.png", PIXEL if i % 5 else b"no") for i, name in enumerate(lists[0])]))
    top = config(tmp_path / "*.tar", uneven="drop", shard_index=write_index(tmp_path, lists), rank=0, world_size=2)
    found, stats = read(top)
    assert len(found) == 10 and len({sample.id for sample in found}) == 8 and stats["failures"]["unsupported"] >= 2


def test_an_index_that_is_wrong(tmp_path):
    lists = shards(tmp_path, [6, 9])
    index = write_index(tmp_path, lists, s0=9)
    top = config(tmp_path / "*.tar", uneven="drop", shard_index=index, world_size=2)
    found, _ = ids(top)
    assert len(found) == 9 and set(found) == set(lists[0])
    write_index(tmp_path, lists, s0=40, s1=50)
    with pytest.raises(SourceError, match="12 of the 40 samples that uneven 'drop' promises"):
        ids(top)
    write_index(tmp_path, lists, s0=3)
    assert len(ids(top)[0]) == 3


def test_where_nothing_can_be_equal(tmp_path):
    lists = shards(tmp_path, [3])
    top = config(tmp_path / "*.tar", shard_index=write_index(tmp_path, lists), rank=5, world_size=8)
    for uneven in ("drop", "pad"):
        with pytest.raises(SourceError, match=f"uneven '{uneven}' leaves rank 5 of world_size 8 no sample: there are 3 in 1 shards"):
            ids({**top, "uneven": uneven})


@pytest.mark.parametrize("index", [
    {"000000.tar": 3, "000001.tar": 4},
    {"shardlist": [{"url": "000000.tar", "nsamples": 3}, {"url": "000001.tar", "nsamples": 4}, {"url": "x", "nsamples": 9}]},
    {"shardlist": [{"url": f"https://example.org/{s}/00000{s}.tar?x=/1", "nsamples": 3 + s} for s in range(2)]},
])  # fmt: skip
def test_forms_of_an_index(tmp_path, index):
    shards(tmp_path, [3, 4])
    (tmp_path / "index.json").write_text(json.dumps(index))
    assert opened(config(tmp_path / "*.tar", shard_index=str(tmp_path / "index.json"))).count() == 7


def test_shards_of_one_name_in_two_folders(tmp_path):
    for s, folder in enumerate("ab"):
        (tmp_path / folder).mkdir()
        shards(tmp_path / folder, [3 + s])
    url = [f"{tmp_path}/{folder}/000000.tar" for folder in "ab"]
    path = tmp_path / "index.json"
    for index, wanted in (
        ({"a/000000.tar": 3, "./b/000000.tar": 4}, 7), ({url[0]: 3, "b/000000.tar": 4}, 7), ({"000000.tar": 4}, 8),
        ({"x/000000.tar": 3, "y/000000.tar": 3}, 6),
    ):  # fmt: skip
        path.write_text(json.dumps(index))
        assert opened(config(url, shard_index=str(path))).count() == wanted
    path.write_text(json.dumps({"x/000000.tar": 3, "y/000000.tar": 4}))
    with pytest.raises(SourceError, match="a/000000.tar may be any of x/000000.tar, y/000000.tar"):
        opened(config(url, shard_index=str(path)))


@pytest.mark.parametrize("text, wanted", [
    ("{", "not JSON"), ("[" * 99999, "not JSON"), ("[1]", "wanted"), ('{"shardlist": {}}', "wanted"), ('{"shardlist": [3]}', "wanted"),
    ('{"shardlist": [{"nsamples": 1}]}', "wanted"), ("{}", "000000.tar is not in it"), ('{"0000000.tar": 2}', "is not in it"),
    ('{"shardlist": [{"url": "000000.tar"}]}', "got None, wanted a number of samples"), ('{"000000.tar": -1}', "got -1"),
    ('{"000000.tar": "2"}', "got '2'"), ('{"000000.tar": 2.0}', "got 2.0"), ('{"000000.tar": true}', "got True"), ('\udcff{}', "not JSON"),
])  # fmt: skip
def test_what_is_no_index(tmp_path, text, wanted):
    shards(tmp_path, [2])
    (tmp_path / "index.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SourceError, match="shard_index .*index.json.*" + wanted):
        opened(config(tmp_path / "*.tar", shard_index=str(tmp_path / "index.json")))


def test_an_index_over_http(tmp_path, server):  # noqa: F811
    write_index(tmp_path, shards(tmp_path, [2, 5]))
    index = server.url + "/index.json?sig=secret"
    source = opened(config(server.url + "/{000000..000001}.tar?sig=secret", shard_index=index, auth_token="t0ken"))
    assert source.count() == 7 and server.seen == [("/index.json?sig=secret", "Bearer t0ken")]
    assert opened(config(tmp_path / "*.tar", shard_index=index, auth_token="t0ken")).count() == 7
    assert server.seen[1] == ("/index.json?sig=secret", None)  # the token is for another host
    with pytest.raises(SourceError, match="none.json.*404") as caught:
        opened(config(tmp_path / "*.tar", shard_index=server.url + "/none.json?sig=secret"))
    assert "secret" not in str(caught.value)


def test_what_a_rank_gets_is_said_before_the_first_sample(tmp_path, caplog):
    lists = shards(tmp_path, [1, 5, 9])
    caplog.set_level("INFO", "datago.webdataset")
    opened(config(tmp_path / "*.tar", rank=1, world_size=2))
    assert "rank 1 of 2 reads 1 of 3 shards, an unknown number of samples" in caplog.text
    opened(config(tmp_path / "*.tar", rank=0, world_size=2, uneven="drop", shard_index=write_index(tmp_path, lists)))
    assert "rank 0 of 2 reads 2 of 3 shards, 10 samples, and gives 5" in caplog.text


# ---- resume ----

@pytest.mark.parametrize("options", [{}, {"seed": 9}, {"seed": 9, "rank": 1, "world_size": 9}])
def test_an_ordered_stream_goes_on_where_it_was(tmp_path, options):
    """Cut behind each of its samples: lanes of different lengths, shards that are empty, broken, and of broken samples."""
    lists = shards(tmp_path, [3, 8, 0, 1, 9, 2])
    (tmp_path / "000001.tar").write_bytes(tar([(f"{name}.png", PIXEL if i % 3 else b"no") for i, name in enumerate(lists[1])]))
    body = (tmp_path / "000004.tar").read_bytes()
    (tmp_path / "000004.tar").write_bytes(body[: body.index(b"s4_6.png") + 530])
    top = config(tmp_path / "*.tar", ordered=True, concurrent_downloads=3, **options)
    whole, end = ids(top)
    assert len(whole) == 17 or options.get("world_size") and 0 < len(whole) < 17
    for cut in range(len(whole) + 1):
        part, state = ids(top, most=cut)
        before = json.dumps(state)
        rest, last = ids(top, state)
        assert part == whole[:cut] and rest == whole[cut:], cut
        assert json.dumps(state) == before and last["source"]["done"] == end["source"]["done"] == [[0, 6]]
    with DatagoClient(top) as client:
        client.load_state_dict(end)
        assert client.get_sample(timeout=20) is None
        client.set_epoch(1)
        client.start()
        assert len(list(client)) == len(whole)


def test_a_state_before_the_first_sample(tmp_path):
    lists = shards(tmp_path, [3, 4])
    for started in (False, True):
        client = DatagoClient(config(tmp_path / "*.tar"))
        if started:
            client.start()
        state = client.state_dict()
        client.stop()
        assert sorted(ids(config(tmp_path / "*.tar"), state)[0]) == sorted(flat(lists))


def test_shards_that_are_done_are_not_opened(tmp_path, server):  # noqa: F811
    lists = shards(tmp_path, [5] * 40)
    top = config(server.url + "/{000000..000039}.tar?sig=secret", auth_token="t0ken", ordered=True, concurrent_downloads=2)
    part, state = ids(top, most=163)
    text = json.dumps(state)
    assert "secret" not in text and "t0ken" not in text and server.url not in text and len(text) < 500
    assert state["source"]["done"] == [[0, 32]]
    server.seen.clear()
    with DatagoClient(top) as client:
        client.load_state_dict(state)
        rest = [client.get_sample(timeout=20).id]
        opened = [int(path[1:7]) for path, _ in server.seen]
        assert min(opened) >= 32 and len(set(opened)) == len(opened)
        rest += [sample.id for sample in client]
    assert part + rest == in_turn(lists, 2) and len(server.seen) == 8


def test_thousands_of_shards_are_one_range(tmp_path):
    (tmp_path / "000000.tar").write_bytes(tar([("a.png", PIXEL), ("b.png", PIXEL)]))
    top = config([str(tmp_path / "000000.tar")] * 2000)
    with DatagoClient(top) as client:
        for _ in range(3900):
            client.get_sample(timeout=20)
        source = client.state_dict()["source"]
    assert len(source["done"]) + len(source["partial"]) < 100
    assert sum(end - begin for begin, end in source["done"]) > 1800


def test_changed_shards_are_refused(tmp_path):
    lists = shards(tmp_path, [4] * 3)
    top = config(tmp_path / "*.tar")
    _, state = ids(top, most=5)
    shards(tmp_path, [4] * 4)
    with pytest.raises(SourceError, match="have changed since the state was taken .3 then, 4 now."):
        ids(top, state)
    (tmp_path / "000003.tar").rename(tmp_path / "other.tar")
    (tmp_path / "000000.tar").unlink()
    with pytest.raises(SourceError, match="have changed"):
        ids(top, state)
    shards(tmp_path, [4] * 3)
    (tmp_path / "other.tar").unlink()
    top = config(tmp_path / "*.tar", rank=0, world_size=4, shard_index=write_index(tmp_path, lists))
    _, state = ids(top, most=2)
    assert len(ids(top, state)[0]) == 1
    write_index(tmp_path, lists, s1=7)  # the samples that are this rank's are others now
    with pytest.raises(SourceError, match="have changed"):
        ids(top, state)


def test_a_shard_that_fails_at_first_and_not_later(tmp_path):
    """What is behind the break comes after the resume; what was before it does not come again, nor does the failure."""
    lists = shards(tmp_path, [60, 60])
    bodies = [(tmp_path / f"{s:06d}.tar").read_bytes() for s in range(2)]
    broken = [True]

    def said(request):
        if request.target == "/1.tar":
            return network.answer(bodies[1])
        return network.answer(bodies[0][:70000] if broken[0] else bodies[0], length=len(bodies[0]))

    with network.serve(said) as server:
        os.environ["DATAGO_MAX_RETRIES"] = "1"
        try:
            with DatagoClient(config(server.url + "/{0..1}.tar", ordered=True, concurrent_downloads=1)) as client:
                part = [client.get_sample(timeout=20).id]
                while not client.stats()["failed"]:
                    part.append(client.get_sample(timeout=20).id)
                state = client.state_dict()
            assert part[-1] == "s1_0" and len(part) > 30  # the failure came with it
            state["source"]["done"], state["source"]["partial"] = [], [[0, 0, 10], [0, 11, 20], [1, 1, 2]]  # some were still on their way
            broken[0] = False
            with DatagoClient(config(server.url + "/{0..1}.tar", ordered=True, concurrent_downloads=1)) as client:
                client.load_state_dict(state)
                rest = [sample.id for sample in client]
                assert client.stats()["failed"] == 0
        finally:
            del os.environ["DATAGO_MAX_RETRIES"]
    assert rest == [name for i, name in enumerate(lists[0], 1) if i == 10 or i >= 20] + lists[1][1:]


def test_pad_is_resumed_in_its_second_round(tmp_path):
    lists = shards(tmp_path, [2, 3, 20])
    top = config(tmp_path / "*.tar", ordered=True, uneven="pad", shard_index=write_index(tmp_path, lists), rank=1, world_size=3)
    whole, _ = ids(top)
    assert whole == (lists[1] * 7)[:20]
    for cut in range(0, 20, 3):
        part, state = ids(top, most=cut)
        assert part + ids(top, state)[0] == whole, cut


CHILD = """
import json, os, sys
from datago import DatagoClient
client, state = DatagoClient(json.loads(sys.argv[1])), json.loads(sys.argv[2])
if state:
    client.load_state_dict(state)
for sample in client:
    os.write(1, json.dumps([sample.id, client.state_dict()]).encode() + b"\\n")
os.write(1, json.dumps([None, client.state_dict()]).encode() + b"\\n")
"""


def killed_again_and_again(top, rng, kills, most):
    """The ids of an epoch whose process dies by SIGKILL `kills` times, each after at most `most` samples more or less, and its last state."""
    found, state = [], None
    environment = {**os.environ, "DATAGO_MAX_TASKS": "8"}
    while True:
        arguments = [sys.executable, "-c", CHILD, json.dumps(top), json.dumps(state)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment) as child:
            lines = [child.stdout.readline() for _ in range(rng.randrange(most) if kills else 0)]
            if kills:
                child.kill()
            lines += child.stdout.readlines()
        kills -= kills > 0
        for line in lines:
            if line.endswith(b"\n"):  # else it died while it wrote that
                name, state = json.loads(line)
                if name is None:
                    return found, state
                found.append(name)


@pytest.mark.parametrize("options", [
    {}, {"random_sampling": True}, {"seed": 1, "ordered": True}, {"rank": 1, "world_size": 13, "ordered": True}, {"shuffle_buffer": 40, "seed": 2},
])  # fmt: skip
def test_kill_at_any_moment(tmp_path, options):
    lists = shards(tmp_path, [17, 30, 0, 1, 25, 40, 9, 33, 28, 12, 21, 19], pack=gzip.compress)
    top = config(tmp_path / "*.tar", concurrent_downloads=4, **options)
    whole, end = ids(top)
    found, last = killed_again_and_again(top, random.Random(8), 7, len(whole) // 3)
    if options.get("ordered"):
        assert found == whole
    assert sorted(found) == sorted(whole) and len(set(found)) == len(found)
    assert "rank" in options or sorted(found) == sorted(flat(lists))
    assert last["source"]["done"] == end["source"]["done"] == [[0, 12]] and last["source"]["partial"] == []


def test_kill_over_a_network_with_a_cache(tmp_path, server):  # noqa: F811
    lists = shards(tmp_path, [30] * 12)
    top = config(server.url + "/{000000..000011}.tar", cache_dir=str(tmp_path / "cache"), seed=4)
    found, _ = killed_again_and_again(top, random.Random(5), 5, 100)
    assert sorted(found) == sorted(flat(lists))
