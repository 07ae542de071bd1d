"""The WebDataset source end to end: shards on disk and over a real HTTP server, into samples."""

import io
import json
import os
import threading

import network
import numpy
import pytest
from conftest import TINY, jpeg, photo, saved, threads_left
from PIL import Image
from tars import config, read, server, standard, tar  # noqa: F401

from datago import DatagoBatchDataset, DatagoClient, SourceError


def shards(folder, count=4, per_shard=6):
    """Shards whose samples are named s<shard>_<sample>, each of a colour of its own."""
    for s in range(count):
        members = []
        for i in range(per_shard):
            colour = numpy.full((8, 8, 3), (s * 40, i * 40, 99), numpy.uint8)
            members += [(f"s{s}_{i}.png", saved(colour)), (f"s{s}_{i}.json", json.dumps({"s": s, "i": i}).encode())]
        (folder / f"{s:06d}.tar").write_bytes(tar(members))
    return {f"s{s}_{i}" for s in range(count) for i in range(per_shard)}


def test_a_glob_of_shards(tmp_path):
    wanted = shards(tmp_path)
    samples, stats = read(config(tmp_path / "*.tar"))
    assert {sample.id for sample in samples} == wanted and stats["delivered"] == 24 and stats["failed"] == 0
    for sample in samples:
        meant = json.loads(json.loads(sample.attributes)["json"])
        assert sample.id == f"s{meant['s']}_{meant['i']}" and sample.source == str(tmp_path / f"{meant['s']:06d}.tar")
        assert sample.image.to_numpy_array()[3, 3].tolist() == [meant["s"] * 40, meant["i"] * 40, 99]


def test_braces_lists_and_one_path(tmp_path):
    wanted = shards(tmp_path, 3)
    for url in (
        f"{tmp_path}/{{000000..000002}}.tar",
        [str(tmp_path / f"{s:06d}.tar") for s in range(3)],
        f"file://{tmp_path}/{{000000..000002}}.tar",
    ):
        assert {sample.id for sample in read(config(url))[0]} == wanted
    assert len(read(config(tmp_path / "000001.tar"))[0]) == 6


def test_the_dict(tmp_path):
    shards(tmp_path, 1)
    client = DatagoClient(config(tmp_path / "000000.tar", ordered=True))
    sample = client.get_sample_auto_convert(timeout=20)
    assert sample["id"] == "s0_0" and sample["image"].mode == "RGB"
    assert sample["attributes"] == {"json": {"s": 0, "i": 0}}  # and in Sample.attributes the text that was stored


def test_json_members_are_values_in_dicts_and_batches(tmp_path):
    stored = {"json": "[1, null]", "meta.json": '{"n": 0.5}', "bad.json": "{", "deep.json": "[" * 100_000, "txt": '{"a": 1}', "cls": "7"}
    members = [("a.jpg", jpeg(32, 32)), *((f"a.{name}", text.encode()) for name, text in stored.items())]
    (tmp_path / "a.tar").write_bytes(tar(members))
    values = {**stored, "json": [1, None], "meta.json": {"n": 0.5}}
    given = config(tmp_path / "a.tar")
    assert [json.loads(sample.attributes) for sample in read(given)[0]] == [stored]
    assert DatagoClient(given).get_sample_auto_convert(timeout=20)["attributes"] == values
    batches = DatagoBatchDataset({**given, "image_config": {"random_resized_crop": 8}}, 1)
    assert [batch["attributes"] for batch in batches] == [[values]]


@pytest.mark.parametrize("world", [2, 3, 4])
def test_shards_are_split_over_ranks(tmp_path, world):
    wanted = shards(tmp_path)
    parts = [read(config(tmp_path / "*.tar", rank=rank, world_size=world))[0] for rank in range(world)]
    assert sorted(sample.id for part in parts for sample in part) == sorted(wanted)
    assert all(len({sample.source for sample in part}) in (4 // world, 4 // world + 1) for part in parts)


@pytest.mark.parametrize("world", [3, 8])
def test_fewer_shards_than_ranks_split_samples(tmp_path, world, caplog):
    wanted = shards(tmp_path, 2, per_shard=40)
    parts = [read(config(tmp_path / "*.tar", rank=rank, world_size=world))[0] for rank in range(world)]
    assert sorted(sample.id for part in parts for sample in part) == sorted(wanted)
    assert all(part for part in parts) and f"2 shards for {world} ranks" in caplog.text


def test_shuffle(tmp_path):
    wanted = shards(tmp_path, 8)
    for options in ({"random_sampling": True}, {"shuffle": True}, {"shuffle_buffer": 10}):
        runs = [[sample.id for sample in read(config(tmp_path / "*.tar", concurrent_downloads=1, **options))[0]] for _ in range(3)]
        assert all(sorted(run) == sorted(wanted) for run in runs)
        assert len(set(map(tuple, runs))) > 1
    plain = [sample.id for sample in read(config(tmp_path / "*.tar", concurrent_downloads=1))[0]]
    assert sorted(plain) == sorted(wanted)


def test_equal_keys_in_different_shards(tmp_path):
    for name, level in (("a", 0), ("b", 200)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part.tar").write_bytes(
            tar([("000000.png", saved(numpy.full((4, 4), level, numpy.uint8))), ("000000.txt", name.encode())])
        )
    samples, stats = read(config([f"{tmp_path}/a/part.tar", f"{tmp_path}/b/part.tar"]))
    assert {(json.loads(s.attributes)["txt"], int(s.image.to_numpy_array()[0, 0, 0]), s.source[-10:]) for s in samples} == {
        ("a", 0, "a/part.tar"),
        ("b", 200, "b/part.tar"),
    }
    assert stats["failed"] == 0


def test_masks_and_further_images_take_the_bucket_of_the_image(tmp_path):
    labels = numpy.zeros((100, 200), numpy.uint8)
    labels[:, 93:] = 7
    members = [("a.jpg", jpeg(200, 100)), ("a.left.jpg", jpeg(50, 300)), ("a.seg.png", saved(labels)), ("a.npy", b"raw")]
    (tmp_path / "s.tar").write_bytes(tar(members))
    (sample,), _ = read(config(tmp_path / "s.tar", image_config={**TINY, "mask_resample": "nearest", "image_to_rgb8": True}))
    size = sample.image.size
    assert size[0] > size[1] and sample.additional_images["a.left.jpg"].size == size
    mask = sample.masks["seg"].to_numpy_array()
    assert mask.shape == (size[1], size[0], 1) and set(numpy.unique(mask)) == {0, 7}
    assert sample.latents["npy"].data == b"raw" and sample.latents["npy"].len == 3
    (soft,), _ = read(config(tmp_path / "s.tar", image_config=TINY))
    assert len(numpy.unique(soft.masks["seg"].to_numpy_array())) > 2
    (encoded,), _ = read(config(tmp_path / "s.tar", image_config={**TINY, "pre_encode_images": True, "encode_format": "jpeg"}))
    assert encoded.image.to_pil_image().format == "JPEG" and encoded.masks["seg"].to_pil_image().format == "PNG"


def test_one_bad_picture_is_one_failure(tmp_path):
    members = standard(4)
    members[4] = ("0002.jpg", b"")
    (tmp_path / "s.tar").write_bytes(tar(members))
    samples, stats = read(config(tmp_path / "s.tar"))
    assert [s.id for s in samples] and len(samples) == 3 and stats["failures"] == {"empty": 1}
    assert stats["last_failures"][0]["name"] == f"{tmp_path}/s.tar:0002"


def test_a_bad_shard_is_one_failure_and_the_others_go_on(tmp_path):
    wanted = shards(tmp_path, 3)
    whole = (tmp_path / "000001.tar").read_bytes()
    (tmp_path / "000001.tar").write_bytes(whole[: len(whole.rstrip(b"\0")) // 2])
    (tmp_path / "html.tar").write_bytes(b"<html>" + bytes(600))
    samples, stats = read(config(tmp_path / "*.tar"))
    ids = {sample.id for sample in samples}
    assert ids < wanted and len(ids) >= 14 and len(samples) == len(ids)
    assert stats["failures"] == {"shard": 2}
    with pytest.raises(SourceError, match="shard.*html"):
        read(config(tmp_path / "html.tar"))
    (tmp_path / "zeros.tar").write_bytes(bytes(10240))
    with pytest.raises(SourceError, match="no samples in 1 shards"):
        read(config(tmp_path / "zeros.tar"))


def test_no_shards(tmp_path):
    with pytest.raises(SourceError, match="none"):
        read(config(tmp_path / "none*.tar"))
    client = DatagoClient(config(tmp_path / "missing.tar"))
    with pytest.raises(SourceError, match="missing.tar"):
        client.get_sample(timeout=20)


def test_limit_and_stop(tmp_path):
    shards(tmp_path, 4, 30)
    samples, stats = read(config(tmp_path / "*.tar", limit=17))
    assert len(samples) == 17 == stats["delivered"]
    with DatagoClient(config(tmp_path / "*.tar", samples_buffer_size=2)) as client:
        client.get_sample(timeout=20)
    assert not threads_left()
    assert client.stats()["in_flight"] == 0


# ---- over HTTP ----


@pytest.mark.network
def test_shards_over_http(tmp_path, server):
    wanted = shards(tmp_path)
    samples, stats = read(config(server.url + "/{000000..000003}.tar?sig=secret", auth_token="t0ken", concurrent_downloads=3))
    assert {sample.id for sample in samples} == wanted and len(samples) == 24
    assert sorted(server.seen) == [(f"/{s:06d}.tar?sig=secret", "Bearer t0ken") for s in range(4)]
    assert all("secret" not in sample.source for sample in samples)


@pytest.mark.network
def test_a_missing_shard_is_named_without_its_query(tmp_path, server):
    wanted = shards(tmp_path, 3)
    samples, stats = read(config(server.url + "/{000000..000003}.tar?sig=secret"))
    assert {sample.id for sample in samples} == wanted and stats["failures"] == {"shard": 1}
    (failure,) = stats["last_failures"]
    assert "000003.tar" in failure["name"] and "404" in failure["text"] and "secret" not in json.dumps(failure)


@pytest.mark.network
def test_cached_shards_are_fetched_once(tmp_path, server):
    wanted = shards(tmp_path, 2)
    top = config(server.url + "/{000000..000001}.tar", cache_dir=str(tmp_path / "cache"))
    for _ in range(3):
        assert {sample.id for sample in read(top)[0]} == wanted
    assert len(server.seen) == 2 and os.listdir(tmp_path / "cache")


def test_pictures_survive_the_way(tmp_path):
    """The same pixels as from files, through blocks that cut members anywhere."""
    pictures = {f"{i:03d}": saved(photo(60 + i, 50, seed=i)) for i in range(40)}
    (tmp_path / "s.tar").write_bytes(tar([(f"{key}.png", data) for key, data in pictures.items()]))
    samples, _ = read(config(tmp_path / "s.tar"))
    assert len(samples) == 40
    for sample in samples:
        assert numpy.array_equal(sample.image.to_numpy_array(), numpy.asarray(Image.open(io.BytesIO(pictures[sample.id]))))


# ---- a network that stalls, resets and throttles: every sample once ----


def reset(request, data):
    """Sends `data`, then resets the connection."""
    import socket
    import struct

    request.sock.sendall(data)
    request.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    request.sock.close()


@pytest.mark.network
def test_each_sample_once_whatever_the_network_does(tmp_path):
    wanted = shards(tmp_path, 6, 30)
    bodies = {f"/{s:06d}.tar": (tmp_path / f"{s:06d}.tar").read_bytes() for s in range(6)}
    tries = {}

    def said(request):
        body = bodies[request.target]
        number = tries[request.target] = tries.get(request.target, 0) + 1
        whole = network.from_range(request, body, network.ETAG)
        shard = int(request.target[1:7])
        if number < 3 and shard == 0:
            return whole[: len(whole) // 3]  # short of its length
        if number < 4 and shard == 1:
            return reset(request, whole[: len(whole) // 2])
        if number < 3 and shard == 2:
            return network.answer(b"busy", "Retry-After: 0", status="503 Service Unavailable")
        if number == 1 and shard == 3:  # no length, cut where a member ends: only the archive's own end can tell
            return network.answer(body[: 10 * 1024], network.ETAG, length=False)
        if number == 1 and shard == 4:
            return network.then_silence(whole[: len(whole) * 2 // 3])(request)
        return whole

    with network.serve(said) as server:
        samples, stats = read(config(server.url + "/{000000..000005}.tar", timeout=1, concurrent_downloads=3))
    assert sorted(sample.id for sample in samples) == sorted(wanted)
    assert stats["failed"] == 0 and server.most <= 3
    assert all(tries[f"/{s:06d}.tar"] > 1 for s in range(5))


@pytest.mark.network
def test_the_connection_limit_is_kept(tmp_path):
    wanted = shards(tmp_path, 20, 3)

    def said(request):
        threading.Event().wait(0.05)
        return network.answer((tmp_path / request.target[1:]).read_bytes())

    with network.serve(said) as server:
        samples, _ = read(config(server.url + "/{000000..000019}.tar", concurrent_downloads=3))
    assert {sample.id for sample in samples} == wanted and 2 <= server.most <= 3


@pytest.mark.network
def test_stop_during_a_stall(tmp_path):
    import time

    shards(tmp_path, 1)
    body = (tmp_path / "000000.tar").read_bytes()
    with network.serve([network.then_silence(network.answer(body[:9000], length=len(body)))]) as server:
        client = DatagoClient(config(server.url + "/a.tar", timeout=30))
        assert client.get_sample(timeout=20) is not None  # it leaves while its shard still arrives
        begin = time.monotonic()
        client.stop()
        assert time.monotonic() - begin < 15 and not threads_left()
    assert client.stats()["in_flight"] == 0


@pytest.mark.network
def test_html_with_status_200_and_an_archive_that_never_ends(tmp_path):
    body = tar(standard())
    cut = body[: body.index(b"0003.jpg") + 512 + 300]
    answers = {"/a.tar": network.answer(b"<html>sign in</html>"), "/b.tar": network.answer(cut), "/c.tar": network.answer(body)}
    with network.serve(lambda request: answers[request.target]) as server:
        samples, stats = read(config([f"{server.url}/{name}.tar" for name in "abc"]))
    assert len(samples) == 3 + 6 and stats["failures"] == {"shard": 2}
    texts = {failure["name"][-5]: failure["text"] for failure in stats["last_failures"]}
    assert "html" in texts["a"] and "truncated" in texts["b"]
