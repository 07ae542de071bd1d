"""A process that something is done to:   child.py CONFIG FAULT AMOUNT RESULT

It reads the stream once as it is, once under the fault, and once more when that is over; RESULT is a file that gets the last two.
"""

import contextlib
import ctypes
import gc
import json
import logging
import os
import resource
import signal
import sys
import threading
import time

from reading import drain

from datago import DatagoClient

logging.getLogger("datago").addHandler(logging.NullHandler())  # what is written to stderr otherwise is looked at


@contextlib.contextmanager
def limited(kind, amount):
    """The soft limit alone, so that it can be lifted again."""
    before = resource.getrlimit(kind)
    resource.setrlimit(kind, (amount, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, before)


def memory(spare):
    """`spare` kB of address space more than there is."""
    gc.collect()
    pages = int(open("/proc/self/statm").read().split()[0])
    return limited(resource.RLIMIT_AS, 4096 * pages + 1024 * spare)


def descriptors(spare):
    """`spare` descriptors more than are open."""
    used = {int(name) for name in os.listdir("/proc/self/fd")}
    limit = 0
    while limit - sum(fd < limit for fd in used) < spare:
        limit += 1
    return limited(resource.RLIMIT_NOFILE, limit)


@contextlib.contextmanager
def descriptors_for_a_while(milliseconds):
    with contextlib.ExitStack() as stack:
        stack.enter_context(descriptors(0))
        timer = threading.Timer(milliseconds / 1e3, stack.close)
        timer.start()
        yield
        timer.join()


def threads(spare):
    """`spare` threads more than there are: as a user of whom there is no other process, since root has no such limit."""
    if os.geteuid() == 0:
        user = 2_000_000_000 + os.getpid()
        os.setresuid(user, user, user)
        count = len(os.listdir("/proc/self/task"))
    else:
        count = 0  # nobody knows what the user's other processes do
    return limited(resource.RLIMIT_NPROC, count + spare)


def file_size(most):
    return limited(resource.RLIMIT_FSIZE, most)


@contextlib.contextmanager
def signals(milliseconds):
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, milliseconds / 1e3, milliseconds / 1e3)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)


@contextlib.contextmanager
def clock(seconds):
    """Jumps when the first sample has come, and back when the fifth has."""
    jump = ctypes.CDLL(None).clock_jump
    before = time.time()
    jump(ctypes.c_long(seconds))
    assert abs(time.time() - before - seconds) < 5, "the clock did not jump"
    on_sample[0] = lambda count: jump(ctypes.c_long(-seconds if count == 5 else 0))
    yield


@contextlib.contextmanager
def stopped(_):
    """Says when somebody may stop and continue us."""
    on_sample[0] = lambda count: print("first", flush=True) if count == 1 else None
    yield


@contextlib.contextmanager
def nothing(_):
    yield


def main():
    config, fault, amount, path = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
    if fault == "streams_closed":
        os.closerange(0, 3)
        fault = "nothing"
    out = os.open(path, os.O_WRONLY | os.O_CREAT)
    client = DatagoClient(config)
    assert len(drain(client)["found"]) == 12
    before = left()
    with globals()[fault](amount):
        during = attempt(client)
    on_sample[0] = lambda count: None
    after = attempt(client)
    end = time.monotonic() + 20
    while left() != before and time.monotonic() < end:
        time.sleep(0.02)
    more = [now - then for now, then in zip(left(), before, strict=True)]
    os.write(out, json.dumps({"during": during, "after": after, "left": more}).encode())


def left():
    """Threads and descriptors."""
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def attempt(client):
    """`drain`, of a stream that may not even begin."""
    begin = time.monotonic()
    try:
        client.start()
    except Exception as error:
        client.stop()
        return {"found": [], "error": f"{type(error).__name__}: {error}", "stats": None, "seconds": time.monotonic() - begin}
    return drain(client, lambda count: on_sample[0](count))


on_sample = [lambda count: None]
main()
