"""Many small downloads at once: what comes, what is tried again, what fails, and how it ends."""

import contextlib
import itertools
import os
import shutil
import socket
import subprocess
import sys
import threading
import time

import pytest
from database import until
from faulty import answer, cut, drip, faulty, silent, slow

from datago.net._fetch import Fetcher

pytestmark = [pytest.mark.network, pytest.mark.timeout(30)]


def fetch(urls, **options):
    """{tag: (status, body as bytes, error)} of all urls, each with its number as tag."""
    fetcher, found = Fetcher(**{"timeout": 5, "capacity": 10_000, **options}), {}
    assert fetcher.submit(list(enumerate(urls)))
    while len(found) < len(urls):
        for tag, status, body, error in fetcher.take(20) or pytest.fail("nothing came"):
            assert tag not in found and (body is None) != (error is None)
            found[tag] = status, None if body is None else bytes(body), error
    fetcher.close()
    return [found[i] for i in range(len(urls))]


def fetch_one(action, path="/x", query="", **options):
    """What comes of one url, and the server."""
    with faulty({path: action}) as server:
        return fetch([server.url + path + query], **options)[0], server


def test_bodies_of_all_sizes_come_as_they_are():
    sizes = [0, 1, 100, 65535, 65536, 65537, 300_000, 3_000_000]
    bodies = [os.urandom(size) for size in sizes]
    with faulty({f"/{i}": answer(body) for i, body in enumerate(bodies)}) as server:
        found = fetch([f"{server.url}/{i % 8}?s={i}" for i in range(80)], max_connections=8)
    assert [status for status, _, _ in found] == [200] * 80
    assert [body for _, body, _ in found] == [bodies[i % 8] for i in range(80)]


def test_a_body_is_memory_that_outlives_everything():
    with faulty({"/x": answer(b"abc" * 1000)}) as server:
        fetcher = Fetcher()
        fetcher.submit([("tag", f"{server.url}/x")])
        ((tag, status, body, error),) = fetcher.take(5)
        fetcher.close()
        del fetcher
    assert (tag, status, error, len(body), bytes(body)) == ("tag", 200, None, 3000, b"abc" * 1000)
    assert memoryview(body).readonly and memoryview(body)[1:3] == b"bc"


def test_connections_are_bounded_and_kept():  # H22
    with faulty({"/x": slow(answer(b"x"), 0.02)}) as server:
        found = fetch([f"{server.url}/x"] * 60, max_connections=3)
    assert all(body == b"x" for _, body, _ in found)
    assert server.most <= 3 and server.connections <= 3
    threads = [name for name in thread_names() if name == "datago fetcher"]
    assert not threads


def thread_names():
    for thread in os.listdir("/proc/self/task") if os.path.exists("/proc/self/task") else ():
        with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/comm") as file:  # it may just be leaving
            yield file.read().strip()


@pytest.mark.parametrize(
    "fault",
    [
        cut(answer(b"x" * 7168, length=20480)), cut(), cut(b"HTTP/1.1 200"), cut(answer(b"", length=10)),
        answer(status="408 Slow"),
        answer(status="429 Many"), answer(b"x" * 100_000, status="500 No"), answer(status="503"),
        cut(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel"),
    ],
)  # fmt: skip
def test_what_may_pass_is_tried_again(fault):  # H01, H10
    found, server = fetch_one([fault, answer(b"good")])
    assert found == (200, b"good", None) and server.count("/x") == 2
    (status, body, (reason, text)), server = fetch_one(fault, query="?key=SECRET", attempts=2)
    assert server.count("/x") == 2 and body is None and reason == "remote"
    assert f"(attempt 2 of 2): {server.url}/x?…" in text and "SECRET" not in text


def test_waits_grow():  # H08
    codes = ["503 a", "500 b", "502 c", "504 d"]
    found, server = fetch_one([*(answer(b"error page", status=code) for code in codes), answer(b"good")], attempts=5)
    assert found == (200, b"good", None)
    times = server.times("/x")
    waits = [b - a for a, b in itertools.pairwise(times)]
    for wait, most in zip(waits, (0.2, 0.4, 0.8, 1.6), strict=True):
        assert most / 2 - 0.01 <= wait <= most + 0.3
    assert len({round(wait / most, 3) for wait, most in zip(waits, (0.2, 0.4, 0.8, 1.6), strict=True)}) > 1


def test_retry_after_is_obeyed():
    found, server = fetch_one([answer(status="429 Many", Retry_After="1"), answer(b"good")])
    assert found[1] == b"good" and 1 <= server.times("/x")[1] - server.times("/x")[0]
    (status, _, (reason, text)), server = fetch_one(answer(status="503 No", Retry_After="3600"))
    assert (status, reason) == (503, "remote") and server.count("/x") == 1


def test_who_waits_for_a_retry_keeps_nobody_else_waiting():
    with faulty({"/late": [answer(status="503 No", Retry_After="5"), answer(b"late")], "/x": answer(b"x")}) as server:
        fetcher, tags = Fetcher(max_connections=1, capacity=100), []
        fetcher.submit([("late", f"{server.url}/late"), *((i, f"{server.url}/x") for i in range(50))])
        while len(tags) < 50:
            tags += [result[0] for result in fetcher.take(5)]
        assert "late" not in tags
        assert [(r[0], bytes(r[2])) for r in fetcher.take(20)] == [("late", b"late")]
        fetcher.close()


@pytest.mark.parametrize("code", [204, 206, 300, 304, 400, 401, 403, 404, 410, 451])
def test_other_answers_are_final_and_their_pages_no_bodies(code):  # H11, H13
    page = b"" if code in (204, 304) else b'{"detail": "no"}' * 125
    (status, body, (reason, text)), server = fetch_one(answer(page, status=f"{code} No"), query="?Signature=SECRET#f")
    assert status == code and body is None and server.count("/x") == 1
    assert reason == ("not_found" if code in (404, 410) else "remote")
    assert text == f"HTTP {code}: {server.url}/x?…"


def test_an_expired_url_is_called_that():  # H12
    page = b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"
    (_, _, (_, text)), _ = fetch_one(answer(page, status="403 Forbidden"))
    assert text.startswith("HTTP 403, the signed url has expired: ")


def test_an_endless_error_page_is_cut():
    (status, _, (reason, text)), server = fetch_one(drip(b"HTTP/1.1 404 No\r\nConnection: close\r\n\r\n", b"x" * 65536, 0.001, 10_000))
    assert (status, reason) == (404, "not_found") and text.startswith("HTTP 404")


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 200 OK\r\n", answer(b"x" * 500, length=1000)])
def test_silence_is_given_up(data):  # H05
    start = time.monotonic()
    found, server = fetch_one([silent(data), answer(b"good")], timeout=0.4)
    assert found == (200, b"good", None) and 0.4 < time.monotonic() - start < 15
    (_, _, (reason, text)), server = fetch_one(silent(data), timeout=0.3, attempts=2)
    assert reason == "remote" and "read timed out: no data for 0.3 s (" in text and server.count("/x") == 2


# Over three time-outs an image has to come at 1000 bytes a second.
def test_a_drip_is_given_up_and_slow_is_not():  # H06
    start = time.monotonic()
    (_, _, (reason, text)), _ = fetch_one(drip(answer(length=10_000), b"x", 0.05), timeout=0.4, attempts=1)
    assert reason == "remote" and "less than 1000 bytes a second" in text and 1.1 < time.monotonic() - start < 15
    found, _ = fetch_one(drip(answer(length=4000), b"x" * 200, 0.1, 20), timeout=0.4, attempts=1)
    assert found[0] == 200 and len(found[1]) == 4000


def test_nobody_there_and_no_sense():  # H07
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.socket() as free:
        full_port = full.getsockname()[1]
        crowd = [socket.socket() for _ in range(4)]  # a backlog that is full: connecting hangs
        for one in crowd:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", full_port))
        free.bind(("127.0.0.1", 0))
        refused = free.getsockname()[1]
        with faulty({"/x": cut(b"\x16\x03\x01garbage" * 50)}) as server:
            urls = [
                f"http://127.0.0.1:{full_port}/x", f"http://127.0.0.1:{refused}/x", "http://no-such-name.invalid/x",
                f"{server.url}/x", f"https://127.0.0.1:{server.port}/x", "ftp://127.0.0.1/x", "file:///etc/passwd",
                "", "x",
                "http://", "http://[/x", "http://127.0.0.1:99999/x",
            ]  # fmt: skip
            start = time.monotonic()
            found = fetch(urls, timeout=0.5, attempts=2)
        assert time.monotonic() - start < 15  # a name server may take its time
        for one in crowd:
            one.close()
    for url, (_, body, (reason, text)) in zip(urls, found, strict=True):
        assert body is None and reason == "remote" and text.endswith(": " + url), (url, text)
    assert "imeout" in found[0][2][1] or "timed out" in found[0][2][1]
    assert "(attempt 2 of 2)" in found[1][2][1] and "(attempt" not in found[5][2][1]


def test_redirects():  # H15
    paths = {f"/{code}": answer(status=f"{code} Moved", Location="/end?a=b") for code in (301, 302, 303, 307, 308)}
    paths |= {f"/hop{i}": answer(status="302 Found", Location=f"hop{i + 1}") for i in range(11)}
    paths |= {"/hop11": answer(b"far"), "/end": answer(b"end"), "/loop": answer(status="302 Found", Location="/loop")}
    paths |= {"/ftp": answer(status="302 Found", Location="ftp://127.0.0.1/x"), "/nowhere": answer(status="302 Found")}
    paths |= {"/file": answer(status="302 Found", Location="file:///etc/passwd")}
    with faulty(paths) as server:
        urls = [f"{server.url}/{path}" for path in (301, 302, 303, 307, 308, "hop1", "hop6", "hop0", "loop", "ftp", "file", "nowhere")]
        found = fetch(urls)
    assert [body for _, body, _ in found] == [b"end"] * 5 + [b"far"] * 2 + [None] * 5
    texts = [error[1] for _, _, error in found[7:]]
    assert texts[0].startswith("more than 10 redirects") and texts[1].startswith("more than 10 redirects")
    assert texts[2].startswith("not a http") and texts[3].startswith("not a http") and texts[4].startswith("HTTP 302")
    assert server.count("/loop") == 11


@pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl to make a certificate with")
def test_https(tmp_path, monkeypatch):  # H15
    bundle = tmp_path / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
        "2", "-subj", "/CN=x",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    bundle.write_bytes((tmp_path / "key.pem").read_bytes() + (tmp_path / "cert.pem").read_bytes())
    with faulty({"/x": answer(b"plain")}) as plain:
        moved = answer(status="302 Found", Location=f"{plain.url}/x")
        with faulty({"/x": answer(b"secret"), "/down": moved}, certificate=bundle) as server:
            doubted = fetch([f"{server.url}/x"])
            monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "cert.pem"))
            trusted = fetch([f"{server.url}/x", f"{server.url}/down"])
            up = answer(status="302 Found", Location=f"{server.url}/x")
            with faulty({"/up": up}) as upward:
                assert fetch([f"{upward.url}/up"])[0][1] == b"secret"
    assert trusted[0][1] == b"secret" and trusted[1][2][1].startswith("redirect from https to http refused")
    assert doubted[0][1] is None and "certificate" in doubted[0][2][1] and not plain.requests


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;a=b\r\nh\r\n003\r\nell\r\n1;x\r\no\r\n0\r\nX-Trailer: 1\r\n\r\n",
        b"HTTP/1.1 200\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
    ],
)
def test_odd_but_right(data):  # H20
    found, _ = fetch_one(cut(data))
    assert found == (200, b"hello", None)


def test_too_large():
    declared, _ = fetch_one(silent(answer(length=10_000_000)), max_bytes=1000)
    chunked, _ = fetch_one(cut(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2000), max_bytes=1000)
    fits, _ = fetch_one(answer(b"x" * 1000), max_bytes=1000)
    for _, body, (reason, text) in (declared, chunked):
        assert body is None and reason == "too_large" and text.startswith("larger than max_file_bytes, which is 1000: http")
    assert len(fits[1]) == 1000


def test_user_agent_and_proxies(monkeypatch):  # H23, H24
    found, server = fetch_one(answer(b"x"), user_agent="mine/1")
    assert "User-Agent: mine/1" in server.headers() and not any(line.startswith("Accept-Encoding") for line in server.headers())
    with faulty({"http://images.invalid/a": answer(b"by proxy"), "/a": answer(b"direct")}) as server:
        monkeypatch.setenv("http_proxy", server.url)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert [body for _, body, _ in fetch(["http://images.invalid/a", f"{server.url}/a"])] == [
            b"by proxy",
            b"direct",
        ]


def test_wrong_arguments():
    fetcher = Fetcher()
    for wrong in ([(1, "http://x/"), (2, 3)], [(1,)], [None]):
        with pytest.raises((TypeError, ValueError, AttributeError)):
            fetcher.submit(wrong)
    assert fetcher.take(0.05) == []
    fetcher.close()
    for wrong in ({"max_connections": 0}, {"timeout": 0}, {"attempts": 0}, {"timeout": float("nan")}):
        with pytest.raises(ValueError):
            Fetcher(**wrong)


# ---- the end ----


def test_close_is_prompt_and_wakes_everybody():
    with faulty({"/x": silent()}) as server:
        fetcher, answers = Fetcher(max_connections=2, capacity=4), []
        assert fetcher.submit([(i, f"{server.url}/x") for i in range(4)])
        waiting = [
            threading.Thread(target=lambda: answers.append(fetcher.take(20))),
            threading.Thread(target=lambda: answers.append(fetcher.submit([(9, f"{server.url}/x")]))),
        ]
        for thread in waiting:
            thread.start()
        time.sleep(0.2)
        assert fetcher.take(0.05) == [] and not answers
        start = time.monotonic()
        fetcher.close()
        for thread in waiting:
            thread.join(15)
        assert time.monotonic() - start < 15
        assert sorted(answers, key=str) == [False, None]
        fetcher.close()
        assert fetcher.submit([(1, "http://127.0.0.1/")]) is False and fetcher.take(1) is None


def test_close_may_come_at_any_time():
    with faulty({"/x": answer(b"x")}) as server:
        for i in range(60):
            fetcher = Fetcher(max_connections=4, capacity=100)
            fetcher.submit([(n, f"{server.url}/x") for n in range(100)])
            closer = threading.Timer(0.0005 * i, fetcher.close)
            closer.start()
            count = 0
            while count < 100 and (results := fetcher.take(5)) is not None:
                assert all(bytes(body) == b"x" for _, _, body, _ in results)
                count += len(results)
            closer.join()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_nothing_is_left_open():
    with faulty({"/x": answer(b"x" * 1000)}) as server:
        for i in range(12):
            fetcher = Fetcher(max_connections=8)
            fetcher.submit([(i, f"{server.url}/x") for i in range(20)])
            fetcher.take(1)
            del fetcher
            if i == 1:
                before = len(os.listdir("/proc/self/fd"))
        until(lambda: len(os.listdir("/proc/self/fd")) <= before + 8)  # the server's side of a closed connection takes a moment
    assert "datago fetcher" not in list(thread_names())


def test_a_fork_has_no_thread_and_does_no_harm():
    with faulty({"/x": answer(b"x")}) as server:
        fetcher = Fetcher()
        child = os.fork()
        if child == 0:
            try:
                fetcher.submit([(1, f"{server.url}/x")])
            except RuntimeError:
                fetcher.close()
                del fetcher
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        fetcher.submit([(1, f"{server.url}/x")])
        assert bytes(fetcher.take(5)[0][2]) == b"x"
        fetcher.close()


@pytest.mark.parametrize("end", ["", "raise SystemExit(0)", "import os; os._exit(0)", "del f", "import gc; f = [f]; f.append(f)"])
def test_the_interpreter_may_end_at_any_time(end):
    with faulty({"/x": slow(answer(b"x" * 50_000), 0.01), "/never": silent()}) as server:
        script = (
            "from datago.net._fetch import Fetcher\nf = Fetcher(16)\n"
            f"f.submit([(i, '{server.url}/' + ('never' if i % 5 == 0 else 'x')) for i in range(60)])\n"
            f"kept = f.take(5)\n{end}"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=25)
        assert done.returncode == 0 and done.stderr == ""
