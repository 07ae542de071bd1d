"""Ways to leave: each in a process of its own, with a time limit."""

import json
import signal
import subprocess
import sys
import time

import pytest
from conftest import config, jpeg

HEAD = "import atexit, gc, json, os, signal, sys, threading, time\nfrom datago import DatagoClient\nconfig = json.loads(sys.argv[1])\n"
# A source that never ends and never gives anything: what a dead network file system looks like.
STALL = """
from datago.sources.file.source import FileSource
def stalled(self):
    while not self._stopped:
        time.sleep(0.01)
    yield []
FileSource.batches = stalled
"""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    root = tmp_path_factory.mktemp("pictures")
    for i in range(300):
        (root / f"{i:03d}.jpg").write_bytes(jpeg(64, 48, seed=i % 5))
    return root


def start(script, root):
    return subprocess.Popen(
        [sys.executable, "-c", HEAD + script, json.dumps(config(root))], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(script, root, limit=20):
    process = start(script, root)
    begin = time.monotonic()
    out, err = process.communicate(timeout=limit)
    return process.returncode, out, err, time.monotonic() - begin


def test_break_and_exit(pictures):
    code, out, err, _ = run("for i, s in enumerate(DatagoClient(config)):\n    if i == 3: break\nprint('out')", pictures)
    assert (code, out, err) == (0, "out\n", "")


def test_exception_in_the_loop(pictures):
    script = "def main():\n    for sample in DatagoClient(config):\n        raise RuntimeError('mine')\nmain()"
    code, _, err, _ = run(script, pictures)
    assert code == 1 and err.rstrip().endswith("RuntimeError: mine")


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        "client = DatagoClient(config); client.get_sample()",
        "client = DatagoClient(config); client.start()",
        "client = DatagoClient(config); client.get_sample(); client.me = client; del client",
        "client = DatagoClient(config); client.get_sample(); samples = [client.get_sample_auto_convert() for _ in range(5)]",
        "client = DatagoClient(config); client.get_sample(); atexit.register(lambda: print(client.get_sample() is not None))",
        "client = DatagoClient(config); client.start(); t = threading.Thread(target=lambda: [None for _ in client]); t.start()",
        "client = DatagoClient(config); threading.Thread(target=lambda: [None for _ in client], daemon=True).start(); time.sleep(0.02)",
        "client = DatagoClient(config); client.get_sample()\ndef f():\n    client.get_sample(); sys.exit(0)\nt = threading.Thread(target=f); t.start(); t.join()",
        "client = DatagoClient(config); iterator = iter(client); next(iterator); del client; gc.collect()",
    ],
)
def test_exit_with_work_in_flight(pictures, script):
    for _ in range(6):  # 54 runs in all
        code, _, err, _ = run(script, pictures)
        assert code == 0 and err == ""


@pytest.mark.slow
def test_os_exit_and_sigterm(pictures):
    assert run("client = DatagoClient(config); client.get_sample(); os._exit(7)", pictures)[0] == 7
    process = start("client = DatagoClient(config); client.get_sample(); print('up', flush=True); time.sleep(30)", pictures)
    assert process.stdout.readline() == "up\n"
    process.terminate()
    assert process.wait(20) == -signal.SIGTERM
    process.communicate()


def test_interrupt_in_get_sample(pictures):
    script = (
        STALL
        + """
client = DatagoClient(config)
print('up', flush=True)
try:
    client.get_sample()
except KeyboardInterrupt:
    print('interrupted', client.get_sample(), flush=True)
"""
    )
    process = start(script, pictures)
    assert process.stdout.readline() == "up\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted None\n"
    assert process.wait(20) == 0
    process.communicate()


def test_interrupt_ends_the_process_with_a_traceback(pictures):
    process = start(STALL + "print('up', flush=True)\nfor sample in DatagoClient(config): pass", pictures)
    assert process.stdout.readline() == "up\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode in (-signal.SIGINT, 130, 1) and "KeyboardInterrupt" in err


@pytest.mark.slow
def test_a_forked_child_is_told_and_the_parent_unharmed(pictures):
    script = """
import warnings
warnings.simplefilter('ignore', DeprecationWarning)  # from 3.12 on os.fork has a word to say about threads
client = DatagoClient(config)
held = [client.get_sample() for _ in range(5)]
for _ in range(20):
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        for call in (client.get_sample, client.get_sample_auto_convert, client.start, client.stop):
            try:
                call()
            except RuntimeError as error:
                assert 'another process' in str(error)
            else:
                os._exit(3)
        del held, client
        gc.collect()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
print(5 + sum(1 for _ in client))
"""
    code, out, err, _ = run(script, pictures, 50)
    assert (code, out, err) == (0, "300\n", "")


def test_a_client_not_started_works_in_a_child(pictures):
    script = """
import multiprocessing
client = DatagoClient(config)
def count(queue, client):
    queue.put(sum(1 for _ in client))
if __name__ == '__main__':
    context = multiprocessing.get_context('fork')
    queue = context.Queue()
    children = [context.Process(target=count, args=(queue, client.__class__(config))) for _ in range(2)]
    for child in children: child.start()
    print(queue.get(timeout=20), queue.get(timeout=20))
    for child in children: child.join()
"""
    code, out, err, _ = run(script, pictures, 50)
    assert (code, out) == (0, "300 300\n"), err


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_fewer_threads_where_the_system_refuses_more(pictures):
    """No address space for 64 stacks: pthread_create says EAGAIN, and the stream runs on the threads that there are."""
    script = """
import resource
pages = int(open('/proc/self/statm').read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (160 << 20),) * 2)
os.environ['DATAGO_MAX_TASKS'] = '64'
client = DatagoClient(config)
try:
    client.start()
except (OSError, RuntimeError, MemoryError) as error:
    print('refused')
else:
    count = sum(1 for _ in client)
    stats = client.stats()
    assert 0 < stats['threads'] < 64, stats
    assert count + stats['failed'] == 300 and set(stats['failures']) <= {'no_memory'}, stats
    print('fewer')
"""
    code, out, err, _ = run(script, pictures)
    assert code == 0 and out in ("refused\n", "fewer\n"), err


def test_a_client_that_is_stopped_by_a_thread_of_its_own(pictures):
    """Garbage is collected in any thread, and a finalizer in there may stop a client: its feeder does not wait for itself."""
    script = """
from datago.sources.file.source import FileSource
batches = FileSource.batches
def stopping(self):
    for batch in batches(self):
        client.stop()
        yield batch
FileSource.batches = stopping
client = DatagoClient(config)
client.start()
end = time.monotonic() + 20
while threading.active_count() > 1 and time.monotonic() < end: time.sleep(0.01)
print(client.get_sample(), client.stats()["in_flight"], threading.active_count())
"""
    code, out, err, _ = run(script, pictures)
    assert (code, out, err) == (0, "None 0 1\n", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "keeper",
    [
        "sys.excepthook = lambda *error: client",
        "signal.signal(signal.SIGTERM, lambda *a: None); threading.kept = client",
        "sys.kept = iter(DatagoIterDataset(config)); next(sys.kept)",
        "from datago.net.cache import Cache; sys.excepthook = lambda *error: writer\nwriter = Cache(sys.argv[2], 99).keep('0' * 64)",
        "from datago.net._fetch import Fetcher; fetcher = Fetcher(1); sys.excepthook = lambda *error: fetcher",
    ],
)
def test_what_outlives_the_modules_says_nothing(pictures, tmp_path, keeper):
    script = f"from datago import DatagoIterDataset\nclient = DatagoClient(config); client.get_sample()\n{keeper}"
    command = [sys.executable, "-c", HEAD + script, json.dumps(config(pictures)), str(tmp_path / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("body", [
    "for _ in client: pass", "DatagoClient(config).get_sample()", "one = DatagoClient(config); one.me = one; one.start()",
    "for _ in dataset: break",
])  # fmt: skip
def test_no_interrupt_is_lost(pictures, tmp_path, body):
    """Ctrl-C at any moment of short passes that come to their end, or are dropped: KeyboardInterrupt every time."""
    script = f"""
from datago import DatagoIterDataset
class Asked(BaseException): pass  # as KeyboardInterrupt
def ask(*_):
    global lost
    lost += 1
    raise Asked
signal.signal(signal.SIGALRM, ask)
lost, client, dataset = 0, DatagoClient(config), DatagoIterDataset(config)
for _ in dataset: pass  # everything is imported: Python's compiler may lose an exception
end, trials = time.monotonic() + 6, 0
while time.monotonic() < end:
    trials += 1
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001 + 0.0137 * (trials * 0.618 % 1))
        while True:
            {body}
    except Asked:
        lost -= 1
print(lost, trials > 50)
"""
    (tmp_path / "a.jpg").write_bytes(jpeg(40, 30))
    code, out, err, _ = run(script, tmp_path, 60)
    assert (code, out, err) == (0, "0 True\n", "")
