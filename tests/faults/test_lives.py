"""Clients by the hundred over every source, and forks under load: nothing stays behind, nobody hangs. Figures are printed at the end."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time

import album
import pytest
from album import COLUMNS, DB, FILE, HTTP, TAR
from conftest import config, jpeg, tables, threads_left
from faulty import answer, faulty, silent
from processes import ENVIRONMENT, HERE

from datago import DatagoClient

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
]
# Warnings, of work that is still in flight say, are silenced: what these programs write to stderr is an error.
HEAD = (
    f"import sys; sys.path.insert(0, {str(HERE)!r}); config = __import__('json').loads(sys.argv[1])\nfrom datago import *\n"
    "import logging; logging.getLogger('datago').addHandler(logging.NullHandler())\n"
)
assert COLUMNS[0] == FILE


def note(line):
    tables.setdefault("lives", []).append(line)


def run(script, config, *arguments, limit=100, **options):
    command = [sys.executable, "-c", HEAD + script, json.dumps(config), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**ENVIRONMENT, **options})
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    assert process.returncode == 0 and err == "", err
    return out.split()


CYCLE = """
import gc, os, time
def left():
    return len(os.listdir('/proc/self/task')), len(os.listdir('/proc/self/fd'))
def rss():
    return int(open('/proc/self/statm').read().split()[1]) * 4
def live(i):
    client = DatagoClient(config)
    if i % 6 == 0: return client.stop()              # before it began
    client.start()
    if i % 6 == 1: return                            # dropped, nothing was read
    sample = client.get_sample(timeout=20)
    if i % 6 == 2: return client.stop()
    if i % 6 == 3: client.me = client; return        # a cycle
    if i % 6 == 4: return [None for _ in client]     # to its end
    with client: raise KeyError
def cycle(count):
    for i in range(count):
        try: live(i)
        except KeyError: pass
def settle(wanted=(0, 0)):
    end = time.monotonic() + 20
    while True:
        gc.collect()
        now = left()
        time.sleep(0.1)
        if now == left() and (now <= wanted or not any(wanted)) or time.monotonic() > end: return now
cycle(60)
before, memory = settle(), rss()
cycle(int(sys.argv[2]))
after = settle(before)
print(after[0] - before[0], after[1] - before[1], rss() - memory, live_cleanup_threads())
"""


@pytest.mark.parametrize("column, count", [(FILE, 500), (TAR, 500), (HTTP, 60), (DB, 120)])
def test_clients_by_the_hundred(tmp_path, column, count):
    with album.source(column, tmp_path, album.pictures()) as config:
        begin = time.monotonic()
        threads, files, memory, reapers = map(int, run(CYCLE, config, str(count)))
    note(f"{count} clients over {column}: {threads:+} threads, {files:+} descriptors, {memory:+} kB, {time.monotonic() - begin:.1f} s")
    assert threads <= 0 and files <= 0 and reapers == 0
    assert memory < 8000


FORKS = """
import io, os, signal, threading, time
import numpy
from PIL import Image
kinds, count, samples = sys.argv[2].split(), 200, 0
if 'torch' in kinds: import torch
png = io.BytesIO()
Image.new('RGB', (90, 60), (1, 2, 3)).save(png, 'PNG')
def load():
    global samples
    while not over:
        for _ in DatagoClient(config): samples += 1
over, loader = False, threading.Thread(target=load, daemon=True)
loader.start()
client = DatagoClient(config)
client.get_sample()
def child(kind):
    if kind == 'exit': return
    if kind == 'told':
        try: client.get_sample()
        except RuntimeError: return
        raise SystemExit(3)
    if kind == 'Pillow':
        assert numpy.asarray(Image.open(png).resize((45, 30))).sum() == 45 * 30 * 6
    if kind == 'torch':
        assert float((torch.ones(64, 64) @ torch.ones(64, 64)).sum()) == 64 ** 3
    if kind == 'client':
        with DatagoClient(config) as own: assert sum(1 for _ in own) == 12
begin = time.monotonic()
for i in range(count):
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # who hangs is killed, and that is seen
        code = 1
        try:
            child(kinds[i % len(kinds)])
            code = 0
        finally:
            if code or i % (20 if 'torch' in kinds else 3): os._exit(code)
            sys.exit(0)  # the interpreter's own way out takes seconds with torch in it
    state = os.waitpid(pid, 0)[1]
    assert state == 0, (i, state)
over = True
loader.join()
client.stop()
print(time.monotonic() - begin, samples)
"""


@pytest.mark.parametrize("kinds", ["exit told Pillow client", "torch"])
def test_forks_under_load(tmp_path, kinds):
    """200 children of a process with two clients at work: they exit, are told, use Pillow or torch, or read with a client of their own."""
    if kinds == "torch" and importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    seconds, samples = map(float, run(FORKS, album.folder(tmp_path, album.pictures()), kinds))
    note(f"200 forks under load, the child: {kinds}: {seconds:.1f} s, {samples:.0f} samples meanwhile")
    assert samples > 100


STALLED = """
import time
client = DatagoClient(config)
client.start()
print('up', flush=True)
try:
    while client.get_sample(): pass
except KeyboardInterrupt:
    print('interrupted', flush=True)
"""


@pytest.mark.parametrize("column", [HTTP, DB])
def test_interrupt_during_a_stall(tmp_path, column):
    """SIGINT in get_sample, while a server says nothing."""
    files = album.pictures()
    answers = album.shard_answers(files) if column == HTTP else album.database_answers(files)
    path = "/1.tar" if column == HTTP else "/p05"
    with faulty({**answers, path: silent(answers[path][:500])}) as server:
        stalled = album.remote_shards(server.url) if column == HTTP else album.database(server.url)
        stalled["source_config"]["timeout" if column == HTTP else "read_timeout"] = 60
        command = [sys.executable, "-c", HEAD + STALLED, json.dumps(stalled)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        try:
            assert process.stdout.readline() == "up\n", process.communicate()
            time.sleep(1)
            begin = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n"
            interrupted = time.monotonic() - begin
            assert process.wait(10) == 0
            gone = time.monotonic() - begin
        finally:
            process.kill()
            process.communicate()
    note(f"SIGINT in get_sample over {column}: KeyboardInterrupt after {1e3 * interrupted:.0f} ms, process gone after {1e3 * gone:.0f} ms")
    assert interrupted < 2 and gone < 3


@pytest.mark.parametrize("how", ["stop", "interrupt"])
def test_a_listing_that_never_comes(how):
    """start() waits for a storage's listing: stop() from another thread gets through and ends that; so does Ctrl-C."""
    with faulty({"/storage/v1/b/x/o": silent()}) as server:
        client = DatagoClient({"source_type": "webdataset", "source_config": {"url": f"{server.url}/storage/v1/b/x/o", "timeout": 60}})
        began, main = threading.Event(), threading.main_thread().ident

        def end():
            began.wait(10)
            while not server.requests:
                time.sleep(0.01)
            times.append(time.monotonic())
            client.stop() if how == "stop" else signal.pthread_kill(main, signal.SIGINT)
            times.append(time.monotonic())

        times = []
        thread = threading.Thread(target=end)
        thread.start()
        began.set()
        if how == "stop":
            assert client.get_sample() is None
        else:
            with pytest.raises(KeyboardInterrupt):
                client.get_sample()
        ended = time.monotonic()
        thread.join(10)
        note(
            f"{how} while start() lists: back after {1e3 * (times[1] - times[0]):.0f} ms, start() ended after {1e3 * (ended - times[0]):.0f} ms"
        )
        assert times[1] - times[0] < 1 and ended - times[0] < 2
        client.stop()
        assert client.stats()["seen"] == 0
        server.answers["/storage/v1/b/x/o"] = answer(json.dumps({"items": [{"name": "a", "mediaLink": f"{server.url}/a.tar"}]}).encode())
        server.answers["/a.tar"] = album.shard_answers(album.pictures())["/0.tar"]
        client.start()
        assert sum(1 for _ in client) == 4


def test_many_starts_and_stops_at_once(tmp_path):
    """Eight threads that start, read and stop one client as they like."""
    client, over, found = DatagoClient(album.folder(tmp_path, album.pictures())), time.monotonic() + 2, []

    def meddle(number):
        while time.monotonic() < over:
            (client.start, client.get_sample, client.stop, client.stats, client.get_sample)[number % 5]()
            number += 1

    threads = [threading.Thread(target=lambda n=n: found.append(meddle(n))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    client.stop()
    assert len(found) == 8 and not threads_left()
    assert client.stats()["in_flight"] == 0
    client.start()
    assert sum(1 for _ in client) == 12


ANYWHERE = """
import threading, time
FILES = ("/threading.py", "/queue.py", "datago/threads.py", "/shard_readers.py", "webdataset/source.py", "/ledger.py", "/run.py", "/pages.py", "/api.py")
def run(number):
    '''Stops a pass where a thread of its own is at the line of that number, as a finalizer may. False if there were not so many.'''
    lines, inside = 0, False
    def trace(frame, event, argument):
        nonlocal lines, inside
        if not frame.f_code.co_filename.endswith(FILES): return None
        if event == "line" and not inside:
            lines += 1
            if lines == number:
                inside = True
                client.stop()
                inside = False
        return trace
    client = DatagoClient(config)
    threading.settrace(trace)
    for _ in client: pass
    threading.settrace(None)
    end = time.monotonic() + 20
    while client.stats()["in_flight"]:  # the thread that stopped it leaves by itself
        assert time.monotonic() < end, (number, client.stats())
        time.sleep(0.001)
    return lines >= number
count = 1
while run(count): count += 1 + count // 40
end = time.monotonic() + 20
while threading.active_count() > 1 and time.monotonic() < end: time.sleep(0.01)
print(count, threading.active_count(), live_cleanup_threads())
"""


@pytest.mark.parametrize("column", [TAR, DB])
def test_stop_wherever_a_thread_of_the_pass_is(tmp_path, column):
    with album.source(column, tmp_path, album.pictures()) as config:
        count, threads, reapers = map(int, run(ANYWHERE, config))
    assert count > 150 and threads == 1 and reapers == 0


def test_sigkill_leaves_nothing_and_the_next_run_starts(tmp_path):
    for i in range(200):
        (tmp_path / f"{i}.jpg").write_bytes(jpeg())
    home, places = tmp_path / "tmp", ["/dev/shm", str(tmp_path / "tmp")]
    home.mkdir()
    before = [set(os.listdir(place)) for place in places]
    script = "client = DatagoClient(config)\nclient.get_sample()\nprint('up', flush=True)\nfor _ in client: __import__('time').sleep(0.01)"
    for _ in range(3):
        command = [sys.executable, "-c", HEAD + script, json.dumps(config(tmp_path))]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**ENVIRONMENT, "TMPDIR": str(home), "HOME": str(home)})
        assert process.stdout.readline() == "up\n"
        process.kill()
        process.communicate()
    assert len(run("print(sum(1 for _ in DatagoClient(config)))", config(tmp_path))) == 1
    assert [set(os.listdir(place)) - old for place, old in zip(places, before, strict=True)] == [set(), set()]
