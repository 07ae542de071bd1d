#!/usr/bin/env python3
"""The main job on real photographs, with a progress bar: what `make demo` runs.   bench/demo.py FOLDER [--passes 3]"""

import argparse
import resource
import sys
import time

from datago import DatagoClient


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def bar(done, total, rate):
    if sys.stderr.isatty():
        filled = 40 * done // total
        sys.stderr.write(f"\r[{'#' * filled}{'.' * (40 - filled)}] {done}/{total}  {rate:.0f} images/s ")
        sys.stderr.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--passes", type=int, default=3)
    arguments = parser.parse_args()
    client = DatagoClient({"source_type": "file", "source_config": {"root_path": arguments.folder}})
    total = sum(1 for _ in client) * arguments.passes  # this pass also brings the files into the page cache
    print(f"{total // arguments.passes} pictures below {arguments.folder}, {client.stats()['threads']} worker threads")
    count, pixels, begin, used = 0, 0, time.perf_counter(), cpu()
    for _ in range(arguments.passes):
        for sample in client:
            count += 1
            pixels += sample.image.width * sample.image.height
            if count % 50 == 0:
                bar(count, total, count / (time.perf_counter() - begin))
    wall, used = time.perf_counter() - begin, cpu() - used
    bar(total, total, count / wall)
    if sys.stderr.isatty():
        sys.stderr.write("\n")
    stats = client.stats()
    print(f"{count / wall:8.0f} images/s      ({pixels / wall / 1e6:.0f} megapixels/s)")
    print(f"{used / count * 1e3:8.3f} ms of CPU per image")
    print(f"bottleneck: {stats['bottleneck']}")
    print(f"failed: {stats['failed']}, last sample: {sample}")


if __name__ == "__main__":
    main()
