"""The cache on local disk: whole objects or none, within a size, for several processes, and never in the way."""

import errno
import logging
import os
import subprocess
import sys
import threading
import time

import pytest
from network import BODY, answer, from_range, serve

from datago.errors import RemoteError
from datago.net import cache as cache_module
from datago.net import policy
from datago.net.cache import Cache
from datago.net.stream import open_stream

pytestmark = pytest.mark.network


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(policy, "backoff", lambda attempt: 0.005)
    for name in ("http_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def read(url, cache, **options):
    with open_stream(url, cache=cache, **options) as stream:
        return b"".join(stream)


def names(folder):
    return sorted(name for name in os.listdir(folder) if name != ".lock") if os.path.isdir(folder) else []


def test_read_once_kept_for_good(tmp_path):
    cache = Cache(tmp_path / "new" / "folder", 1 << 20)
    with serve([answer(BODY)]) as server:
        for _ in range(3):
            assert read(server.url + "/a.tar", cache) == BODY
        assert len(server.requests) == 1
        assert read(server.url + "/a.tar?v=2", cache) == BODY  # the key is the whole url
        assert read(server.url + "/b/a.tar", cache) == BODY
        assert len(server.requests) == 3
    assert (cache.hits, cache.misses, cache.failures) == (2, 3, 0)
    kept = names(tmp_path / "new" / "folder")
    assert len(kept) == 3 and all(len(name) == 70 and name.endswith(".shard") for name in kept)
    with open_stream(server.url + "/a.tar", cache=cache, block_size=20480) as stream:  # the server is gone
        assert [type(block) for block in stream] == [bytearray] and stream.size == 20480 and stream.checked


def test_resumed_objects_are_kept_whole(tmp_path):
    cache = Cache(tmp_path, 1 << 20)
    with serve([answer(BODY[:7000], length=20480), answer(BODY[:9000], length=20480), from_range]) as server:
        assert read(server.url, cache) == BODY == read(server.url, cache)
        assert len(server.requests) == 3


@pytest.mark.parametrize("chunks", [True, False])
def test_an_end_must_be_sure(tmp_path, chunks):
    """Chunked bodies say where they end; without length and chunks nobody knows, and the object is not kept."""
    cache = Cache(tmp_path, 1 << 20)
    body = b"5000\r\n" + BODY + b"\r\n0\r\n\r\n" if chunks else BODY
    with serve([answer(body, *["Transfer-Encoding: chunked"][:chunks], length=False)]) as server:
        assert read(server.url, cache) == BODY == read(server.url, cache)
        assert len(server.requests) == (1 if chunks else 2)
    assert len(names(tmp_path)) == chunks


def test_whole_or_not_at_all(tmp_path):
    cache = Cache(tmp_path, 1 << 20)
    with serve([answer(BODY[:7000], length=20480)]) as server:
        with pytest.raises(RemoteError):
            read(server.url, cache, attempts=2)
        assert names(tmp_path) == []
    with serve([answer(BODY)]) as server:
        with open_stream(server.url, cache=cache, block_size=1000) as stream:
            next(stream)
            assert [name[-5:] for name in names(tmp_path)] == [".part"]
        assert names(tmp_path) == []
        stream = open_stream(server.url, cache=cache, block_size=1000)
        next(stream)
        del stream
        assert names(tmp_path) == []


def test_discard(tmp_path):
    cache = Cache(tmp_path, 1 << 20)
    with serve([answer(b"<html>"), answer(BODY)]) as server:
        assert read(server.url, cache) == b"<html>" == read(server.url, cache)
        cache.discard(server.url)
        cache.discard(server.url)
        assert read(server.url, cache) == BODY


def test_longest_unused_go_first(tmp_path):
    (tmp_path / "not ours.shard").write_bytes(b"x" * 100000)
    cache = Cache(tmp_path, 3 * len(BODY) + 10)
    with serve([answer(BODY)]) as server:
        for name in "abcad":
            read(f"{server.url}/{name}", cache)
            time.sleep(0.02)
        assert len(server.requests) == 4
        assert sum(os.path.getsize(tmp_path / name) for name in names(tmp_path) if name != "not ours.shard") <= cache.size
        for name in "acd":  # b had to go
            read(f"{server.url}/{name}", cache)
        assert len(server.requests) == 4
        read(f"{server.url}/b", cache)
        assert len(server.requests) == 5
    assert (tmp_path / "not ours.shard").exists()


def test_objects_larger_than_all_of_it(tmp_path):
    cache = Cache(tmp_path, 5000)
    with serve([answer(BODY)]) as server:
        assert read(server.url, cache, block_size=1000) == BODY == read(server.url, cache)
    assert names(tmp_path) == [] and cache.failures == 0


def test_dead_writers_leave_nothing_for_long(tmp_path):
    dead, alive = tmp_path / f"{'1' * 64}.{'a' * 16}.part", tmp_path / f"{'2' * 64}.{'b' * 16}.part"
    dead.write_bytes(b"x")
    code = f"import fcntl, sys; f = open({str(alive)!r}, 'wb'); fcntl.flock(f, fcntl.LOCK_EX); print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout.readline() == b"ready\n"
        cache = Cache(tmp_path, 1 << 20)
        with serve([answer(BODY)]) as server:
            read(server.url, cache)
            assert not dead.exists() and alive.exists()
            writer.stdin.close()
            writer.wait(10)
            read(server.url + "/2", cache)
    assert not alive.exists() and len(names(tmp_path)) == 2


def test_several_processes_and_threads(tmp_path):
    def big(request):
        return answer(request.target.encode() * 5000)

    with serve(big) as server:
        code = f"""
import random, threading
from datago.net.cache import Cache
from datago.net.stream import open_stream
cache = Cache({str(tmp_path)!r}, 60_000)
def work(seed):
    rng = random.Random(seed)
    for _ in range(40):
        name = f"/{{rng.randrange(6)}}"
        with open_stream("{server.url}" + name, cache=cache, block_size=1000) as stream:
            assert b"".join(stream) == name.encode() * 5000
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert cache.failures == 0 and cache.hits + cache.misses == 120, vars(cache)
"""
        runs = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) for _ in range(3)]
        assert [run.communicate(timeout=40)[1] for run in runs] == [""] * 3
        assert len(server.requests) < 360
    sizes = [os.path.getsize(tmp_path / name) for name in names(tmp_path)]
    assert sizes and sum(sizes) <= 60_000 and set(sizes) == {10000}


# --- the disk refuses


def goes_on(cache, caplog, match):
    with serve([answer(BODY)]) as server:
        assert read(server.url, cache, block_size=3000) == BODY == read(server.url, cache)
        assert len(server.requests) == 2
    assert cache.failures >= 2
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1 and match in warnings[0]  # once, not for every shard


def test_folder_that_cannot_be(tmp_path, caplog):
    (tmp_path / "file").write_bytes(b"")
    goes_on(Cache(tmp_path / "file" / "cache", 1 << 20), caplog, "Not a directory")


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_disk_full(tmp_path, monkeypatch, caplog, call):
    calls = []

    def full(*_):
        calls.append(1)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cache_module.os, call, full)
    goes_on(Cache(tmp_path, 1 << 20), caplog, "No space left")
    assert calls and names(tmp_path) == []


def test_read_only_folder_still_gives_what_it_has(tmp_path, monkeypatch):
    with serve([answer(BODY)]) as server:
        read(server.url + "/a", Cache(tmp_path, 1 << 20))

        def refuse(*_, **__):
            raise OSError(errno.EROFS, "Read-only file system")

        for call in ("utime", "unlink", "rename", "makedirs"):
            monkeypatch.setattr(cache_module.os, call, refuse)
        cache = Cache(tmp_path, 1 << 20)
        assert read(server.url + "/a", cache) == BODY and (cache.hits, cache.failures) == (1, 0)
        assert read(server.url + "/b", cache) == BODY and cache.failures == 1
        assert len(server.requests) == 2


def test_a_lock_that_is_never_let_go(tmp_path, monkeypatch):
    monkeypatch.setattr(cache_module, "LOCK_PATIENCE", 0.1)
    code = f"import fcntl, sys; f = open('{tmp_path}/.lock', 'wb'); fcntl.flock(f, fcntl.LOCK_EX); print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"ready\n"
        cache = Cache(tmp_path, 1 << 20)
        with serve([answer(BODY)]) as server:
            assert read(server.url, cache) == BODY and cache.failures == 1
        holder.stdin.close()


def test_evicted_while_it_is_read(tmp_path):
    cache = Cache(tmp_path, 1 << 20)
    with serve([answer(BODY)]) as server:
        read(server.url, cache)
        with open_stream(server.url, cache=cache, block_size=1000) as stream:
            first = bytes(next(stream))
            for name in names(tmp_path):
                os.unlink(tmp_path / name)
            assert first + b"".join(stream) == BODY


def test_threads_on_one_url(tmp_path):
    cache = Cache(tmp_path, 1 << 20)
    with serve([answer(BODY)]) as server:
        results = []
        threads = [threading.Thread(target=lambda: results.append(read(server.url, cache))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [BODY] * 8
    assert len(names(tmp_path)) == 1
