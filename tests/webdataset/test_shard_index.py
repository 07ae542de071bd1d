"""The shard index, and equal counts by it."""

import json
import time

import pytest
from conftest import opened
from tars import PIXEL, config, flat, ids, read, server, shards, tar, write_index  # noqa: F401

from datago import DatagoClient, SourceError


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


@pytest.mark.network
@pytest.mark.parametrize("uneven, rank", [("drop", 0), ("pad", 1)])
def test_no_shard_is_opened_again_where_nothing_fails(tmp_path, server, uneven, rank):
    lists = shards(tmp_path, [5, 6, 5, 6])
    index = write_index(tmp_path, lists)
    top = config(server.url + "/{000000..000003}.tar", uneven=uneven, shard_index=index, rank=rank, world_size=2)
    with DatagoClient(top) as client:
        for _ in range(10 if uneven == "drop" else 12):
            client.get_sample(timeout=20)
        time.sleep(0.2)  # in which they could be
        assert client.get_sample(timeout=20) is None
    assert sorted(path for path, _ in server.seen) == [f"/{s:06d}.tar" for s in range(rank, 4, 2)]


def test_an_index_that_is_wrong(tmp_path):
    lists = shards(tmp_path, [6, 9])
    index = write_index(tmp_path, lists, s0=9)
    top = config(tmp_path / "*.tar", uneven="drop", shard_index=index, world_size=2)
    found, _ = ids(top)
    assert len(found) == 9 and set(found) == set(lists[0])
    write_index(tmp_path, lists, s0=40, s1=50)
    with pytest.raises(SourceError, match="uneven 'drop' promises 40 samples on every rank, but only 12 were"):
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
    with pytest.raises(SourceError, match="a/000000.tar is ambiguous: x/000000.tar, y/000000.tar"):
        opened(config(url, shard_index=str(path)))


@pytest.mark.parametrize("text, wanted", [
    ("{", "not JSON"), ("[" * 99999, "not JSON"), ("[1]", "wanted"), ('{"shardlist": {}}', "wanted"), ('{"shardlist": [3]}', "wanted"),
    ('{"shardlist": [{"nsamples": 1}]}', "wanted"), ("{}", "000000.tar is missing from the index"), ('{"0000000.tar": 2}', "missing"),
    ('{"shardlist": [{"url": "000000.tar"}]}', "got None, wanted a number of samples"), ('{"000000.tar": -1}', "got -1"),
    ('{"000000.tar": "2"}', "got '2'"), ('{"000000.tar": 2.0}', "got 2.0"), ('{"000000.tar": true}', "got True"), ('\udcff{}', "not JSON"),
])  # fmt: skip
def test_what_is_no_index(tmp_path, text, wanted):
    shards(tmp_path, [2])
    (tmp_path / "index.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SourceError, match="shard_index .*index.json.*" + wanted):
        opened(config(tmp_path / "*.tar", shard_index=str(tmp_path / "index.json")))


@pytest.mark.network
def test_an_index_over_http(tmp_path, server):
    write_index(tmp_path, shards(tmp_path, [2, 5]))
    index = server.url + "/index.json?sig=secret"
    source = opened(config(server.url + "/{000000..000001}.tar?sig=secret", shard_index=index, auth_token="t0ken"))
    assert source.count() == 7 and server.seen == [("/index.json?sig=secret", "Bearer t0ken")]
    source.stop()
    other = opened(config(tmp_path / "*.tar", shard_index=index, auth_token="t0ken"))
    assert other.count() == 7
    other.stop()
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
