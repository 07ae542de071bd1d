"""Connections that are kept for the next request: when they are, when they are not, and that nothing is lost by it."""

import contextlib
import os
import socket
import threading
import time

import pytest
from conftest import jpeg
from faulty import answer, cut, faulty
from tars import tar

from datago import DatagoClient
from datago.errors import RemoteError
from datago.net import policy
from datago.net.keep_alive import MAX_IDLE, IdleConnections
from datago.net.stream import Stopped, open_stream
from datago.sources.db.api import Api

pytestmark = [pytest.mark.network, pytest.mark.timeout(30)]

BODY = bytes(range(256)) * 80


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(policy, "backoff", lambda attempt: 0.005)
    for name in ("http_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def idle():
    with contextlib.closing(IdleConnections()) as idle:
        yield idle


def read(url, idle, **options):
    with open_stream(url, idle=idle, timeout=5, **options) as stream:
        return b"".join(stream), stream.retries


def test_one_connection_for_objects_one_after_the_other(idle):
    with faulty({"/a": answer(BODY), "/b": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"}) as server:
        for path, body in [("/a", BODY), ("/b", b"abc"), ("/a", BODY)] * 3:
            assert read(server.url + path, idle) == (body, 0)
        assert server.connections == 1 and not any("connection" in line.lower() for line in server.headers())
        assert read(server.url + "/a", None) == (BODY, 0)
        assert server.connections == 2 and "Connection: close" in server.headers()


def test_redirects_and_short_refusals_keep_it(idle):
    moved = answer(b"moved " * 100, status="302 Found", Location="/a")
    with faulty(
        {"/a": answer(BODY), "/moved": moved, "/none": answer(b"no", status="404 No"), "/304": b"HTTP/1.1 304 Same\r\n\r\n"}
    ) as server:
        assert read(server.url + "/moved", idle) == (BODY, 0)
        for path in ("/none", "/304"):
            with pytest.raises(RemoteError, match=path):
                read(server.url + path, idle)
        assert read(server.url + "/a", idle) == (BODY, 0) and server.connections == 1


@pytest.mark.parametrize(
    "said",
    [
        answer(BODY, Connection="Close"), answer(BODY, Connection="x, close"), answer(BODY).replace(b"1.1", b"1.0"),
        answer(BODY) + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", cut(answer(BODY)), cut(b"HTTP/1.1 200 OK\r\n\r\n" + BODY),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_not(idle, said):
    with faulty({"/a": said, "/b": answer(b"b")}) as server:
        assert read(server.url + "/a", idle)[0] == BODY
        assert read(server.url + "/b", idle)[0] == b"b"
        assert server.connections == 2


def test_a_stream_that_is_not_read_to_its_end_keeps_nothing(idle):
    with faulty({"/a": answer(BODY * 100)}) as server:
        with open_stream(server.url + "/a", idle=idle, block_size=1000) as stream:
            next(stream)
        assert read(server.url + "/a", idle) == (BODY * 100, 0) and server.connections == 2
        with pytest.raises(Stopped):
            read(server.url + "/a", idle, stop=lambda: True)


def test_a_server_that_closes_an_idle_connection_costs_one_attempt(idle):
    with faulty({"/a": [answer(BODY), cut(), answer(BODY)]}) as server:
        assert read(server.url + "/a", idle) == (BODY, 0)
        assert read(server.url + "/a", idle) == (BODY, 1)
        assert server.connections == 2 and "Connection: close" in server.headers()  # a retry has a connection of its own


def test_with_one_attempt_there_is_no_second_so_the_connection_is_new(idle):
    with faulty({"/a": answer(BODY)}) as server:
        for _ in range(2):
            assert read(server.url + "/a", idle, attempts=1) == (BODY, 0)
        assert server.connections == 2


def test_connections_of_other_servers_stay(idle):
    with faulty({"/a": answer(b"1")}) as one, faulty({"/a": answer(b"2")}) as other:
        for _ in range(3):
            assert read(one.url + "/a", idle)[0] == b"1" and read(other.url + "/a", idle)[0] == b"2"
        assert one.connections == other.connections == 1


def pair(stack):
    ours, theirs = socket.socketpair()
    stack.callback(theirs.close)
    stack.callback(ours.close)
    return ours, theirs


def test_what_is_given_and_taken(monkeypatch):
    idle = IdleConnections()
    with contextlib.ExitStack() as stack:
        (quiet, _), (talks, other) = pair(stack), pair(stack)
        other.sendall(b"x")
        idle.give("a", talks)
        idle.give("a", quiet)
        assert idle.take("b") is None and idle.take("a") is quiet and idle.take("a") is None and talks.fileno() == -1
        idle.give("a", quiet)
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)  # a forked child
            assert idle.take("a") is None and quiet.fileno() == -1
        (old, _), (late, _) = pair(stack), pair(stack)
        idle.give("a", old)
        with monkeypatch.context() as patch:
            patch.setattr("datago.net.keep_alive.MAX_IDLE_S", -1.0)
            assert idle.take("a") is None and old.fileno() == -1
        many = [pair(stack)[0] for _ in range(MAX_IDLE + 1)]
        for one in many:
            idle.give("a", one)
        assert [one.fileno() == -1 for one in many] == [True] + [False] * MAX_IDLE
        idle.close()
        idle.give("a", late)
        assert late.fileno() == -1 and all(one.fileno() == -1 for one in many) and idle.take("a") is None


def test_threads_share_them(idle):
    with faulty({"/a": answer(BODY)}) as server:
        found = []
        threads = [
            threading.Thread(target=lambda: found.extend(read(server.url + "/a", idle)[0] == BODY for _ in range(20))) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [True] * 80 and server.connections <= 4


def test_a_source_reads_its_shards_over_one_connection_and_closes_it():
    shards = {f"/{i}.tar": answer(tar([(f"{i}.jpg", jpeg())])) for i in range(5)}
    with faulty(shards) as server:
        source = {"url": server.url + "/{0..4}.tar", "concurrent_downloads": 1, "auth_token": ""}
        with DatagoClient({"source_type": "webdataset", "source_config": source}) as client:
            assert sorted(sample.id for sample in client) == list("01234")
        assert server.connections == 1
        for _ in range(200):  # the server sees it a moment later
            if server.now == 0:
                break
            time.sleep(0.01)
        assert server.now == 0


def test_pages_come_over_one_connection():
    with faulty({f"/{i}": answer(b"{}") for i in range(4)}) as server:
        api = Api(server.url, "key", "datago", 5, 2, 1 << 20)
        try:
            assert [api.get(f"{server.url}/{i}", None, "page")[0] for i in range(4)] == [{}] * 4
        finally:
            api.stop()
        assert server.connections == 1
