"""What every test may use: small pictures made on the spot, and a stream read to its end."""

import gc
import io
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import zlib

import numpy
import pytest
from hypothesis import settings
from PIL import Image

from datago import DatagoClient, SampleError
from datago import config as configuration
from datago.checkpoint import resume
from datago.engine._progress import Progress
from datago.sources import open_source

settings.register_profile("datago", deadline=None)  # a busy machine is no failure
settings.load_profile("datago")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in what runs in the background, children and all

# image_configs
LARGE = {"crop_and_resize": True, "default_image_size": 1024, "downsampling_ratio": 32, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2.0}
SMALL = {**LARGE, "default_image_size": 224, "downsampling_ratio": 16}
TINY = {**LARGE, "default_image_size": 64, "downsampling_ratio": 16}

tables = {}  # title -> lines that a test wants seen at the end of the run


def pytest_terminal_summary(terminalreporter):
    for title, lines in tables.items():
        terminalreporter.section(title)
        for line in lines:
            terminalreporter.write_line(line)


def photo(width, height, seed=0):
    """A smooth picture with some grain: uint8 of shape (height, width, 3)."""
    rng = numpy.random.default_rng(seed)
    y, x = numpy.mgrid[0:height, 0:width].astype(float)
    waves = [127 + 90 * numpy.sin(x / (9 + 4 * c) + y / (13 - 3 * c) + seed + c) for c in range(3)]
    return numpy.clip(numpy.stack(waves, 2) + rng.normal(0, 6, (height, width, 1)), 0, 255).astype(numpy.uint8)


def jpeg(width=64, height=48, seed=0, mode="RGB", **options):
    """JPEG bytes of a `photo`."""
    out = io.BytesIO()
    Image.fromarray(photo(width, height, seed)).convert(mode).save(out, "JPEG", **{"quality": 90, **options})
    return out.getvalue()


def saved(array, kind="PNG"):
    out = io.BytesIO()
    Image.fromarray(array).save(out, kind)
    return out.getvalue()


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, depth, colour, rows, extra=b""):
    """PNG bytes from raw rows, each led by its filter byte; `extra` are chunks before IDAT."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def config(root, **top):
    """A file config; keys of source_config may be given by name."""
    source = {key: top.pop(key) for key in ("rank", "world_size", "random_sampling") if key in top}
    return {"source_type": "file", "source_config": {"root_path": str(root), **source}, **top}


def read(config, timeout=20):
    """All samples of a stream, and the client's stats at its end; the accounts are checked."""
    with DatagoClient(config) as client:
        samples = []
        while (sample := client.get_sample(timeout=timeout)) is not None:
            samples.append(sample)
        stats = client.stats()
    check_accounts(stats)
    return samples, stats


def ids(samples):
    """Where a stream's samples come from, in their order: file names without folder."""
    return [os.path.basename(sample["id"] if isinstance(sample, dict) else sample.id) for sample in samples]


KILLED = """
import json, os, sys
from datago import DatagoClient
config, state = map(json.loads, sys.argv[1:])
client = DatagoClient(config)
if state:
    client.load_state_dict(state)
for sample in client:
    os.write(1, json.dumps({"id": sample.id, "state": client.state_dict()}).encode() + b"\\n")
"""


def killed_epoch(config, kills, most, rng, threads=8):
    """Reads one epoch in processes that are killed (SIGKILL) after a random number of samples, up to `most`; each goes on from the
    state that came with the last sample of the one before. The last process reads to the end.

    Returns:
        The ids of all samples that were handed out, in order, and the last state.
    """
    handed, state = [], None
    environment = {**os.environ, "DATAGO_MAX_TASKS": str(threads)}
    for run in range(kills + 1):
        command = [sys.executable, "-c", KILLED, json.dumps(config), json.dumps(state)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
            lines, wanted = [], rng.randint(1, most) if run < kills else None
            while (line := process.stdout.readline()).endswith(b"\n"):
                lines.append(line)
                if len(lines) == wanted:
                    process.kill()
        assert wanted is not None or process.returncode == 0
        found = [json.loads(line) for line in lines]
        handed += [sample["id"] for sample in found]
        state = found[-1]["state"] if found else state
    return handed, state


def opened(config, state=None):
    """A source alone, opened, without a client."""
    parsed = configuration.parse(config)
    run = resume.resume(state, parsed) if state else resume.begin(parsed, parsed.epoch)
    run.draw()
    source = open_source(parsed, run, Progress())
    source.open()
    return source


def threads_left(name="datago"):
    """The names of our threads that are still there. One that has done its work is on Python's list for a moment more, or longer where the
    machine is busy; and a test before may have left a client to the garbage collector, in the traceback of an exception that it kept."""
    gc.collect()
    end = time.monotonic() + 20
    while (left := [thread.name for thread in threading.enumerate() if thread.name.startswith(name)]) and time.monotonic() < end:
        time.sleep(0.01)
    return left


def check_accounts(stats):
    assert stats["seen"] == stats["delivered"] + stats["failed"] + stats["skipped"] + stats["in_flight"]
    assert sum(stats["failures"].values()) == stats["failed"]
    assert all(isinstance(stats[key], int) for key in ("seen", "delivered", "failed", "skipped", "in_flight"))


def decode(tmp_path, data, name="x.jpg", **top):
    """One picture through the whole path: (array, None), or (None, the reason of the failure)."""
    path = tmp_path / name
    path.write_bytes(data)
    with DatagoClient(config(path, on_error="raise", **top)) as client:
        try:
            return client.get_sample(timeout=20).image.to_numpy_array(), None
        except SampleError as error:
            return None, error.reason


@pytest.fixture
def folder(tmp_path):
    """Twenty different JPEGs in three folders; every picture's size names it."""
    for i in range(20):
        path = tmp_path / f"d{i % 3}" / f"{i:03d}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(jpeg(32 + i, 40, seed=i))
    return tmp_path
