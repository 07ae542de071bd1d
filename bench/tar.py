#!/usr/bin/env python3
"""Walking tars, on one core: blocks that are in memory already, and a file that is in the page cache.   bench/tar.py

Members that lie whole in a block are not touched, so their GB/s say only that walking is not what a loader waits for;
"copied out" makes bytes of each. The best of several runs, each of some 200 MB.
"""

import io
import tarfile
import tempfile
import time

from datago.sources.webdataset._tar import TarReader


def shard(format, size, count):
    out = io.BytesIO()
    data = b"x" * size
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for i in range(count):
            info = tarfile.TarInfo(f"é{i:08d}.jpg")
            info.size = size
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def walk(blocks, select=None, copy=False):
    reader = TarReader(select)
    for block in blocks:
        for member in reader.feed(block):
            if copy:
                bytes(member)
    reader.close()
    return reader


def from_file(path, block_size):
    with open(path, "rb", buffering=0) as file:
        while block := file.read(block_size):
            yield block


def best(run, runs=7):
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        reader = run()
        times.append(time.perf_counter() - begin)
    return min(times), reader


def main():
    print("members               blocks                 GB/s   members/s")
    for name, format, size, count in (
        ("300 B, GNU", tarfile.GNU_FORMAT, 300, 200_000),
        ("300 B, pax", tarfile.PAX_FORMAT, 300, 100_000),
        ("64 kB, GNU", tarfile.GNU_FORMAT, 64_000, 3000),
    ):
        archive = shard(format, size, count)
        blocks = {kb: [archive[at : at + (kb << 10)] for at in range(0, len(archive), kb << 10)] for kb in (64, 1024, 4096)}
        with tempfile.NamedTemporaryFile() as file:
            file.write(archive)
            file.flush()
            runs = [(f"{kb} kB", lambda kb=kb: walk(blocks[kb])) for kb in blocks]
            runs += [
                ("1024 kB, select", lambda: walk(blocks[1024], lambda name, size: True)),
                ("1024 kB, copied out", lambda: walk(blocks[1024], copy=True)),
                ("1024 kB, from a file", lambda: walk(from_file(file.name, 1 << 20))),
            ]
            for what, run in runs:
                seconds, reader = best(run)
                print(f"{name:21} {what:20} {len(archive) / seconds / 1e9:6.1f} {count / seconds:11,.0f}")


if __name__ == "__main__":
    main()
