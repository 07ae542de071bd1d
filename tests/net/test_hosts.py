"""Hosts that cannot be reached: one request of a pass finds out, the others fail at once, and one is let through now and then."""

import contextlib
import errno
import json
import re
import socket
import threading
import time

import pytest
from conftest import jpeg
from faulty import answer, cut, faulty, silent
from tars import tar

from datago import DatagoClient
from datago.errors import RemoteError, SourceError
from datago.net import policy
from datago.net._fetch import Fetcher
from datago.net.reach import places
from datago.net.stream import open_stream
from datago.sources.webdataset.listing import list_objects

pytestmark = [pytest.mark.network, pytest.mark.timeout(60)]

PAGE = json.dumps({"items": []}).encode()  # a listing, and as bytes anything else
NOT_TRIED = "not tried again"


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """An environment that names no proxy, short waits, and no end of the rest of a host that is out."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr(policy, "backoff", lambda attempt: 0.005)
    monkeypatch.setattr(policy, "HOST_REST", 1000.0)
    monkeypatch.setenv("DATAGO_MAX_RETRIES", "3")


class Shards:
    """Asks as a pass does for its shards. `ask` gives what is wrong, or None."""

    def __init__(self, timeout=5.0):
        self.options = {"timeout": timeout, "attempts": 3, "hosts": policy.unreachable_hosts()}

    def ask(self, url):
        try:
            with open_stream(url, **self.options) as stream:
                assert b"".join(stream) == PAGE
        except RemoteError as error:
            return str(error)
        return None

    def close(self):
        pass


class Listings(Shards):
    def ask(self, url):
        try:
            assert list_objects(url, "", **self.options) == []
        except RemoteError as error:
            return str(error)
        return None


class Downloads:
    def __init__(self, timeout=5.0):
        self.fetcher = Fetcher(max_connections=2, timeout=timeout, attempts=3)

    def ask(self, url):
        self.fetcher.submit([(1, url)])
        ((_, _, body, error),) = self.fetcher.take(30)
        assert error or bytes(body) == PAGE
        return error and error[1]

    def close(self):
        self.fetcher.close()


@pytest.fixture(params=[Shards, Listings, Downloads])
def make(request):
    """Makes one who asks, of a time-out."""
    with contextlib.ExitStack() as stack:
        yield lambda timeout=5.0: stack.enter_context(contextlib.closing(request.param(timeout)))


@contextlib.contextmanager
def refusing():
    """A socket whose port is taken and refuses, until it listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken


def place_of(taken):
    return f"127.0.0.1:{taken.getsockname()[1]}"


def is_up(error):
    """Whether an error tells of attempts that were made, and not of a host that is known to be out."""
    return NOT_TRIED not in error


def test_the_first_request_has_all_attempts_and_the_others_none(make):
    asks = make()
    with refusing() as dead, faulty({"/o": answer(PAGE)}) as server:
        first = asks.ask(f"http://{place_of(dead)}/o")
        assert is_up(first) and ("(3 attempts)" in first or "(attempt 3 of 3)" in first)
        for _ in range(3):
            again = asks.ask(f"http://{place_of(dead)}/o")
            assert f"host {place_of(dead)} could not be reached: " in again and again.count(NOT_TRIED) == 1 and "attempt" not in again
            assert asks.ask(f"{server.url}/o") is None  # another port is another host
        assert "onnect" in again  # and the first cause is told
        assert is_up(make().ask(f"http://{place_of(dead)}/o"))  # another pass finds out by itself


def test_a_name_without_address(make):
    asks = make()
    assert is_up(asks.ask("http://no-such-host.invalid/o"))
    assert "host no-such-host.invalid could not be reached: " in asks.ask("http://no-such-host.invalid/o")


def test_a_listener_whose_queue_is_full(make):
    """Nobody accepts, so that the system answers no more: connecting times out."""
    asks = make(0.4)
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        assert re.search("(?i)timed?.?out", first := asks.ask(f"http://{place_of(listener)}/o")) and is_up(first)
        assert NOT_TRIED in asks.ask(f"http://{place_of(listener)}/o")


def test_silence_in_the_handshake(make):
    asks = make(0.4)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        assert is_up(asks.ask(f"https://{place_of(listener)}/o"))
        assert NOT_TRIED in asks.ask(f"https://{place_of(listener)}/o")


@pytest.mark.parametrize(
    "said",
    [answer(b"", status="503 Busy"), cut(answer(b"x", length=10)), cut(), silent(), answer(b"", status="404 No")],
    ids=["503", "short", "nothing", "silence", "404"],
)
def test_what_answers_or_breaks_off_can_be_reached(make, said):
    asks = make(0.4)
    with faulty({"/o": said}) as server:
        for number in (1, 2):
            assert is_up(asks.ask(f"{server.url}/o"))
            expected = 1 if isinstance(said, bytes) and b"404" in said else 3
            assert server.count("/o") == number * expected


def test_redirects_to_a_host_that_is_out(make):
    """Counted at the server that redirects: it is asked once for each attempt."""
    asks = make()
    with refusing() as dead, faulty({"/o": answer(b"", status="302 Found", Location=f"http://{place_of(dead)}/o")}) as server:
        asks.ask(f"{server.url}/o")
        assert server.count("/o") == 3
        assert f"host {place_of(dead)} could not" in asks.ask(f"{server.url}/o") and server.count("/o") == 4
        assert NOT_TRIED in asks.ask(f"http://{place_of(dead)}/o")


def test_a_proxy_that_is_out_and_one_that_is_not(make, monkeypatch):
    asks = make()
    with refusing() as dead, faulty({"no.invalid:443": answer(b"", status="502 No")}) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        assert is_up(make().ask("https://no.invalid/o"))
        asks = make()
        for _ in range(2):  # the proxy answers, whatever it says of the other
            assert "502" in asks.ask("https://no.invalid/o")
        assert len(proxy.requests) == 9
        for name, url in (("https_proxy", "https://no.invalid/o"), ("http_proxy", "http://no.invalid/o")):
            monkeypatch.setenv(name, f"http://u:s3cret@{place_of(dead)}")
            asks = make()
            assert is_up(asks.ask(url))
            said = asks.ask(url)
            assert f"host {place_of(dead)} could not be reached" in said and "s3cret" not in said


def test_one_request_is_let_through_after_the_rest(make, monkeypatch):
    monkeypatch.setattr(policy, "HOST_REST", 0.3)
    asks = make()
    with refusing() as dead:
        url = f"http://{place_of(dead)}/o"
        assert is_up(asks.ask(url)) and not is_up(asks.ask(url))
        while not is_up(said := asks.ask(url)):
            time.sleep(0.02)
        assert "attempt" not in said  # it had a single one
        assert not is_up(asks.ask(url))


def test_a_server_that_comes_back(make, monkeypatch):
    monkeypatch.setattr(policy, "HOST_REST", 0.3)
    asks = make()
    with refusing() as dead:
        url = f"http://{place_of(dead)}/o"
        assert is_up(asks.ask(url)) and not is_up(asks.ask(url))
        dead.listen(64)

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = dead.accept()
                    with connection:
                        connection.recv(65536)
                        connection.sendall(answer(PAGE, Connection="close"))

        threading.Thread(target=serve, daemon=True).start()
        while said := asks.ask(url):
            assert not is_up(said)  # the first that is let through succeeds
            time.sleep(0.02)
        for _ in range(5):
            assert asks.ask(url) is None
        dead.shutdown(socket.SHUT_RDWR)


def test_a_want_of_our_own_says_nothing_of_the_host():
    assert policy.is_own_want(errno.EMFILE) and policy.is_own_want(socket.EAI_MEMORY)
    assert not policy.is_own_want(errno.ECONNREFUSED) and not policy.is_own_want(socket.EAI_NONAME)


def test_places(monkeypatch):
    urls = ["http://h/a", "HTTP://H:80/b?x", "https://h/c", "http://u:p@g:8080/d", "http://[::1]:90/e"]
    assert places(urls) == {"h", "g:8080", "[::1]:90"}
    assert places([*urls, "/a.tar"]) == places([*urls, "s3://b/a.tar"]) == frozenset()
    monkeypatch.setenv("http_proxy", "http://p:3128")
    assert places(urls) == {"h", "p:3128"}


def test_many_downloads_at_once():
    """Those that began before the host was found out had their attempts; with two connections that are two."""
    with refusing() as dead, faulty({"/o": answer(PAGE)}) as server:
        fetcher = Fetcher(max_connections=2, timeout=5, attempts=3, capacity=300)
        try:
            fetcher.submit([(i, f"http://{place_of(dead)}/{i}" if i % 2 else f"{server.url}/o") for i in range(300)])
            results = []
            while len(results) < 300:
                results += fetcher.take(30)
        finally:
            fetcher.close()
        texts = [error[1] for _, _, _, error in results if error]
        assert len(texts) == 150 and all(error is None for tag, _, _, error in results if tag % 2 == 0)
        assert [NOT_TRIED in text for text in texts] == ["(attempt 3 of 3)" not in text for text in texts]
        assert 1 <= sum(map(is_up, texts)) < 150


# ---- passes ---------------------------------------------------------------------------------------------------------


def shard(number):
    return tar([(f"{number}-{i}.jpg", jpeg(16, 16, seed=number)) for i in range(3)])


def client_of(urls, told, lanes=4, **options):
    source = {"url": urls, "concurrent_downloads": lanes, "timeout": 5, "shuffle": False}
    return DatagoClient({"source_type": "webdataset", "source_config": source, "on_error": told.append, **options})


def read(client):
    """(ids, the error that ended it or None, stats)."""
    ids, error = [], None
    with client:
        try:
            ids = ids_of(client)
        except SourceError as caught:
            error = str(caught)
        return ids, error, client.stats()


def ids_of(client):
    return [sample.id for sample in client]


@pytest.mark.parametrize("options", [{}, {"ordered": True}])
def test_a_pass_whose_shards_lie_on_one_dead_host(options):
    told = []
    with refusing() as dead:
        ids, error, stats = read(client_of(f"http://{place_of(dead)}/{{0000..2299}}.tar", told, **options))
    assert ids == [] and "none of the 2300 shards can be read now: host 127.0.0.1:" in error
    assert stats["failed"] == len(told) <= 4  # the readers that were asking when it was found out


def test_three_shards_on_a_dead_host():
    told = []
    with refusing() as dead:
        _, error, stats = read(client_of(f"http://{place_of(dead)}/{{0..2}}.tar", told))
    assert "none of the 3 items of the source gave a sample" in error and "ECONNREFUSED" in error and stats["failed"] == 3


def test_other_hosts_go_on():
    told = []
    with refusing() as dead, faulty({f"/{i}.tar": answer(shard(i)) for i in range(20)}) as server:
        urls = [f"http://{place_of(dead)}/{{00..39}}.tar", f"{server.url}/{{0..19}}.tar"]
        ids, error, stats = read(client_of(urls, told))
    assert error is None and sorted(ids) == sorted(f"{i}-{j}" for i in range(20) for j in range(3))
    assert stats["failed"] == len(told) == 40 and {failure.reason for failure in told} == {"shard"}
    assert sum("(3 attempts)" in failure.text for failure in told) <= 4 and sum(NOT_TRIED in failure.text for failure in told) >= 36


def test_a_host_that_dies_in_the_middle_of_a_pass():
    """Three shards come, the fourth breaks off and its server is gone: that one is a failure, and no other is lost to who resumes."""
    told, first = [], [shard(i) for i in range(30)]
    answers = {f"/{i}.tar": answer(data, Connection="close") for i, data in enumerate(first)}
    with faulty(answers) as server:

        def die(connection):
            server.socket.shutdown(socket.SHUT_RDWR)
            server.socket.close()
            connection.sendall(answer(first[3])[:700])
            return True

        answers["/3.tar"] = die
        url = f"{server.url}/{{0..29}}.tar"
        client = client_of(url, told, lanes=1, ordered=True)
        with client:
            ids, state = [], None
            with pytest.raises(SourceError, match=f"none of the 30 shards can be read now: host 127.0.0.1:{server.port} could not"):
                for sample in client:
                    ids.append(sample.id)
            state, stats = client.state_dict(), client.stats()
    assert ids == [f"{i}-{j}" for i in range(3) for j in range(3)]
    assert stats["failed"] == len(told) == 1 and stats["seen"] == stats["delivered"] + stats["failed"] + stats["skipped"]
    revived = {path: said for path, said in answers.items() if path != "/3.tar"}
    with faulty(revived, port=server.port):
        client = client_of(url, told, lanes=1, ordered=True)
        client.load_state_dict(state)
        ids, error, stats = read(client)
    assert error is None and ids == [f"{i}-{j}" for i in range(4, 30) for j in range(3)] and not stats["failed"]
