"""Shards made on the spot, and what reads them."""

import functools
import http.server
import io
import json
import tarfile
import threading
from collections import deque

import numpy
import pytest
from conftest import check_accounts, jpeg, saved

from datago import DatagoClient

J = jpeg(16, 16)


def tar(members, format=tarfile.GNU_FORMAT, **options):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format, **options) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            if data is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(data)
            archive.addfile(info, io.BytesIO(data or b""))
    return out.getvalue()


def blocks(data, size=1 << 20):
    return iter([data[i : i + size] for i in range(0, len(data), size)])


def standard(count=6):
    return [(f"{i:04d}.{kind}", data) for i in range(count) for kind, data in (("jpg", J), ("txt", b"text %d" % i))]


PIXEL = saved(numpy.full((8, 8, 3), 99, numpy.uint8))


def shards(folder, sizes, suffix=".tar", pack=bytes):
    """Shards of that many samples, named s<shard>_<sample>: a list of lists of their ids."""
    ids = [[f"s{s}_{i}" for i in range(size)] for s, size in enumerate(sizes)]
    for s, names in enumerate(ids):
        (folder / f"{s:06d}{suffix}").write_bytes(pack(tar([(f"{name}.png", PIXEL) for name in names])))
    return ids


def flat(lists):
    return [item for part in lists for item in part]


def ids(configuration, state=None, most=None, timeout=20):
    """The ids of the next samples, and the state behind the last one."""
    client = DatagoClient(configuration)
    if state is not None:
        client.load_state_dict(state)
    with client:
        found = []
        while (most is None or len(found) < most) and (sample := client.get_sample(timeout=timeout)) is not None:
            found.append(sample.id)
        return found, client.state_dict()


def in_turn(lists, lanes):
    """The order that webdataset.py promises, by another way than its own: list j of k lanes begins as lists j, j + k …"""
    queues = [deque(flat(lists[lane::lanes])) for lane in range(lanes)]
    order = []
    while any(queues):
        order += [queue.popleft() for queue in queues if queue]
    return order


def write_index(folder, lists, **changed):
    """A wids index of what `shards` wrote, where some shards (s<number>) have another count."""
    path = folder / "index.json"
    counts = {f"{s:06d}.tar": changed.get(f"s{s}", len(names)) for s, names in enumerate(lists)}
    shardlist = [{"url": url, "nsamples": count, "filesize": 0} for url, count in counts.items()]
    path.write_text(json.dumps({"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": shardlist}))
    return str(path)


def config(url, **top):
    keys = (
        "rank",
        "world_size",
        "random_sampling",
        "shuffle",
        "shuffle_buffer",
        "concurrent_downloads",
        "reference_image_type",
        "mask_suffixes",
        "timeout",
        "auth_token",
        "cache_dir",
        "cache_size",
        "shard_index",
    )
    source = {key: top.pop(key) for key in keys if key in top}
    return {"source_type": "webdataset", "source_config": {"url": url if isinstance(url, list) else str(url), **source}, **top}


def read(configuration, timeout=20):
    with DatagoClient(configuration) as client:
        samples = list(iter(functools.partial(client.get_sample, timeout=timeout), None))
        stats = client.stats()
    check_accounts(stats)
    return samples, stats


@pytest.fixture
def server(tmp_path):
    class Handler(http.server.SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments):
            pass

        def do_GET(self):
            server.seen.append((self.path, self.headers.get("Authorization")))
            super().do_GET()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(tmp_path)))
    server.seen = []
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
