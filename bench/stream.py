#!/usr/bin/env python3
"""A folder streamed from end to end, in fresh processes: images/s, CPU per image, peak memory, first sample.

    bench/stream.py FOLDER [--runs 5] [--image-config JSON] [--pil] [--other PYTHON]

Beside it stands the floor: the CPU time that libjpeg-turbo alone takes for the same JPEGs (needs PyTurboJPEG < 2). With
--other, the interpreter of an environment with another package named datago runs the same script in turn, so that the ratio
holds when the machine drifts.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

from datago.cli import measure

FLOOR = r"""
import pathlib, sys, time
from turbojpeg import TJPF_RGB, TurboJPEG
codec, blobs = TurboJPEG(), [p.read_bytes() for p in sorted(pathlib.Path(sys.argv[1]).rglob("*.jpg"))]
begin = time.process_time()
for blob in blobs:
    codec.decode(blob, pixel_format=TJPF_RGB)
print((time.process_time() - begin) / len(blobs) * 1e3)
"""


def run(command, given=""):
    done = subprocess.run(command, input=given, capture_output=True, text=True, cwd="/", check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--image-config", type=json.loads)
    parser.add_argument("--pil", action="store_true", help="read PIL images by get_sample_auto_convert")
    parser.add_argument("--other", help="another environment's python")
    arguments = parser.parse_args()
    folder = os.path.abspath(arguments.folder)
    config = {
        "source_type": "file",
        "source_config": {"root_path": folder, "rank": 0, "world_size": 1},
        "limit": 10**6,
        "samples_buffer_size": 64,
        "image_config": arguments.image_config,
    }
    given = {"config": config, "pil": arguments.pil, "passes": 1}
    sides = {"datago": sys.executable, **({"other": arguments.other} if arguments.other else {})}
    rows = {side: [] for side in sides}
    for i in range(arguments.runs + 1):
        for side, python in sides.items():
            row = run([python, measure.__file__], json.dumps(given))
            if i:  # the first round warms the page cache
                rows[side].append(row)
    keys = "images/s", "CPU ms", "MB", "first ms", "n"
    middle = {side: {key: statistics.median(row[key] for row in rows[side]) for key in keys} for side in rows}
    for side, row in middle.items():
        print(f"{side:8}" + "  ".join(f"{value:9.3f} {key}" for key, value in row.items()))
    try:
        floor = run([sys.executable, "-c", FLOOR, folder])
        print(f"libjpeg-turbo alone: {floor:.3f} CPU ms; datago takes {middle['datago']['CPU ms'] / floor:.2f} times that")
    except subprocess.CalledProcessError:
        print("libjpeg-turbo alone: not measured (no PyTurboJPEG < 2, or no *.jpg)")
    if arguments.other:
        print(
            f"ratio   {middle['datago']['images/s'] / middle['other']['images/s']:.2f} x the images/s, "
            f"{middle['other']['CPU ms'] / middle['datago']['CPU ms']:.2f} x fewer CPU ms"
        )


if __name__ == "__main__":
    main()
