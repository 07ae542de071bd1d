#!/usr/bin/env python3
"""All sources for a long time, five in a hundred things going wrong: does memory grow, does it slow down, do the counts add up?

    bench/soak.py [--minutes 30] [--faults 0.05] [--out soak.png]

Clients over files, shards on disk, shards over HTTP and a database run side by side, each pass a new client, all in one process; two
servers in another one answer requests with errors, cuts, resets and silences. Every sample's pixels are hashed and compared. The curves
of RSS and images/s go to a PNG. Needs matplotlib.
"""

import argparse
import hashlib
import http.server
import io
import json
import os
import pathlib
import random
import shutil
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

import numpy
from matplotlib import pyplot
from PIL import Image

PICTURES, GROUP = 240, 40  # a pass, and how many of its pictures are one shard or one page
PERIOD = 5.0  # seconds between two points of the curves
FIT = {"crop_and_resize": True, "default_image_size": 128, "downsampling_ratio": 16, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2.0}
CONFIG = {"image_config": FIT, "memory_limit": 1 << 28, "log_period": 1}


def picture(number):
    """JPEG, PNG, WebP or GIF bytes of a size of its own."""
    rng = numpy.random.default_rng(number)
    y, x = numpy.mgrid[0 : 180 + number % 40, 0 : 240 + number % 60]
    rgb = numpy.stack([127 + 90 * numpy.sin(x / 9 + number), 127 + 90 * numpy.cos(y / 7), x % 256], 2) + rng.normal(0, 5, (*x.shape, 1))
    out = io.BytesIO()
    kind = ("JPEG", "JPEG", "JPEG", "PNG", "WEBP", "GIF")[number % 6]
    Image.fromarray(rgb.clip(0, 255).astype(numpy.uint8)).save(out, kind)
    return out.getvalue()


def shard(files, names):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in names:
            info = tarfile.TarInfo(name + ".jpg")
            info.size = len(files[name])
            archive.addfile(info, io.BytesIO(files[name]))
    return out.getvalue()


# ---- the servers: run as `soak.py serve FOLDER FAULTS` ----


def serve(folder, faults):
    rng, bodies = random.Random(1), {f"/{path.name}": path.read_bytes() for path in pathlib.Path(folder).iterdir()}

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_GET(self):
            body = bodies.get(self.path.partition("?")[0].rstrip("/"))
            kind = rng.randrange(5) if rng.random() < faults else None
            if body is None or kind == 0:
                status = 404 if body is None else rng.choice((500, 502, 503, 429, 408))
                body = b"no"
                self.send_response(status)
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if kind == 1:
                body = body[: len(body) // 2]
            self.wfile.write(body[: len(body) // 3] if kind in (2, 3) else body)
            if kind == 2:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif kind == 3:
                self.wfile.flush()
                time.sleep(1.5)
            if kind in (1, 2, 3):
                self.close_connection = True
                self.connection.close() if kind == 2 else None

        def handle_one_request(self):
            try:
                super().handle_one_request()
            except OSError:
                self.close_connection = True

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None
    print(server.server_port, flush=True)
    server.serve_forever()


# ---- the clients ----


class Lane(threading.Thread):
    """One source, pass after pass."""

    def __init__(self, name, source_type, source_config, common, whole=False):
        super().__init__(daemon=True)
        self.label, self.config = name, {"source_type": source_type, "source_config": source_config, **CONFIG}
        self.names, self.broken, self.wanted, self.over = common
        self.whole = whole  # nothing but a broken picture is lost
        self.images = self.failed = self.passes = self.errors = 0
        self.problem = None

    def run(self):
        try:
            while not self.over.is_set():
                self.one_pass()
        except BaseException as error:
            self.problem = f"{self.label}: {type(error).__name__}: {error}"

    def one_pass(self):
        from datago import DatagoClient, SourceError

        found = set()
        client = DatagoClient({**self.config, "ordered": self.passes % 2 == 0})
        try:
            while not self.over.is_set() and (sample := client.get_sample(timeout=60)) is not None:
                name = os.path.basename(sample.id).partition(".")[0]
                pixels = hashlib.sha256(sample.image.to_numpy_array()).digest()
                assert name not in found, f"{name} came twice"
                assert self.wanted.setdefault(name, pixels) == pixels, f"{name} has other pixels"
                assert name not in self.broken, f"{name} is broken, and came"
                found.add(name)
                self.images += 1
        except SourceError:  # a page that did not come
            self.errors += 1
        client.stop()
        stats = client.stats()
        assert stats["seen"] == stats["delivered"] + stats["failed"] + stats["skipped"] and stats["in_flight"] == 0, stats
        assert stats["delivered"] == len(found) and sum(stats["failures"].values()) == stats["failed"], stats
        assert not self.whole or self.over.is_set() or found == self.names - self.broken, f"{self.names - self.broken - found} did not come"
        self.failed += stats["failed"]
        self.passes += 1


def lanes(root, faults, over):
    files = {f"p{i:03d}": picture(i) for i in range(PICTURES)}
    rng = random.Random(2)
    broken = {name for name in files if rng.random() < faults}
    for name in broken:
        files[name] = files[name][: len(files[name]) // 2]
    names = list(files)
    groups = [names[i : i + GROUP] for i in range(0, PICTURES, GROUP)]
    web = root / "web"
    for folder in (root / "files", web, root / "shards"):
        folder.mkdir()
    for name, data in files.items():
        (root / "files" / f"{name}.jpg").write_bytes(data)
        (web / name).write_bytes(data)
    for i, group in enumerate(groups):
        for folder in (web, root / "shards"):
            (folder / f"{i}.tar").write_bytes(shard(files, group))
        page = {"results": [{"id": n, "source": "s", "attributes": {}, "image_direct_url": f"/{n}?sig=x"} for n in group]}
        (web / ("images" if i == 0 else f"page{i}")).write_text(json.dumps({**page, "next": f"/page{i + 1}"}))
    (web / f"page{len(groups)}").write_text(json.dumps({"results": [], "next": None}))
    server = subprocess.Popen([sys.executable, __file__, "serve", str(web), str(faults)], stdout=subprocess.PIPE, text=True)
    base = f"http://127.0.0.1:{server.stdout.readline().strip()}"
    remote = {"url": [f"{base}/{i}.tar" for i in range(len(groups))], "timeout": 1, "concurrent_downloads": 4}
    timeouts = {"read_timeout": 1, "page_timeout": 1}
    pages = {"api_url": base, "api_key": "k", "page_size": GROUP, "require_images": True, "sources": "", **timeouts}
    common = set(files), broken, {}, over
    return server, [
        Lane("files", "file", {"root_path": str(root / "files")}, common, whole=True),
        Lane("shards", "webdataset", {"url": str(root / "shards" / "*.tar"), "shuffle_buffer": 50}, common, whole=True),
        Lane("shards over http", "webdataset", remote, common),
        Lane("database", "db", pages, common),
    ]


def rss():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20


def plot(points, path):
    """RSS and images/s over time, each from zero."""
    minutes = [point[0] / 60 for point in points]
    figure, axes = pyplot.subplots(2, 1, sharex=True, figsize=(10, 6))
    for row, (column, title) in enumerate(((1, "RSS, MB"), (2, "images/s"))):
        axes[row].plot(minutes, [point[column] for point in points])
        axes[row].set(ylabel=title, ylim=(0, 1.1 * max(point[column] for point in points)))
    axes[1].set_xlabel("minutes")
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--faults", type=float, default=0.05)
    parser.add_argument("--out", default="soak.png")
    options = parser.parse_args()
    root, over = pathlib.Path(tempfile.mkdtemp(prefix="datago-soak")), threading.Event()
    server, running = lanes(root, options.faults, over)
    points, begin, before = [], time.monotonic(), 0
    try:
        for lane in running:
            lane.start()
        then = begin
        while (now := time.monotonic()) < begin + 60 * options.minutes and not any(lane.problem for lane in running):
            time.sleep(PERIOD)
            images, then, now = sum(lane.images for lane in running), now, time.monotonic()
            points.append((now - begin, rss(), (images - before) / (now - then)))
            before = images
        over.set()
        for lane in running:
            lane.join(60)
    finally:
        server.kill()
        server.communicate()
        shutil.rmtree(root)
    plot(points, options.out)
    for lane in running:
        counts = f"{lane.passes:6} passes, {lane.images:8} images, {lane.failed:7} failures, {lane.errors:5} passes ended by an error"
        print(f"{lane.label:18}{counts}")
    third = len(points) // 3
    first, last = points[:third], points[-third:]

    def mean(part, column):
        return sum(point[column] for point in part) / len(part)

    print(f"RSS: {mean(first, 1):.1f} MB in the first third, {mean(last, 1):.1f} in the last: {mean(last, 1) / mean(first, 1) - 1:+.1%}")
    print(f"images/s: {mean(first, 2):.0f} in the first third, {mean(last, 2):.0f} in the last: {mean(last, 2) / mean(first, 2) - 1:+.1%}")
    print(f"CPU: {sum(os.times()[:2]):.0f} s; curves in {options.out}")
    problems = [lane.problem for lane in running if lane.problem] + [f"{lane.label} hangs" for lane in running if lane.is_alive()]
    sys.exit("; ".join(problems) if problems else 0)


if __name__ == "__main__":
    serve(sys.argv[2], float(sys.argv[3])) if sys.argv[1:2] == ["serve"] else main()
