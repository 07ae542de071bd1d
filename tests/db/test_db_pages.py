"""Pages of the database: where `next` leads, how much a page may be, walks that end early, draws that are even, what filters ask for."""

import gzip
import json
import logging
import os
import pathlib
import resource
import subprocess
import sys
import zlib
from urllib.parse import parse_qs, urlsplit

import pytest
from conftest import jpeg, read
from faulty import Faulty, answer, cut
from test_db_faults import KEY, config, drain, page, record, serving

from datago import DatagoBatchDataset, DatagoClient, SampleError, SourceError
from datago import config as configuration
from datago.sources.db import filters as filters_
from datago.sources.db.draws import Draws

pytestmark = [pytest.mark.network, pytest.mark.timeout(60)]


@pytest.fixture(autouse=True)
def two_attempts(monkeypatch):
    monkeypatch.setenv("DATAGO_MAX_RETRIES", "2")


def walked(server):
    """All that comes in the end, in order, and the error."""
    found, error = drain(DatagoClient(config(server)))
    return sorted(found), error


def asked(server):
    """What was asked of the API, without the counts."""
    return [one for one in server.requests if "good" not in one[0] and not one[0].endswith("/count/")]


class Walk(Faulty):
    """Records r00, r01 …, two a page. `following` makes the url of the next page from its query; `empty` are the requests that run out of time;
    `counted` is the answer to the count."""

    def __init__(self, count, following=None, counted=None, empty=()):
        self.names, self.empty = [f"r{i:02}" for i in range(count)], empty
        self.following = following or (lambda query: f"?{query}")
        self.counted = answer(json.dumps({"count": count}).encode()) if counted is None else counted
        super().__init__(None)

    def action(self, path, target, number):
        if path == "/good.jpg":
            return answer(jpeg(16, 16))
        if path.endswith("/count/"):
            return self.counted
        cursor = parse_qs(urlsplit(target).query).get("cursor", [""])[0]
        found = [] if number in self.empty else [name for name in self.names if name > cursor][:2]
        return page(*(record(name) for name in found), next=self.following(f"page_size=2&cursor={found[-1]}") if found else None)


@pytest.fixture
def walk():
    servers = []

    def start(*args, **options):
        servers.append(Walk(*args, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


# ---- next ----


@pytest.mark.parametrize("base", ["/api/", "/outside/api/"])
@pytest.mark.parametrize("following", [
    "http://internal.invalid:8000/api/images/?{}", "https://127.0.0.1/api/images/?{}", "http://127.0.0.1:1/api/images/?{}",
    "//internal.invalid/images/?{}", "/api/images/?{}", "?{}", "http://user:secret@internal.invalid/deep/er/?{}#end",
])  # fmt: skip
def test_next_names_another_place(walk, base, following):
    server = walk(5, lambda query: following.format(query))
    found, error = drain(DatagoClient(config(server, api_url=f"{server.url}{base}")))
    assert (sorted(found), error) == (server.names, None)
    assert {one[0] for one in asked(server)} == {f"{base}images/"}
    assert all(f"Authorization: Token {KEY}" in one[2] for one in asked(server))


def test_the_key_does_not_follow_a_redirect_and_next_comes_back(walk):
    other = walk(5)  # where the records are; its `next` is relative, so that it names the other host
    with serving([lambda connection: connection.sendall(answer(status="307 T", Location=f"{other.url}/api/images/")) or True]) as server:
        found, error = drain(DatagoClient(config(server)))
        assert len(asked(server)) > 1 and error is not None  # the redirect drops the cursor, so that the walk goes round in a circle
    assert sorted(found) == ["r00", "r01"] and not any("uthorization" in line for one in other.requests for line in one[2])


@pytest.mark.parametrize("following", ["?cursor=r01&again={}", "http://other.invalid/api/images/?cursor=r01&again={}"])
def test_a_cursor_that_does_not_advance(following):
    pages = [page(record("r00"), record("r01"), next=following.format(1)), page(record("x"), next=following.format(2))]
    with serving([pages]) as server:
        found, error = drain(DatagoClient(config(server)))
    assert "page 2 leads back to one before" in str(error) and set(found) == {"r00", "r01", "x"}


# ---- bounds ----


def head(length, coding=None):
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n" % (length, b"Content-Encoding: %s\r\n" % coding if coding else b"")


def bomb(kind):
    """The bytes of an answer that is 600 MB, or claims to be."""
    if kind == "plain":
        return lambda connection: [connection.sendall(head(600 << 20)), *(connection.sendall(b" " * (1 << 20)) for _ in range(600))]
    if kind == "chunked":
        start = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        return lambda connection: [
            connection.sendall(start),
            *(connection.sendall(b"100000\r\n" + b" " * (1 << 20) + b"\r\n") for _ in range(600)),
        ]
    packer = zlib.compressobj(9, zlib.DEFLATED, {"gzip": 31, "deflate": 15, "raw": -15}[kind])
    body = b"".join([packer.compress(b" " * (1 << 20)) for _ in range(600)]) + packer.flush()
    return cut(head(len(body), b"gzip" if kind == "gzip" else b"deflate") + body)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss has another unit")
@pytest.mark.parametrize("kind", ["plain", "chunked", "gzip", "deflate", "raw"])
def test_a_page_without_end(kind):
    with serving([bomb(kind)]) as server:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found, error = drain(DatagoClient(config(server)))
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    assert found == [] and "page 1: the response has more than 67239936 bytes" in str(error) and grown < 200
    assert server.count("/api/images/") == 1  # it would be the same


def test_a_refusal_and_a_redirect_without_end():
    packed = gzip.compress(b" " * (64 << 20))
    with serving([answer(packed, status="403 No", Content_Encoding="gzip")]) as server:
        assert "page 1: HTTP 403; from" in str(drain(DatagoClient(config(server)))[1])
    moved = answer(packed, status="302 Found", Content_Encoding="gzip", Location="/other")
    with serving([moved], other=page(record("a")), **{"2": page()}) as server:
        assert drain(DatagoClient(config(server)))[0] == ["a"]


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZip", "deflate", "raw", "two members", "identity"])
def test_a_large_page_in_every_coding(coding):
    vector = {"vector": [-0.012345678901234567 + i for i in range(768)]}
    records = [record(str(i), attributes={"caption": "é" * 9000}, coca_embedding=vector, image_direct_url=None) for i in range(300)]
    body = json.dumps({"next": None, "results": records}).encode()
    if "gzip" in coding.lower():
        packed = gzip.compress(body, 1)
    elif coding == "two members":
        packed = gzip.compress(body[:1000], 1) + gzip.compress(body[1000:], 1) + b"\0" * 512
    else:
        packed = {"deflate": zlib.compress(body, 1), "raw": zlib.compress(body, 1)[2:-4], "identity": body}[coding]
    said = {"raw": "deflate", "two members": "gzip"}.get(coding, coding)
    with serving([answer(packed, Content_Encoding=said)]) as server:
        samples, _ = read(config(server, require_images=False))
        assert "Accept-Encoding: gzip, deflate" in server.requests[0][2]
    assert len(samples) == 300 and samples[299].coca_embedding == vector["vector"]


def test_damaged_and_unknown_codings():
    good = page(record("a"))
    packed = gzip.compress(b'{"next": null, "results": []}')
    for body in (packed[:-9], packed[:15] + b"\xff" * 9 + packed[15:], b"no gzip"):
        with serving([[answer(body, Content_Encoding="gzip"), good]]) as server:  # it passes, as any body that is cut
            assert drain(DatagoClient(config(server))) == (["a"], None)
    for coding in ("br", "zstd", "gzip, gzip", "x" * 999):
        with serving([answer(packed, Content_Encoding=coding)]) as server:
            assert "content coding" in str(drain(DatagoClient(config(server)))[1]) and server.count("/api/images/") == 1


@pytest.mark.parametrize(
    "text", ["[" * 10**6, '{"a":' * 10**5, "1" * 10**6, "[{}" + ",{}" * 5_000_000 + "]", '{"next": null, "results": [' + "9" * 5000 + "]}"]
)
def test_json_that_does_not_fit(text):
    with serving([answer(text.encode())]) as server:
        assert "not JSON" in str(drain(DatagoClient(config(server)))[1])


def test_one_record_with_too_much_in_it():
    deep = json.loads("[" * 300 + "]" * 300)
    bad = [record("x" * 5000), record("deep", attributes={"a": deep}), record("late", latents=[{"latent_type": "l" * 5000, "file_direct_url": "/x", "is_mask": True}]),
           record("state", duplicate_state=10**3000), record("vector", coca_embedding={"vector": [10**3000]})]  # fmt: skip
    good = record("good", attributes={"a": [[{"b": [i]}] for i in range(200)]})
    with serving([page(*bad, good)]) as server:
        samples, stats = read(config(server))
    assert [sample.id for sample in samples] == ["good"] and stats["failures"] == {"record": len(bad)}


def test_what_cannot_be_shown_is_escaped():
    parts = [{"latent_type": "\x1b[2Jmask\n", "file_direct_url": "/gone", "is_mask": True}]
    with serving([page(record("a", latents=parts), record("b"))], gone=answer(status="404 No")) as server:
        _, stats = read(config(server, has_masks="m"))
    assert stats["last_failures"][0]["text"].startswith("mask \\x1b[2Jmask\\n: HTTP 404")
    refusal = answer(b'{"detail": "\\u001b[2J see http://u:PASSWORD@h/x?SECRET"}', status="403 No")
    with serving([refusal]) as server:
        assert r"\u001b[2J see http://h/x?…" in str(drain(DatagoClient(config(server)))[1])


@pytest.mark.parametrize(
    "value", ["Mon, 20 Nov 9999999999 12:00:00 +0000", "Mon, 20 Nov 2023 12:00:00 +99999999999999", "9" * 5000, "²", "-1"]
)
def test_a_retry_after_that_nobody_understands(value):
    with serving([[answer(status="503 No", Retry_After=value), page(record("a"))]]) as server:
        assert drain(DatagoClient(config(server))) == (["a"], None)


def test_hurt_pages():
    """The fuzzer, for a few seconds, over its kept corpus."""
    script = pathlib.Path(__file__).parent.parent / "fuzz" / "fuzz_pages.py"
    command = [sys.executable, script, "--count", "300", "--seconds", "50"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=58, env={**os.environ, "PYTHONPATH": str(script.parent.parent.parent)}
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


# ---- request lines that are too long ----


@pytest.mark.parametrize("status", ["414 URI Too Long", "431 Too Large", "400 Bad Request"])
def test_a_filter_that_is_too_long(status):
    with serving([answer(b"<html>", status=status)]) as server:
        error = drain(DatagoClient(config(server, attributes="caption:" + "x" * 6000)))[1]
        assert isinstance(error, ValueError) and "6021 of them for attributes: the server may have a lower limit" in str(error)
        error = drain(DatagoClient(config(server, sources=",".join(f"source{i}" for i in range(900)))))[1]
        assert "for sources: the server may have" in str(error)
    with serving([cut()]) as server:  # some hang up
        error = drain(DatagoClient(config(server, attributes="caption:" + "x" * 9000)))[1]
        assert "for attributes: the server may have" in str(error)
    with serving([answer(b'["Field \\"x\\" not found"]', status="400 Bad Request")]) as server:
        error = drain(DatagoClient(config(server, attributes="x:" + "x" * 6000)))[1]
        assert "not found" in str(error) and "may not take" not in str(error)


# ---- walks that end early ----


def warned(caplog):
    return [one.getMessage() for one in caplog.records if "the pages ended after" in one.getMessage()]


def test_a_search_that_runs_out_of_time_once(walk, caplog):
    server = walk(9, empty={2})
    assert walked(server) == (server.names, None) and not warned(caplog)


def test_searches_that_run_out_of_time(walk):
    server = walk(40, empty=range(2, 99))
    found, error = drain(DatagoClient(config(server)))
    assert sorted(found) == server.names[:4] and isinstance(error, OSError)
    assert f"the pages ended after 4 of the 40 records that the server counts; from {server.url}/api/" in str(error)
    server = walk(40, empty=range(99))
    assert "ended after 0 of the 40" in str(drain(DatagoClient(config(server)))[1])


def test_a_few_that_are_missing_are_a_warning(walk, caplog):
    with caplog.at_level(logging.WARNING):
        server = walk(19, counted=answer(b'{"count": 20}'))
        assert walked(server) == (server.names, None)
    assert len(warned(caplog)) == 1 and "after 19 of the 20 records" in warned(caplog)[0]


COUNTS = [answer(b'{"count": 3}'), answer(b'{"count": "9"}'), answer(b'{"count": -1}'), answer(b'{"count": true}'), answer(b"[]"), cut(),
          answer(b"<html>"), answer(b"", status="404 No"), answer(b"", status="503 No")]  # fmt: skip


@pytest.mark.parametrize("counted", COUNTS)
def test_counts_that_say_nothing_change_nothing(walk, caplog, counted):
    server = walk(5, counted=counted)
    assert walked(server) == (server.names, None) and not warned(caplog)
    assert server.count("/api/images/count/") == 1


def test_what_is_not_compared_with_the_count(walk):
    server = walk(40)
    with DatagoClient(config(server, limit=10)) as client:
        assert len([sample.id for sample in client]) == 10
        state = client.state_dict()
    server.names = server.names[:20]
    client = DatagoClient(config(server, limit=100))
    client.load_state_dict(state)
    with client:
        assert len([sample.id for sample in client]) == 10  # the rest of an epoch


# ---- draws ----


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder with 20,000 names of one picture."""
    root = tmp_path_factory.mktemp("pictures")
    (root / "im-00000.jpg").write_bytes(jpeg(16, 16))
    for i in range(1, 20_000):
        os.link(root / "im-00000.jpg", root / f"im-{i:05}.jpg")
    return root


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("count", [60, 5000, 20_000])
def test_draws_are_even(pictures, tmp_path, count):
    serve = pytest.importorskip("serving", reason="needs the packages of datago[serve]").serve
    if count < 20_000:
        for i in range(count):
            os.link(pictures / f"im-{i:05}.jpg", tmp_path / f"im-{i:05}.jpg")
    with serve(pictures if count == 20_000 else tmp_path, "--prefix-length", "1") as running:
        for page_size, limit in ((50, 300), (2000, 300), (5, 100), (1, 40)):
            source = {"sources": "", "page_size": page_size, "random_sampling": True, "api_url": running.api_url, "api_key": running.token}
            with DatagoClient({"source_config": source, "limit": min(limit, count * 2 // 3)}) as client:
                places = [int(sample.id[3:]) / count for sample in client]
            assert len(set(places)) == len(places) == min(limit, count * 2 // 3)
            # Of n even draws the mean is 1/2 with a deviation of 1/sqrt(12 n), a quarter has n/4 with one of sqrt(3 n)/4.
            assert abs(sum(places) / len(places) - 0.5) < 6 / (12 * len(places)) ** 0.5
            quarters = [sum(int(place * 4) == quarter for place in places) for quarter in range(4)]
            assert all(abs(found - len(places) / 4) < 6 * (3 * len(places)) ** 0.5 / 4 for found in quarters)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("page_size", [1, 5, 40, 500, 2000])
@pytest.mark.parametrize("count", [0, 1, 39, 2000, 10**5, 70_000_000])
def test_draws_find_their_size(known, page_size, count):
    """A draw finds its share of the images, exactly: soon it is used, and brings what a page holds, or all there is."""
    draws, gained = Draws(page_size, count if known else None), []
    for _ in range(60):
        (_, length), (_, prefixes) = draws.parameters()
        assert 1 <= length <= 64 and 1 <= prefixes <= 300
        share = 1 if prefixes == 300 and length == 1 else prefixes / 16**length
        found = int(share * count)
        if draws.note(min(found, page_size)):
            gained.append(found)
    assert len(gained) >= 30 and all(found < page_size or found <= page_size < 32 or found == count for found in gained)
    assert count == 0 or max(gained[-20:]) >= min(count, page_size // 4)


def test_a_server_that_hears_no_numbers_is_believed_in_the_end():
    draws = Draws(500, None)
    assert sum(draws.note(500) for _ in range(40)) == 24


# ---- filters ----

ASKED = [
    ("sources", "A, B", "sources=A%2CB"), ("sources_ne", " a ,b", "sources__ne=a%2Cb"), ("tags", "a,,b,", "tags=a%2Cb"), ("tags_all", "a b , c", "tags__all=a+b%2Cc"),
    ("has_masks", " m,", "has_masks=m"), ("lacks_attributes", "x, y", "lacks_attributes=x%2Cy"), ("datasets", "d/1, e/2", "datasets=d%2F1%2Ce%2F2"),
    ("datasets_ne", "d/1", "datasets__ne=d%2F1"), ("datasets_all", "d/1", "datasets__all=d%2F1"), ("datasets_ne_all", "d/1", "datasets__ne_all=d%2F1"),
    ("datasets_empty", True, "datasets__empty=true"), ("source", "a, b", "source=a%2C+b"), ("source_empty", "false", "source__empty=false"),
    ("short_edge", 0, "short_edge=0"), ("short_edge_gt", 5, "short_edge__gt=5"), ("short_edge_lt", 5, "short_edge__lt=5"),
    ("pixel_count", 2**40, "pixel_count=1099511627776"), ("pixel_count_gt", 5, "pixel_count__gt=5"), ("pixel_count_lt", 5, "pixel_count__lt=5"),
    ("aspect_ratio", 1, "aspect_ratio=1"), ("aspect_ratio_gt", 0.5, "aspect_ratio__gt=0.5"), ("aspect_ratio_gte", 1.5, "aspect_ratio__gte=1.5"),
    ("aspect_ratio_lt", 2, "aspect_ratio__lt=2"), ("aspect_ratio_lte", 2.25, "aspect_ratio__lte=2.25"),
    ("aspect_ratio_fraction", "3:4", "aspect_ratio_fraction=3%3A4"), ("aspect_ratio_fraction_empty", False, "aspect_ratio_fraction__empty=false"),
    ("coca_embedding_empty", True, "coca_embedding__empty=true"), ("date_created_gt", "2026-01-31", "date_created__gt=2026-01-31"),
    ("date_created_gte", "2026-01-31T10:00:00+01:00", "date_created__gte=2026-01-31T10%3A00%3A00%2B01%3A00"), ("date_created_lt", "2026-01-31", "date_created__lt=2026-01-31"),
    ("date_created_lte", "2026-01-31T10:00:00Z", "date_created__lte=2026-01-31T10%3A00%3A00Z"), ("date_updated_gt", "2026-01-31", "date_updated__gt=2026-01-31"),
    ("date_updated_gte", "2026-01-31", "date_updated__gte=2026-01-31"), ("date_updated_lt", "2026-01-31", "date_updated__lt=2026-01-31"),
    ("date_updated_lte", "2026-01-31", "date_updated__lte=2026-01-31"), ("attributes", " aes__gte:0.5, title: a cat ,", "attributes=aes__gte%3A0.5%2Ctitle%3A+a+cat+"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "sent"), ASKED)
def test_a_filter_is_sent_counted_and_guards_a_resume(walk, key, value, sent):
    server = walk(3)
    mine = config(server, **{"sources": "", "require_images": False, key: value})
    with DatagoClient(mine) as client:
        assert client.get_sample(timeout=10) is not None
        state = client.state_dict()
        assert [sample.id for sample in client]
    for path in ("/api/images/", "/api/images/count/"):
        target = next(one[3] for one in server.requests if one[0] == path)
        assert sent in target.partition("?")[2].split("&")
    assert key in state["selection"]
    DatagoClient(mine).load_state_dict(json.loads(json.dumps(state)))
    with pytest.raises(ValueError, match=f"^{key}: "):
        DatagoClient(config(server, sources="other" if key == "sources" else "", require_images=False)).load_state_dict(state)


def test_every_filter_of_the_protocol_has_a_key():
    sides = {f"{side}{end}" for side in ("short_edge", "pixel_count", "aspect_ratio") for end in ("", "__gt", "__gte", "__lt", "__lte")}
    lists = {f"{name}{end}" for name in ("tags", "datasets") for end in ("", "__ne", "__all", "__ne_all", "__empty")}
    dates = {f"date_{which}__{end}" for which in ("created", "updated") for end in ("gt", "gte", "lt", "lte")}
    presence = {f"{verb}_{what}" for verb in ("has", "lacks") for what in ("attributes", "latents", "masks")}
    others = "sources sources__ne source source__empty aspect_ratio_fraction aspect_ratio_fraction__empty attributes duplicate_state coca_embedding__empty"
    assert {filters_.parameter(key) for key in filters_.FILTERS} == sides | lists | dates | presence | set(others.split())


@pytest.mark.parametrize(("key", "value"), [
    ("sources", " , "), ("sources", " "), ("tags", ","), ("tags", "a\0b"), ("attributes", "\ud800"), ("attributes", " ,"), ("source", " "), ("source", ["a"]),
    ("short_edge", -1), ("short_edge_gt", 1.5), ("pixel_count_lt", True), ("aspect_ratio", 0), ("aspect_ratio_gt", "1"), ("aspect_ratio_lte", float("nan")),
    ("aspect_ratio_fraction", "3/4"), ("aspect_ratio_fraction", "0:4"), ("aspect_ratio_fraction", "3:4:5"), ("aspect_ratio_fraction", 0.75),
    ("date_created_gt", "yesterday"), ("date_updated_lte", 2026), ("date_created_lt", "2026-13-01"), ("date_created_lt", " "),
    ("datasets", 1), ("datasets_empty", "yes"), ("source_empty", 1), ("coca_embedding_empty", None), ("return_latents", ","),
])  # fmt: skip
def test_filters_are_checked(key, value):
    given = {"source_config": {"sources": "", "page_size": 5, key: value}}
    if value is None:
        assert configuration.parse(given).source_config.coca_embedding_empty == ""
        return
    with pytest.raises(ValueError, match=f"^source_config.{key}: got "):
        configuration.parse(given)


@pytest.mark.parametrize(("keys", "wanted"), [
    ({"has_masks": "m", "has_latents": "l", "return_latents": "x"}, "x,m"), ({"has_masks": "m", "return_latents": "m, x"}, "m,x"),
    ({"has_masks": "m, n", "has_latents": "l"}, "l,m,n"), ({"has_masks": "m"}, "m"), ({"return_latents": "x"}, "x"), ({}, None),
])  # fmt: skip
def test_masks_that_are_asked_for_come_along(walk, keys, wanted):
    server = walk(1)
    read(config(server, **keys))
    query = parse_qs(urlsplit(server.requests[0][3]).query)
    assert query.get("return_latents", [None])[0] == wanted and ("latents" in query["fields"][0].split(",")) == bool(wanted)


def test_batches_of_records_without_images():
    source = {"sources": "", "page_size": 5, "api_url": "http://127.0.0.1:9", "api_key": "x"}
    top = {"source_config": source, "image_config": {"random_resized_crop": 32}}
    with pytest.raises(ValueError, match="source_config.require_images: got false, wanted true"):
        DatagoBatchDataset(top, batch_size=4)
    source["require_images"] = True
    DatagoBatchDataset(top, batch_size=4)


def test_urls_and_agents_that_cannot_be_used():
    for key, value in (
        ("api_url", "http://h/api/?key=SECRET"),
        ("api_url", "http://[/"),
        ("api_url", "http://\ud800/"),
        ("user_agent", "a\r\nX: b"),
        ("user_agent", "é"),
    ):
        source = {"sources": "", "page_size": 5, "api_url": "http://127.0.0.1:9/", "api_key": "x", key: value}
        with pytest.raises(SourceError, match=key) as caught:
            DatagoClient({"source_config": source}).start()
        assert "SECRET" not in str(caught.value)


def test_an_id_that_is_a_url_shows_no_credentials(caplog):
    secret = "http://user:pa55@pictures.invalid/a.jpg?Signature=S1GNED"
    bad = {**record("x"), "id": secret, "duplicate_state": "x"}
    with serving([page(bad)]) as server, caplog.at_level(logging.ERROR):
        failures = []
        _, error = drain(DatagoClient(config(server, on_error=failures.append)))
        with pytest.raises(SampleError) as raised:
            DatagoClient(config(server, on_error="raise")).get_sample(timeout=20)
    assert [failure.name for failure in failures] == [secret]
    shown = f"{error} {raised.value} {caplog.text}"
    assert "http://pictures.invalid/a.jpg?…" in shown and "pa55" not in shown and "S1GNED" not in shown
