"""memory_limit: what is in flight stays below it, nothing hangs because of it, and what never fits is a named failure."""

import importlib
import json
import os
import subprocess
import sys
import time

import numpy
import pytest
from conftest import config, jpeg, photo, png, read, saved, threads_left
from database import until
from tars import tar

from datago import DatagoBatchDataset, DatagoClient, SampleError, aspect_buckets

MB = 1 << 20
BIG = saved(numpy.full((1500, 2000, 3), 90, numpy.uint8))  # 9 MB of pixels; some 48 MB are reserved for it


def fill(folder, count=24):
    for i in range(count):
        (folder / f"{i:02d}.png").write_bytes(BIG)
    return config(folder)


def shard(folder, count=24):
    (folder / "s.tar").write_bytes(tar([(f"{i:02d}.png", BIG) for i in range(count)]))
    return {"source_type": "webdataset", "source_config": {"url": str(folder / "s.tar")}}


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("source", [fill, shard])
def test_a_reader_that_does_not_read(tmp_path, monkeypatch, source, ordered):
    """Eight workers and room for 24 samples: without the limit all of them would wait decoded."""
    monkeypatch.setenv("DATAGO_MAX_TASKS", "8")
    with DatagoClient({**source(tmp_path), "memory_limit": 100 * MB, "ordered": ordered}) as client:
        until(lambda: client.stats()["memory"]["in_flight"] > 50 * MB)
        time.sleep(0.2)  # in which there could be more; it may be less for a moment, as the room for a picture is reserved by its header
        until(lambda: client.stats()["memory"]["in_flight"] > 50 * MB)
        memory = client.stats()["memory"]
        assert memory["limit"] == 100 * MB and memory["in_flight"] <= 100 * MB
        ids = []
        while (sample := client.get_sample(timeout=20)) is not None:
            assert sample.image.to_numpy_array()[-1, -1].tolist() == [90, 90, 90]
            ids.append(sample.id)
        memory = client.stats()["memory"]
    assert len(ids) == 24 and (not ordered or ids == sorted(ids))
    # In order, the picture whose turn it is need not wait.
    assert memory["in_flight"] == 0 and memory["peak"] <= (150 if ordered else 100) * MB


RSS = """
import json, os, sys, time
from datago import DatagoClient
def rss():
    return int(open('/proc/self/statm').read().split()[1]) * 4096
most = before = rss()
client = DatagoClient(json.loads(sys.argv[1]))
client.start()
for _ in range(50):
    time.sleep(0.02)
    most = max(most, rss())
while client.get_sample(timeout=20) is not None:
    most = max(most, rss())
print(most - before)
"""


@pytest.mark.slow
def test_the_process_stays_small(tmp_path):
    def grown(**keys):
        command = [sys.executable, "-c", RSS, json.dumps({**fill(tmp_path), **keys})]
        done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True, env={"DATAGO_MAX_TASKS": "8"})
        return int(done.stdout)

    assert grown() > 180 * MB
    # The limit, what the heap keeps for reuse, the threads. A moment between two looks may hold one more picture, so the least of some counts.
    assert min(grown(memory_limit=64 * MB) for _ in range(4)) < 100 * MB


@pytest.mark.parametrize(
    "data, most",
    [
        (jpeg(900, 700), 1_800_000),
        (jpeg(900, 700, progressive=True), 3_600_000),
        (BIG, 9_000_000),
        (png(900, 700, 16, 2, (b"\0" + bytes(900 * 6)) * 700), 3_700_000),
        (saved(photo(900, 700), "WEBP"), 1_800_000),
        (saved(photo(900, 700), "GIF"), 2_500_000),
        (saved(photo(900, 700), "TIFF"), 1_800_000),
    ],
)
def test_what_never_fits_is_a_failure(tmp_path, data, most):
    """A limit that even the pixels alone would break; one of thirty times that lets the picture through."""
    (tmp_path / "x.jpg").write_bytes(data)
    (tmp_path / "y.jpg").write_bytes(jpeg(16, 16))
    samples, stats = read(config(tmp_path, memory_limit=most))
    assert len(samples) == 1 and stats["failures"] == {"too_large": 1} and "memory_limit" in stats["last_failures"][0]["text"]
    samples, stats = read(config(tmp_path, memory_limit=30 * most))
    assert len(samples) == 2 and stats["memory"]["peak"] >= most


@pytest.mark.parametrize("ordered", [False, True])
def test_files_beyond_the_limit_are_not_even_read(tmp_path, ordered):
    for i in range(4):
        (tmp_path / f"{i}.bmp").write_bytes(saved(photo(900, 700), "BMP"))
    (tmp_path / "9.jpg").write_bytes(jpeg(16, 16))
    samples, stats = read(config(tmp_path, memory_limit=MB, ordered=ordered))
    assert len(samples) == 1 and stats["failures"] == {"too_large": 4} and stats["memory"]["peak"] <= MB


def test_a_jpeg_that_is_resampled_while_it_is_decoded_costs_little(tmp_path):
    (tmp_path / "x.jpg").write_bytes(saved(numpy.full((2000, 3000, 3), 90, numpy.uint8), "JPEG"))
    crop = {"crop_and_resize": True, "default_image_size": 64, "downsampling_ratio": 16, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2}
    assert len(read(config(tmp_path, memory_limit=6 * MB, image_config=crop))[0]) == 1
    with pytest.raises(SampleError, match="too_large: needs about .* memory_limit is 6291456"):
        read(config(tmp_path, memory_limit=6 * MB, on_error="raise"))


def test_all_parts_of_a_sample_count(tmp_path):
    members = [("a.jpg", jpeg(400, 400)), ("a.left.jpg", jpeg(400, 400)), ("a.right.jpg", jpeg(400, 400)), ("b.jpg", jpeg(400, 400))]
    (tmp_path / "s.tar").write_bytes(tar(members))
    shards = {"source_type": "webdataset", "source_config": {"url": str(tmp_path / "s.tar")}}
    samples, stats = read({**shards, "memory_limit": 4 * MB})  # one takes 1.9 MB
    assert [sample.id for sample in samples] == ["b"] and stats["failures"] == {"too_large": 1}
    assert len(read({**shards, "memory_limit": 8 * MB})[0]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("ordered", [False, True])
def test_pictures_of_all_sizes_in_a_tight_place(tmp_path, monkeypatch, ordered):
    """Some that need nearly all of it, many that need little, more threads than it has room for: nobody waits for ever."""
    monkeypatch.setenv("DATAGO_MAX_TASKS", "16")
    pictures = [saved(photo(300, 200), "GIF"), *(jpeg(40 + 60 * i, 60, seed=i) for i in range(10))]
    for i in range(120):
        (tmp_path / f"{i:03d}.jpg").write_bytes(pictures[i % 11])
    samples, stats = read(config(tmp_path, memory_limit=MB, ordered=ordered, samples_buffer_size=4))
    assert len(samples) == 120 and stats["memory"]["peak"] <= (2.5 if ordered else 1.5) * MB


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_large_picture_waits_no_longer_than_its_turn(tmp_path, monkeypatch):
    """It needs nearly the whole limit, and small ones that come later would always fit."""
    monkeypatch.setenv("DATAGO_MAX_TASKS", "8")
    importlib.import_module("datago.engine.fallback")  # the first picture for Pillow waits for this, whatever its turn
    names = [f"{i:03d}.jpg" for i in range(600)]
    for name in names:
        (tmp_path / name).write_bytes(saved(photo(300, 200), "GIF") if name == "020.jpg" else jpeg(100, 80))
    samples, stats = read(config(tmp_path, memory_limit=MB, samples_buffer_size=4))
    left = [sample.id[-7:] for sample in samples]
    assert sorted(left) == names and left.index("020.jpg") < 300


@pytest.mark.parametrize("first, second", [("gif", "png"), ("png", "gif"), ("gif", "gif")])
def test_parts_cost_the_same_in_any_order(tmp_path, first, second):
    """160 x 100 pixels take 192000 bytes as GIF and 192000 as PNG, and no sample may take more than there is."""
    picture = numpy.zeros((100, 160, 3), numpy.uint8)
    members = [(f"s.{first}", saved(picture, first.upper())), (f"s.seg.{second}", saved(picture, second.upper()))]
    (tmp_path / "s.tar").write_bytes(tar(members))
    source = {"url": str(tmp_path / "s.tar"), "reference_image_type": first}
    shards = {"source_type": "webdataset", "source_config": source}
    samples, stats = read({**shards, "memory_limit": 600_000})
    assert len(samples) == 1 and 384_000 < stats["memory"]["peak"] < 500_000
    with pytest.raises(SampleError, match="too_large: needs about .* memory_limit is 350000"):
        read({**shards, "memory_limit": 350_000, "on_error": "raise"})


def test_what_is_no_picture_costs_little(tmp_path):
    for i in range(30):
        (tmp_path / f"{i:02d}.jpg").write_bytes(bytes([i]) * 40 if i % 2 else b"GIF89a" + bytes([i]) * 5)
    (tmp_path / "x.jpg").write_bytes(jpeg())
    _, stats = read(config(tmp_path, memory_limit=MB))
    assert stats["delivered"] == 1 and stats["failed"] == 30 and stats["memory"]["peak"] < MB // 2


def test_stop_while_workers_wait_for_room(tmp_path, monkeypatch):
    monkeypatch.setenv("DATAGO_MAX_TASKS", "8")
    client = DatagoClient({**fill(tmp_path), "memory_limit": 60 * MB})
    client.start()
    time.sleep(0.3)
    client.stop()
    assert not threads_left()
    assert client.stats()["in_flight"] == client.stats()["memory"]["in_flight"] == 0


# ---- batches ----

CROP = {"crop_and_resize": True, "default_image_size": 96, "downsampling_ratio": 8, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2.0}
SIZES = aspect_buckets(96, 8, 0.5, 2.0)
LARGEST = 4 * max(width * height for width, height in SIZES) * 3 * 4  # bytes of four pictures as float32
LEAST = 2 * (len(SIZES) + 1) * LARGEST


def shapes(folder, count):
    """Pictures of all buckets and more, every eleventh of them broken."""
    for i in range(count):
        (folder / f"{i:03d}.jpg").write_bytes(b"no picture" if i % 11 == 5 else jpeg(60 + 13 * i % 97, 60 + 29 * i % 89, seed=i))
    return config(folder)


def shapes_in_a_shard(folder, count):
    shapes(folder, count)
    members = [(path.name, path.read_bytes()) for path in sorted(folder.glob("*.jpg"))]
    (folder / "s.tar").write_bytes(tar(members))
    return {"source_type": "webdataset", "source_config": {"url": str(folder / "s.tar")}}


def batches(source, limit, size=4, dtype="float32", image=CROP, ordered=False, **arguments):
    top = {**source, "image_config": image, "memory_limit": limit, "ordered": ordered}
    return DatagoBatchDataset(top, size, dtype=dtype, **arguments)


def test_a_limit_that_does_not_hold_the_batches_is_refused(tmp_path):
    def refused(least, **arguments):
        with pytest.raises(ValueError, match=f"^memory_limit: got {least - 1}, wanted at least {least}: half of it is for batches"):
            batches(config(tmp_path), least - 1, **arguments)
        batches(config(tmp_path), least, **arguments)

    refused(LEAST)
    refused(LEAST // 4, dtype="uint8")
    refused(LEAST // 4, dtype="float16", size=2)
    refused(LEAST // 3, channels=1)
    refused(2 * 4 * LARGEST, most_waiting=3)  # so many may be open at most
    refused(2 * 2 * 10 * 64 * 32 * 3, size=10, dtype="uint8", image={"random_resized_crop": {"size": [64, 32]}})


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("source", [shapes, shapes_in_a_shard])
@pytest.mark.parametrize("arguments", [{}, {"most_waiting": 2}, {"remainder": "drop"}])
def test_as_many_batches_as_fit(tmp_path, monkeypatch, source, ordered, arguments):
    """The least limit there can be, more threads than it has room for, a reader that comes late: nobody waits for ever."""
    monkeypatch.setenv("DATAGO_MAX_TASKS", "16")
    limit = 2 * 3 * LARGEST if "most_waiting" in arguments else LEAST
    whole = {name for batch in batches(source(tmp_path, 200), None, ordered=ordered) for name in batch["id"]}
    dataset = batches(source(tmp_path, 200), limit, ordered=ordered, **arguments)
    found = []
    for batch in dataset:
        if len(found) < 12:
            time.sleep(0.05)
            memory = dataset._running.stats()["memory"]
            assert memory["limit"] == limit and 0 < memory["in_flight"]
        found += batch["id"]
    stats = dataset._running.stats()
    assert len(whole) == 182 and sorted([*found, *stats["dropped"]]) == sorted(whole) and stats["failed"] == 18
    assert stats["memory"]["in_flight"] == 0 and (ordered or stats["memory"]["peak"] <= 1.25 * limit)
    if ordered and not arguments:  # the limit changes no batch
        assert found == [name for batch in batches(source(tmp_path, 200), None, ordered=True) for name in batch["id"]]


@pytest.mark.timeout(60)
def test_batches_that_wait_for_the_reader_count(tmp_path, monkeypatch):
    """Eight workers and a reader that does not read: each of them would hold a full batch, and two are ready."""
    monkeypatch.setenv("DATAGO_MAX_TASKS", "8")
    for i in range(120):
        (tmp_path / f"{i:03d}.jpg").write_bytes(jpeg(64, 64))
    one = 4 * 64 * 64 * 3
    for limit, most in ((2**30, 10), (16 * one, 8), (10 * one, 5)):
        dataset = batches({**config(tmp_path), "samples_buffer_size": 8}, limit, dtype="uint8", image={"random_resized_crop": 64})
        iterator = iter(dataset)
        next(iterator)
        until(lambda: dataset._running.stats()["memory"]["in_flight"] >= most * one)  # noqa: B023
        assert sum(len(batch["id"]) for batch in iterator) == 116
        memory = dataset._running.stats()["memory"]
        # A buffer that is used again may be larger than the room that was reserved for a picture, up to twice as large.
        assert memory["in_flight"] == 0 and most * one <= memory["peak"] <= limit + 8 * one // 4


ENCODED = """
import json, re, sys
from datago import DatagoBatchDataset
def most():
    return int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1]) * 1024
before = most()
dataset = DatagoBatchDataset(json.loads(sys.argv[1]), 200)
assert [len(batch["id"]) for batch in dataset] == [200]
print(most() - before)
"""


@pytest.mark.slow
def test_what_pictures_of_a_batch_were_decoded_from_goes_before_it_is_full(tmp_path):
    (tmp_path / "s.tar").write_bytes(tar([(f"{i:03d}.jpg", jpeg() + bytes(MB)) for i in range(200)]))
    top = {"source_type": "webdataset", "source_config": {"url": str(tmp_path / "s.tar")}, "image_config": {"random_resized_crop": 16}}
    command = [sys.executable, "-c", ENCODED, json.dumps(top | {"memory_limit": 40 * MB})]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True, env={**os.environ, "DATAGO_MAX_TASKS": "2"})
    assert int(done.stdout) < 80 * MB


@pytest.mark.slow
def test_stop_while_workers_wait_for_a_batch(tmp_path, monkeypatch):
    monkeypatch.setenv("DATAGO_MAX_TASKS", "8")
    for ordered in (False, True):
        dataset = batches(shapes(tmp_path, 200), LEAST, ordered=ordered)
        iterator = iter(dataset)
        next(iterator)
        time.sleep(0.3)
        iterator.close()
        assert not threads_left()
        assert dataset._running.stats()["in_flight"] == 0
