"""The database source against our own server: what is delivered, to whom, and what if the server goes away."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time

import pytest
from conftest import check_accounts, jpeg, opened, read

serving = pytest.importorskip("serving", reason="needs the packages of datago[serve]")
from serving import COUNT, TOKEN, make_album, numbers, serve  # noqa: E402

from datago import DatagoClient, SourceError  # noqa: E402

pytestmark = [pytest.mark.network, pytest.mark.timeout(40)]


def config(server, **keys):
    """A db config; keys of the top level are told by their names."""
    top = {key: keys.pop(key) for key in ("limit", "image_config", "samples_buffer_size", "max_file_bytes") if key in keys}
    source = {
        "sources": "",
        "page_size": 16,
        "require_images": True,
        "api_url": server.api_url,
        "api_key": f" {TOKEN}\n",
        **keys,
    }
    return {"source_config": source, **top}


def ids(samples):
    return [sample.id for sample in samples]


@pytest.fixture(scope="module")
def album(tmp_path_factory):
    return make_album(tmp_path_factory.mktemp("album"))


@pytest.fixture(scope="module")
def server(album):
    with serve(album) as running:
        yield running


# ---- what comes ----


@pytest.mark.parametrize("page_size", [1, 7, 16, 60, 1000])
def test_every_image_once(server, page_size):
    samples, stats = read(config(server, page_size=page_size))
    assert sorted(ids(samples)) == numbers() and stats["seen"] == COUNT and not stats["skips"]


def test_what_a_sample_has(server, album):
    samples, _ = read(config(server, require_embeddings=True, return_latents="person_mask,masked_image,dino"))
    samples = {sample.id: sample for sample in samples}
    for i, name in enumerate(numbers()):
        sample = samples[name]
        attributes = json.loads(sample.attributes)
        assert attributes["number"] == i and attributes["caption"] == f"caption {i}" and attributes["title"] == f"A red Cat, {i % 7}"
        assert sample.source == ("B" if i >= 40 else "local") and ("hq" in sample.tags) == (i % 3 == 0)
        assert sample.image.size == (32 + 16 * (i % 3), 24) and sample.image.channels == 3
        assert list(sample.masks) == (["person_mask"] if i % 2 == 0 else [])
        assert list(sample.additional_images) == (["masked_image"] if i % 10 == 0 else [])
        assert {key: latent.data for key, latent in sample.latents.items()} == ({"dino": b"latent %d" % i} if i % 5 == 0 else {})
        assert sample.coca_embedding == ([0.5] * 4 if i < 4 else [])
        assert sample.duplicate_state == (i % 6 if i % 6 in (1, 2) else -1)
        assert all(mask.channels == 1 for mask in sample.masks.values())


def test_all_images_of_a_sample_have_one_size_and_masks_are_png(server):
    shape = {
        "crop_and_resize": True,
        "default_image_size": 64,
        "downsampling_ratio": 16,
        "min_aspect_ratio": 0.5,
        "max_aspect_ratio": 2.0,
    }
    encoded = {"pre_encode_images": True, "encode_format": "jpeg", "image_to_rgb8": True}
    keys = {"has_masks": "person_mask", "has_latents": "masked_image"}
    samples, _ = read(config(server, image_config={**shape, **encoded}, **keys))
    assert sorted(ids(samples)) == numbers(lambda i: i % 10 == 0)
    for sample in samples:
        mask, more = sample.masks["person_mask"], sample.additional_images["masked_image"]
        assert mask.size == more.size == sample.image.size
        assert (sample.image().format, more().format, mask().format, mask().mode) == ("JPEG", "JPEG", "PNG", "L")


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({"sources": "B"}, lambda i: i >= 40), ({"sources_ne": "B"}, lambda i: i < 40),
        ({"tags": "hq,cat"}, lambda i: i % 3 == 0 or i % 4 == 0),
        ({"tags_all": "hq,cat"}, lambda i: i % 12 == 0), ({"tags_ne": "hq"}, lambda i: i % 3),
        ({"tags_ne_all": "hq,cat"}, lambda i: i % 12),
        ({"tags_empty": "true"}, lambda i: i % 3 and i % 4), ({"tags_empty": False}, lambda i: not (i % 3 and i % 4)),
        ({"has_masks": "person_mask"}, lambda i: i % 2 == 0), ({"lacks_masks": "person_mask"}, lambda i: i % 2),
        ({"has_latents": "dino"}, lambda i: i % 5 == 0), ({"lacks_latents": "dino"}, lambda i: i % 5),
        ({"min_short_edge": 25}, lambda i: False), ({"max_pixel_count": 32 * 24}, lambda i: i % 3 == 0),
        ({"attributes": "number__gte:50"}, lambda i: i >= 50), ({"has_attributes": "number"}, lambda i: True),
        ({"duplicate_state": 1}, lambda i: i % 6 == 1), ({"duplicate_state": 2}, lambda i: i % 6 == 2),
        ({"duplicate_state": "none"}, lambda i: i % 6 not in (1, 2)), ({"duplicate_state": -1}, lambda i: True),
    ],
)  # fmt: skip
def test_filters(server, keys, wanted):
    samples, stats = read(config(server, **keys))
    assert sorted(ids(samples)) == numbers(wanted) and stats["failed"] == 0


def test_samples_without_images(server):
    samples, _ = read(config(server, require_images=False))
    assert sorted(ids(samples)) == numbers()
    assert not any(sample.image or sample.masks or sample.latents for sample in samples)
    masked, _ = read(config(server, require_images=False, has_masks="person_mask"))
    assert len(masked) == 30 and all(not sample.image and sample.masks["person_mask"] for sample in masked)


def test_a_walk_from_an_id(server):
    state = DatagoClient(config(server)).state_dict()
    state["source"] = {"last": "im-044", "after": "im-039", "missing": ["im-040", "im-043"]}
    source = opened(config(server), state)
    entries = [entry.id for batch in source.batches() for entry in batch]
    assert sorted(entries) == numbers(lambda i: i in (40, 43) or i > 44)


# ---- how many, and whose ----


@pytest.mark.parametrize("limit", [1, 10, 33, 59])
def test_the_limit_is_exact(server, limit):
    samples, stats = read(config(server, limit=limit, samples_buffer_size=4))
    assert len(set(ids(samples))) == limit == stats["delivered"]


def test_the_limit_is_exact_with_failures_on_the_way(album, tmp_path):
    shutil.copytree(album, tmp_path / "album")
    bad = numbers(lambda i: i % 3 == 1)
    for name in bad[:10]:
        (tmp_path / "album" / f"{name}.jpg").write_bytes(b"\xff\xd8\xff" + os.urandom(200))
    with serve(tmp_path / "album") as running:
        for name in bad[10:]:
            (tmp_path / "album" / f"{name}.jpg").unlink()  # after it was indexed
        for limit in (20, 40):
            samples, stats = read(config(running, limit=limit))
            assert len(samples) == limit == len(set(ids(samples)) - set(bad))
        samples, stats = read(config(running))
    assert len(samples) == 40 and stats["failed"] == 20 and stats["failures"].pop("not_found") == 10
    assert sum(stats["failures"].values()) == 10 and not {"remote", "record"} & set(stats["failures"])
    assert all(failure["name"].startswith(("local:im-", "B:im-")) for failure in stats["last_failures"])


@pytest.mark.parametrize("world_size", [2, 3, 48])
def test_ranks_read_disjoint_partitions(server, world_size):
    ranks = range(world_size) if world_size < 48 else (0, 1, 47)
    parts = [ids(read(config(server, rank=rank, world_size=world_size))[0]) for rank in ranks]
    found = [name for part in parts for name in part]
    assert len(found) == len(set(found)) and (world_size == 48 or sorted(found) == numbers())


def test_more_ranks_than_partitions(server):
    with pytest.raises(SourceError, match="world_size 49: .*between 2 and 48"):
        read(config(server, rank=0, world_size=49))


def test_random_sampling(server):
    samples, _ = read(config(server, random_sampling=True, page_size=100))
    assert sorted(ids(samples)) == numbers()
    samples, _ = read(config(server, random_sampling=True, page_size=16))  # each draw may miss some
    assert 50 <= len(set(ids(samples))) == len(samples)
    samples, stats = read(config(server, random_sampling=True, page_size=5, limit=10))
    assert len(set(ids(samples))) == 10
    parts = [ids(read(config(server, random_sampling=True, page_size=100, rank=rank, world_size=3))[0]) for rank in range(3)]
    assert sorted(name for part in parts for name in part) == numbers()


def test_random_sampling_of_few_where_the_server_has_many_in_mind(album):
    with serve(album, "--prefix-length", "5") as running:
        samples, _ = read(config(running, random_sampling=True, page_size=100))
    assert sorted(ids(samples)) == numbers()


# ---- settings ----


def test_settings_are_checked():
    good = {"sources": "", "page_size": 10}
    for key, value in [
        ("page_size", "10"), ("page_size", 0), ("sources", None), ("require_images", 1), ("tags_empty", "yes"),
        ("duplicate_state", 3),
        ("duplicate_state", "None"), ("min_short_edge", -1), ("max_connections", 0), ("read_timeout", 0),
        ("tags", ["a"]), ("rank", 1),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=f"source_config.{key}: "):
            DatagoClient({"source_config": {**good, key: value}})
    for key in good:
        with pytest.raises(ValueError, match=f"source_config.{key}: missing"):
            DatagoClient({"source_config": {other: good[other] for other in good if other != key}})
    with pytest.raises(ValueError) as caught:
        DatagoClient({"source_config": {**good, "api_key": 1234567}})
    assert "source_config.api_key" in str(caught.value) and "1234567" not in str(caught.value)
    with pytest.warns(UserWarning, match="did you mean 'tags'"):
        DatagoClient({"source_config": {**good, "tag": "x"}})


def test_environment(server, monkeypatch):
    bare = {"sources": "", "page_size": 60, "require_images": True}
    for missing in ("API_URL", "API_KEY"):
        monkeypatch.setenv("DATAROOM_API_URL", server.api_url)
        monkeypatch.setenv("DATAROOM_API_KEY", TOKEN)
        monkeypatch.delenv(f"DATAROOM_{missing}")
        with pytest.raises(SourceError, match=f"missing: set source_config.{missing.lower()} or DATAROOM_{missing}"):
            DatagoClient({"source_config": bare}).start()
    monkeypatch.setenv("DATAROOM_API_URL", server.api_url.rstrip("/"))
    monkeypatch.setenv("DATAROOM_API_KEY", f"\n{TOKEN} ")
    assert len(read({"source_config": bare})[0]) == COUNT
    for key, wrong in (
        ("api_url", "ftp://x/"),
        ("api_url", "http://"),
        ("api_key", "two words"),
        ("api_key", "a\nb"),
        ("api_key", "é"),
    ):
        with pytest.raises(SourceError, match=key) as caught:
            DatagoClient({"source_config": {**bare, key: wrong}}).start()
        assert key != "api_key" or f" {wrong}" not in str(caught.value)


def test_import_loads_no_network_library():
    script = (
        "import datago, sys; maps = open('/proc/self/maps').read() if sys.platform == 'linux' else ''\n"
        "print('requests' in sys.modules, 'libcurl' in maps)"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "False False\n"


# ---- servers that fail ----


def test_an_expired_url_is_a_failure_that_says_so(album):
    with serve(album, "--url-ttl", "-10") as running, DatagoClient(config(running)) as client:
        with pytest.raises(SourceError, match="51 of 51 items failed .* has expired: http.*\\?…"):
            client.get_sample()
        assert client.stats()["failures"] == {"remote": 51} and "Signature" not in str(client.stats())


def test_a_wrong_token(server):
    with pytest.raises(SourceError, match="page 1: HTTP 403: .*Invalid token.*from http.*images/") as caught:
        read(config(server, api_key="f" * 40))
    assert "f" * 40 not in str(caught.value) and isinstance(caught.value, OSError)


def test_a_filter_that_the_server_refuses(server):
    with pytest.raises(SourceError, match="page 1: HTTP 400: .*do not exist.*nope") as caught:
        read(config(server, tags="nope"))
    assert isinstance(caught.value, ValueError)
    samples, stats = read(config(server, sources="nobody"))
    assert samples == [] and stats["seen"] == 0


def test_large_files_are_failures(album, tmp_path):
    shutil.copytree(album, tmp_path / "album")
    (tmp_path / "album" / "im-003.jpg").write_bytes(jpeg(800, 800))
    with serve(tmp_path / "album") as running:
        samples, stats = read(config(running, max_file_bytes=20_000))
    assert len(samples) == 59 and stats["failures"] == {"too_large": 1}


def start_server(album, ports):
    """The server on fixed ports, ready."""
    command = [
        sys.executable,
        "-m",
        "datago",
        "serve",
        str(album),
        "--port",
        str(ports[0]),
        "--media-port",
        str(ports[1]),
    ]
    command += ["--latency", "0.02", "--token", TOKEN]
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "HOME": "/dev/null", "XDG_CACHE_HOME": "", "PYTHONPATH": root},
    )  # fmt: skip
    assert process.stdout.readline()
    return process


@pytest.mark.parametrize("away", [0.4, None])
def test_a_server_that_is_killed(album, monkeypatch, away):
    """Back after `away` seconds the run goes on, else it ends with an error. Nothing comes twice, none is lost."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        ports = one.getsockname()[1], two.getsockname()[1]
    monkeypatch.setenv("DATAGO_MAX_RETRIES", "7" if away else "2")
    server, back = start_server(album, ports), []
    keys = {"page_size": 6, "max_connections": 2, "api_url": f"http://127.0.0.1:{ports[0]}/api/"}
    source = {"sources": "", "require_images": True, "api_key": TOKEN, **keys}
    client, samples, error = DatagoClient({"source_config": source, "samples_buffer_size": 1}), [], None
    try:
        while (sample := client.get_sample(timeout=30)) is not None:
            samples.append(sample.id)
            if len(samples) == 8:
                server.kill()
                server.communicate()
                if away:
                    threading.Timer(away, lambda: back.append(start_server(album, ports))).start()
    except SourceError as problem:
        error = problem
    finally:
        stats = client.stats()
        client.stop()
        server.kill()
        time.sleep(0.1)
        for process in back:
            process.kill()
            process.communicate()
    check_accounts(stats)
    assert len(samples) == len(set(samples)) == stats["delivered"] and stats["in_flight"] == 0
    if away:
        assert error is None and stats["seen"] == COUNT and len(samples) + stats["failed"] == COUNT
        assert len(samples) > 50
    else:
        assert "page" in str(error) and str(ports[0]) in str(error) and set(stats["failures"]) <= {"remote"}


def test_stop_while_everything_waits(album):
    with serve(album, "--latency", "5") as running:
        client = DatagoClient(config(running))
        client.start()
        time.sleep(0.3)
        start = time.monotonic()
        client.stop()
        assert time.monotonic() - start < 4 and client.get_sample() is None


@pytest.mark.parametrize("end", ["", "sys.exit()", "raise KeyError('mine')"])
def test_leaving_in_mid_run(server, end):
    script = f"import sys, datago; c = datago.DatagoClient({config(server)!r}); [c.get_sample() for _ in range(3)]; {end}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=50)
    assert done.returncode == ("mine" in end) and ("KeyError" in done.stderr or done.stderr == "")
