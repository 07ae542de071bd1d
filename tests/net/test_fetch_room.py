"""The memory that downloads take, and who goes on when it is full; heads without end; what the download thread does not look at."""

import os
import shutil
import subprocess
import sys
import time

import pytest
from faulty import answer, cut, drip, faulty
from test_fetch import fetch

from datago.net._fetch import Fetcher

pytestmark = [pytest.mark.network, pytest.mark.timeout(60)]
MB = 1 << 20


def take(fetcher, count, seconds=50):
    """{tag: (body's length, error)} of so many downloads."""
    found, end = {}, time.monotonic() + seconds
    while len(found) < count and time.monotonic() < end:
        found |= {tag: (body and len(body), error) for tag, _, body, error in fetcher.take(0.5)}
    return found


@pytest.mark.parametrize(
    "head",
    [
        answer(length=300_000_000),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        answer(length=2**40),
    ],
)
@pytest.mark.parametrize("slow", [1, 7])
def test_what_a_head_claims_takes_no_room(head, slow):
    piece = b"190\r\n" + b"x" * 400 + b"\r\n" if b"chunked" in head else b"x" * 400
    with faulty({"/big": drip(head, piece, 0.1), "/x": answer(b"hello")}) as server:
        fetcher = Fetcher(max_connections=8, timeout=5, max_bytes=2**41)
        fetcher.submit([(f"big{i}", f"{server.url}/big") for i in range(slow)])
        while server.count("/big") < slow:
            time.sleep(0.02)
        fetcher.submit([(i, f"{server.url}/x") for i in range(20)])
        assert take(fetcher, 20) == dict.fromkeys(range(20), (5, None))
        fetcher.close()


def burst(size, then):
    """So many bytes at once, and then as `then` says."""

    def action(connection):
        connection.sendall(answer(length=300 * MB))
        for _ in range(size // MB):
            connection.sendall(bytes(MB))
        return then(connection)

    return action


def test_half_done_bodies_that_fill_all_room_stop_nobody():
    """Six that came fast to 40 MB and then hardly at all hold what room there is. Small bodies go on beside them, large ones too in the
    end: whoever holds room that others wait for has to be quicker."""
    slow = burst(40 * MB, drip(b"", b"x" * 400, 0.05))
    with faulty({"/slow": slow, "/large": answer(bytes(30 * MB)), "/x": answer(b"hello")}) as server:
        fetcher = Fetcher(max_connections=12, timeout=1, attempts=1)
        fetcher.submit([(f"slow{i}", f"{server.url}/slow") for i in range(6)])
        time.sleep(1)
        fetcher.submit([(i, f"{server.url}/x") for i in range(20)])
        assert take(fetcher, 20) == dict.fromkeys(range(20), (5, None))
        fetcher.submit([(i, f"{server.url}/large") for i in range(4)])
        found = {}
        while not found.keys() >= set(range(4)):
            found |= take(fetcher, 1)
        fetcher.close()
    assert {i: found.pop(i) for i in range(4)} == dict.fromkeys(range(4), (30 * MB, None))
    assert found and all("timed out: too slow for its size" in error[1] for _, error in found.values())


SLEEPER = """
import sys, time
from datago.net._fetch import Fetcher
def memory():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
fetcher = Fetcher(max_connections=16, timeout=5, capacity=100)
before = peak = memory()
fetcher.submit([(i, sys.argv[1]) for i in range(25)])
for _ in range(40):  # the reader has something else to do
    time.sleep(0.05)
    peak = max(peak, memory())
left = 25
while left:
    for tag, status, body, error in fetcher.take(20):
        assert error is None and len(body) == 40 << 20, error
        left -= 1
        del body
    peak = max(peak, memory())
print((peak - before) >> 20)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="no /proc")
@pytest.mark.parametrize("length", [True, False])
def test_room_is_bounded_and_all_come_in_the_end(length):
    """25 bodies of 40 MB are a gigabyte; 128 MB for what is done, 128 MB for what comes, 64 MB shared out, one that may go on."""
    body = answer(bytes(40 * MB)) if length else cut(b"HTTP/1.1 200 OK\r\n\r\n" + bytes(40 * MB))
    with faulty({"/x": body}) as server:
        done = subprocess.run([sys.executable, "-c", SLEEPER, f"{server.url}/x"], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0 and int(done.stdout) < 520, done.stdout + done.stderr


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 60000, b"HTTP/1.1 100 Continue\r\n\r\n" * 20000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n" + b"T: y\r\n" * 60000,
    ],
)  # fmt: skip
def test_heads_without_end(head):
    with faulty({"/x": cut(head)}) as server:
        ((_, body, (reason, text)),) = fetch([f"{server.url}/x"])
    assert body is None and reason == "remote" and ("headers too long" in text or "Too large response headers" in text), text


def test_a_head_that_begins_with_the_rest_of_a_line():
    """libcurl 7.83 to 8.1 joins it to a line of the answer before, on the same handle: memory that is free by then."""
    odd = cut(b"HTTP/1.1 200 OK\r\n " + b"y" * 3000 + b"\r\nContent-Length: 2\r\n\r\nhi")
    moved = cut(b"HTTP/1.1 302 Found\r\nX: y\r\nLocation: /odd\r\nContent-Length: 0\r\n\r\n")
    with faulty({"/odd": odd, "/moved": moved, "/x": answer(b"hello", X="y" * 500)}) as server:
        found = fetch([f"{server.url}/{path}" for _ in range(30) for path in ("x", "odd", "moved")], max_connections=2)
    assert [body for _, body, _ in found[::3]] == [b"hello"] * 30
    assert {body for _, body, _ in found} <= {b"hello", b"hi", None}


SPY = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static void *spy(const char *function, const char *name) {
    if (syscall(SYS_gettid) != getpid()) {
        (void)!write(1, name, strlen(name));
        (void)!write(1, "\\n", 1);
    }
    return dlsym(RTLD_NEXT, function);
}
char *getenv(const char *name) { return ((char *(*)(const char *))spy("getenv", name))(name); }
char *secure_getenv(const char *name) { return ((char *(*)(const char *))spy("secure_getenv", name))(name); }
"""
LOOKS = """
import sys
from datago.net._fetch import Fetcher
fetcher = Fetcher(timeout=3, attempts=1)
fetcher.submit([(i, url) for i, url in enumerate(sys.argv[1:])])
left = len(sys.argv) - 1
while left:
    left -= len(fetcher.take(5))
fetcher.close()
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="no compiler, or no LD_PRELOAD")
def test_the_thread_does_not_look_at_the_environment(tmp_path):
    """Python may be changing it, which moves it. All that libcurl would look up is set when the Fetcher is made."""
    (tmp_path / "spy.c").write_text(SPY)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "spy.so", tmp_path / "spy.c", "-ldl"], check=True)
    with faulty({"/x": answer(b"x"), "/moved": answer(status="302 Found", Location="https://127.0.0.1:1/x")}) as server:
        urls = [f"{server.url}/x", f"{server.url}/moved", f"https://127.0.0.1:{server.port}/x", f"http://localhost:{server.port}/x"]
        environment = {**os.environ, "LD_PRELOAD": str(tmp_path / "spy.so"), "all_proxy": "", "HTTPS_PROXY": "http://127.0.0.1:1"}
        done = subprocess.run([sys.executable, "-c", LOOKS, *urls], capture_output=True, text=True, timeout=40, env=environment)
    assert done.returncode == 0 and done.stdout == "done\n", done.stdout + done.stderr
