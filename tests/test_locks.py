"""Locks: none is held where other code of Python's may run, and none that a forked child meets is held for ever."""

import ast
import gc
import io
import json
import pathlib
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
import weakref
from collections import Counter

import pytest
from conftest import config, jpeg
from PIL import Image

from datago import DatagoBatchDataset, DatagoClient, DatagoIterDataset
from datago.net._fetch import Fetcher
from datago.threads import Bell, Flag, OwnLock

pytestmark = pytest.mark.timeout(150)
ROOT = pathlib.Path(__file__).parent.parent

# In a forked child nobody lets go of what a thread of the parent held. So for every lock: who takes it, and what becomes of it there.
PASS = "belongs to a pass, whose client raises RuntimeError in a child"
LOCKS = {
    ("lifecycle.py", "OwnLock"): (2, "every method that starts, ends or asks for a pass", "made anew"),
    ("losses.py", "new_lock"): (1, "the reader, and who asks for stats", PASS),
    ("_pool.pyx", "pthread_mutex_t"): (1, "feeder, workers, reader", "every method of Pool looks at the process"),
    ("_ring.pxd", "pthread_mutex_t"): (1, "feeder, workers, reader", "as Pool; PyRing is for tests"),
    ("_ring.pyx", "pthread_mutex_t"): (1, "the threads of `spin`", "it lasts as long as the call"),
    ("_batch.pxd", "pthread_mutex_t"): (1, "workers, feeder, reader", "as Pool"),
    ("_budget.pxd", "pthread_mutex_t"): (1, "workers, feeder, reader", "as Pool"),
    ("_progress.pxd", "pthread_mutex_t"): (1, "reader and source", PASS),
    ("_transfers.pxd", "pthread_mutex_t"): (1, "download thread and feeder", "every method of Fetcher looks at the process"),
    ("image.c", "pthread_mutex_t"): (1, "workers, and whoever drops or converts a sample", "allocation and release look at the process"),
    ("gamut.c", "pthread_once_t"): (1, "workers, once", "the C library begins it again"),
    ("resize_axis.c", "pthread_once_t"): (1, "workers, once", "the C library begins it again"),
    ("threads.py", "Lock"): (1, "what a Bell is made of", "see Bell"),
    ("threads.py", "RLock"): (1, "what new_lock makes", "see new_lock"),
    ("threads.py", "new_lock"): (2, "OwnLock and Bell", "see these"),
    ("threads.py", "Bell"): (2, "a Flag, and a thread that begins", "a pass's, or the caller's own"),
    ("threads.py", "Flag"): (2, "a thread, who starts it, who waits for its end", "the caller's own"),
    ("shard_readers.py", "Bell"): (2, "shard lanes and feeder", PASS),
    ("source.py", "Flag"): (1, "shard lanes and who stops them", PASS),
    ("source.py", "new_lock"): (1, "shard lanes", PASS),
    ("ledger.py", "new_lock"): (1, "shard lanes, feeder and state", PASS),
    ("window.py", "new_lock"): (1, "feeder and state", PASS),
    ("cache.py", "new_lock"): (1, "shard lanes", PASS),
    ("http.py", "OwnLock"): (1, "shard lanes of all passes", "made anew"),
    ("api.py", "Flag"): (1, "pages' thread and who stops it", PASS),
    ("pages.py", "Bell"): (1, "pages' thread and feeder", PASS),
    ("pages.py", "SimpleQueue"): (1, "pages' thread and feeder", PASS),
    ("cancel.py", "SimpleQueue"): (1, "a call in a thread of its own", PASS),
    ("stages.py", "Event"): (1, "the command line", "it does not fork there"),
}  # fmt: skip
KINDS = re.compile(r"R?Lock|Condition|Event|(Bounded)?Semaphore|Barrier|\w*Queue|allocate_lock|OwnLock|Bell|Flag|new_lock")
NATIVE = re.compile(r"\b(pthread_(?:mutex|rwlock|once|spinlock)_t|PyThread_\w+|PyMutex|mtx_t|once_flag|atomic_flag) \w+")


def locks_in(path):
    """The kinds of locks that a file names, but for imports, definitions and annotations, one for each time."""
    text = path.read_text()
    if path.suffix != ".py":
        return NATIVE.findall(text) + re.findall(r"\bthreading\.(\w+)\(", text)
    tree = ast.parse(text)
    types = [getattr(node, name, None) for node in ast.walk(tree) for name in ("annotation", "returns")]
    annotations = {inner for one in types if one is not None for inner in ast.walk(one)}
    nodes = [node for node in ast.walk(tree) if node not in annotations]
    modules = ("threading", "_thread", "queue", "multiprocessing")
    names = [node.id for node in nodes if isinstance(node, ast.Name)]
    names += [node.attr for node in nodes if isinstance(node, ast.Attribute) and getattr(node.value, "id", None) in modules]
    return [name for name in names if KINDS.fullmatch(name)]


def test_every_lock_is_in_the_table():
    files = [path for suffix in ("py", "pyx", "pxd") for path in (ROOT / "datago").rglob(f"*.{suffix}")]
    found = Counter((path.name, kind) for path in [*files, *(ROOT / "src_c").iterdir()] for kind in locks_in(path))
    assert found == {place: row[0] for place, row in LOCKS.items()}


def test_a_flag_is_seen_though_its_bell_is_not_heard():
    """Who was woken, and was to wake the next, may have been interrupted before."""
    flag, inside = Flag(), threading.Event()
    waiter = threading.Thread(target=lambda: (inside.set(), flag.wait()), daemon=True)
    waiter.start()
    assert inside.wait(20)
    flag._set = True
    waiter.join(20)
    assert not waiter.is_alive()
    assert Flag().wait(0.01) is False and flag.wait(0) is True


# ---- forks ----

HEAD = """
import gc, json, os, pickle, signal, sys, threading, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # from 3.12 on os.fork has a word to say about threads
from datago import *
from datago.net import http
config = json.loads(sys.argv[1])
def in_a_child(call):
    child = os.fork()
    if child == 0:
        signal.alarm(10)  # who hangs is killed, and that is seen
        try:
            call()
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
        os._exit(0)
    state = os.waitpid(child, 0)[1]
    assert state == 0, state
"""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    root = tmp_path_factory.mktemp("pictures")
    for i in range(60):
        (root / f"{i:03d}.jpg").write_bytes(jpeg(64, 48, seed=i % 5))
    (root / "x.gif").write_bytes(gif())
    return root


def gif():
    out = io.BytesIO()
    Image.new("P", (8, 8)).save(out, "GIF")
    return out.getvalue()


def run(script, config, limit=120):
    done = subprocess.run([sys.executable, "-c", HEAD + script, json.dumps(config)], capture_output=True, text=True, timeout=limit)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-2000:]
    return done.stdout


# How every public name of a client that was started is used in a child. "told": it raises what get_sample() raises there.
TOLD = {
    "start": "client.start()", "stop": "client.stop()", "get_sample": "client.get_sample()", "stats": "client.stats()",
    "get_sample_auto_convert": "client.get_sample_auto_convert()", "metrics": "client.metrics()", "state_dict": "client.state_dict()",
    "load_state_dict": "client.load_state_dict(state)", "set_epoch": "client.set_epoch(3)", "__iter__": "next(iter(client))",
    "__enter__": "client.__enter__()", "__exit__": "client.__exit__()",
}  # fmt: skip
WORKS = {"count": "client.count()", "part": "client.part(0, 2)", "epoch": "client.epoch", "config": "client.config"}
CHILD = """
client = DatagoClient(config)
held = [client.get_sample() for _ in range(20)]
converted = client.get_sample_auto_convert()
state, dataset, over = client.state_dict(), DatagoIterDataset(config), False
iterator = iter(dataset)
next(iterator)
def load():
    while not over:
        for _ in DatagoClient(config): client.stats()
def read():
    while not over:
        for _ in client:
            if over: break
def told(call):
    try:
        eval(call)
    except RuntimeError as error:
        assert "another process" in str(error), call
    else:
        raise AssertionError(call)
def child():
    for call in TOLD: told(call)
    for call in WORKS: eval(call)
    try:
        pickle.dumps(client)
    except TypeError: pass
    assert live_cleanup_threads() == 0
    for sample in held: sample.image.to_pil_image().load(); sample.image.data
    assert dataset.state_dict()["delivered"] == 0 and len(dataset) == 61
    dataset.set_epoch(2)
    pickle.dumps(dataset)
    held.clear()
    globals().update(client=None, dataset=None, iterator=None)
    gc.collect()
threads = [threading.Thread(target=target, daemon=True) for target in (load, read)]
for thread in threads: thread.start()
for _ in range(60): in_a_child(child)
over = True
for thread in threads: thread.join(20)
print(sum(1 for _ in DatagoClient(config)))
"""


@pytest.mark.slow
def test_a_child_is_told_at_once_whatever_it_asks(pictures):
    public = {name for name in dir(DatagoClient) if not name.startswith("_")} | {"__iter__", "__enter__", "__exit__"}
    assert public == set(TOLD) | set(WORKS)
    script = f"TOLD, WORKS = {list(TOLD.values())!r}, {list(WORKS.values())!r}\n" + CHILD
    assert run(script, config(pictures)) == "61\n"


@pytest.mark.slow
def test_what_was_held_at_the_fork_is_free_in_the_child(pictures):
    """A client that was not started, and what all clients of a process share, while a thread of the parent holds every lock of it."""
    script = """
client, go, held = DatagoClient(config), threading.Event(), threading.Event()
def hold():
    with client._lock(), client._starting(), http._lock():
        held.set()
        go.wait()
def child():
    client.set_epoch(1)
    client.state_dict()
    assert client.stats()["seen"] == 0
    assert sum(1 for _ in client) == 61
    client.stop()
    with http._lock(): pass
thread = threading.Thread(target=hold)
thread.start()
held.wait()
in_a_child(child)
in_a_child(lambda: gc.collect())
go.set()
thread.join()
print(sum(1 for _ in client))
"""
    assert run(script, config(pictures)) == "61\n"


def test_an_own_lock_in_one_process():
    lock, order = OwnLock(), []

    def other():
        with lock():
            order.append("other")

    with lock(), lock():  # as often as its thread likes
        thread = threading.Thread(target=other)
        thread.start()
        time.sleep(0.05)
        order.append("main")
    thread.join(10)
    assert order == ["main", "other"]


# ---- finalizers and signal handlers ----


def shards(root, count=3, samples=8):
    pictures = [jpeg(40, 30, seed=i) for i in range(8)]
    for shard in range(count):
        with tarfile.open(root / f"{shard}.tar", "w") as file:
            for i in range(samples):
                info = tarfile.TarInfo(f"{shard}-{i}.jpg")
                info.size = len(pictures[i % 8])
                file.addfile(info, io.BytesIO(pictures[i % 8]))
    return {"source_type": "webdataset", "source_config": {"url": f"{root}/{{0..{count - 1}}}.tar"}}


@pytest.mark.slow
def test_what_a_batch_lets_go_of_may_run_any_code():
    """The bytes that pictures were decoded from are freed while others are submitted; these here have a finalizer."""
    script = """
import ast
from types import SimpleNamespace
from datago import config as configuration
from datago.engine._pool import Pool
from datago.engine._progress import Progress
from datago.engine._sample import Entry
class Bytes(bytes):
    def __del__(self):
        seen.append(pool.counts()["seen"])
        if len(seen) > 20: pool.stop()
        gc.collect()
seen, data = [], ast.literal_eval(config["data"])
image = {"random_resized_crop": 16, "image_to_rgb8": True}
image = configuration.parse({"source_type": "file", "source_config": {"root_path": "."}, "image_config": image}).image_config
batch = SimpleNamespace(
    size=30, layout="NHWC", drop=False, dtype="uint8", channels=3, mean=[0.0] * 3, std=[1.0] * 3, most_waiting=2**62, most=0, bytes=0, planning=None)
pool = Pool(
    threads=2, work_capacity=64, ready_capacity=64, limit=10**6, max_file_bytes=2**30, image=image, progress=Progress(), batch=batch)
gc.set_threshold(1, 1, 1)
for i in range(200):
    if not pool.submit([Entry(f"{i} {k}", "a.tar", [("image", None, Bytes(data))]) for k in range(2)]): break
assert pool.join(10) and len(seen) >= 20
print(pool.counts()["in_flight"])
"""
    assert run(script, {"data": repr(jpeg(40, 30))}) == "0\n"


@pytest.mark.slow
def test_stop_in_a_signal_handler(tmp_path):
    """Whatever the main thread is at, here at starting, waiting and stopping."""
    script = """
client = DatagoClient(config)
signal.signal(signal.SIGALRM, lambda *_: client.stop())
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.003)
end = time.monotonic() + 3
while time.monotonic() < end:
    client.start()
    for _ in client: break
    client.state_dict()
signal.setitimer(signal.ITIMER_REAL, 0)
client.stop()
print(client.stats()["in_flight"])
"""
    assert run(script, shards(tmp_path)) == "0\n"


def test_nothing_that_ends_a_pass_runs_python_code(folder):
    """What a finalizer or a weak reference's callback raises is lost, a Ctrl-C among it: so there are none."""
    client, fetcher = DatagoClient(config(folder)), Fetcher(1)
    client.get_sample()
    dataset = DatagoIterDataset(config(folder))
    samples = iter(dataset)
    next(samples)
    passes = [client._pass, dataset._running._pass]
    for thing in (client, fetcher, dataset, dataset._running, *passes, *(thread for one in passes for thread in one._threads)):
        assert not hasattr(type(thing), "__del__")
        assert all(reference.__callback__ is None for reference in weakref.getweakrefs(thing)), thing
    fetcher.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "drop",
    ["del client", "client.me = client; del client; gc.collect()", "samples = iter(DatagoIterDataset(config)); next(samples); del samples"],
)
def test_a_dropped_client_ends_its_pass(pictures, drop):
    script = f"""
client = DatagoClient(config)
client.get_sample()
{drop}
if "client" in globals(): client.stop()
end = time.monotonic() + 20
while threading.active_count() > 1 and time.monotonic() < end: time.sleep(0.01)
print(threading.active_count(), live_cleanup_threads())
"""
    assert run(script, config(pictures, samples_buffer_size=1)) == "1 0\n"


def test_a_flag_and_a_bell():
    flag, bell = Flag(), Bell()
    assert not flag.wait(0.01) and not bell.wait(0.01) and not flag.is_set()
    bell.ring()
    bell.ring()
    assert bell.wait(0) and not bell.wait(0)  # it rang, be it twice, and wakes one
    found = []
    threads = [threading.Thread(target=lambda: found.append(flag.wait(20))) for _ in range(4)]
    for thread in threads:
        thread.start()
    before = signal.signal(signal.SIGALRM, lambda *_: flag.set())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert flag.wait(20)  # set by a handler that ran in here
    finally:
        signal.signal(signal.SIGALRM, before)
    for thread in threads:
        thread.join(20)
    assert found == [True] * 4 and flag.wait(0) and flag.is_set()


def test_a_batch_in_a_cycle(folder):
    """A batch and its dataset refer to each other: all of it is let go of."""
    dataset = DatagoBatchDataset(config(folder, image_config={"random_resized_crop": 16}), 4)
    batches = iter(dataset)
    batch = next(batches)
    batch["me"], dataset.last, dataset.batches = batch, batch, batches
    reference = weakref.ref(dataset)
    del dataset, batches, batch
    gc.collect()
    assert reference() is None
