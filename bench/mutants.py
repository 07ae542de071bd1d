#!/usr/bin/env python3
"""Damaged pictures through the whole client: none crashes it, none hangs it, memory stays bounded.   bench/mutants.py [--count 100000]

Pictures of every format that is read, each changed in a few places, are written to a folder (a RAM disk where there is one) and
streamed in rounds, as files or as members of shards, through all kinds of image_config. A round in which no sample and no failure came
for --patience seconds counts as a hang. --seed makes them again; a round that crashes leaves its folder behind, and says where.
"""

import argparse
import io
import itertools
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

import numpy
from PIL import Image

FIT = {"crop_and_resize": True, "default_image_size": 64, "downsampling_ratio": 16, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2.0}
CONFIGS = [
    {}, {"image_to_rgb8": True}, FIT, {**FIT, "resize_mode": "exact"}, {**FIT, "pre_encode_images": True, "encode_format": "jpeg"},
    {"pre_encode_images": True}, {"on_truncated": "accept"}, {**FIT, "image_to_rgb8": True, "on_damaged": "error"},
]  # fmt: skip

CHILD = r"""
import json, sys, time
from datago import DatagoClient
config, names, image_configs = json.loads(sys.argv[1]), [], json.loads(sys.argv[2])
def rss():
    return int(open("/proc/self/statm").read().split()[1]) * 4
for line in sys.stdin:
    path, number = line.rsplit(" ", 1)
    tar = path.endswith(".tar")
    source = {"url": path} if tar else {"root_path": path}
    number = int(number)
    top = {"source_type": "webdataset" if tar else "file", "source_config": source, "ordered": number % 3 == 0}
    client = DatagoClient({**top, **config, "image_config": image_configs[number % len(image_configs)]})
    get = client.get_sample_auto_convert if number // 2 % 2 else client.get_sample
    good, longest, then = 0, 0, time.monotonic()
    try:
        while (sample := get(timeout=30)) is not None:
            good += 1
            now = time.monotonic()
            longest, then = max(longest, now - then), now
    except ValueError:  # nothing was good
        pass
    client.stop()
    stats = client.stats()
    assert stats["seen"] == stats["delivered"] + stats["failed"] + stats["skipped"] and stats["in_flight"] == 0, stats
    print(json.dumps({"good": good, "failures": stats["failures"], "longest": longest, "rss": rss()}), flush=True)
"""


def pictures():
    """Sound ones, small: their bytes."""
    y, x = numpy.mgrid[0:48, 0:64]
    rgb = numpy.stack([x * 4, y * 5, (x * y) % 256], 2).astype(numpy.uint8)
    picture = Image.fromarray(rgb)
    kinds = {
        "JPEG": [{}, {"progressive": True}, {"subsampling": 0, "quality": 98}, {"restart_marker_blocks": 2}, {"optimize": True}],
        "PNG": [{}, {"compress_level": 0}, {"compress_level": 9}], "WEBP": [{}, {"lossless": True}, {"quality": 5}],
        "GIF": [{}], "BMP": [{}], "TIFF": [{}, {"compression": "tiff_lzw"}, {"compression": "tiff_deflate"}], "AVIF": [{}],
    }  # fmt: skip
    modes = {"JPEG": ("RGB", "L", "CMYK"), "PNG": ("RGB", "RGBA", "L", "LA", "P", "1", "I;16"), "WEBP": ("RGB", "RGBA")}
    Image.init()
    deep = Image.fromarray(rgb[:, :, 0].astype(numpy.uint16) * 257)
    for kind in kinds.keys() & Image.SAVE.keys():
        for mode, option in itertools.product(modes.get(kind, ("RGB",)), kinds[kind]):
            out = io.BytesIO()
            (deep if mode == "I;16" else picture.convert(mode)).save(out, kind, **option)
            yield out.getvalue()


def mutant(data, rng, others):
    """A picture hurt in one of the ways in which files are."""
    data = bytearray(data)
    kind = rng.random()
    if kind < 0.5:
        for _ in range(rng.choice((1, 1, 2, 4, 16))):
            data[rng.randrange(len(data))] = rng.choice((0, 255, 127, 128, rng.randrange(256)))
    elif kind < 0.6:  # headers are where sizes stand
        at = rng.randrange(min(len(data), 64))
        data[at : at + 4] = rng.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\0\0\1\0"))
    elif kind < 0.7:
        del data[rng.randrange(len(data)) :]
    elif kind < 0.8:
        at = rng.randrange(len(data))
        del data[at : at + rng.choice((1, 2, 10, 100))]
    elif kind < 0.9:
        at, other = rng.randrange(len(data)), rng.choice(others)
        begin = rng.randrange(len(other))
        data[at:at] = other[begin : begin + rng.choice((1, 4, 64, 500))]
    else:
        at = rng.randrange(len(data))
        data[at:at] = data[at : at + rng.choice((8, 64, 512))] * rng.choice((1, 3, 40))
    return bytes(data)


def write(folder, number, size, rng, sound):
    """A round's pictures, as a folder or as a shard; what to say to the child."""
    inputs = [(f"{i:04d}.{rng.choice(('jpg', 'png', 'webp'))}", mutant(rng.choice(sound), rng, sound)) for i in range(size)]
    root = folder / f"round{number}"
    if number % 2:
        path = root.with_suffix(".tar")
        with tarfile.open(path, "w") as archive:
            for name, data in inputs:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        return path
    root.mkdir()
    for name, data in inputs:
        (root / name).write_bytes(data)
    return root


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--round", type=int, default=500, help="inputs a round")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--patience", type=float, default=2, help="seconds without a sample that are a hang")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    sound = sorted(pictures())
    shm = pathlib.Path("/dev/shm")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="datago-mutants", dir=shm if os.access(shm, os.W_OK) else None))
    command = [sys.executable, "-c", CHILD, json.dumps({"memory_limit": 1 << 28}), json.dumps(CONFIGS)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(f"a round hangs: {path}"))
    done, good, failures, longest, memory, begin = 0, 0, {}, 0, [], time.monotonic()
    while done < options.count:
        number = done // options.round
        path = write(folder, number, options.round, rng, sound)
        signal.alarm(120)
        child.stdin.write(f"{path} {number}\n")
        child.stdin.flush()
        line = child.stdout.readline()
        signal.alarm(0)
        if not line:
            sys.exit(f"the client died with {child.wait()}; its inputs are in {path}")
        said = json.loads(line)
        done, good, longest = done + options.round, good + said["good"], max(longest, said["longest"])
        for reason, count in said["failures"].items():
            failures[reason] = failures.get(reason, 0) + count
        memory.append(said["rss"])
        path.unlink() if path.is_file() else shutil.rmtree(path)
    child.stdin.close()
    code = child.wait(60)
    shutil.rmtree(folder)
    third = max(1, len(memory) // 3)
    print(f"{done} inputs, seed {options.seed}, {time.monotonic() - begin:.0f} s: {good} delivered, failures {json.dumps(failures)}")
    print(f"exit code {code}; longest wait for a sample {longest:.2f} s")
    print(f"RSS: {max(memory[:third]) // 1024} MB at most in the first third, {max(memory[-third:]) // 1024} in the last")
    if code or longest > options.patience:
        sys.exit(1)


if __name__ == "__main__":
    main()
