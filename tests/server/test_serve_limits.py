"""What a peer can do to the server with requests: heads, bodies and waits have limits, and nothing that a request says brings a 500."""

import json
import os
import random
import resource
import socket
import subprocess
import sys
import threading
import time
from urllib.parse import quote, urlencode, urlsplit

import pytest
from serving import TOKEN, album, fetch, serve, server  # noqa: F401

from datago.server import limits

pytestmark = pytest.mark.network

MB = 2**20


def connect(url, timeout=30):
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=timeout)


def talk(url, *pieces):
    """All that the server answers to `pieces`, until it closes the connection or has nothing to say for a second."""
    with connect(url) as peer:
        try:
            for piece in pieces:
                peer.sendall(piece)
            peer.settimeout(1)
            answer = b""
            while data := peer.recv(2**16):
                answer += data
        except TimeoutError:
            pass
        except OSError:  # reset: it would not listen any more
            answer = answer if "answer" in locals() else b""
        return answer


def resident(server):
    """Bytes that the server's process has in memory."""
    with open(f"/proc/{server.process.pid}/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def sites(server):
    return [server.api_url, server.media_url]


GET = b"GET /_health/ HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.parametrize(
    "status, pieces",
    [
        (414, [b"GET /", b"a" * limits.LINE, b" HTTP/1.1\r\n\r\n"]),
        (431, [GET, b"X: ", b"a" * limits.HEAD, b"\r\n\r\n"]),
        (431, [GET, b"".join(b"X%d: 1\r\n" % i for i in range(limits.HEADERS)), b"\r\n"]),
        (431, [GET, b"X" * limits.HEAD, b": 1\r\n\r\n"]),
        (431, [GET, b"X: ", *[b"a" * MB] * 24]),
        (431, [GET, *[b"X: " + b"a" * 1000 + b"\r\n"] * 24000]),
        (414, [b"GET /", *[b"a" * MB] * 24]),
        (400, [b"a" * MB] * 24),
        (400, [b"GET / HTTP/9.9\r\n\r\n"]),
        (400, [b"GET /\0 HTTP/1.1\r\n\r\n"]),
        (400, [b"\x16\x03\x01" + bytes(500)]),
        (400, [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]),
        (400, [GET, b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"]),
        (400, [GET, b"Content-Length: -1\r\n\r\n"]),
    ],
    ids=range(14),
)
def test_heads_have_limits(server, status, pieces):
    """The answer says which; nobody else waits, and nothing of it is kept."""
    before = resident(server)
    for url in sites(server):
        answer = talk(url, *pieces)
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:100]
    assert fetch(server.api_url.replace("/api/", "/_health/"))[0] == 200
    assert resident(server) < before + 16 * MB


def test_what_is_within_the_limits_is_answered(server):
    line = b"GET /_health/?" + b"a" * (limits.LINE - len("/_health/?")) + b" HTTP/1.1\r\nHost: x\r\n"
    rest = b"".join(b"X%02d: 1\r\n" % i for i in range(limits.HEADERS - 2)) + b"X: " + b"a" * (limits.HEAD - 1000) + b"\r\n\r\n"
    for step in (1 << 20, 997):
        pieces = [(line + rest)[start : start + step] for start in range(0, len(line + rest), step)]
        assert talk(server.api_url, *pieces).startswith(b"HTTP/1.1 200 ")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_bodies_are_not_kept(server):
    """A small one is read over, a large one ends the connection, announced or not."""
    before = resident(server)
    head = b"POST /api/images/ HTTP/1.1\r\nHost: x\r\nAuthorization: Token " + TOKEN.encode() + b"\r\n"
    small = talk(server.api_url, head, b"Content-Length: 1000\r\n\r\n" + b"x" * 1000 + GET + b"\r\n")
    assert small.startswith(b"HTTP/1.1 403 ") and b"HTTP/1.1 200 OK" in small
    for framing, piece in (
        (b"Content-Length: 999999999999\r\n\r\n", b"x" * MB),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"100000\r\n" + b"x" * MB + b"\r\n"),
        (b"Transfer-Encoding: chunked\r\n\r\n1;x=", b"x" * MB),
        (b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ", b"x" * MB),
        (b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n" * 2**17),
    ):
        for url in sites(server):
            with connect(url) as peer:
                try:
                    peer.sendall(head + framing)
                    for _ in range(40):
                        peer.sendall(piece)
                except ConnectionError:
                    continue
                assert closed(peer).count(b"HTTP/1.1 ") in (1, 2)
    assert resident(server) < before + 16 * MB


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_requests_ahead_of_answers_have_a_limit(server):
    """A few may be sent before their answers are there; who sends thousands is cut off."""
    some = talk(server.api_url, (GET + b"\r\n") * limits.AHEAD)
    assert some.count(b"HTTP/1.1 200 OK") == limits.AHEAD
    before = resident(server)
    many = talk(server.api_url, (GET + b"\r\n") * 20000)
    assert many.count(b"HTTP/1.1 200 OK") < 20000
    assert resident(server) < before + 16 * MB


IMPATIENT = """
import sys
from datago.server import limits
limits.ARRIVAL, limits.STALL, limits.IDLE, limits.CONNECTIONS = 1, 2, 3, int(sys.argv.pop(1))
from datago.cli import main
sys.exit(main())
"""


def impatient(album, connections):
    """The server with short limits."""
    command = [sys.executable, "-c", IMPATIENT, str(connections), "serve", str(album), "--port", "0", "--media-port", "0", "--token", TOKEN]
    return subprocess.Popen([*command, "--database", "sqlite://"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def closed(peer, timeout=30):
    """What comes before the peer's end of the connection."""
    peer.settimeout(timeout)
    answer = bytearray()
    try:
        while data := peer.recv(2**16):
            answer += data
    except ConnectionError:
        pass
    return bytes(answer)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_who_is_slow_is_cut_off(album):
    """One byte of a head at a time, none at all, blank lines for ever, a body that does not come, an answer that is not taken."""
    big = album / "im-000.huge.npy"
    big.write_bytes(bytes(64 * MB))
    process = impatient(album, 100)

    def drip(peer, data, stop):
        try:
            while not stop.wait(0.2):
                peer.sendall(data)
        except OSError:
            pass

    try:
        ready = json.loads(process.stdout.readline())
        for url in (ready["api_url"], ready["media_url"]):
            with connect(url) as silent, connect(url) as slow, connect(url) as blank, connect(url) as body, connect(url) as idle:
                slow.sendall(GET)
                body.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345")
                idle.sendall(GET + b"\r\n")
                stop = threading.Event()
                drips = [threading.Thread(target=drip, args=(*args, stop)) for args in ((slow, b"a"), (blank, b"\r\n"))]
                for thread in drips:
                    thread.start()
                assert b"HTTP/1.1 408 " in closed(silent)
                closed(slow), closed(blank), closed(body)
                assert closed(idle).startswith(b"HTTP/1.1 ")
                stop.set()
                for thread in drips:
                    thread.join(10)
        _, _, body = fetch(f"{ready['api_url']}images/im-000/?all_fields=true", authorization=f"Token {TOKEN}")
        (url,) = [one["file_direct_url"] for one in json.loads(body)["latents"] if one["latent_type"] == "huge"]
        with connect(url) as lazy:
            parts = urlsplit(url)
            lazy.sendall(f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            for wanted in (True, False):  # it begins with the answer, and gives it up
                deadline = time.monotonic() + 20
                while held(process.pid, big.name) != wanted:
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
            assert len(closed(lazy)) < 64 * MB
        assert len(fetch(url)[2]) == 64 * MB  # who takes it gets it
        process.terminate()
        rest, log = process.communicate(timeout=20)
        assert process.returncode == 0 and "Traceback" not in log, log
    finally:
        big.unlink()
        process.kill()
        process.communicate()


def held(pid, name):
    """Whether a process has a file of this name open."""
    for entry in os.listdir(f"/proc/{pid}/fd"):
        try:
            if os.readlink(f"/proc/{pid}/fd/{entry}").endswith(name):
                return True
        except OSError:
            pass
    return False


def test_connections_have_a_limit(album):
    """Who comes when all places are taken is told so; the places are given again."""
    process = impatient(album, 20)
    try:
        ready = json.loads(process.stdout.readline())
        health = ready["api_url"].replace("/api/", "/_health/")
        peers = [connect(ready["api_url"]) for _ in range(60)]
        answers = [closed(peer) for peer in peers]
        for peer in peers:
            peer.close()
        assert sum(b"HTTP/1.1 408 " in answer for answer in answers) <= 20
        assert sum(b"HTTP/1.1 503 " in answer for answer in answers) >= 30
        assert fetch(health)[0] == 200
        process.terminate()
        _, log = process.communicate(timeout=20)
        assert process.returncode == 0 and "Traceback" not in log, log
    finally:
        process.kill()
        process.communicate()


def test_few_descriptors_are_enough(album):
    """The limit of connections follows the one of descriptors, so that taking one more never fails."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (160, 160))\n"
        "from datago.server.limits import connections; print(connections(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50)); print(connections())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "20 160\n1\n"


# ---- random requests ----

NAMES = (
    "page_size cursor fields all_fields include_fields exclude_fields return_latents partitions_count partition prefix_length num_prefixes "
    "source sources sources__ne source__empty short_edge short_edge__gte pixel_count__lt aspect_ratio aspect_ratio__gt "
    "aspect_ratio_fraction tags tags__all tags__ne tags__ne_all tags__empty has_attributes lacks_attributes has_latents lacks_masks "
    "attributes duplicate_state coca_embedding__empty date_created__gt date_updated__lte datasets datasets__ne_all datasets__empty slug "
    "token query".split()
)
VALUES = (
    "hq cat A B dino person_mask aes number title words even aes__gte:0.5 number__lt:7 title__match:red title__prefix:A even:true x:y "
    "title__match_phrase: true false null None 0 1 -1 2 7.0 1e308 1e400 -1e9999 nan inf sNaN 2000 2001 9223372036854775808 3:4 2020-01-01 "
    "0001-01-01T00:00:00+14:00 9999-12-31T23:59:59-14:00 2020-13-45 im-010 ../../etc/passwd %s %n ' \" ; -- \\ \0 \ud7ff \ufffe 日本 "
    "é \u0627 \u30fc \U0001f408 İ ß \u202e * ? [ ] { } ( ) | & = + # % /".split(" ")
)
PATHS = (
    "/api/images/ /api/images/ /api/images/ /api/images/count/ /api/images/random/ /api/images/im-000/ /api/tags/ /api/datasets/ /api/images "
    "/_health/ /login/ / // /. /.. /%2e%2e/ /%00 /%ff/ /api/images/%2e%2e%2f/ /api//images/ /API/IMAGES/ /api/images/im-000 /im-000.jpg "
    "//im-000.jpg /im-000.jpg/ /./im-000.jpg /%69m-000.jpg /IM-000.JPG /im-000.json /im-000.txt /im-000.dino.npy /../im-000.jpg * http://x/ "
    "http://[/ /a?b?c /;a=b".split()
)
METHODS = ["GET"] * 12 + ["HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "CONNECT", "get", ""]
HEADERS = [
    "Range: bytes=0-", "Range: bytes=-", "Range: bytes=99999999999999999999999-", "Range: bytes=5-1", "Range: bytes=-0", "Range: " + "9" * 5000,
    "Range: bytes=" + "9" * 5000 + "-", "Expect: 100-continue", "Connection: upgrade", "Upgrade: websocket", "Upgrade: h2c", "Connection: close",
    "Content-Length: 0", "Content-Length: 5", "Content-Length: x", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip", "Host: y", "Host: [",
    "Host: a b", "Accept-Encoding: gzip", "Cache-Control: max-age=10", "X-Forwarded-Host: evil", "Cookie: a=b", "Authorization: Basic x",
    "Authorization: Token", "Authorization: Token é", "Authorization: Token a b", "X: \x01", "X", ": x", " folded", "A" * 300 + ": x",
]  # fmt: skip


def random_value(rng):
    value = rng.choice(["", ",", ":", " ", "__"]).join(rng.choice(VALUES) for _ in range(rng.choice([1, 1, 1, 2, 3, 50])))
    return value * rng.choice([1, 1, 1, 1, 40])


def random_request(rng, signed):
    """The bytes of a request, more or less, and whether it has the token."""
    query = [(rng.choice(NAMES), random_value(rng)) for _ in range(rng.randrange(5))]
    path, text = rng.choice(PATHS), urlencode(query) if rng.random() < 0.9 else quote(random_value(rng)) + "&&=&%zz"
    if rng.random() < 0.3:
        path, _, text = rng.choice(signed).partition("?")
        text = "".join(rng.choice("0aZ&=%?") if rng.random() < 0.01 else letter for letter in text)
    target = f"{path}?{text}"[:60000] if text else path
    token = rng.random() < 0.8
    head = [f"{rng.choice(METHODS)} {target} HTTP/{rng.choice(['1.1', '1.1', '1.1', '1.0', '2'])}"]
    head += ["Host: x"] if rng.random() < 0.9 else []
    head += [f"Authorization: Token {TOKEN}"] if token else []
    head += rng.sample(HEADERS, rng.choice([0, 0, 0, 1, 2, 5]))
    data = ("\r\n".join(head) + "\r\n\r\n").encode("utf-8", "surrogatepass")
    if rng.random() < 0.1:  # damaged
        data = bytearray(data)
        for _ in range(rng.randrange(1, 5)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def answered(url, data):
    """The answer's first line; b"" if the connection was closed without one, as happens to what is no request."""
    with connect(url, 20) as peer:
        try:
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR) if data.startswith(b" ") else None
            peer.settimeout(20)
            answer = b""
            while b"\r\n" not in answer and (got := peer.recv(2**16)):
                answer += got
        except ConnectionError:
            return b""
        except TimeoutError:  # it waits for the rest of a request that seems unfinished
            return None
        return answer.split(b"\r\n")[0]


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(3))
def test_random_requests(album, seed, tmp_path):
    """No 500, no wait without end, no memory or disk filled, nothing secret in the log; the server answers as before."""
    rng = random.Random(seed)
    with serve(album, cache=tmp_path) as server:
        everything = server.ask(all_fields="true")[1]
        signed = [urlsplit(image["image_direct_url"]) for image in everything["results"]]
        signed = [f"{url.path}?{url.query}" for url in signed]
        server.ask(tags="hq", attributes="aes__gte:0,title__match:red")
        memory, disk, unfinished = resident(server), sorted((path.name, path.stat().st_size) for path in tmp_path.rglob("*")), 0
        codes = set()
        for _ in range(700):
            data = random_request(rng, signed)
            # what may seem unfinished has its end soon: else the server would rightly wait for the rest
            line = answered(rng.choice(sites(server)), data + b"\r\n" * 4 + b"0\r\n\r\n" * 2)
            unfinished += line is None
            if line:
                code = int(line.split()[1])
                codes.add(code)
                assert code < 500, (line, data[:2000])
        assert codes >= {200, 400, 403}, codes
        assert unfinished < 20
        assert server.ask(all_fields="true")[1]["results"][0]["id"] == everything["results"][0]["id"]
        assert resident(server) < memory + 64 * MB
        assert sorted((path.name, path.stat().st_size) for path in tmp_path.rglob("*")) == disk
    assert TOKEN not in server.log and "Signature" not in server.log and len(server.log) < 5000, server.log


def test_the_log_is_not_filled(album):
    """A thousand bad requests leave no line, with or without secrets in them."""
    with serve(album) as server:
        url = server.image("im-000")["image_direct_url"]
        for _ in range(200):
            for site in sites(server):
                talk_quickly(site, b"nonsense %s\r\n\r\n" % TOKEN.encode())
                talk_quickly(site, b"GET / HTTP/1.1\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n")
            fetch(url[:-1] + "x")
            fetch(f"{server.api_url}images/?token={TOKEN}")
    assert len(server.log) < 1000 and TOKEN not in server.log and "Signature" not in server.log, server.log


def talk_quickly(url, data):
    with connect(url) as peer:
        peer.sendall(data)
        peer.recv(100)


def test_a_statement_has_a_time_limit(monkeypatch, album):
    """What takes too long is given up, and answered with 503."""
    from sqlalchemy.exc import OperationalError

    from datago.server import store as stores
    from datago.server.index import describe
    from datago.server.walk import Report, walk

    store, report = stores.Store(""), Report()
    store.sync(walk(album, report), lambda entry: entry.fingerprint("x"), lambda entry: describe(entry, album, "x", report), report)
    assert store.count([]) == 60
    monkeypatch.setattr(stores, "SECONDS", -1)
    monkeypatch.setattr(stores, "STEPS", 1)
    with pytest.raises(OperationalError, match="interrupted"):
        store.count([])
    monkeypatch.undo()
    assert store.count([]) == 60
    store.close()
