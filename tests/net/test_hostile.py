"""What servers and archives say that no proper one would: each is a fault of one attempt, shard or source, and has a bound."""

import contextlib
import gzip
import io
import os
import struct
import tarfile
import zlib

import pytest
from conftest import jpeg
from network import BODY, answer, serve
from tars import blocks, tar
from test_remote import fails, quick, read  # noqa: F401

from datago import DatagoClient, SourceError
from datago.errors import SourceOSError, SourceValueError, source_os_error
from datago.net import http
from datago.net.cancel import TransferError, run_in_thread
from datago.net.json_text import parse_json
from datago.net.stream import open_stream
from datago.net.url import Url, local_path, scheme_of
from datago.sources.webdataset import inflate, listing
from datago.sources.webdataset import shard_reader as shards
from datago.sources.webdataset._tar import TarError, TarReader
from datago.sources.webdataset.urls import shard_urls

pytestmark = [pytest.mark.network, pytest.mark.timeout(60), pytest.mark.usefixtures("quick")]


def client(url, **source):
    return DatagoClient({"source_type": "webdataset", "source_config": {"url": url, **source}})


# ---- heads


@pytest.mark.parametrize(
    "header",
    [
        "Mon, 20 Nov 9999999999 12:00:00 +0000", "Mon, 20 Nov 2023 12:00:00 +99999999999999", "Mon, 01 Jan 0001 00:00:00 +2359",
        "Mon, 99 Foo 2023", "9" * 20, "9" * 5000, "-1", "1e9", "\xb2", "soon", ",", "Thu, 01 Jan 1970 00:00:00 GMT",
    ],
)  # fmt: skip
def test_a_retry_after_that_nobody_understands_is_none(header):
    busy = answer(b"", f"Retry-After: {header}", status="503 Busy").decode("utf-8").encode("latin-1")
    http._not_before.clear()
    with serve([busy, answer(BODY)]) as server:
        assert read(server.url) == BODY and len(server.requests) == 2


@pytest.mark.parametrize(
    "location",
    [
        b"http://[", b"//[::1", b"x://[", b"http://a..b/", b"http://h:99999/", "http://h:\u0663/".encode(), "http://\u2100.h/".encode(),
        "http://a\u2024\u2024b/".encode(), b"http://" + b"a" * 64 + b"/", b"http:", b"http://h\xc2\xa0x/", b"http://.h/", b"http://[fe80::1",
    ],
)  # fmt: skip
def test_redirects_to_what_is_no_url(location):
    head = answer(b"", "Location: @", status="302 Found").replace(b"@", location)
    with serve([head, answer(BODY)]) as server:
        fails(server.url, "redirect to an invalid url: not a", attempts=1)


def test_a_user_that_is_no_text_is_sent_as_it_came():
    def said(request):
        if "authorization" in request.headers:
            return answer(BODY)
        return answer(b"", "Location: @", status="302 Found").replace(b"@", b"http://\xff%fe@" + request.headers["host"].encode() + b"/b")

    with serve(said) as server:
        assert read(server.url) == BODY
        assert server.requests[1].headers["authorization"] == "basic //4="  # the two bytes, in the server's lower case


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n" * 5000, b"HTTP/1.1 199 X\r\nA: b\r\n\r\n" * 5000, b"HTTP/1.1 000\r\n\r\n" * 10000,
        b"HTTP/1.1 200 OK\r\n" + b"X:\r\n" * 300, b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n " * 20000,
    ],
)  # fmt: skip
def test_heads_without_end(head):
    with serve([head]) as server:
        fails(server.url, "too long", attempts=1)


@pytest.mark.parametrize(
    "chunks",
    [
        b"5;" + b"x" * 5000 + b"\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\r\n0\r\n" + b"T: " + b"x" * 70000,
        b"5\r\nhello\r\n0\r\n" + b"T: x\r\n" * 20000,
    ],
)
def test_extensions_and_trailers_without_end(chunks):
    with serve([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks]) as server:
        fails(server.url, "too long", attempts=1)


@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"])
def test_a_head_that_drips_is_given_up(begin):
    def said(request):
        request.sock.sendall(begin)
        while not request.closing.wait(0.05):
            request.sock.sendall(b"x")

    with serve([said]) as server:
        fails(server.url, "read timed out: headers or chunk line not complete after 0.6 s", attempts=1, timeout=0.2)


def test_an_etag_with_a_line_break_is_not_sent_back():
    def said(request):
        if request.number == 0:
            return answer(BODY[:5000], 'ETag: "a\rX: y"', length=len(BODY))
        return answer(
            BODY[5000:], f"Content-Range: bytes 5000-{len(BODY) - 1}/{len(BODY)}", 'ETag: "a\rX: y"', status="206 Partial Content"
        )

    with serve(said) as server:
        assert read(server.url) == BODY
        assert "if-range" not in server.requests[1].headers and "x: y" not in server.requests[1].head.lower()


@pytest.mark.parametrize(
    "text",
    [
        "http://\ud800/",
        "http://h/\ud800",
        "http://\ud800@h/",
        "http\u017f://h/",
        "http://h:\u0661/",
        "http://a\uff0fb/",
        "http://" + "a." * 70000,
    ],
)
def test_what_is_no_url_is_called_that(text):
    with pytest.raises(SourceValueError):
        Url.parse(text)


def test_schemes_are_ascii():
    assert (
        scheme_of("f\u0131le:/x") == "" and scheme_of("FILE:/x") == "file" and Url.parse("HTTPS://B\xfccher.de").host == "xn--bcher-kva.de"
    )


# ---- listings and indexes


@pytest.mark.parametrize("token", ["[1]", '{"a": 1}', "5", "true", '"\\ud800"', '"é"', '"' + "x" * 20000 + '"'])
def test_page_tokens_that_are_none(token):
    page = b'{"items": [], "nextPageToken": %s}' % token.encode()
    with serve([answer(page)]) as server, pytest.raises(SourceValueError, match="invalid nextPageToken"):
        shard_urls(f"{server.url}/o")


def test_a_listing_without_end(monkeypatch):
    monkeypatch.setattr(listing, "MAX_PAGES", 20)
    with serve(lambda request: answer(b'{"items": [], "nextPageToken": "%d"}' % request.number)) as server:
        with pytest.raises(SourceValueError, match="too long: 0 objects on 21 pages"):
            shard_urls(f"{server.url}/o")
        assert len(server.requests) == 21


@pytest.mark.parametrize("link", ["http://[", "http://h:99999/", "http://h/\\ud800", "http://\\ud800@h/", "http://a..b/"])
def test_links_that_are_none(link):
    with serve([answer(b'{"items": [{"name": [[1]], "mediaLink": "%s"}]}' % link.encode())]) as server, pytest.raises(SourceError):
        for _ in client(f"{server.url}/o"):
            pass


@pytest.mark.parametrize("data", [b"[" * 10**6, b"[" * 5_000_000, b"1," * 30_000_000, b"1" * 5000, b"\xff\xfe", b'{"a":' * 50000, b""])
def test_json_that_is_none(data):
    with pytest.raises(ValueError):
        parse_json(data)
    if len(data) < 1 << 20:
        with serve([answer(data)]) as server, pytest.raises(SourceValueError, match="shard_index"):
            client("/a.tar", shard_index=f"{server.url}/i.json").start()


# ---- storage


def test_a_librarys_way_to_end_a_task_ends_nothing_else():
    import asyncio

    for kind in (asyncio.CancelledError, SystemExit, GeneratorExit):

        def call(kind=kind):
            raise kind("enough")

        with pytest.raises(TransferError, match=f"{kind.__name__}: enough"):
            run_in_thread(call, lambda: False, 5, "it")


def test_files_of_storages_need_no_size():
    fsspec = pytest.importorskip("fsspec")
    import zipfile

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.tar", tar([("a.jpg", jpeg())]))
    fsspec.filesystem("memory").pipe("/hostile.zip", out.getvalue())
    with open_stream("zip://a.tar::memory://hostile.zip") as stream:
        assert b"".join(stream) == tar([("a.jpg", jpeg())])


# ---- local paths


@pytest.mark.parametrize("url", ["file:///a%00b.tar", "/a\ud800.tar", "file:///\ud800"])
def test_paths_that_are_none(url):
    with pytest.raises(SourceValueError):
        local_path(url)
    with pytest.raises(ValueError):  # what is no path at all is refused with the config
        for _ in client(url):
            pass


def test_an_error_without_a_number_has_its_text():
    assert "just so" in str(source_os_error(OSError("just so"), "shard", "/a"))


@pytest.fixture
def as_nobody(tmp_path):
    """Root may read everything: a test as root gives up its rights for a while."""
    os.chmod(tmp_path, 0o755)
    for parent in list(tmp_path.parents)[:3]:
        if os.stat(parent).st_uid == os.geteuid() and str(parent).startswith(os.path.realpath("/tmp") + "/"):
            os.chmod(parent, 0o755)
    if os.geteuid() == 0:
        os.seteuid(65534)
        yield
        os.seteuid(0)
    else:
        yield


def test_shards_that_may_not_be_read_say_why(tmp_path, request):
    for name in ("open/a.tar", "shut/b.tar", "open/c.tar"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(tar([(f"{name[5]}.jpg", jpeg())]))
    os.chmod(tmp_path / "open" / "c.tar", 0)
    os.chmod(tmp_path / "shut", 0)
    assert sum(1 for _ in client(f"{tmp_path}/open/a.tar")) == 1  # everything is imported now
    request.getfixturevalue("as_nobody")
    try:
        for pattern in ("*/*.tar", "shut/*.tar", "**/*.tar"):  # ranks that see other lists would read other shards
            with pytest.raises(SourceError, match=f"{tmp_path}/shut.*Permission denied|Permission denied.*{tmp_path}/shut"):
                list(client(f"{tmp_path}/{pattern}"))
        for pattern, name, count in (("open/*.tar", "open/c.tar", 1), ("shut/b.tar", "shut/b.tar", 0)):
            reader, samples = client(f"{tmp_path}/{pattern}"), []
            with contextlib.nullcontext() if count else pytest.raises(SourceError, match="Permission denied"):
                samples += reader
            (told,) = reader.stats()["last_failures"]
            assert len(samples) == count and told["name"] == f"{tmp_path}/{name}" and told["reason"] == "shard"
            assert "Permission denied" in told["text"] and told["name"] in told["text"]
    finally:
        if os.geteuid() == 65534:
            os.seteuid(0)
        os.chmod(tmp_path / "shut", 0o755)


def test_a_shard_that_is_a_folder_says_so(tmp_path):
    with pytest.raises(SourceOSError, match="Is a directory"), open_stream(str(tmp_path)) as stream:
        next(stream)


# ---- archives


def keys(data, size=1 << 20):
    """The keys of a shard's samples, and the text of its failure."""
    reader, found, text = shards.ShardReader("s.tar", "jpg", []), [], None
    for batch in reader.read(blocks(data, size)):
        for entry in batch:
            if isinstance(entry, shards.Failure):
                text = entry.text
            else:
                found.append(entry.id)
    return found, text


ARCHIVE = tar([(f"{i}.jpg", jpeg(seed=i)) for i in range(3)])


@pytest.mark.parametrize("size", [1 << 20, 700, 1])
def test_zstd_in_all_its_pieces(size):
    zstandard = pytest.importorskip("zstandard")
    halves = [zstandard.compress(ARCHIVE[:2000]), zstandard.ZstdCompressor(write_checksum=True).compress(ARCHIVE[2000:])]
    skips = [struct.pack("<II", 0x184D2A50 + i, len(data)) + data for i, data in enumerate((b"", b"size", bytes(3000)))]
    last = struct.pack("<II", 0x184D2A5F, 3) + b"end"
    for pieces in (
        [skips[1], *halves],
        [last, skips[0], skips[2], halves[0], skips[1], halves[1], last],
        [*halves, skips[2]],
        [zstandard.compress(b""), *halves],
    ):
        assert keys(b"".join(pieces), size) == (["0", "1", "2"], None)
    assert "truncated" in keys(skips[2][:2000], size)[1] or "ends early" in keys(skips[2][:2000], size)[1]
    assert "truncated" in keys(skips[1] + halves[0] + skips[2][:50], size)[1]
    assert "zstd" in keys(skips[1] + ARCHIVE, size)[1]


@pytest.mark.parametrize("size", [1 << 20, 700, 1])
def test_gzip_in_all_its_pieces(size):
    halves = [gzip.compress(ARCHIVE[:2000]), gzip.compress(ARCHIVE[2000:])]
    body = zlib.compressobj(9, zlib.DEFLATED, -15)
    raw = body.compress(ARCHIVE) + body.flush()
    end = struct.pack("<II", zlib.crc32(ARCHIVE), len(ARCHIVE))
    fields = b"\x1f\x8b\x08\x1c" + bytes(6) + struct.pack("<H", 5) + b"extra" + b"name\0" + b"a comment\0"
    crc = b"\x1f\x8b\x08\x02" + bytes(6)
    crc += struct.pack("<H", zlib.crc32(crc) & 0xFFFF)
    for data in (
        b"".join(halves),
        b"".join(halves) + bytes(5000),
        gzip.compress(b"") + b"".join(halves),
        fields + raw + end,
        crc + raw + end,
    ):
        assert keys(data, size) == (["0", "1", "2"], None)
    assert "ends early" in keys(halves[0] + halves[1][:50], size)[1]
    assert "gzip" in keys(halves[0] + b"junk" * 9, size)[1]


@pytest.mark.parametrize("pack", ["gzip", "zstd"])
def test_a_bomb_is_refused_before_it_fills_anything(monkeypatch, pack):
    monkeypatch.setattr(inflate, "MAX_INFLATED_BYTES", 8 << 20)
    huge = tarfile.TarInfo("0.bin")
    huge.size = 64 << 20
    member = huge.tobuf(tarfile.GNU_FORMAT) + bytes(huge.size)
    compress = gzip.compress if pack == "gzip" else pytest.importorskip("zstandard").compress
    assert "decompression bomb: its first" in keys(compress(member + ARCHIVE))[1]
    assert keys(compress(ARCHIVE + member)) == (["0", "1", "2"], None)  # what lies behind the end is not inflated


def test_samples_and_names_have_bounds(monkeypatch):
    assert "a name of 5000 bytes" in keys(tar([("0.jpg", jpeg()), ("1.jpg", jpeg()), ("a" * 4996 + ".jpg", jpeg())]))[1]
    monkeypatch.setattr(shards, "MAX_MEMBERS", 50)
    members = [("0.jpg", jpeg()), *((f"1.{i}", b"x") for i in range(51))]
    found, text = keys(tar(members))
    assert "a sample of 51 members" in text and found in ([], ["0"])
    monkeypatch.setattr(shards, "MAX_SAMPLE_BYTES", 1000)
    reader = shards.ShardReader("s.tar", "jpg", [], max_bytes=2000)
    told = [entry for batch in reader.read(blocks(tar([(f"0.{i}", bytes(900)) for i in range(9)]))) for entry in batch]
    assert ["a sample of 5 members, 4500 bytes" in one.text for one in told] == [True]


@pytest.mark.parametrize(
    "size", ["11529215046068469760", "1152921504606846976", "18446744073709551617", "9223372036854775808", "9" * 30, "720575940379279360"]
)
def test_sizes_that_overflow(size):
    record = f" size={size}\n"
    record = f"{len(record) + 2}{record}".encode()
    assert int(record.split()[0]) == len(record)
    archive = bytearray(tar([("pax", record), ("a.jpg", b"x")]))
    archive[156] = ord("x")
    archive[148:156] = b" " * 8
    archive[148:156] = b"%06o\0 " % sum(archive[:512])
    reader = TarReader()
    with pytest.raises(TarError, match="too large|truncated"):
        reader.feed(bytes(archive))
        reader.close()
