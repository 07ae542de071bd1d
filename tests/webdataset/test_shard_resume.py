"""Resume of the WebDataset source: exactly what had not been handed out, whatever happened."""

import gzip
import json
import os
import random
import subprocess
import sys
import time
import zlib

import network
import pytest
from conftest import threads_left
from tars import PIXEL, config, flat, ids, in_turn, server, shards, tar, write_index  # noqa: F401

from datago import DatagoClient, SourceError


@pytest.mark.parametrize("options", [{}, {"seed": 9}, {"seed": 9, "world_size": 9}])
def test_an_ordered_stream_goes_on_where_it_was(tmp_path, options):
    """Cut behind each of its samples: lanes of different lengths, shards that are empty, broken, and of broken samples."""
    lists = shards(tmp_path, [3, 8, 0, 1, 9, 2])
    (tmp_path / "000001.tar").write_bytes(tar([(f"{name}.png", PIXEL if i % 3 else b"no") for i, name in enumerate(lists[1])]))
    body = (tmp_path / "000004.tar").read_bytes()
    (tmp_path / "000004.tar").write_bytes(body[: body.index(b"s4_6.png") + 530])
    rank = zlib.crc32(b"000000.tar:s0_0") % options.get("world_size", 1)  # which has that sample at least
    top = config(tmp_path / "*.tar", ordered=True, concurrent_downloads=3, rank=rank, **options)
    whole, end = ids(top)
    assert len(whole) == 17 or options.get("world_size") and 0 < len(whole) < 17
    for cut in range(len(whole) + 1):
        part, state = ids(top, most=cut)
        before = json.dumps(state)
        rest, last = ids(top, state)
        assert part == whole[:cut] and rest == whole[cut:], cut
        assert json.dumps(state) == before and last["source"]["done"] == end["source"]["done"] == [[0, 6]]
    client = DatagoClient(top)
    client.load_state_dict(end)
    with client:
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


@pytest.mark.network
def test_shards_that_are_done_are_not_opened(tmp_path, server):
    lists = shards(tmp_path, [5] * 40)
    top = config(server.url + "/{000000..000039}.tar?sig=secret", auth_token="t0ken", ordered=True, concurrent_downloads=2)
    part, state = ids(top, most=163)
    text = json.dumps(state)
    assert "secret" not in text and "t0ken" not in text and server.url not in text and len(text) < 500
    assert state["source"]["done"] == [[0, 32]]
    server.seen.clear()
    client = DatagoClient(top)
    client.load_state_dict(state)
    with client:
        rest = [sample.id for sample in client]
    assert part + rest == in_turn(lists, 2) and {int(path[1:7]) for path, _ in server.seen} == set(range(32, 40))


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
    with pytest.raises(SourceError, match="have changed since the state was taken .3 shards then, 4 now."):
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


@pytest.mark.network
def test_a_shard_that_fails_at_first_and_not_later(tmp_path):
    """What is behind the break comes after the resume; what was before it does not come again, nor does the failure."""
    lists = shards(tmp_path, [60, 60])
    bodies = [(tmp_path / f"{s:06d}.tar").read_bytes() for s in range(2)]
    broken = [True]

    def said(request):
        if request.target == "/1.tar":
            return network.answer(bodies[1])
        return network.answer(bodies[0][:70000] if broken[0] else bodies[0], length=len(bodies[0]))

    with network.serve(said) as serving:
        os.environ["DATAGO_MAX_RETRIES"] = "1"
        try:
            with DatagoClient(config(serving.url + "/{0..1}.tar", ordered=True, concurrent_downloads=1)) as client:
                part = [client.get_sample(timeout=20).id]
                while not client.stats()["failed"]:
                    part.append(client.get_sample(timeout=20).id)
                state = client.state_dict()
            assert part[-1] == "s1_0" and len(part) > 30  # the failure came with it
            state["source"]["done"], state["source"]["partial"] = [], [[0, 0, 10], [0, 11, 20], [1, 1, 2]]  # some were still on their way
            broken[0] = False
            client = DatagoClient(config(serving.url + "/{0..1}.tar", ordered=True, concurrent_downloads=1))
            client.load_state_dict(state)
            with client:
                rest = [sample.id for sample in client]
                assert client.stats()["failed"] == 0
        finally:
            del os.environ["DATAGO_MAX_RETRIES"]
    assert rest == [name for i, name in enumerate(lists[0], 1) if i == 10 or i >= 20] + lists[1][1:]


@pytest.mark.network
def test_stop_while_the_lane_whose_turn_it_is_stalls(tmp_path):
    shards(tmp_path, [300, 3, 300, 300])
    bodies = [(tmp_path / f"{s:06d}.tar").read_bytes() for s in range(4)]

    def said(request):
        s = int(request.target[1])
        whole = network.answer(bodies[s])
        return network.then_silence(whole[:9000])(request) if s == 1 else whole

    with network.serve(said) as serving:
        client = DatagoClient(config(serving.url + "/{0..3}.tar", ordered=True, concurrent_downloads=4, timeout=30))
        assert client.get_sample(timeout=20) is not None
        with pytest.raises(TimeoutError):
            while True:
                client.get_sample(timeout=1)
        begin = time.monotonic()
        client.stop()
        assert time.monotonic() - begin < 15 and not threads_left()
    assert client.stats()["in_flight"] == 0


def test_pad_is_resumed_in_its_second_round(tmp_path):
    lists = shards(tmp_path, [2, 3, 20, 4, 1, 30])
    index = write_index(tmp_path, lists)
    top = config(tmp_path / "*.tar", ordered=True, uneven="pad", shard_index=index, rank=0, world_size=2)  # 23 samples for 37
    whole, _ = ids(top)
    assert whole == (in_turn(lists[::2], 2) * 2)[:37]
    for cut in (*range(0, 37, 3), 37):
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
    """The ids of an epoch whose process dies by SIGKILL `kills` times, after fewer than about `most` samples, and its last state."""
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


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    {}, {"random_sampling": True}, {"seed": 1, "ordered": True}, {"rank": 1, "world_size": 13, "ordered": True},
    {"shuffle_buffer": 40, "seed": 2},
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


@pytest.mark.slow
@pytest.mark.network
def test_kill_over_a_network_with_a_cache(tmp_path, server):
    lists = shards(tmp_path, [30] * 12)
    top = config(server.url + "/{000000..000011}.tar", cache_dir=str(tmp_path / "cache"), seed=4)
    found, _ = killed_again_and_again(top, random.Random(5), 5, 100)
    assert sorted(found) == sorted(flat(lists))
