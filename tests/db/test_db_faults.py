"""The database source against servers that break the protocol, or break down."""

import json
import threading
import time
from types import SimpleNamespace

import pytest
from conftest import check_accounts, jpeg, read
from faulty import answer, cut, drip, faulty, silent

from datago import DatagoClient, SourceError
from datago.sources.db.api import Api
from datago.sources.db.pages import Pages

pytestmark = [pytest.mark.network, pytest.mark.timeout(30)]
PICTURE = jpeg(40, 30)
KEY = "k" * 39 + "9"


def page(*records, next=None, **more):
    return answer(json.dumps({"next": next, "results": list(records), **more}).encode(), Content_Type="application/json")


def record(identity, path="/good.jpg", **fields):
    """A record with everything; fields that are ... are left out. Relative urls are resolved against the page's."""
    full = {"id": identity, "source": "S", "attributes": {"a": 1}, "tags": ["t"], "image_direct_url": path, **fields}
    return {key: value for key, value in full.items() if value is not ...}


def config(server, **keys):
    top = {key: keys.pop(key) for key in ("limit", "samples_buffer_size", "on_error") if key in keys}
    source = {
        "sources": "s",
        "page_size": 2,
        "require_images": True,
        "api_url": f"{server.url}/api/",
        "api_key": KEY,
        **keys,
    }
    return {"source_config": source, **top}


def serving(pages, **paths):
    """A server of pages: the first at /api/images/, others at /2, /3 … (`next` has to say so), and of pictures."""
    answers = {"/api/images/" if i == 0 else f"/{i + 1}": one for i, one in enumerate(pages)}
    return faulty({**answers, "/good.jpg": answer(PICTURE), **{f"/{name}": action for name, action in paths.items()}})


def drain(client):
    """ids until the end, and the SourceError that was the end, if one was."""
    found = []
    try:
        while (sample := client.get_sample(timeout=20)) is not None:
            found.append(sample.id)
    except SourceError as error:
        check_accounts(client.stats())
        assert KEY not in repr(error) and "SECRET" not in repr(error)
        return found, error
    check_accounts(client.stats())
    return found, None


@pytest.fixture(autouse=True)
def two_attempts(monkeypatch):
    monkeypatch.setenv("DATAGO_MAX_RETRIES", "2")


# ---- requests ----


def test_what_is_asked_for():  # D06
    keys = {
        "sources": "a,b c", "sources_ne": "d", "tags": "t", "tags_all": "u", "tags_ne": "v", "tags_ne_all": "w",
        "tags_empty": True,
        "has_attributes": "x", "lacks_attributes": "y", "has_masks": "m", "lacks_masks": "n", "has_latents": "l",
        "lacks_latents": "o",
        "min_short_edge": 1, "max_short_edge": 2, "min_pixel_count": 3, "max_pixel_count": 4,
        "attributes": "aes__gte:0.5",
        "duplicate_state": 1, "require_embeddings": True, "rank": 1, "world_size": 3, "user_agent": "mine",
        "page_size": 77,
    }  # fmt: skip
    with serving([page(record("a", "/good.jpg?Signature=1"), next="/2"), page()]) as server:
        samples, _ = read(config(server, **keys, limit=5))
        asked = [asked[3].partition("?")[0] for asked in server.requests if "good" not in asked[0]]
        assert asked == ["/api/images/", "/2", "/api/images/count/"]
        query = server.requests[0][3].partition("?")[2].split("&")
        assert query == [
            "fields=id%2Csource%2Cattributes%2Ctags%2Cimage_direct_url%2Clatents%2Ccoca_embedding%2Cduplicate_state",
            "page_size=77",
            "sources=a%2Cb+c", "sources__ne=d", "tags=t", "tags__all=u", "tags__ne=v", "tags__ne_all=w",
            "has_attributes=x",
            "lacks_attributes=y", "has_masks=m", "lacks_masks=n", "has_latents=l", "lacks_latents=o",
            "attributes=aes__gte%3A0.5",
            "short_edge__gte=1", "short_edge__lte=2", "pixel_count__gte=3", "pixel_count__lte=4", "tags__empty=true",
            "duplicate_state=1", "return_latents=l%2Cm", "partitions_count=3", "partition=1",
        ]  # fmt: skip
        for path, _, head, _ in server.requests:
            assert "User-Agent: mine" in head
            assert (f"Authorization: Token {KEY}" in head) == ("good" not in path) and sum("uthorization" in line for line in head) <= 1
    with serving([page()]) as server:
        assert read(config(server, require_images=False, duplicate_state=-1, sources=""))[0] == []  # legal, and empty
        assert server.requests[0][3] == "/api/images/?fields=id%2Csource%2Cattributes%2Ctags&page_size=2"


def test_one_page_ahead_and_not_more():
    pages = [page(*(record(f"{i}-{j}") for j in range(300)), next=f"/{i + 2}") for i in range(9)]
    with (
        serving([*pages, page()]) as server,
        DatagoClient(config(server, samples_buffer_size=2, max_connections=1)) as client,
    ):
        assert client.get_sample(timeout=10)
        time.sleep(0.5)
        assert sum("good" not in asked[0] for asked in server.requests) == 2
        assert len(drain(client)[0]) == 2699


# ---- pages ----


@pytest.mark.parametrize("fault", [answer(b"<h1>No</h1>", status="500 No"), silent(), cut(), cut(answer(b"{", length=9))])
def test_a_page_that_does_not_come_ends_the_run_behind_the_pages_before(fault):  # D01
    pages = [
        page(record("1"), record("2"), next="/2?key=SECRET"),
        page(record("3"), record("4"), next="/3?key=SECRET"),
        fault,
    ]
    with serving(pages) as server:
        client = DatagoClient(config(server, page_timeout=0.3))
        found, error = drain(client)
        assert sorted(found) == ["1", "2", "3", "4"] and isinstance(error, OSError)
        assert "page 3: " in str(error) and f"{server.url}/3?…" in str(error) and server.count("/3") == 2
        assert drain(client) == ([], None)
        client.stop()


def test_a_page_that_drips(monkeypatch):
    monkeypatch.setattr("datago.sources.db.source.PAGE_MARGIN_S", 0.2)
    with serving([page(record("1"), next="/2"), drip(answer(length=10**6), b" ", 0.02)]) as server:
        start = time.monotonic()
        found, error = drain(DatagoClient(config(server, page_timeout=0.3)))
        assert found == ["1"] and "read timed out: no page for" in str(error) and time.monotonic() - start < 15


@pytest.mark.parametrize("fault",
[answer(status="503 No"), answer(status="429 No", Retry_After="1"), answer(status="408 No"), cut(),
cut(b"HTTP/1.1 200"),
                                   cut(answer(b"{", length=100))])  # fmt: skip
def test_a_page_fault_that_passes(fault):
    good = page(record("1"), next="/2")
    with serving([[fault, good], [fault, page(record("2"), next="/3")], page()]) as server:
        found, error = drain(DatagoClient(config(server)))
        assert (sorted(found), error) == (["1", "2"], None)
        assert len(server.requests) >= 7  # five for pages, two of pictures


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            answer(b'{"detail":"Authentication credentials were not provided."}', status="401 No"),
            "HTTP 401: .*not provided",
        ),
        (answer(b'{"detail":"Invalid token."}', status="403 No"), "HTTP 403: .*Invalid token"),
        (answer(f'{{"detail":"no {KEY}"}}'.encode(), status="403 No"), "HTTP 403: .*no …"),
        (answer(b'["One or more tags do not exist"]', status="400 No"), "HTTP 400: .*do not exist"),
        (answer(b"<html>", status="404 No"), "HTTP 404;"),
        (answer(status="503 No", Retry_After="9999"), "HTTP 503;"),
        (answer(b'{"next": null, "results": null}'), "wanted an object with results"),
        (answer(b'{"next": null}'), "wanted an object with results"),
        (answer(b'{"results": []}'), "wanted an object with results"),
        (answer(b'{"results": [], "next": 1}'), "wanted an object with results"),
        (answer(b"[]"), "wanted an object with results"),
        (answer(b"<html>login</html>", Content_Type="text/html"), "not JSON but 18 bytes .text/html."),
        (answer(b'{"next": null, "results": [{"id"'), "not JSON"),
        (answer(b""), "not JSON but 0 bytes"),
        (answer(b"[" * 100_000), "not JSON"),
        (answer(b"\xff\xfe\x00"), "not JSON"),
        (answer(status="302 Found", Location="/login/?next=/api/images/"), "redirected to .*/login/"),
        (answer(status="302 Found", Location="/api/images/"), "page 1: "),
        (page(record("1"), next="https://127.0.0.1/api/images/"), "page 1 leads back to one before"),
        (page(record("1"), next="http://[bad?SECRET"), r"page 1 has an invalid next url: http://\[bad"),
        (page(record("1"), next="http://other.invalid/?cursor=\ud800"), "page 1 has an invalid next url"),
        (page(record("1"), next="/api/images/"), "page 1 leads back to one before"),
        (page(record("1"), next="/same"), "page 2 is the same as one before"),
        (page(record("1"), next="/loop"), "page 2 leads back to one before"),
    ],
)
def test_pages_that_are_not_pages(fault, said):  # D02
    paths = {"login/": answer(b"<html>"), "same": page(record("1"), next="/3"), "loop": page(record("2"), next="/loop")}
    with serving([fault], **paths) as server:
        found, error = drain(DatagoClient(config(server)))
        assert error is not None and "127.0.0.1" in str(error) and set(found) <= {"1", "2"} and len(found) == len(set(found))
        with pytest.raises(SourceError, match=said):
            raise error
        assert server.count("/api/images/") <= 11


def test_a_circle_of_many_pages_is_found_and_its_urls_are_not_kept():
    most, long = 100, "x" * 2000
    pages = [page(record(str(i)), next=f"/{i + 2 if i < most - 1 else most // 2}?{long}") for i in range(most)]
    with serving(pages) as server:
        api = Api(f"{server.url}/api/", KEY, "datago", 20, 1, 10**6)
        walk = Pages(api, SimpleNamespace(resume=None), [], 20)._walk(None)
        for _ in range(most):
            next(walk)
        assert sum(map(len, walk.gi_frame.f_locals["visited"])) <= 16 * most
        with pytest.raises(SourceError, match=f"page {most} leads back to one before"):
            next(walk)
        api.stop()


def test_nobody_at_the_api():
    with faulty({}) as server:
        server.stop()
        found, error = drain(DatagoClient(config(server)))
    assert found == [] and "ECONNREFUSED (attempt 2 of 2); from http://127.0.0.1" in str(error)
    error = drain(DatagoClient(config(server, api_url="http://no-such-name.invalid/api/")))[1]
    assert "no-such-name.invalid" in str(error)


def test_the_key_goes_nowhere_else():
    with serving([page(record("1"))]) as other:
        with serving([answer(status="302 Found", Location=f"{other.url}/api/images/")]) as server:
            drain(DatagoClient(config(server)))
        assert not any("uthorization" in line for asked in other.requests for line in asked[2])


# ---- records ----


def test_records_of_all_kinds():  # D05
    latent = {"latent_type": "depth", "file_direct_url": "/latent", "is_mask": False}
    good = [
        record(7), record("null", attributes=None, tags=None, coca_embedding=None, duplicate_state=None, latents=None),
        record("bare", attributes=..., tags=..., source=...), record("extra", unknown={"deep": [1]}, height="x"),
        record("日本 é"),
        record("numbers", source=5, tags=[1, "b"], attributes={"日": ["本"]}, duplicate_state=2,
        coca_embedding={"vector": [1, 0.5]}),
        record("latent",
        latents=[latent, {**latent, "latent_type": "image_mask", "is_mask": True, "file_direct_url": "/good.jpg"}]),
    ]  # fmt: skip
    bad = [
        record(..., attributes={}), record(None), record(""), record(True), record(["x"]), "text", None, [],
        record("\ud800"),
        record("no url", image_direct_url=None), record("no url 2", image_direct_url=...), record("b1", attributes=[1]),
        record("b2", tags="t"), record("b3", coca_embedding=[1]), record("b4", coca_embedding={"vector": ["x"]}),
        record("b5", latents=[{**latent, "is_mask": None}]), record("b6", latents=[{"latent_type": "x"}]),
        record("b7", latents={"a": 1}),
        record("b8", duplicate_state="1"), record("b9", image_direct_url=5), record("b10", latents=[None]),
        record("b11", source={}),
        record("b12", duplicate_state=2**40), record("b13", image_direct_url="http://[x"),
    ]  # fmt: skip
    with serving([page(*good, next="/2", more=1), page(*bad, good[0], next="/3"), page()], latent=answer(b"bytes")) as server:
        samples, stats = read(config(server))
    samples = {sample.id: sample for sample in samples}
    assert sorted(samples) == sorted(["7", "null", "bare", "extra", "日本 é", "numbers", "latent"])
    assert stats["failures"] == {"record": len(bad) - 1, "remote": 1} and stats["skips"] == {"repeated id": 1}
    null, full = samples["null"], samples["numbers"]
    assert (null.attributes, null.tags, null.coca_embedding, null.duplicate_state) == ("{}", [], [], -1)
    assert (full.source, full.tags, full.coca_embedding, full.duplicate_state) == ("5", ["1", "b"], [1.0, 0.5], 2)
    assert json.loads(full.attributes) == {"日": ["本"]} and "日" in full.attributes
    assert samples["latent"].latents["depth"].data == b"bytes" and list(samples["latent"].masks) == ["image_mask"]


def test_failures_have_names():
    bad = [record("x", latents=[None]), record(None), record("y", "/gone.jpg?Signature=SECRET")]
    with serving([page(*bad, record("z"))], **{"gone.jpg": answer(b"{}", status="404 No")}) as server:
        _, stats = read(config(server))
    failures = {failure["name"]: (failure["reason"], failure["text"]) for failure in stats["last_failures"]}
    assert failures == {
        "x": ("record", "latents: not objects"), "page 1, record 2": ("record", "id: missing"),
        "S:y": ("not_found", f"HTTP 404: {server.url}/gone.jpg?…"),
    }  # fmt: skip


# A sample with all its parts, or none.
def test_one_of_several_parts_fails():  # D07
    def with_parts(identity, **urls):
        return record(
            identity,
            latents=[{"latent_type": n, "file_direct_url": f"/{u}", "is_mask": "mask" in n} for n, u in urls.items()],
        )

    records = [
        with_parts("good", mask="good.jpg", image2="good.jpg", raw="raw"), with_parts("m", mask="gone", raw="raw"),
        with_parts("i", image2="broken"), with_parts("l", raw="page"),
    ]  # fmt: skip
    html = answer(b"<html>" * 300, status="404 No")
    with serving([page(*records)], gone=html, raw=answer(b"raw"), page=html, broken=answer(b"x" * 100)) as server:
        samples, stats = read(config(server))
    assert [sample.id for sample in samples] == ["good"] and stats["failures"] == {"not_found": 2, "unsupported": 1}
    assert {f["name"]: f["text"].split(":")[0] for f in stats["last_failures"] if f["reason"] == "not_found"} == {
        "S:m": "mask mask",
        "S:l": "latent raw",
    }


# ---- downloads ----


@pytest.mark.parametrize("body", [b"<html><body>log in</body></html>", b"garbage" * 1000, PICTURE[:300], b""])
def test_what_is_no_picture_is_asked_for_once(body):  # H14, H26
    with serving([page(record("a", "/bad"), record("b"))], bad=answer(body)) as server:
        samples, stats = read(config(server))
    assert [sample.id for sample in samples] == ["b"] and stats["failed"] == 1 and server.count("/bad") == 1


# Without a length only the decoder can notice.
def test_a_body_without_length_that_is_cut():  # H03
    with serving([page(record("a", "/bad"), record("b"))], bad=cut(b"HTTP/1.0 200 OK\r\n\r\n" + PICTURE[:-400])) as server:
        samples, stats = read(config(server))
    assert len(samples) == 1 and stats["failures"] == {"truncated": 1}


def test_a_picture_that_comes_at_the_second_attempt():
    faults = [cut(answer(PICTURE[:500], length=len(PICTURE))), answer(b"no", status="502 No"), cut()]
    paths = {f"p{i}": [fault, answer(PICTURE)] for i, fault in enumerate(faults)}
    with serving([page(*(record(str(i), f"/p{i}") for i in range(3)))], **paths) as server:
        samples, stats = read(config(server))
    assert len(samples) == 3 and stats["failed"] == 0


def test_stop_and_go_on_in_a_stall():  # H05
    with serving([page(record("a", "/stall"), record("b"))], stall=silent(answer(PICTURE[:500], length=len(PICTURE)))) as server:
        client = DatagoClient(config(server))
        assert client.get_sample(timeout=10).id == "b"
        threading.Timer(0.3, client.stop).start()
        start = time.monotonic()
        assert client.get_sample() is None and time.monotonic() - start < 15
        samples, stats = read(config(server, read_timeout=0.3))
    assert [sample.id for sample in samples] == ["b"] and stats["failures"] == {"remote": 1} and server.count("/stall") == 3


def test_stop_while_a_page_does_not_come():
    with serving([silent()]) as server:
        client = DatagoClient(config(server))
        threading.Timer(0.3, client.stop).start()
        start = time.monotonic()
        assert client.get_sample() is None and time.monotonic() - start < 15


def test_connections_are_bounded():  # H22
    def action(connection):
        time.sleep(0.01)
        connection.sendall(answer(PICTURE))
        return False

    pages = [page(*(record(str(i)) for i in range(60)))]
    with faulty({"/good.jpg": action}) as files:
        pages = [page(*(record(str(i), f"{files.url}/good.jpg") for i in range(60)))]
        with serving(pages) as server:
            samples, _ = read(config(server, max_connections=3))
    assert len(samples) == 60 and files.most <= 3


def test_failures_as_exceptions():
    with serving([page(record("a", "/gone"), record("b"))], gone=answer(status="410 No")) as server:
        client, seen = DatagoClient(config(server, on_error="raise", max_connections=1)), []
        for _ in range(2):
            try:
                seen.append(client.get_sample(timeout=10).id)
            except OSError as error:
                seen.append(str(error))
        client.stop()
    assert sorted(seen) == [f"S:a: not_found: HTTP 410: {server.url}/gone", "b"]
