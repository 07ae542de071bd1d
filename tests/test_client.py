import gc
import io
import os
import pickle
import subprocess
import sys
import threading
import time
import traceback
import weakref

import numpy
import pytest
from conftest import check_accounts, config, jpeg, read, threads_left
from database import until
from faulty import faulty
from PIL import Image

import datago
from datago import DatagoClient, SampleError, SourceError


def test_every_sample_once_then_none(folder):
    client = DatagoClient(config(folder))
    ids = []
    while (sample := client.get_sample(timeout=20)) is not None:
        ids.append(os.path.basename(sample.id))
        assert sample.image.width == 32 + int(ids[-1][:3])  # pixels and id belong together
    assert sorted(ids) == [f"{i:03d}.jpg" for i in range(20)]
    assert client.get_sample() is None and client.get_sample_auto_convert() is None
    client.start()
    assert sum(1 for _ in client) == 20


def test_iterating_again_is_a_full_pass(folder):
    client = DatagoClient(config(folder))
    assert [len({sample.id for sample in client}) for _ in range(3)] == [20, 20, 20]
    for i, _ in enumerate(client):
        if i == 3:
            break
    client.stop()
    assert sum(1 for _ in client) == 20


@pytest.mark.parametrize("limit", [1, 7, 19, 20, 21, 10**12])
def test_limit_is_exact(folder, limit):
    samples, stats = read(config(folder, limit=limit))
    assert len(samples) == stats["delivered"] == min(limit, 20)
    assert stats["seen"] == min(limit, 20)  # nothing is decoded beyond it


def test_failures_do_not_count_towards_the_limit(folder):
    for i in range(0, 20, 2):
        (folder / f"d{i % 3}" / f"{i:03d}.jpg").write_bytes(b"junk")
    samples, stats = read(config(folder, limit=9))
    assert len(samples) == 9 and 8 <= stats["failed"] <= 10
    samples, stats = read(config(folder, limit=15))
    assert len(samples) == 10 and stats["failures"] == {"unsupported": 10}
    assert stats["last_failures"][0].keys() == {"name", "reason", "text"}
    assert "6a 75 6e 6b" in stats["last_failures"][0]["text"]


def test_on_error_raise_names_the_file_and_goes_on(folder):
    (folder / "d0" / "000.jpg").write_bytes(b"")
    client, good, bad = DatagoClient(config(folder, on_error="raise")), 0, []
    while True:
        try:
            if client.get_sample(timeout=20) is None:
                break
            good += 1
        except SampleError as error:
            bad.append(error)
    assert good == 19 and [(error.name, error.reason) for error in bad] == [(str(folder / "d0" / "000.jpg"), "empty")]
    assert isinstance(bad[0], ValueError) and "000.jpg: empty" in str(bad[0])


def test_on_error_may_be_a_function(folder):
    (folder / "d0" / "000.jpg").write_bytes(b"")
    (folder / "d1" / "001.jpg").write_bytes(b"junk")
    seen, threads = [], set()

    def note(failure):
        seen.append((os.path.basename(failure.name), failure.reason, failure.text[-11:]))
        threads.add(threading.current_thread())

    samples, stats = read(config(folder, on_error=note))
    assert sorted(seen) == [("000.jpg", "empty", "no bytes"), ("001.jpg", "unsupported", "6a 75 6e 6b")]
    assert len(samples) == 18 and stats["failed"] == 2 and threads == {threading.current_thread()}


def test_what_that_function_raises_reaches_the_reader(folder):
    class Mine(Exception):
        pass

    def refuse(failure):
        assert isinstance(failure, datago.Failure)
        raise Mine(failure.reason)

    for name in ("d0/000.jpg", "d1/001.jpg"):
        (folder / name).write_bytes(b"")
    client, good, bad = DatagoClient(config(folder, on_error=refuse)), 0, 0
    while True:
        try:
            if client.get_sample(timeout=20) is None:
                break
            good += 1
        except Mine as error:
            assert str(error) == "empty"
            bad += 1
    assert (good, bad) == (18, 2)
    check_accounts(client.stats())


def test_nothing_but_failures_is_an_error(tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.jpg").write_bytes(b"junk")
    client = DatagoClient(config(tmp_path))
    with pytest.raises(SourceError, match=r"none of the 3 items .* unsupported"):
        client.get_sample(timeout=20)
    assert client.get_sample() is None
    check_accounts(client.stats())
    assert client.stats()["failed"] == 3


def test_timeout_is_neither_end_nor_error(tmp_path):
    """A fifo in the tree's place cannot stall us, so a source that stalls is made: the real pool, fed by nobody."""
    from datago import config as parsing
    from datago.engine._pool import Pool
    from datago.engine._progress import Progress

    image = parsing.parse(config(tmp_path)).image_config
    pool = Pool(threads=1, work_capacity=4, ready_capacity=4, limit=100, max_file_bytes=2**30, image=image, progress=Progress())
    with pytest.raises(TimeoutError, match="no sample within 0.3 s"):
        pool.take(False, 0.3)
    with pytest.raises(TimeoutError):
        pool.take(False, 0)
    pool.finish()
    assert pool.take(False, 10) is None


@pytest.mark.parametrize("timeout", [float("nan"), True, "5", b"5", [1], 10**400, numpy.float32("nan")])
def test_a_timeout_is_a_number(folder, timeout):
    with DatagoClient(config(folder)) as client:
        for get in (client.get_sample, client.get_sample_auto_convert):
            with pytest.raises(ValueError, match="timeout: got .*, wanted a number of seconds, or None"):
                get(timeout=timeout)
        assert client.get_sample(timeout=numpy.float32(20)) is not None


def test_timeouts_at_the_ends(folder, monkeypatch):
    with DatagoClient(config(folder, limit=1)) as client:
        assert client.get_sample(timeout=float("inf")) is not None and client.get_sample(timeout=1e308) is None
    stopped = threading.Event()
    monkeypatch.setattr("datago.sources.file.source.FileSource.batches", lambda self: iter(stopped.wait, True))
    with DatagoClient(config(folder)) as client:
        for timeout in (0, -1, -float("inf"), -1e308, numpy.int64(0)):
            with pytest.raises(TimeoutError):
                client.get_sample(timeout=timeout)
        stopped.set()


@pytest.mark.parametrize("worker, workers", [(1, 1), (-1, 2), (0, 0), (True, 2), (0, 1.5), ("0", 1)])
def test_a_part_is_one_of_so_many(folder, worker, workers):
    with pytest.raises(ValueError, match="worker, workers: got"):
        DatagoClient(config(folder)).part(worker, workers)


@pytest.mark.parametrize("epoch", [-1, 1.0, True, "1", None, float("nan"), 2**63])
def test_an_epoch_is_an_integer(folder, epoch):
    with pytest.raises(ValueError, match="epoch: got"):
        DatagoClient(config(folder)).set_epoch(epoch)


def test_a_dead_source_raises_after_what_it_gave(folder, monkeypatch):
    from datago.sources.file.source import FileSource

    def dying(self):
        yield [(os.fsencode(folder / "d0" / name), -1) for name in ("000.jpg", "003.jpg")]
        raise SourceError("the disk is gone")

    monkeypatch.setattr(FileSource, "batches", dying)
    client = DatagoClient(config(folder))
    assert client.get_sample(timeout=20) and client.get_sample(timeout=20)
    with pytest.raises(SourceError, match="the disk is gone"):
        client.get_sample(timeout=20)
    assert client.get_sample() is None


def dying_files(self):
    yield []
    raise SourceError("the disk is gone")


def dying_shard(self, ordinal):
    yield []
    raise SourceError("the shard is gone")


@pytest.mark.network
@pytest.mark.parametrize("kind", ["file", "webdataset", "db"])
def test_an_error_that_was_raised_keeps_nobody_alive(folder, monkeypatch, kind):
    """The traceback holds the reader's frame, and with that all clients that are in it: none may wait for a garbage collection."""
    from datago.sources.file.source import FileSource
    from datago.sources.webdataset.source import WebDatasetSource

    monkeypatch.setattr(FileSource, "batches", dying_files)
    monkeypatch.setattr(WebDatasetSource, "_read", dying_shard)
    (folder / "a.tar").write_bytes(b"")

    def reader(url):
        client = DatagoClient(
            {
                "file": config(folder),
                "webdataset": {"source_type": "webdataset", "source_config": {"url": str(folder / "a.tar")}},
                "db": {"source_type": "db", "source_config": {"sources": "", "page_size": 4, "api_url": url, "api_key": "x"}},
            }[kind]
        )
        with pytest.raises(SourceError):
            client.get_sample(timeout=20)
        return weakref.ref(client)

    with faulty({}) as server:  # it answers 404
        gc.collect()
        gc.disable()
        try:
            gone = reader(server.url)
            assert gone() is None and not threads_left()
        finally:
            gc.enable()


@pytest.mark.parametrize("how", ["stopped", "read"])
def test_a_reader_that_comes_late_begins_no_second_pass(folder, monkeypatch, how):
    """It has seen that no pass was there, and waits for the lock until the pass that another thread has begun is over."""
    from datago.sources.file.source import FileSource

    gate, opened, got, before = threading.Event(), [], [], FileSource.open

    def held(self):
        opened.append(self)
        assert gate.wait(20)
        before(self)

    def first():
        with client._starting():  # as if it were slow to let it go
            got.append(sum(1 for _ in client))

    def is_at_the_lock():
        frames = traceback.extract_stack(sys._current_frames()[late.ident])
        return any(frame.name == "_start" for frame in frames)

    monkeypatch.setattr(FileSource, "open", held)
    client = DatagoClient(config(folder))
    begins = threading.Thread(target=first)
    late = threading.Thread(target=lambda: got.append(client.get_sample()))
    begins.start()
    until(lambda: opened)
    late.start()
    until(is_at_the_lock)
    if how == "stopped":
        client.stop()
    gate.set()
    for thread in (begins, late):
        thread.join(20)
    assert got == [0 if how == "stopped" else 20, None] and len(opened) == 1


def test_stop_is_idempotent_and_ends_reads(folder):
    client = DatagoClient(config(folder, samples_buffer_size=2))
    client.stop()  # before start
    assert client.get_sample() is None
    client.start()
    assert client.get_sample(timeout=20)
    client.stop()
    client.stop()
    assert client.get_sample() is None
    assert not threads_left()  # on a busy machine it may take longer than stop() waits
    stats = client.stats()
    check_accounts(stats)
    assert stats["delivered"] == 1 and stats["in_flight"] == 0 and stats["skips"].get("stopped", 0) == stats["seen"] - 1


@pytest.mark.slow
def test_stop_while_big_pictures_are_decoded(tmp_path):
    out = io.BytesIO()
    Image.effect_noise((6000, 4000), 90).convert("RGB").save(out, "JPEG", progressive=True)
    big = out.getvalue()
    for i in range(6):
        (tmp_path / f"{i}.jpg").write_bytes(big)
    client = DatagoClient(config(tmp_path))
    client.start()
    time.sleep(0.05)
    client.stop()
    assert not threads_left()
    assert client.stats()["in_flight"] == 0 < client.stats()["skipped"]


def test_stop_from_another_thread_wakes_a_reader(tmp_path, monkeypatch):
    from datago.sources.file.source import FileSource

    gate, inside = threading.Event(), threading.Event()

    def stalled(self):
        inside.set()
        gate.wait(20)
        yield []

    monkeypatch.setattr(FileSource, "batches", stalled)
    (tmp_path / "a.jpg").write_bytes(jpeg())
    client, got = DatagoClient(config(tmp_path)), []
    reader = threading.Thread(target=lambda: got.append(client.get_sample()))
    reader.start()
    assert inside.wait(20)
    client.stop()
    reader.join(20)
    assert got == [None]
    assert datago.live_cleanup_threads() == 1  # the feeder still sits in a call that does not come back
    gate.set()
    deadline = time.monotonic() + 10
    while datago.live_cleanup_threads() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert datago.live_cleanup_threads() == 0


def test_other_threads_run_while_one_waits(tmp_path, monkeypatch):
    from datago.sources.file.source import FileSource

    monkeypatch.setattr(FileSource, "batches", lambda self: iter(lambda: time.sleep(0.01) or [], None))
    (tmp_path / "a.jpg").write_bytes(jpeg())
    ended = []
    with DatagoClient(config(tmp_path)) as client:
        reader = threading.Thread(target=lambda: ended.append(client.get_sample()))
        reader.start()
        for _ in range(100):
            time.sleep(0.005)
        assert not ended  # this thread has come here, and the other one waits still
    reader.join(20)
    assert ended == [None]


def test_four_readers_share_one_client(tmp_path):
    for i in range(400):
        (tmp_path / f"{i:03d}.jpg").write_bytes(jpeg(16, 8))
    client, seen, lock = DatagoClient(config(tmp_path, limit=399)), [], threading.Lock()

    def consume():
        while (sample := client.get_sample(timeout=20)) is not None:
            with lock:
                seen.append(sample.id)

    readers = [threading.Thread(target=consume) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(30)
    assert len(seen) == len(set(seen)) == 399 and not threads_left()
    check_accounts(client.stats())


def test_a_slow_reader_bounds_what_is_in_flight(tmp_path):
    for i in range(200):
        (tmp_path / f"{i:03d}.jpg").write_bytes(jpeg(16, 8))
    with DatagoClient(config(tmp_path, samples_buffer_size=5)) as client:
        client.get_sample(timeout=20)
        time.sleep(0.3)  # in which there could be more
        stats = client.stats()
    assert stats["ready_ring"]["depth"] <= 5 == stats["ready_ring"]["capacity"]
    assert stats["ready_ring"]["passed"] <= 1 + 5
    assert stats["work_ring"]["passed"] - stats["work_ring"]["depth"] <= 1 + 5 + stats["threads"]


def test_accounts_hold_at_every_moment(folder):
    (folder / "d1" / "001.jpg").write_bytes(b"junk")
    with DatagoClient(config(folder)) as client:
        check_accounts(client.stats())
        while client.get_sample(timeout=20) is not None:
            check_accounts(client.stats())
        assert client.stats()["seen"] == 20 and client.stats()["in_flight"] == 0


def test_the_bottleneck_is_named(tmp_path):
    for i in range(120):
        (tmp_path / f"{i:03d}.jpg").write_bytes(jpeg(16, 8))
    with DatagoClient(config(tmp_path, samples_buffer_size=1)) as client:
        assert client.stats()["bottleneck"] is None or client.stats()["seen"]
        for _ in client:
            time.sleep(0.002)
        assert client.stats()["bottleneck"].startswith("training loop is slow: ")


def test_pickle_before_start_only(folder):
    client = DatagoClient(config(folder))
    twin = pickle.loads(pickle.dumps(client))
    assert sum(1 for _ in twin) == 20
    with pytest.raises(TypeError, match="started cannot be pickled"):
        pickle.dumps(twin)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_threads_and_descriptors_come_back(folder):
    def counts():
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    assert not threads_left()  # those of a test before
    before = counts()
    for i in range(40):
        client = DatagoClient(config(folder, samples_buffer_size=3))
        client.get_sample(timeout=20)
        if i % 3 == 0:
            client.stop()
        elif i % 3 == 1:
            for _ in client:
                pass
        del client
    gc.collect()
    deadline = time.monotonic() + 20
    while counts() != before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert counts() == before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_few_descriptors_many_threads(tmp_path):
    """64 descriptors, 32 threads, three passes: what fails is counted, and every descriptor comes back."""
    for i in range(300):
        (tmp_path / f"{i:03d}.jpg").write_bytes(jpeg(16, 8))
    script = f"""
import os, resource, time
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from datago import DatagoClient
before = len(os.listdir("/proc/self/fd"))
client = DatagoClient({config(tmp_path)!r})
for _ in range(3):
    assert sum(1 for _ in client) == 300, client.stats()
clients = [DatagoClient({config(tmp_path)!r}) for _ in range(20)]
for client in clients:
    client.get_sample()
del client, clients  # workers may be at a file, and nobody waits for them
end = time.monotonic() + 20
while (left := len(os.listdir("/proc/self/fd")) - before) and time.monotonic() < end:
    time.sleep(0.01)
assert left == 0
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=50, env={**os.environ, "DATAGO_MAX_TASKS": "32"})


@pytest.mark.slow
def test_memory_is_flat_over_ten_passes(tmp_path):
    for i in range(60):
        (tmp_path / f"{i:03d}.jpg").write_bytes(jpeg(300 + i, 300, seed=i) if i % 10 else b"junk")
    script = f"""
import resource
from datago import DatagoClient
client = DatagoClient({config(tmp_path)!r})
peaks = []
for _ in range(10):
    for sample in client:
        pass
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(peaks[-1] - peaks[2])
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, timeout=50, capture_output=True, text=True)
    assert int(done.stdout) < 6000  # kB


def test_one_cpu_means_one_worker(folder):
    script = f"from datago import DatagoClient; c = DatagoClient({config(folder)!r}); c.start(); print(c.stats()['threads'])"
    done = subprocess.run(["taskset", "-c", "0", sys.executable, "-c", script], capture_output=True, text=True, timeout=30)
    assert done.stdout == "1\n", done.stderr


def test_import_is_light():
    script = "import datago, sys; print(sorted({'torch', 'PIL', 'requests', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30).stdout == "[]\n"
