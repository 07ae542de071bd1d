"""Batches against what people use today, each side in a process of its own, in turn.

    python bench/batches.py IN1K HIRES [--torchvision PYTHON]

Streams, all cores: `in1k` to 224 x 224 (resized and cropped, one size), batches of 64 uint8 NCHW; `crops`: random_resized_crop 224 on
the large pictures, mirrored at random, batches of 64; `buckets`: the large pictures to 1024 buckets, batches of 8, against the same
stream one by one. PYTHON is an interpreter with torchvision, and opencv if that is to be run too. Printed: images/s, ms of CPU
per image (children too) without imports, and peak memory (all processes; what they share is counted once for each; torch is in it).
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import threading
import time

SIDE = 224
BUCKETS = {"crop_and_resize": True, "default_image_size": 1024, "downsampling_ratio": 32, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2.0}
SQUARE = {
    "crop_and_resize": True, "default_image_size": SIDE, "downsampling_ratio": SIDE, "min_aspect_ratio": 0.99, "max_aspect_ratio": 1.01,
}  # fmt: skip
CROPS = {"random_resized_crop": SIDE, "horizontal_flip": 0.5}


def ours(folder, image, size, limit):
    from datago import DatagoBatchDataset

    source = {"source_type": "file", "source_config": {"root_path": folder}}
    top = {**source, "image_config": image, "limit": limit, "samples_buffer_size": size}
    dataset = DatagoBatchDataset(top, size)
    yield 0
    for batch in dataset:
        yield len(batch["id"])


def single(folder, image, size, limit):
    from datago import DatagoClient

    top = {"source_type": "file", "source_config": {"root_path": folder}, "image_config": {**image, "image_to_rgb8": True}, "limit": limit}
    yield 0
    for sample in DatagoClient(top):
        sample.image.to_numpy_array()
        yield 1


def torchvision(folder, image, size, limit):
    import torch
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    torch.set_num_threads(1)
    if "random_resized_crop" in image:
        steps = [transforms.RandomResizedCrop(SIDE), transforms.RandomHorizontalFlip()]
    else:
        steps = [transforms.Resize(SIDE), transforms.CenterCrop(SIDE)]
    data = ImageFolder(folder, transforms.Compose([*steps, transforms.PILToTensor()]))
    data = torch.utils.data.Subset(data, range(min(limit, len(data))))
    yield 0
    for pixels, _ in torch.utils.data.DataLoader(data, size, num_workers=2):
        yield len(pixels)


def opencv(folder, image, size, limit):
    """A pool of threads: imread, INTER_AREA, a batch copied together."""
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path

    import cv2
    import numpy

    cv2.setNumThreads(1)

    def load(path):
        pixels = cv2.imread(str(path), cv2.IMREAD_COLOR)
        scale = SIDE / min(pixels.shape[:2])
        pixels = cv2.resize(pixels, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        top, left = (pixels.shape[0] - SIDE) // 2, (pixels.shape[1] - SIDE) // 2
        return numpy.ascontiguousarray(pixels[top : top + SIDE, left : left + SIDE, ::-1].transpose(2, 0, 1))

    paths = sorted(Path(folder).rglob("*.jpg"))[:limit]
    yield 0
    with ThreadPoolExecutor(2) as pool:
        for first in range(0, len(paths), size):
            yield len(numpy.stack(list(pool.map(load, paths[first : first + size]))))


SIDES = {"ours": ours, "single": single, "torchvision": torchvision, "opencv": opencv}


def memory_of_family():
    """Peak of the sum of resident bytes over this process and its children, looked at twenty times a second."""
    peak, me = [0], os.getpid()

    def look():
        while True:
            total = 0
            for name in os.listdir("/proc"):
                try:
                    with open(f"/proc/{name}/stat") as file:
                        parent = int(file.read().rpartition(")")[2].split()[1])
                    if int(name) == me or parent == me:
                        with open(f"/proc/{name}/statm") as file:
                            total += int(file.read().split()[1]) * resource.getpagesize()
                except (OSError, ValueError):
                    pass
            peak[0] = max(peak[0], total)
            time.sleep(0.05)

    threading.Thread(target=look, daemon=True).start()
    return peak


def measure(side, folder, image, size, limit):
    stream, peak = SIDES[side](folder, image, size, limit), memory_of_family()
    next(stream)  # what is imported and opened does not count
    begin, before = time.perf_counter(), cpu()
    count = sum(stream)
    print(json.dumps([count / (time.perf_counter() - begin), 1000 * (cpu() - before) / count, peak[0] / 1e6]))


def cpu():
    """Seconds of this process and of the children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def race(name, folder, image, size, limit, rounds, sides):
    found = {side: [] for side in sides}
    for _ in range(rounds + 1):
        for side, python in sides.items():
            command = [python, __file__, "--measure", json.dumps([side, folder, image, size, limit])]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            found[side].append(json.loads(done.stdout.splitlines()[-1]))
    base = None
    for side, runs in found.items():
        speed, spent, memory = (statistics.median(column) for column in zip(*runs[1:], strict=True))
        base = base or speed
        ratio = f"({base / speed:5.2f} x slower than ours)"
        print(f"{name:8} {side:12} {speed:8.0f} images/s {ratio}  {spent:7.2f} ms of CPU  {memory:6.0f} MB")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folders", nargs="*", metavar="IN1K HIRES")
    arguments.add_argument("--torchvision", help="an interpreter that has it")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = arguments.parse_args()
    if arguments.measure:
        measure(*json.loads(arguments.measure))
        sys.exit()
    in1k, hires = arguments.folders
    me, other = {"ours": sys.executable}, arguments.torchvision
    rival = {"torchvision": other} if other else {}
    race("in1k", in1k, SQUARE, 64, 2000, arguments.rounds, {**me, **rival, **({"opencv": other} if other else {})})
    race("crops", hires, CROPS, 64, 160, arguments.rounds, {**me, **rival})
    race("buckets", hires, BUCKETS, 8, 160, arguments.rounds, {**me, "single": sys.executable})
