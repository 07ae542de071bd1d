#!/usr/bin/env python3
"""Tar shards streamed from disk, beside the package `webdataset` with a torch DataLoader of two workers.

    bench/wds.py SHARDS [--size 1024] [--runs 3] [--webdataset PYTHON]

SHARDS is a glob in quotes. PYTHON is the interpreter of an environment with torch, webdataset and pillow; without it only datago
is timed. Both read every sample once, decoded to RGB arrays (and cropped and resized to buckets with --size; there a
square of that side, by Pillow, does for webdataset).
"""

import argparse
import glob
import json
import os
import statistics
import subprocess
import sys

OURS = r"""
import json, resource, sys, time
from datago import DatagoClient
shards, size = json.loads(sys.argv[1]), int(sys.argv[2])
bucket = {"crop_and_resize": True, "default_image_size": size, "downsampling_ratio": 32, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2.0}
client = DatagoClient({"source_type": "webdataset", "source_config": {"url": shards}, "image_config": bucket if size else None})
begin = time.perf_counter()
count = sum(sample.image.to_numpy_array().shape[2] == 3 for sample in client)
wall = time.perf_counter() - begin
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"images/s": count / wall, "CPU ms": (used.ru_utime + used.ru_stime) / count * 1e3, "MB": used.ru_maxrss / 1024}))
"""

THEIRS = r"""
import json, resource, sys, time
import numpy, torch, webdataset
from PIL import Image, ImageOps
shards, size = json.loads(sys.argv[1]), int(sys.argv[2])
def convert(image):
    return numpy.asarray(ImageOps.fit(image, (size, size), Image.LANCZOS) if size else image)
dataset = webdataset.WebDataset(shards, shardshuffle=False).decode("pil").to_tuple("jpg").map_tuple(convert)
loader = torch.utils.data.DataLoader(dataset, num_workers=2, batch_size=None)
begin = time.perf_counter()
count = sum(1 for _ in loader)
wall = time.perf_counter() - begin
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(json.dumps({"images/s": count / wall, "CPU ms": sum(u.ru_utime + u.ru_stime for u in used) / count * 1e3,
                  "MB": (used[0].ru_maxrss + 2 * used[1].ru_maxrss) / 1024}))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shards")
    parser.add_argument("--size", type=int, default=0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--webdataset", help="another environment's python")
    arguments = parser.parse_args()
    shards = sorted(map(os.path.abspath, glob.glob(arguments.shards)))
    sides = {"datago": (sys.executable, OURS), **({"webdataset": (arguments.webdataset, THEIRS)} if arguments.webdataset else {})}
    rows = {side: [] for side in sides}
    for _ in range(arguments.runs):
        for side, (python, script) in sides.items():
            done = subprocess.run([python, "-c", script, json.dumps(shards), str(arguments.size)], capture_output=True, text=True, cwd="/")
            if done.returncode:
                sys.exit(f"{side}: {done.stderr[-2000:]}")
            rows[side].append(json.loads(done.stdout.splitlines()[-1]))
    middle = {side: {key: statistics.median(row[key] for row in rows[side]) for key in rows[side][0]} for side in rows}
    for side, row in middle.items():
        print(f"{side:11}" + "  ".join(f"{value:9.2f} {key}" for key, value in row.items()))
    if len(middle) == 2:
        print(f"ratio      {middle['datago']['images/s'] / middle['webdataset']['images/s']:9.2f} x the images/s")


if __name__ == "__main__":
    main()
