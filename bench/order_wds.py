#!/usr/bin/env python3
"""Order and resume of tar shards from disk: what a state costs, how soon a resumed stream gives its first sample, and what a
defined order costs in images/s.

    bench/order_wds.py [--shards 1000] [--samples 50] [--size 400] [--runs 5]

Shards of small JPEGs are made in a temporary folder. Each row is a fresh process; the kinds of order take turns, in another order
each time, and the median of the runs is printed. A stream is read to the middle, its state taken at every step; another
process resumes there.
"""

import argparse
import io
import json
import os
import random
import statistics
import subprocess
import sys
import tarfile
import tempfile

KINDS = {
    "as they arrive": {},
    "shuffled": {"source_config": {"shuffle": True}},
    "ordered": {"ordered": True},
    "seed": {"seed": 1},
    "ordered, seed": {"ordered": True, "seed": 1},
    "seed, buffer": {"seed": 1, "source_config": {"shuffle_buffer": 1000}},
}

CHILD = r"""
import json, resource, sys, time
opened = []
def hook(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and arguments[0].endswith(".tar"):
        opened.append(arguments[0])
sys.addaudithook(hook)
from datago import DatagoClient
task = json.loads(sys.argv[1])
client = DatagoClient(task["config"])
if task["state"]:
    client.load_state_dict(task["state"])
begin = time.perf_counter()
client.start()
count, first, took, state = 0, None, [], None
while count != task["most"] and client.get_sample() is not None:
    count += 1
    if first is None:
        first = time.perf_counter() - begin
        early = len(opened)
    if task["states"]:
        before = time.perf_counter()
        state = client.state_dict()
        took.append(time.perf_counter() - before)
wall = time.perf_counter() - begin
client.stop()
used = resource.getrusage(resource.RUSAGE_SELF)
took.sort()
print(json.dumps({
    "images/s": count / wall, "CPU ms": (used.ru_utime + used.ru_stime) / count * 1e3, "first ms": first * 1e3, "opened": early,
    "state": state, "us": took[len(took) // 2] * 1e6 if took else 0, "us, 99%": took[len(took) * 99 // 100] * 1e6 if took else 0,
}))
"""


def make(folder, shards, samples, size):
    import numpy
    from PIL import Image

    pictures = []
    for seed in range(20):
        waves = numpy.sin(numpy.mgrid[0:size, 0:size].sum(0) / (5 + seed))[:, :, None] * [90, 60, 30] + 127
        grain = numpy.random.default_rng(seed).normal(0, 9, (size, size, 1))
        out = io.BytesIO()
        Image.fromarray(numpy.clip(waves + grain, 0, 255).astype(numpy.uint8)).save(out, "JPEG", quality=90)
        pictures.append(out.getvalue())
    for s in range(shards):
        with tarfile.open(os.path.join(folder, f"{s:06d}.tar"), "w") as archive:
            for i in range(samples):
                member = tarfile.TarInfo(f"{s:06d}_{i:06d}.jpg")
                member.size = len(pictures[(s + i) % 20])
                archive.addfile(member, io.BytesIO(pictures[(s + i) % 20]))


def run(config, most=-1, state=None, states=False):
    task = {"config": config, "most": most, "state": state, "states": states}
    done = subprocess.run([sys.executable, "-c", CHILD, json.dumps(task)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--size", type=int, default=400, help="side of a picture")
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make(folder, arguments.shards, arguments.samples, arguments.size)
        total = arguments.shards * arguments.samples
        configs = {
            kind: {"source_type": "webdataset", **top, "source_config": {"url": f"{folder}/*.tar", **top.get("source_config", {})}}
            for kind, top in KINDS.items()
        }
        print(f"{arguments.shards} shards of {arguments.samples}: a state in the middle, and the first sample after it was loaded")
        for kind, config in configs.items():
            half = run(config, total // 2 + arguments.samples // 2, states=True)
            rest = run(config, 1, half["state"])
            fresh = run(config, 1)
            print(
                f"{kind:15}{len(json.dumps(half['state'])):7} bytes{half['us']:8.0f} µs{half['us, 99%']:8.0f} µs (99%)"
                f"{rest['first ms']:8.1f} ms to the first sample, {rest['opened']} shards opened (from the start: "
                f"{fresh['first ms']:.1f} ms, {fresh['opened']})"
            )
        rows = {kind: [] for kind in configs}
        for _ in range(arguments.runs):
            for kind, config in random.sample(list(configs.items()), len(configs)):
                rows[kind].append(run(config, total // 4))
        print("a quarter of them")
        for kind, found in rows.items():
            speed, cost = (statistics.median(row[key] for row in found) for key in ("images/s", "CPU ms"))
            print(f"{kind:15}{speed:9.1f} images/s{cost:9.3f} ms CPU")


if __name__ == "__main__":
    main()
