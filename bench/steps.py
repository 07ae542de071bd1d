"""What equal steps cost.

    python bench/steps.py [--samples N] [--headers FOLDER]

plan: time to plan the steps of N samples in 11 buckets for 8 ranks, and after a resume with other ranks; the peak of memory over it; the
    time of a batch.
headers: with a folder, the time to list its pictures and read the sizes of all, twice, so that the second finds the page cache warm.
"""

import argparse
import os
import resource
import time
import tracemalloc

import numpy

from datago.order.steps import StepPlan


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def planned(samples):
    buckets = numpy.random.default_rng(1).integers(0, 11, samples).astype(numpy.int32)
    StepPlan(buckets[:1000], 8, 64)  # what numpy loads when it is first used
    history = [(8, 64, samples // 1024)]
    for name, options in (("plan", {}), ("plan after a resume", {"history": history})):
        before, begin = peak(), time.perf_counter()
        steps = StepPlan(buckets, 8 if not options else 6, 64, seed=1, **options)
        spent = time.perf_counter() - begin
        grown = peak() - before
        tracemalloc.start()
        StepPlan(buckets, 8, 64, seed=1, **options)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        memory = f"peak of {most / 1e6:.0f} MB, the process grew by {grown:.0f} MB"
        print(f"{name}: {samples} samples, {len(steps)} steps in {spent:.2f} s; {memory}")
    begin = time.perf_counter()
    for step in range(len(steps)):
        steps.batch(step, 3)
    print(f"batch: {1e6 * (time.perf_counter() - begin) / len(steps):.1f} us")


def headers(folder, threads):
    from datago.engine._sizes import read_sizes
    from datago.sources.file.tree import Tree

    tree = Tree(os.fsencode(folder), {})
    begin = time.perf_counter()
    paths = [tree.base + path for step in tree.walk() for path in step]
    print(f"listing: {len(paths)} pictures in {time.perf_counter() - begin:.2f} s")
    for _ in range(2):
        before, begin = peak(), time.perf_counter()
        _, failures = read_sizes(paths, threads)
        spent = time.perf_counter() - begin
        grown = peak() - before
        print(f"headers: {len(paths)} in {spent:.2f} s by {threads} threads, {len(failures)} failed; the process grew by {grown:.0f} MB")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--samples", type=int, default=10**6)
    arguments.add_argument("--headers", metavar="FOLDER")
    arguments.add_argument("--threads", type=int, default=os.cpu_count())
    arguments = arguments.parse_args()
    planned(arguments.samples)
    if arguments.headers:
        headers(arguments.headers, arguments.threads)
