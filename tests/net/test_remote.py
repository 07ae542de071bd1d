"""Streams of bytes over real sockets: whatever the network does, each byte once, or an error that says why not."""

import contextlib
import logging
import pickle
import random
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from email.utils import formatdate

import pytest
from network import BODY, ETAG, answer, from_range, serve, silence, then_silence

from datago.errors import RemoteError, SourceError, SourceNotFoundError, SourceOSError, SourceValueError
from datago.net import http, policy, reach
from datago.net import stream as remote
from datago.net.stream import Stopped, open_stream
from datago.net.url import Url, redact

pytestmark = pytest.mark.network

HALF = 7168


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Short pauses, and no proxy but a test's own."""
    monkeypatch.setattr(policy, "backoff", lambda attempt: 0.005)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def read(url, **options):
    with open_stream(url, **options) as stream:
        return b"".join(stream)


def fails(url, match, **options):
    with pytest.raises(RemoteError, match=match) as caught, open_stream(url, **options) as stream:
        for _ in stream:
            pass
    return caught.value


def whole(answers, requests=None, **options):
    with serve(answers) as server:
        assert read(server.url + "/a.tar", **options) == BODY
        assert requests in (None, len(server.requests))
        return server


# --- the plain way


def test_blocks_and_attributes():
    with serve([answer(BODY)]) as server, open_stream(server.url + "/a.tar?sig=s3cret", block_size=6000) as stream:
        assert "s3cret" not in repr(stream) and "/a.tar" in repr(stream)
        blocks = list(stream)
        assert [len(block) for block in blocks] == [6000, 6000, 6000, 2480] and b"".join(blocks) == BODY
        assert all(isinstance(block, bytes | bytearray) for block in blocks)
        assert (stream.position, stream.size, stream.checked, stream.retries) == (20480, 20480, True, 0)
        assert list(stream) == []


def test_nothing_is_opened_before_the_first_block():
    with serve([answer(BODY)]) as server:
        open_stream(server.url).close()
        assert server.requests == []


def test_empty_object():
    with serve([answer(b"")]) as server:
        assert read(server.url) == b""


def test_heavy_modules_wait_for_their_use():
    code = (
        "import sys, datago.sources.webdataset.urls, datago.net.cache\n"
        "print([m for m in ('requests', 'fsspec', 'ssl', 'http.client', 'urllib.request', 'braceexpand', 'email') if m in sys.modules])"
    )
    before = "import sys, datago.client\nprint([m for m in ('ssl', 'email') if m in sys.modules])"
    run = lambda text: subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=30, check=True).stdout  # noqa: E731
    assert run(code) in ("[]\n", run(before))


# --- H01, H03: bodies that are cut


def test_cut_body_is_resumed_by_range():
    server = whole([answer(BODY[:HALF], ETAG, length=20480), lambda request: from_range(request, BODY, ETAG)], requests=2)
    assert server.requests[1].headers["range"] == f"bytes={HALF}-"
    assert server.requests[1].headers["if-range"] == '"v1"'
    assert "range" not in server.requests[0].headers


def test_cut_body_of_a_server_without_ranges_is_skipped_over():
    whole([answer(BODY[:HALF], length=20480), answer(BODY[:9000], length=20480), answer(BODY)], requests=3)


def test_last_modified_is_a_validator_and_a_weak_etag_none():
    modified = "Last-Modified: Mon, 02 Nov 2026 10:00:00 GMT"
    server = whole([answer(BODY[:HALF], 'ETag: W/"1"', modified, length=20480), lambda r: from_range(r, BODY, 'ETag: W/"1"', modified)])
    assert server.requests[1].headers["if-range"] == modified.split(": ")[1].lower()


def test_reset_is_resumed():
    def reset(request):
        request.sock.sendall(answer(BODY[:HALF], length=20480))
        time.sleep(0.05)
        request.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        request.sock.close()

    whole([reset, from_range], requests=2)


def test_a_body_that_is_always_cut_at_the_same_place_fails():
    with serve([answer(BODY[:HALF], length=20480)]) as server:
        with open_stream(server.url + "/a.tar", attempts=3) as stream:
            assert bytes(next(stream)) == BODY[:HALF]
            with pytest.raises(RemoteError, match=r"/a.tar: incomplete (response|download): \d+ (of|bytes)") as caught:
                next(stream)
            assert list(stream) == []
        assert caught.value.attempts == 3 and "(3 attempts)" in str(caught.value) and f"127.0.0.1:{server.port}" in str(caught.value)
        assert len(server.requests) == 3


def test_progress_renews_the_attempts():
    cuts = [lambda r, n=n: from_range(r, BODY)[: -len(BODY) + n + 1] for n in range(0, 20000, 1000)]
    whole([*cuts, from_range], attempts=2)


def test_what_came_before_a_fault_leaves_before_the_pause(monkeypatch):
    monkeypatch.setattr(policy, "backoff", lambda attempt: 30.0)
    with serve([answer(BODY[:HALF], length=20480)]) as server, open_stream(server.url) as stream:
        start = time.monotonic()
        assert len(next(stream)) == HALF
        assert time.monotonic() - start < 15


def test_end_without_length_is_not_checked_and_can_be_resumed():
    with serve([answer(BODY[:HALF], length=False), from_range]) as server, open_stream(server.url) as stream:
        first = b"".join(stream)
        assert first == BODY[:HALF] and not stream.checked and stream.size is None
        stream.resume("the archive has no end")
        assert first + b"".join(stream) == BODY


def test_an_end_that_is_sure_cannot_be_resumed():
    with serve([answer(BODY)]) as server, open_stream(server.url) as stream:
        list(stream)
        with pytest.raises(RemoteError, match="the archive has no end"):
            stream.resume("the archive has no end")


# --- what is behind the url changes


@pytest.mark.parametrize(
    "second",
    [
        lambda r: answer(BODY, 'ETag: "v2"'),
        lambda r: from_range(r, BODY, 'ETag: "v2"'),
        lambda r: answer(BODY + b"x", ETAG),
        lambda r: from_range(r, BODY + b"x", ETAG),
        lambda r: answer(BODY[::-1]),
    ],
)
def test_changed_while_it_was_read(second):
    with serve([answer(BODY[:HALF], ETAG, length=20480), second]) as server:
        fails(server.url, "object changed during the download")
        assert len(server.requests) == 2


def test_a_wrong_range_falls_back_to_the_whole():
    wrong = answer(BODY[:99], "Content-Range: bytes 0-98/20480", status="206 Partial Content")
    server = whole([answer(BODY[:HALF], length=20480), wrong, answer(BODY)], requests=3)
    assert "range" not in server.requests[2].headers


def test_ranges_shorter_than_asked_are_joined():
    def pieces(request):
        start = int(request.headers["range"][6:-1])
        part = BODY[start : start + 5000]
        return answer(part, f"Content-Range: bytes {start}-{start + len(part) - 1}/20480", status="206 Partial Content")

    whole([answer(BODY[:HALF], length=20480), pieces], attempts=2)


def test_416_at_the_very_end_is_the_end():
    cut = answer(b"5000\r\n" + BODY + b"\r\n", "Transfer-Encoding: chunked", length=False)  # 0x5000 = 20480; no last chunk
    over = answer(b"", f"Content-Range: bytes */{len(BODY)}", status="416 Range Not Satisfiable")
    whole([cut, over], requests=2)


def test_partial_content_that_nobody_asked_for():
    with serve([answer(BODY, "Content-Range: bytes 0-20479/20480", status="206 Partial Content")]) as server:
        fails(server.url, "206")


# --- H05, H06, H07: silence


def test_silence_in_mid_body_is_given_up_and_resumed():
    start = time.monotonic()
    whole([then_silence(answer(BODY[:HALF], length=20480)), from_range], requests=2, timeout=0.4)
    assert 0.3 < time.monotonic() - start < 15


def stop_while(serve_answers, place="", prepare=lambda: None, after=0.3, **options):
    """Seconds between stop and the stream's end."""
    stop = threading.Event()
    with serve(serve_answers) as server:
        prepare()
        stream = open_stream(server.url + place, stop=stop, timeout=20, **options)
        set_at = []
        timer = threading.Timer(after, lambda: (set_at.append(time.monotonic()), stop.set()))
        timer.start()
        with pytest.raises(Stopped), stream:
            for _ in stream:
                pass
        late = time.monotonic() - set_at[0]
        timer.join()
    return late


@pytest.mark.parametrize("data", [b"", answer(BODY[:HALF], length=20480), b"HTTP/1.1 200 OK\r\nContent-Le"])
def test_stop_in_a_stall(data):
    assert stop_while([then_silence(data)]) < 5


def test_stop_in_a_pause(monkeypatch):
    monkeypatch.setattr(policy, "backoff", lambda attempt: 10.0)
    assert stop_while([answer(b"", status="503 Busy")]) < 5


def test_stop_while_retry_after_is_awaited():
    assert stop_while([answer(b"", "Retry-After: 30", status="503 Busy")]) < 5


def test_stop_in_a_name_lookup(monkeypatch):
    gate = threading.Event()
    prepare = lambda: monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: gate.wait(30))  # noqa: E731
    assert stop_while([answer(BODY)], prepare=prepare) < 5
    gate.set()


def test_stop_in_a_drip():
    def drip(request):
        request.sock.sendall(answer(b"", length=20480))
        while not request.closing.is_set():
            request.sock.sendall(b"x")
            time.sleep(0.02)

    assert stop_while([drip]) < 5


def test_stop_may_be_a_callable():
    with serve([answer(BODY)]) as server, pytest.raises(Stopped):
        read(server.url, stop=lambda: True)


def test_slow_but_steady_is_no_silence():
    """The rule for H06: for shards, progress is progress. What came leaves after half a second, though the block is not full."""

    def drip(request):
        request.sock.sendall(answer(b"", length=15))
        for _ in range(15):
            request.sock.sendall(b"x")
            time.sleep(0.1)

    with serve([drip]) as server, open_stream(server.url, timeout=0.4) as stream:
        first = next(stream)
        assert 0 < len(first) < 15
        assert bytes(first) + b"".join(stream) == b"x" * 15
        assert stream.retries == 0


def test_accepts_and_never_answers():
    with serve([silence]) as server:
        fails(
            server.url + "/a?k=s3cret",
            rf"127.0.0.1:{server.port}/a\?…: read timed out: no data for 0.2 s \(2 attempts\)",
            timeout=0.2,
            attempts=2,
        )
        assert len(server.requests) == 2


def test_answers_and_closes_without_a_word():
    with serve([b""]) as server:
        fails(server.url, "connection closed without a response", attempts=2)


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    fails(f"http://127.0.0.1:{port}/a", f"127.0.0.1:{port}/a: connect failed: ECONNREFUSED", attempts=2)


def test_connection_goes_into_a_black_hole():
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):  # the queue is full: further ones are not answered at all
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        time.sleep(0.1)
        port = listener.getsockname()[1]
        fails(f"http://127.0.0.1:{port}/a", rf"127.0.0.1:{port}/a: connect timed out after 0.2 s", timeout=0.2, attempts=2)


def test_name_that_does_not_resolve(monkeypatch):
    def lookup(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    fails("http://nowhere.invalid/a", "nowhere.invalid/a: Name or service not known", attempts=2)


def test_garbage_in_place_of_tls():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet():
            for _ in range(2):
                sock = listener.accept()[0]
                sock.sendall(b"220 welcome to something else\r\n")
                accepted.append(sock)

        accepted, thread = [], threading.Thread(target=greet)
        thread.start()
        error = fails(f"https://127.0.0.1:{listener.getsockname()[1]}/a", "127.0.0.1.*(SSL|TLS|ssl)", attempts=2, timeout=2)
        assert error.attempts == 2
        thread.join()
        for sock in accepted:
            sock.close()


@pytest.mark.parametrize(
    "junk", [b"SSH-2.0-OpenSSH_9\r\n\r\n", b"\x15\x03\x01\x00\x02\x02\x46", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 20\r\n\r\n"]
)
def test_an_answer_that_is_not_http(junk):
    with serve([junk]) as server:
        fails(server.url, "not an HTTP response|closed mid-response", attempts=2)


@pytest.mark.parametrize("head", [b"X: " + b"y" * 70000, b"X: y\r\n" * 60000])
def test_heads_without_end(head):
    with serve([b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n"]) as server:
        fails(server.url, "too long", attempts=2)


# --- H08, H10, H11: statuses


def test_burst_of_busy_answers():
    busy = [answer(b"sorry", status=status) for status in ("503 Busy", "500 Oops", "502 Bad Gateway", "504 Timeout")]
    server = whole([*busy, answer(BODY)], requests=5)  # with the default number of attempts
    assert all("range" not in request.headers for request in server.requests)


def test_pauses_grow_and_are_drawn(monkeypatch):
    monkeypatch.undo()  # the real backoff
    slept, chances = [], iter([0, 1, 0.5] * 3)
    monkeypatch.setattr(policy.random, "random", lambda: next(chances))
    monkeypatch.setattr(remote, "pause", lambda seconds, stop: slept.append(seconds))
    with serve([answer(b"", status="500 Oops")]) as server:
        assert fails(server.url, r"500 Oops \(8 attempts\)", attempts=8).status == 500
    assert [round(seconds, 6) for seconds in slept] == [0.1, 0.4, 0.6, 0.8, 3.2, 4.8, 6.4]


@pytest.mark.parametrize("status", ["408 Request Timeout", "429 Too Many Requests", "507 Full"])
def test_other_statuses_that_pass(status):
    whole([answer(b"", status=status), answer(BODY)], requests=2)


@pytest.mark.parametrize("after", [lambda: "1", lambda: formatdate(time.time() + 1.5, usegmt=True)])
def test_retry_after_holds_for_all_streams_of_the_host(after):
    def first(request):
        return answer(b"", f"Retry-After: {after()}", status="429 Slow down")

    def last(request):
        return first(request) if request.number == 0 else answer(BODY)

    with serve(last) as server:
        one = threading.Thread(target=read, args=(server.url + "/1",))
        one.start()
        while not server.requests:
            time.sleep(0.01)
        time.sleep(0.1)
        assert read(server.url + "/2") == BODY
        one.join()
        waits = [request.time - server.requests[0].time for request in server.requests[1:]]
        assert len(waits) == 2 and min(waits) > 0.45 and max(waits) < 3


def test_retry_after_that_is_too_long_or_senseless():
    with serve([answer(b"", "Retry-After: 86400", status="503 Closed")]) as server:
        fails(server.url, "503 Closed; asks to come again in 86400 s")
        assert len(server.requests) == 1
    for text in ("soon", "-1", "Mon, 99 Foo 2026", "Mon, 01 Jan 2024 00:00:00 GMT"):
        whole([answer(b"", f"Retry-After: {text}", status="503 Busy"), answer(BODY)], requests=2)


@pytest.mark.parametrize(
    "status", ["401 Unauthorized", "403 Forbidden", "404 Not Found", "410 Gone", "400 Bad", "204 No Content", "304 Same"]
)
def test_final_statuses_are_asked_once_and_tell_no_secrets(status, caplog):
    caplog.set_level(logging.DEBUG, "datago")
    with serve([answer(b"no " * 700, status=status)]) as server:
        url = server.url.replace("//", "//joe:pa55@") + "/b/a.tar?X-Signature=s3cret&k=v"
        error = fails(url, status, token="t0ken")
        assert len(server.requests) == 1
    text = str(error) + repr(error) + repr(error.__dict__) + caplog.text
    assert not re.search("s3cret|t0ken|pa55", text) and f"127.0.0.1:{server.port}/b/a.tar?…" in str(error)
    assert error.status == int(status[:3]) and error.attempts == 1
    assert isinstance(error, SourceError) and isinstance(error, OSError)
    assert ("may have expired" in str(error)) == (status[:3] in ("401", "403"))
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_server_that_repeats_secrets_has_them_wiped(caplog):
    caplog.set_level(logging.DEBUG, "datago")

    def echo(request):
        return answer(b"", status=f"500 {request.headers['authorization']} {request.target}"[:60])

    with serve([echo]) as server:
        error = fails(server.url + "/a?sig=s3cret", "500", token="t0ken", attempts=2)
    assert not re.search("s3cret|t0ken", str(error) + caplog.text) and "attempt 2 follows" in caplog.text


# --- H15: redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", ["/b/c?x=%2f", "{url}/b/c?x=%2f", "c?x=%2f", "//{place}/b/c?x=%2f", "../b/c?x=%2f", "/b/c?x=%2f#part"])
def test_redirects(status, location):
    def said(request):
        if request.target == "/b/a":
            place = request.headers["host"]
            return answer(b"", f"Location: {location.format(url=f'http://{place}', place=place)}", status=f"{status} Go")
        return answer(BODY) if request.target == "/b/c?x=%2f" else answer(b"", status="404 Lost")

    with serve(said) as server:
        assert read(server.url + "/b/a", token="t0ken") == BODY
        assert [request.headers["authorization"] for request in server.requests] == ["bearer t0ken"] * 2


def test_hops_and_circles():
    def hop(request):
        number = int(request.target[1:])
        return answer(BODY) if number == 0 else answer(b"", f"Location: /{number - 1}", status="302 Go")

    with serve(hop) as server:
        assert read(server.url + "/5") == BODY and read(server.url + "/10") == BODY
        assert server.most == 1
        fails(server.url + "/11", "more than 10 redirects")
    with serve(lambda request: answer(b"", f"Location: {'/a' if request.target == '/b' else '/b'}", status="302 Go")) as server:
        fails(server.url + "/a", "redirect loop")
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    "location", ["", "Location: ftp://h/x", "Location: file:///etc/passwd", "Location: http://", "Location: javascript:x"]
)
def test_redirects_that_are_refused(location):
    with serve([answer(b"", *filter(None, [location]), status="302 Go")]) as server:
        fails(server.url, "redirect without a Location|redirect to an invalid url: not an http url")
        assert len(server.requests) == 1


def test_https_to_http_is_refused():
    with pytest.raises(http.TransferError, match="https to http") as caught:
        http._redirected(Url.parse("https://h/a"), "http://h/a")
    assert not caught.value.retry
    assert str(http._redirected(Url.parse("http://h/a"), "https://h/b")) == "https://h/b"


def test_secrets_cross_to_no_other_host():
    with serve([answer(BODY)]) as other:
        with serve([answer(b"", f"Location: {other.url}/x", status="302 Go")]) as first:
            assert read(first.url.replace("//", "//joe:pw@"), token="t0ken") == BODY
            assert read(first.url.replace("//", "//joe:pw@")) == BODY
            assert "bearer t0ken" in first.requests[0].head.lower() and "basic " in first.requests[1].head.lower()
        assert all("authorization" not in request.headers for request in other.requests)


def test_secrets_do_not_come_back_over_another_host():
    def there(request):
        return answer(b"", f"Location: {first.url}/end", status="302 Go")

    with serve(there) as other:
        with serve(lambda r: answer(BODY) if r.target == "/end" else answer(b"", f"Location: {other.url}/x", status="302 Go")) as first:
            assert read(first.url, token="t0ken") == BODY
            assert ["authorization" in request.headers for request in first.requests] == [True, False]


def test_same_place():
    def same(a, b):
        return http.same_place(Url.parse(a), Url.parse(b))

    assert same("http://h/a", "http://H:80/b") and same("http://h/a", "https://h/a")
    assert not same("http://h/a", "http://h.evil/a") and not same("https://h/", "https://h:8443/") and not same("https://h/", "http://h/")


# --- H20: ways to say the same


def chunked(body, sizes, extension=b"", trailers=b"", end=b"\r\n"):
    out, place = b"", 0
    for size in sizes:
        part = body[place : place + size]
        out, place = out + b"%x" % len(part) + extension + b"\r\n" + part + b"\r\n", place + len(part)
    assert place == len(body)
    return out + b"0" + extension + b"\r\n" + trailers + end


def odd_sizes(seed):
    rng, left = random.Random(seed), len(BODY)
    while left:
        size = min(left, rng.choice((1, 2, 3, 7, 511, 512, 513, 4096, 9999)))
        left -= size
        yield size


@pytest.mark.parametrize(
    "wrapped",
    [
        chunked(BODY, odd_sizes(1)),
        chunked(BODY, odd_sizes(2), b";name=value"),
        chunked(BODY, odd_sizes(3), b' ; q="a;b"', b"X-Sum: 1\r\nX-More: 2\r\n"),
        chunked(BODY, [20480], end=b""),
        chunked(BODY, [20480]).replace(b"5000\r\n", b"0005000\r\n", 1),
    ],
)
@pytest.mark.parametrize("block_size", [1 << 20, 1000, 1])
def test_chunked(wrapped, block_size):
    if block_size == 1 and len(wrapped) > 20520:
        block_size = 37
    whole([answer(wrapped, "Transfer-Encoding: chunked", length=False)], requests=1, block_size=block_size)


def test_chunked_byte_for_byte_on_the_wire():
    data = answer(chunked(BODY[:60], [7, 1, 52]), "transfer-encoding: Chunked", length=False)

    def drip(request):
        for byte in data:
            request.sock.sendall(bytes([byte]))
            time.sleep(0.001)

    with serve([drip]) as server:
        assert read(server.url) == BODY[:60]


def test_cut_chunks_are_resumed():
    data = chunked(BODY, [1000, 9000, 10480])
    for cut in (2, 500, 1006, 1008, 5000, len(data) - 4):
        whole(
            [answer(data[:cut], "Transfer-Encoding: chunked", ETAG, length=False), lambda r: from_range(r, BODY, ETAG)][
                : 2 if cut < 20480 else 1
            ]
            + [answer(b"", "Content-Range: bytes */20480", status="416 Over")],
            requests=2,
        )


@pytest.mark.parametrize(
    "body", [b"xyz\r\n", b"-5\r\nabcde", b"5\r\nabcdefgh\r\n0\r\n\r\n", b"\r\n", b"0x5\r\nabcde\r\n", b"1_0\r\n" + b"x" * 16]
)
def test_damaged_chunks(body):
    with serve([answer(body, "Transfer-Encoding: chunked", length=False)]) as server:
        fails(server.url, "malformed chunk", attempts=2)


def test_informational_answers_come_first():
    before = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\nContent-Length: 5\r\n\r\n"
    whole([before + answer(BODY)], requests=1)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 20480\r\n\r\n",
        b"HTTP/1.1 200\r\ncontent-length: 20480\r\n\r\n",
        b"HTTP/1.1 200 \r\nCONTENT-LENGTH:20480\r\n\r\n",
        b"HTTP/1.1 200 OK\ncontent-length:   20480  \nx: y\n\n",
        b"HTTP/1.1 200 OK\r\nX: a\r\n  b\r\nno colon\r\nContent-Length: 20480\r\nContent-Length: 20480\r\n\r\n",
        "HTTP/1.1 200 Alles in Ördnung\r\nContent-Length: 20480\r\n\r\n".encode(),
    ],
)
def test_heads(head):
    whole([head + BODY], requests=1)


@pytest.mark.parametrize(
    "head", ["Content-Length: 5\r\nContent-Length: 6", "Content-Length: -5", "Content-Length: +5", "Content-Length: 5x"]
)
def test_lengths_that_are_none(head):
    with serve([f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode() + BODY]) as server:
        fails(server.url, "Content-Length", attempts=2)


def test_a_coding_that_is_not_known():
    with serve([answer(BODY, "Transfer-Encoding: gzip, chunked", length=False)]) as server:
        fails(server.url, "transfer encoding")
        assert server.requests[0].headers["accept-encoding"] == "identity"


def test_what_follows_the_body_is_not_read():
    whole([answer(BODY, length=20480) + b"HTTP/1.1 500 no\r\n\r\n"], requests=1)


# --- what is sent


@pytest.mark.parametrize(
    "given, sent",
    [
        ("/a%2fb%2Fc%7B%7d~%7E+.tar?X-Sig=a%2Fb+c%20d==&e={x}|\"<>^`'&&", None),
        ("/a/../b/./c//d?a=b?c", None),
        ("/a b\té\n?q=é x", "/a%20b%09%C3%A9%0A?q=%C3%A9%20x"),
        ("/a?b#c?d", "/a?b"),
        ("?only=query", "/?only=query"),
        ("", "/"),
        ("/%zz%", None),
    ],
)
def test_urls_are_sent_as_given(given, sent):
    with serve([answer(BODY)]) as server:
        assert read(server.url + given) == BODY
        assert server.requests[0].line == f"GET {given if sent is None else sent} HTTP/1.1"
        assert server.requests[0].headers["host"] == f"127.0.0.1:{server.port}"


def test_locations_are_sent_as_given():
    location = "/x%2fy+z?sig=a%2f%7B{b}é"

    def said(request):
        return answer(BODY) if request.number else answer(b"", f"Location: {location}", status="302 Go")

    with serve(said) as server:
        assert read(server.url) == BODY
        assert server.requests[1].target == location.replace("é", "%C3%A9")


def test_user_agent_and_token():
    with serve([answer(BODY)]) as server:
        read(server.url, token=" t0ken\n")
        read(server.url, user_agent="mine/1.0 (x)")
        assert re.fullmatch(r"datago(/[\w.]+)?", server.requests[0].headers["user-agent"])
        assert server.requests[0].headers["authorization"] == "bearer t0ken" and "authorization" not in server.requests[1].headers
        assert server.requests[1].headers["user-agent"] == "mine/1.0 (x)"
    for options in ({"token": "a\r\nX: y"}, {"user_agent": "a\nb"}, {"token": "tökén"}):
        with pytest.raises(SourceValueError) as caught:
            open_stream("http://h/a", **options)
        assert not any(value in str(caught.value) for value in options.values())


@pytest.mark.parametrize(
    "url", ["http://", "http:///a", "http://h:99999/", "http://h:x/", "http://a b/", "http://[::1/", "http://h@/x?sig=s3cret"]
)
def test_urls_that_are_none(url):
    with pytest.raises(SourceValueError) as caught:
        open_stream(url)
    assert "s3cret" not in str(caught.value)


def test_redact():
    assert redact("https://u:p@h:1/a?b=c#d") == "https://h:1/a?…" and redact("https://h/a") == "https://h/a"
    assert redact("s3://b/k?x") == "s3://b/k?…" and redact("http://h/a\nb") == r"http://h/a\nb" and redact("http://h/?") == "http://h/"
    assert str(Url.parse("http://u:p@H/a?b")) == "http://h/a?…" == repr(Url.parse("http://u:p@H/a?b"))


def test_ipv6():
    try:
        with serve([answer(BODY)], host="::1") as server:
            assert read(f"http://[::1]:{server.port}/a") == BODY
            assert server.requests[0].headers["host"] == f"[::1]:{server.port}"
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")


def test_all_addresses_of_a_name_are_tried(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dead = listener.getsockname()
    with serve([answer(BODY)]) as server:
        both = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in (dead, ("127.0.0.1", server.port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
        assert read("http://some.host/a", attempts=1) == BODY


# --- H22: connections


def test_one_connection_a_stream():
    def flaky(request):
        time.sleep(0.01)
        if random.random() < 0.3:
            return answer(b"", f"Location: {request.target}x", status="302 Go")
        return from_range(request) if random.random() < 0.5 else from_range(request)[: random.randrange(19000)]

    with serve(flaky) as server:
        left = list(range(20))

        def work():
            while left:
                number = left.pop()
                assert read(f"{server.url}/{number}", attempts=50) == BODY
                done.append(number)

        done = []
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(done) == list(range(20)) and server.most <= 3


# --- H24: proxies


def test_proxy_of_the_environment(monkeypatch):
    with serve([answer(BODY)]) as proxy, serve([answer(BODY)]) as server:
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//joe:p%40ss@"))
        assert read("http://shards.example/a%2fb?c", token="t0ken") == BODY
        assert proxy.requests[0].line == "GET http://shards.example/a%2fb?c HTTP/1.1"
        assert proxy.requests[0].headers["host"] == "shards.example"
        assert proxy.requests[0].headers["proxy-authorization"] == "basic am9lonbac3m="  # lower-cased base64 of joe:p@ss
        monkeypatch.setenv("no_proxy", "example.org,127.0.0.1")
        assert read(server.url) == BODY and len(proxy.requests) == 1
    monkeypatch.setenv("no_proxy", "")
    for proxy in ("socks5://h:1", "https://h:1"):
        monkeypatch.setenv("http_proxy", proxy)
        with pytest.raises(SourceValueError, match="proxy|http url"):
            read("http://shards.example/a")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    if not shutil.which("openssl"):
        pytest.skip("no openssl command")
    folder = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost,DNS:shards.example"
    )
    command += f" -keyout {folder}/key.pem -out {folder}/cert.pem"
    subprocess.run(command.split(), check=True, capture_output=True, timeout=30)
    return folder


@pytest.fixture
def tls(certificate, monkeypatch):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate / "cert.pem"))
    reach._tls.cache_clear()
    yield context
    reach._tls.cache_clear()


def test_tls(tls):
    with serve([answer(BODY[:HALF], length=20480), from_range], context=tls) as server:
        assert read(server.url.replace("127.0.0.1", "localhost")) == BODY
        error = fails(server.url, "127.0.0.1.*(certificate|mismatch|not valid)")
        assert error.attempts == 1


def test_stop_in_a_tls_handshake_and_in_a_tls_stall(tls):
    with serve([then_silence(answer(BODY[:100], length=20480))], context=tls) as server:
        stop, began = threading.Event(), time.monotonic()
        threading.Timer(0.4, stop.set).start()
        with pytest.raises(Stopped):
            read(server.url.replace("127.0.0.1", "localhost"), stop=stop)
        assert time.monotonic() - began < 5
    with socket.create_server(("127.0.0.1", 0)) as listener:  # accepts, and is silent
        stop, began = threading.Event(), time.monotonic()
        threading.Timer(0.4, stop.set).start()
        with pytest.raises(Stopped):
            read(f"https://localhost:{listener.getsockname()[1]}", stop=stop)
        assert time.monotonic() - began < 5
        fails(f"https://localhost:{listener.getsockname()[1]}", "TLS handshake timed out after 0.3 s", timeout=0.3, attempts=1)


def test_tls_through_a_proxy(tls, monkeypatch):
    def tunnel(request):
        """A proxy that leads everything to the one server."""
        if request.line.split()[0] != "CONNECT" or "proxy-authorization" not in request.headers:
            return answer(b"", status="407 Who are you")
        there = socket.create_connection(("127.0.0.1", server.port))
        request.sock.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")

        def pump(a, b):
            with contextlib.suppress(OSError):
                while data := a.recv(65536):
                    b.sendall(data)
                b.shutdown(socket.SHUT_WR)

        back = threading.Thread(target=pump, args=(there, request.sock))
        back.start()
        pump(request.sock, there)
        back.join()
        there.close()

    with serve([answer(BODY)], context=tls) as server, serve(tunnel) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url.replace("//", "//joe:pw@"))
        assert read("https://shards.example/a?sig=s3cret", token="t0ken") == BODY
        assert proxy.requests[0].line == "CONNECT shards.example:443 HTTP/1.1"
        assert "t0ken" not in proxy.requests[0].head and "s3cret" not in proxy.requests[0].head
        assert server.requests[0].line == "GET /a?sig=s3cret HTTP/1.1" and "proxy-authorization" not in server.requests[0].headers
        monkeypatch.setenv("https_proxy", proxy.url)
        fails("https://shards.example/a", f"the proxy 127.0.0.1:{proxy.port} answered 407")


# --- other places


def test_local_files(tmp_path):
    path = tmp_path / "a b{0..1}?#.tar"
    path.write_bytes(BODY)
    assert read(str(path)) == BODY
    with open_stream(str(path), block_size=20480) as stream:
        assert [type(block) for block in stream] == [bytearray] and stream.size == 20480
    assert read(f"file://{tmp_path}/a%20b%7B0..1%7D%3F%23.tar") == BODY
    assert read(f"file:{tmp_path}/a%20b%7B0..1%7D%3F%23.tar") == BODY
    with pytest.raises(SourceNotFoundError, match="no-such"):
        read(str(tmp_path / "no-such.tar"))
    with pytest.raises(SourceOSError, match="directory"):
        read(str(tmp_path))
    with pytest.raises(SourceValueError, match="another host"):
        read("file://elsewhere/a.tar")
    with pytest.raises(Stopped):
        read(str(path), stop=lambda: True)


def test_a_local_file_that_shrinks(tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(BODY)
    with open_stream(str(path), block_size=1000) as stream:
        next(stream)
        path.write_bytes(BODY[:500])
        with pytest.raises(RemoteError, match="incomplete download: 1000 of 20480 bytes"):
            list(stream)


@pytest.fixture
def memory():
    fsspec = pytest.importorskip("fsspec")
    fs = fsspec.filesystem("memory")
    fs.pipe("/shards/a.tar", BODY)
    yield fs
    fs.rm("/shards", recursive=True)


def test_fsspec(memory):
    assert read("memory://shards/a.tar") == BODY
    with open_stream("memory://shards/a.tar", block_size=7000) as stream:
        assert [len(block) for block in stream] == [7000, 7000, 6480] and stream.size == 20480
    assert fails("memory://shards/b.tar", "memory://shards/b.tar: FileNotFoundError").attempts == 1
    with pytest.raises(SourceValueError, match="nosuch:// urls"):
        read("nosuch://a/b")


def test_fsspec_faults_are_resumed(memory, monkeypatch):
    from fsspec.implementations.memory import MemoryFile

    faults, original = [OSError("reset"), TimeoutError(), OSError("reset again")], MemoryFile.read

    def read_one(self, size):
        if self.tell() >= 7000 and faults:
            raise faults.pop()
        return original(self, size)

    monkeypatch.setattr(MemoryFile, "read", read_one, raising=False)
    with open_stream("memory://shards/a.tar", block_size=7000) as stream:
        assert b"".join(stream) == BODY and stream.retries == 3
    faults[:] = [OSError("for ever")] * 9
    fails("memory://shards/a.tar", r"OSError: for ever \(3 attempts\)", block_size=7000, attempts=3)


def test_fsspec_changed_and_stalled(memory, monkeypatch):
    from fsspec.implementations.memory import MemoryFile

    with open_stream("memory://shards/a.tar", block_size=7000) as stream:
        next(stream)
        memory.pipe("/shards/a.tar", BODY + b"x")
        monkeypatch.setattr(MemoryFile, "read", lambda *_: 1 / 0, raising=False)
        with pytest.raises(RemoteError, match="object changed during the download"):
            list(stream)
    gate = threading.Event()
    monkeypatch.setattr(MemoryFile, "read", lambda *_: gate.wait(30) and b"", raising=False)
    fails("memory://shards/a.tar", r"storage request timed out after", timeout=0.05, attempts=1)
    stop, began = threading.Event(), time.monotonic()
    threading.Timer(0.3, stop.set).start()
    with pytest.raises(Stopped):
        read("memory://shards/a.tar", stop=stop)
    gate.set()
    assert time.monotonic() - began < 15


@pytest.mark.filterwarnings("ignore")
def test_s3(monkeypatch):
    pytest.importorskip("s3fs")
    server_module = pytest.importorskip("moto.server")
    import fsspec

    from datago.sources.webdataset.urls import shard_urls

    for name, value in (("ACCESS_KEY_ID", "testing"), ("SECRET_ACCESS_KEY", "testing"), ("DEFAULT_REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://{host}:{port}")
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        fs = fsspec.filesystem("s3")
        fs.mkdir("shards")
        for number in range(3):
            fs.pipe(f"shards/{number:03d}.tar", BODY * 100)
        assert shard_urls("s3://shards/*.tar") == [f"s3://shards/{number:03d}.tar" for number in range(3)]
        for url in shard_urls("s3://shards/{000..002}.tar"):
            assert read(url) == BODY * 100
        fails("s3://shards/404.tar", "FileNotFoundError")
    finally:
        server.stop()
