"""What order and resume cost, over the file source.

    python bench/order.py FOLDER

ordered: images/s and CPU with `ordered`, with a seed and as one of two ranks, against none of them; passes in turn.
state: size and time of state_dict in mid-epoch over a million files (links to one picture, in a temporary folder).
listing: ten million paths of 50 bytes listed in memory, shuffled, and one of eight ranks' part taken; the walk of the million.
"""

import argparse
import json
import os
import resource
import statistics
import tempfile
import time

from datago import DatagoClient
from datago.order import plan
from datago.sources.file.tree import BATCH, Listing, Tree


def stream(folder, limit, rank=None, **top):
    """(images/s, CPU ms per image) of one pass."""
    source = {"root_path": folder, **({"rank": rank, "world_size": 2} if rank is not None else {})}
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    with DatagoClient({"source_type": "file", "source_config": source, "limit": limit, **top}) as client:
        count = sum(1 for _ in client)
    spent, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return count / spent, 1000 * cpu / count


def ordered(folder, limit, rounds):
    kinds = {
        "plain": {}, "ordered": {"ordered": True}, "seed": {"seed": 1}, "ordered + seed": {"seed": 1, "ordered": True},
        "rank 0 of 2": {"rank": 0},
    }  # fmt: skip
    found = {name: [] for name in kinds}
    for _ in range(rounds + 1):
        for name, top in kinds.items():
            found[name].append(stream(folder, limit, **top))
    plain = [statistics.median(column) for column in zip(*found["plain"][1:], strict=True)]
    for name, runs in found.items():
        speed, cpu = (statistics.median(column) for column in zip(*runs[1:], strict=True))
        print(f"{name:15} {speed:9.0f} images/s ({speed / plain[0]:.3f})  {cpu:.4f} ms of CPU ({cpu / plain[1]:.3f})")


def linked(root, count):
    """`count` links to pictures, a thousand in each folder; a file may have 65,000 names at most."""
    import io

    from PIL import Image

    out = io.BytesIO()
    Image.new("L", (8, 8)).save(out, "PNG")
    for number in range(count):
        folder, original = f"{root}/{number // 1000:05d}", f"{root}/.{number // 50_000}"
        if number % 50_000 == 0:
            with open(original, "wb") as file:
                file.write(out.getvalue())
        if number % 1000 == 0:
            os.mkdir(folder)
        os.link(original, f"{folder}/{number:08d}.png")


def state(root):
    client = DatagoClient({"source_type": "file", "source_config": {"root_path": root}, "seed": 1})
    begin = time.perf_counter()
    client.get_sample()
    print(f"first sample of a shuffled million after {time.perf_counter() - begin:.2f} s")
    for _ in range(100_000):
        client.get_sample()
    times, sizes = [], []
    for _ in range(2000):
        client.get_sample()
        begin = time.perf_counter()
        found = client.state_dict()
        times.append(time.perf_counter() - begin)
        sizes.append(len(json.dumps(found)))
    client.stop()
    times.sort()
    print(f"state_dict: median {1e6 * times[1000]:.0f} us, 99% under {1e6 * times[1980]:.0f} us; {max(sizes)} bytes at most")


def listing(root, count):
    begin = time.perf_counter()
    walked = sum(len(step) for step in Tree(os.fsencode(root), {}).walk())
    print(f"walk: {walked} files in {time.perf_counter() - begin:.2f} s")
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    paths = Listing()
    for first in range(0, count, BATCH):
        paths.add([b"%05d/an-image-with-a-name-of-some-length-%08d.jpg" % (n // 1000, n) for n in range(first, min(first + BATCH, count))])
    made = time.perf_counter() - begin
    own = plan.permutation(len(paths), plan.key(1, 0))[plan.share(len(paths), 3, 8, 8)]
    checksum = paths.checksum(len(paths))
    spent, peak = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"order: {count} paths in {spent:.2f} s (of which {made:.2f} s to make up the names and store them), peak {peak / 1e6:.2f} GB "
        f"({(peak - before) / 1e6:.2f} GB more than before); {len(own)} of them for one rank, checksum {checksum:08x}"
    )


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder")
    arguments.add_argument("--limit", type=int, default=3000, help="images in a pass")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--files", type=int, default=10**6)
    arguments.add_argument("--paths", type=int, default=10**7)
    arguments = arguments.parse_args()
    ordered(arguments.folder, arguments.limit, arguments.rounds)
    with tempfile.TemporaryDirectory() as root:
        linked(root, arguments.files)
        listing(root, arguments.paths)
        state(root)
