"""What a `url` of the configuration means."""

import json
import os
import time

import pytest
from network import answer, serve

from datago.errors import RemoteError, SourceValueError
from datago.sources.webdataset.braces import expand
from datago.sources.webdataset.listing import is_listing
from datago.sources.webdataset.urls import check_urls, shard_urls


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    "pattern, meant",
    [
        ("a", ["a"]),
        ("s-{000..002}.tar", ["s-000.tar", "s-001.tar", "s-002.tar"]),
        ("{8..11}", ["8", "9", "10", "11"]),
        ("{08..10}", ["08", "09", "10"]),
        ("{098..101}", ["098", "099", "100", "101"]),
        ("{98..0101}", ["98", "99", "100", "101"]),  # as wide as the left bound
        ("{0..002}", ["0", "1", "2"]),
        ("{007..7}x", ["007x"]),
        ("{08..100..46}", ["08", "54", "100"]),
        ("{3..1}", ["3", "2", "1"]),
        ("{0..6..3}", ["0", "3", "6"]),
        ("{10..0..5}", ["10", "5", "0"]),
        ("{a..e..2}", ["a", "c", "e"]),
        ("{-1..1}", ["-1", "0", "1"]),
        ("{a,b}{0..1}", ["a0", "a1", "b0", "b1"]),
        ("{a,b{1..2},{c,d}e}", ["a", "b1", "b2", "ce", "de"]),
        ("{a,}", ["a", ""]),
        ("%7B0..3%7D", ["%7B0..3%7D"]),
        ("x?sig={x}&y={}", ["x?sig={x}&y={}"]),
        ("{0..1}?sig={x}", ["0?sig={x}", "1?sig={x}"]),
        (r"a\{0..1}", ["a\\0", "a\\1"]),
    ],
)
def test_braces(pattern, meant):
    assert expand(pattern) == meant


@pytest.mark.slow
def test_a_million_and_no_more():
    assert len(expand("{000000..999999}")) == 1_000_000
    start = time.monotonic()
    for pattern in (
        "{0..1000000}",
        "{0..999999999}",
        "{0..99999999999999999999999999}",
        "{" + "9" * 5000 + ".." + "1" * 9000 + "}",
        "{0..9}" * 7,
        "{" + "{0..9}{0..9}{0..9}{0..9}{0..9}," * 20 + "}",
        "{a..z}" * 500,
        "x{{{0..999999}}{0..9}}",
        "{{0..999999999}}",
        "{0..999999999\n}",
    ):
        with pytest.raises(SourceValueError, match="expands to more than 1000000 urls"):
            expand(pattern)
        with pytest.raises(SourceValueError, match="expands to more than 1000000 urls"):
            check_urls(f"https://h/{pattern}?sig=s3cret")
    assert time.monotonic() - start < 15
    with pytest.raises(SourceValueError, match="more than 1000000 shards"):
        shard_urls(["http://h/{0..599999}", "http://h/{0..599999}"])


@pytest.mark.parametrize("pattern", ["{", "}", "a{0..1", "a}{b{1..999999999}", "{{a,b}", "{" * 3000 + "}" * 3000])
def test_braces_that_do_not_pair(pattern):
    for url in (f"http://h/{pattern}", f"/tmp/no/{pattern}", f"s3://b/{pattern}"):
        with pytest.raises(SourceValueError, match="unbalanced braces, or nested deeper than 50"):
            check_urls(url)


def test_http():
    assert shard_urls("https://h/{a,b}-{00..01}.tar?sig=x%7B0..1%7D") == [
        f"https://h/{a}-{n}.tar?sig=x%7B0..1%7D" for a in "ab" for n in ("00", "01")
    ]
    assert shard_urls(["http://h/x", "HTTP://h/y?sig=a*b"]) == ["http://h/x", "HTTP://h/y?sig=a*b"]
    with pytest.raises(SourceValueError, match=r"http://h/\*.tar\?….*braces") as caught:
        shard_urls("http://u:pw@h/*.tar?sig=s3cret")
    assert "s3cret" not in str(caught.value) and "pw@" not in str(caught.value)


@pytest.mark.parametrize(
    "value", [[], (), "", None, 3, b"x", ["a", ""], [["a"]], {"a": 1}, "pipe:curl http://h/x", "a\0b", "http://", "https:///x"]
)
def test_values_that_are_none(value):
    with pytest.raises(SourceValueError, match="url|http"):
        check_urls(value)


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(b"")


def test_local_paths(tmp_path, monkeypatch):
    touch(tmp_path, "b.tar", "a b.tar", "c{0..1}.tar", "d[1]*.tar", "e/x0.tar", "e/x1.tar", "e/f/y.tar", "e/.hidden.tar", "é.tar")
    (tmp_path / "g.tar").mkdir()

    def names(value):
        return [os.path.relpath(path, tmp_path) for path in shard_urls(value)]

    assert names(tmp_path / "b.tar") == ["b.tar"]
    assert names(f"{tmp_path}/a b.tar") == ["a b.tar"]
    assert names(f"{tmp_path}/c{{0..1}}.tar") == ["c{0..1}.tar"]  # it exists: no pattern
    assert names(f"{tmp_path}/d[1]*.tar") == ["d[1]*.tar"]
    assert names(f"{tmp_path}/e/x{{0..2}}.tar") == ["e/x0.tar", "e/x1.tar", "e/x2.tar"]
    assert names(f"{tmp_path}/*.tar") == ["a b.tar", "b.tar", "c{0..1}.tar", "d[1]*.tar", "é.tar"]
    assert names(f"{tmp_path}/{{e,e/f}}/*.tar") == ["e/x0.tar", "e/x1.tar", "e/f/y.tar"]
    assert names(f"{tmp_path}/**/?.tar") == ["b.tar", "e/f/y.tar", "é.tar"]
    assert names([f"{tmp_path}/e/*.tar", tmp_path / "b.tar"]) == ["e/x0.tar", "e/x1.tar", "b.tar"]
    assert names(f"file://{tmp_path}/a%20b.tar") == ["a b.tar"]
    assert names(f"file://localhost{tmp_path}/e/*.tar") == ["e/x0.tar", "e/x1.tar"]
    assert names(f"file://{tmp_path}/c%7B0..1%7D.tar") == ["c{0..1}.tar"]
    assert names(f"file://{tmp_path}/z%7B0..1%7D.tar") == ["z{0..1}.tar"]
    assert names(f"file://{tmp_path}/z{{0..1}}%20.tar") == ["z0 .tar", "z1 .tar"]
    monkeypatch.chdir(tmp_path)
    assert shard_urls("e/*.tar") == ["e/x0.tar", "e/x1.tar"] and shard_urls("b.tar") == ["b.tar"]
    assert shard_urls("no:such:scheme.tar") == ["no:such:scheme.tar"]
    with pytest.raises(SourceValueError, match=r"nothing\*.tar: no shards"):
        shard_urls(f"{tmp_path}/nothing*.tar")
    with pytest.raises(SourceValueError, match="a folder"):
        shard_urls(tmp_path)
    with pytest.raises(SourceValueError, match="another host"):
        shard_urls("file://elsewhere/x.tar")


def test_names_that_are_not_unicode(tmp_path):
    with open(os.fsencode(tmp_path) + b"/caf\xe9.tar", "wb"):
        pass
    (found,) = shard_urls(f"{tmp_path}/*.tar")
    assert os.fsencode(found).endswith(b"caf\xe9.tar")


def test_fsspec():
    fsspec = pytest.importorskip("fsspec")
    fs = fsspec.filesystem("memory")
    for name in ("b.tar", "a.tar", "c.txt", "d.tar/x"):
        fs.pipe(f"/bucket/{name}", b"x")
    try:
        assert shard_urls("memory://bucket/*.tar") == ["memory:///bucket/a.tar", "memory:///bucket/b.tar"]
        assert shard_urls("memory://bucket/{x,y}.tar") == ["memory://bucket/x.tar", "memory://bucket/y.tar"]
        with pytest.raises(SourceValueError, match="no shards"):
            shard_urls("memory://bucket/z*.tar")
        with pytest.raises(SourceValueError, match="nosuch://"):
            shard_urls("nosuch://bucket/*.tar")
    finally:
        fs.rm("/bucket", recursive=True)


# --- listings


@pytest.mark.parametrize(
    "url, meant",
    [
        ("https://storage.googleapis.com/storage/v1/b/bucket/o?prefix=a/", True),
        ("https://storage.googleapis.com/storage/v1/b/bucket/o/", True),
        ("https://www.googleapis.com/storage/v1/b/bucket/o?alt=json", True),
        ("https://storage.googleapis.com/bucket", True),
        ("http://127.0.0.1:99/o", True),
        ("https://storage.googleapis.com/bucket/a.tar", False),
        ("https://storage.googleapis.com/download/storage/v1/b/bucket/o/a%2Fb.tar?generation=1&alt=media", False),
        ("https://storage.googleapis.com/storage/v1/b/bucket/o/a.tar", False),
        ("http://h/a.tar?next=/o", False),
        ("http://h/foo", False),
    ],
)
def test_which_urls_are_listings(url, meant):
    assert is_listing(url) is meant


def page(names, link="http://{host}/get/{name}?alt=media", **more):
    def said(request):
        items = [{"name": name, "mediaLink": link.format(host=request.headers["host"], name=name)} for name in names]
        return answer(json.dumps({"kind": "storage#objects", "items": items, **more}).encode(), "Content-Type: application/json")

    return said


@pytest.mark.network
def test_all_pages_of_a_listing():
    pages = [page(["0{a}*.tar", "sub/"], nextPageToken="p/2 +"), page([], nextPageToken="3"), page(["1.tar", "2.tar"])]
    with serve(pages) as server:
        found = shard_urls(f"{server.url}/storage/v1/b/bucket/o?prefix=x%2f", token="t0ken", user_agent="me/1")
        assert found == [f"{server.url}/get/{name}?alt=media" for name in ("0{a}*.tar", "1.tar", "2.tar")]
        assert [request.target.partition("?")[2] for request in server.requests] == [
            "prefix=x%2f",
            "prefix=x%2f&pageToken=p%2F2%20%2B",
            "prefix=x%2f&pageToken=3",
        ]
        assert all(request.headers["authorization"] == "bearer t0ken" for request in server.requests)
        assert all(request.headers["user-agent"] == "me/1" for request in server.requests)


@pytest.mark.network
@pytest.mark.parametrize(
    "body, match",
    [
        (b"{}", "no shards"),
        (b'{"items": []}', "no shards"),
        (b'{"items": [{"name": "folder/", "mediaLink": "http://h/x"}]}', "no shards"),
        (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', "not a listing"),
        (b"<!doctype html><title>Bucket</title>", "not a listing"),
        (b"", "not a listing"),
        (b"[]", "not a listing"),
        (b'{"items": null}', "not a listing"),
        (b'{"items": ["a"]}', "not a listing"),
        (b'{"items": [{"name": "a.tar"}]}', "mediaLink"),
        (b'{"items": [{"name": "a.tar", "mediaLink": "file:///etc/passwd"}]}', "mediaLink"),
        (b'{"items": [{"name": "a.tar", "mediaLink": "http://h/a"}], "nextPageToken": "1"}', "repeated nextPageToken"),
        (b'{"items": [' + b"[" * 100000, "not a listing"),
    ],
)
def test_listings_that_are_none(body, match):
    with serve([answer(body)]) as server:
        with pytest.raises(SourceValueError, match=match) as caught:
            shard_urls(f"{server.url}/o?key=s3cret")
        assert f"127.0.0.1:{server.port}/o?…" in str(caught.value) and "s3cret" not in str(caught.value)


@pytest.mark.network
def test_listing_that_cannot_be_had():
    with serve([answer(b"{}", status="403 Forbidden")]) as server:
        with pytest.raises(RemoteError, match="403 Forbidden"):
            shard_urls(f"{server.url}/o")
        assert len(server.requests) == 1
    with serve([answer(b"", status="503 Busy"), page(["a.tar"])]) as server:
        assert len(shard_urls(f"{server.url}/o")) == 1


@pytest.mark.network
def test_listing_that_leads_the_token_elsewhere():
    with serve([page(["a.tar"], link="http://other.example/{name}")]) as server:
        assert shard_urls(f"{server.url}/o") == ["http://other.example/a.tar"]
        with pytest.raises(SourceValueError, match="other.example, where auth_token will not be sent"):
            shard_urls(f"{server.url}/o", token="t0ken")
