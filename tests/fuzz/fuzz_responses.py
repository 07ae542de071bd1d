#!/usr/bin/env python3
"""Servers that nobody would run.   tests/fuzz/fuzz_responses.py [--seconds 60] [--count N] [--seed S] [--keep]

A case is what a server on loopback answers, byte by byte, to a client that reads a shard, a listing of shards, an index of them, to a
single download, or to a batch dataset that wants labels. It ends with samples, counted failures, or one of datago's own errors, within ten
seconds, and the accounts are right; nothing else. The corpus is in corpus_responses: one case for each outcome met so far; --keep adds
those that give a new one. A failure tells its number N: --seed S --first N --count 1 repeats it.
"""

import base64
import contextlib
import functools
import gzip
import io
import json
import logging
import os
import pathlib
import re
import signal
import socket
import sys
import tarfile
import threading
import time

import mutate
from fuzz_config import mangled
from fuzz_tar import damage

from datago import DatagoClient
from datago.errors import DatagoError
from datago.net import http, policy
from datago.net._fetch import Fetcher

CORPUS = pathlib.Path(__file__).parent / "corpus_responses"
LARGEST = 2048  # bytes of a case that is kept, packed
LIMIT = 10  # seconds a case may take, on a busy machine
# The smallest of pictures: one grey pixel.
JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAMCAgMCAgMDAwMEAwMEBQgFBQQEBQoHBwYIDAoMDAsKCwsNDhIQDQ4RDgsLEBYQERMUFRUVDA8XGBYUGBIUFRT/wAALCAAB"
    "AAEBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAACf/EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQEAAD8AKp//2Q=="
)
NUMBERS = [
    b"0", b"1", b"-1", b"+5", b"007", b"1e3", b"0x10", b"1.5", b"9" * 18, b"9" * 19, b"9" * 5000, b"4294967296", b"9223372036854775807",
    b"18446744073709551616", b"\xb2\xb3", "٣".encode(), b"", b" ", b"5, 5", b"5, 6", b"nan", b"inf", b"-" + b"9" * 30, b"1_0",
]  # fmt: skip
DATES = [
    b"Mon, 20 Nov 9999999999 12:00:00 +0000", b"Mon, 20 Nov 2023 12:00:00 +99999999999999", b"Fri, 31 Dec 9999 23:59:59 -2359", b"Thu",
    b"Mon, 01 Jan 0001 00:00:00 +2359", b"0 Foo 2023 99:99:99", b"Mon, 20 Nov 2023 12:00:00 -0000", b"20231120", b"31 Feb 2024 1:2:3 GMT",
]  # fmt: skip
LOCATIONS = [
    b"", b"/", b"//", b"///", b"http:", b"http://", b"http://[", b"http://[::1", b"//[v1.x]/", b"[", b"http://\xff@h/", b"http://a..b/",
    b"http://" + b"a" * 70 + b"/", "http://é.h/\ufb06".encode(), "http\u017f://h/".encode(), "http://\u2100.h/".encode(), b"?", b"#",
    "http://h:٣/".encode(), "http://a\u2024\u2024b/".encode(), b"ftp://h/", b"file:///etc/passwd", b"http://h:99999/", b"http://h:/",
    b"https://h/", b"http://u:p@h/%", b"http://h/\0\x01\x7f", b"http://xn--/", b"http://xn--\xff/", b"http://.h/", b"http://h./",
    b"http://-/", b"../../..", b"/" * 5000, b"/a.tar", b"/a.tar?x", b"javascript:1", b"http://h\t/", b"h:80", b"http://%31/", b"http://*/",
    b"//\xff\xfe/x", b"http://h/" + b"a" * 70000, b"HTTP://H/", b"http:/h", b"http:h", b"\\\\h\\x", b"http://h\\@g/",
]  # fmt: skip
CODINGS = [b"chunked", b"gzip", b"identity", b"gzip, chunked", b"Chunked ", b"chunked, chunked", b"br", b"\xff", b""]
RANGES = [
    b"bytes 5-9/10",
    b"bytes 0-0/*",
    b"bytes */5",
    b"bytes 9-5/3",
    b"bytes " + b"9" * 19 + b"-5/1",
    b"lines 1-2/3",
    "bytes \u0663-\u0664/\u0665".encode(),
]
TEXTS = [
    b"",
    b"\xff\xfe",
    b"\r",
    b"\0",
    b'W/"x"',
    b'"\xc3\xa9\r\x01"',
    b"x" * 70000,
    b"close",
    b"keep-alive",
    b"%s%n",
    b"a, b",
    b"\t",
    b"100-continue",
]
HEADERS = {
    b"Content-Length": NUMBERS, b"Retry-After": NUMBERS + DATES, b"Location": LOCATIONS, b"Transfer-Encoding": CODINGS,
    b"Content-Encoding": CODINGS, b"Content-Range": RANGES, b"ETag": TEXTS, b"Last-Modified": DATES + TEXTS, b"Connection": TEXTS,
    b"Date": DATES, b"Set-Cookie": TEXTS, b"Content-Type": TEXTS, b"Alt-Svc": TEXTS, b"Trailer": TEXTS, b"": TEXTS, b"X\xff \0": TEXTS,
}  # fmt: skip
STATUSES = [
    b"200 OK", b"200", b"206 Partial Content", b"204 No", b"205", b"300", b"301 Moved", b"302 Found", b"303", b"304", b"307", b"308", b"401",
    b"403", b"404 No", b"408", b"410", b"416", b"429", b"500", b"503 Busy", b"599", b"600", b"999", b"100 Continue", b"101", b"103", b"199",
    b"000", b"099", b"20", b"2000", b"2 00", b"-200", "٢٠٠".encode(), b"", b"200 \xff\0" + b"x" * 3000,
]  # fmt: skip
VERSIONS = [
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"HTTP/0.9",
    b"HTTP/2",
    b"HTTP/3.0",
    b"http/1.1",
    b"HTTP/1.",
    b"HTTP/11.1",
    b"ICY",
    b"",
    b"\x16\x03\x01",
]
VALUES = [
    None, True, False, -1, 0, 2**63, 10**30, 1e308, 0.5, float("inf"), float("nan"), "", "\ud800", "\0", "é", "x" * 5000, [], {}, [[]], [None],
    {"a": {}}, "http://[", "http://\ud800/", "http://h:99999/", "http://a..b/", "/a.tar", "ftp://h", "\udcff", "a/", "9" * 5000, [1], {"": 1},
]  # fmt: skip
LABELS = [
    b"", b" ", b"dog", b"-1", b"9" * 18, b"9" * 19, b"9" * 20, b"9" * 5000, b"-" + b"9" * 19, b"1.5", b"1e3", b"nan", b"inf", b"0x1", b"1_000",
    "٣".encode(), "²".encode(), b"\xff\xfe", b"\0", b"7\n", b" 7 ", b"\xef\xbb\xbf7", b"null", b"true", b'"7"', b"[7]", b'{"label": 7}', b"{",
    b"[" * 3000, b"\\", b"7" + b"\0" * 600, "\ud7ff\U0010ffff".encode(), b'{"a": NaN}', b'"\\ud800"', b"1" * 4301,
]  # fmt: skip


# ---- sound answers ----


def answer(body, *headers, status=b"200 OK"):
    return b"\r\n".join([b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *headers, b"", b""]) + body


def chunked(body, step):
    pieces = [b"%x\r\n%b\r\n" % (len(body[i : i + step]), body[i : i + step]) for i in range(0, len(body), step)]
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(pieces) + b"0\r\n\r\n"


def tar(members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        end = archive.offset
    return out.getvalue()[:end] + bytes(1024)


@functools.cache
def shard():
    return tar([("0.jpg", JPEG), ("0.cls", b"0"), ("1.jpg", JPEG), ("1.json", b'{"a": 1}'), ("1.cls", b"1")])


def packed(body, rng):
    kind = rng.randrange(6)
    if kind == 0:
        return gzip.compress(body, 1)
    if kind == 1:
        return gzip.compress(body[:700], 1) + gzip.compress(body[700:], 1) + bytes(rng.choice((0, 1, 600)))
    if kind == 2:
        with contextlib.suppress(ImportError):
            import zstandard

            skip = b"\x5a\x2a\x4d\x18" + rng.choice((0, 4, 2**32 - 1)).to_bytes(4, "little") + b"skip"
            return (
                skip
                + zstandard.compress(body[:900])
                + rng.choice((skip, b""))
                + zstandard.compress(body[900:])
                + rng.choice((b"", skip, bytes(9)))
            )
    return body


# ---- what is done to them ----


def hurt_head(data, rng):
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    kind = rng.randrange(12)
    if kind < 5:
        name = rng.choice(list(HEADERS))
        line = name + rng.choice((b": ", b":", b" : ", b":\t")) + rng.choice(HEADERS[name])
        lines = [old for old in lines if rng.random() < 0.3 or not old.lower().startswith(name.lower() + b":")] if name else lines
        lines.insert(rng.randint(1, len(lines) or 1), line)
        if name == b"Location":
            lines[0] = b"HTTP/1.1 " + rng.choice((b"301", b"302 Found", b"303", b"307", b"308 \xff"))
        elif name == b"Retry-After":
            lines[0] = b"HTTP/1.1 " + rng.choice((b"503 Busy", b"429", b"408", b"301"))
    elif kind < 7:
        lines[0] = rng.choice(VERSIONS[:2] if rng.random() < 0.8 else VERSIONS) + b" " + rng.choice(STATUSES)
    elif kind == 7:
        lines[1:1] = rng.choice(
            ([b" folded"], [b"X: y"] * 300, [b"X:"] * 20000, [b"a: " + b"b" * 3000] * 30, [b"nocolon"], [b"\t"], [b":"])
        )
    elif kind == 8:
        return (
            rng.choice((b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 x\r\nA: b\r\n\r\n", b"HTTP/1.1 199\r\n\r\n"))
            * rng.choice((1, 3, 5000))
            + data
        )
    elif kind == 9:
        return b"\n".join(lines) + b"\n\n" + body
    elif kind == 10:
        return rng.choice((b"", b"\r\n", b"\0", b"\xff" * 100, b"SSH-2.0-x\r\n", b"<html>", b"HTTP/1.1")) + (
            data if rng.random() < 0.5 else b""
        )
    else:
        del lines[rng.randrange(len(lines))]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def hurt_bytes(data, rng):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(data) + 1)
        if rng.random() < 0.15:
            del data[at:]
        else:
            data[at : at + rng.choice((0, 1, 1, 2, 40))] = rng.choice(
                (b"", b"\r\n", b"\n", b"\0", b":", b"0", b"f", b"-", b";" * 5000, bytes([rng.randrange(256)]))
            )
    return bytes(data)


def hurt_value(value, rng):
    """The JSON value with one part of it another."""
    if rng.random() < 0.2 or not isinstance(value, dict | list) or not value:
        return rng.choice(VALUES)
    copy = value.copy()
    key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
    if rng.random() < 0.1:
        del copy[key]
    else:
        copy[key] = hurt_value(value[key], rng)
    return copy


def document(value, rng):
    """JSON bytes, hurt in what they say or how."""
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        value = hurt_value(value, rng)
    text = json.dumps(value)
    return mangled(text, rng) if rng.random() < 0.3 else text.encode()


def sent(body, rng):
    """An answer with this body, mostly hurt on its way."""
    data = chunked(body, rng.choice((1000, 300, 77))) if rng.random() < 0.25 else answer(body, b'ETag: "v1"')
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        data = hurt_head(data, rng) if rng.random() < 0.75 else hurt_bytes(data, rng)
    return data


def archive(rng):
    data = bytearray(shard())
    for _ in range(rng.choice((0, 0, 1, 2))):
        damage(data, rng, [shard()])
    return packed(bytes(data), rng)


def generate(rng):
    """A case: [kind, {path: [the first answer, the second …]}], each answer as text in latin-1, with @ for the server's host and port."""
    kind = rng.choice(("shard", "shard", "listing", "index", "image", "image", "label"))
    answers = {"*": [sent(archive(rng), rng)]}
    if kind == "shard":
        answers["/a.tar"] = [sent(archive(rng), rng) for _ in range(rng.choice((1, 1, 2)))]
    elif kind == "listing":
        page = {"kind": "storage#objects", "items": [{"name": "a.tar", "mediaLink": "http://@/a.tar"}, {"name": "b/", "size": "5"}]}
        more = {**page, "nextPageToken": rng.choice(("2", "a b", "\ud800", "é", [], 5, True, {}))} if rng.random() < 0.4 else page
        answers["/o"] = [document_answer(more, rng), document_answer(page, rng)]
        answers["/a.tar"] = [answer(shard())]
    elif kind == "index":
        index = rng.choice(
            ({"a.tar": 2}, {"wids_version": 1, "shardlist": [{"url": "http://@/a.tar", "nsamples": 2}, {"url": "b.tar", "nsamples": 0}]})
        )
        answers["/index.json"] = [document_answer(index, rng)]
        answers["/a.tar"] = [answer(shard())]
    elif kind == "image":
        answers["/a.jpg"] = [sent(JPEG * rng.choice((1, 40)), rng)]
    else:
        labels = [rng.choice(LABELS) if rng.random() < 0.7 else hurt_bytes(rng.choice(LABELS), rng) for _ in range(3)]
        field = rng.choice(("cls", "cls", "json", "txt", "x.cls"))
        members = [(name, data) for i, label in enumerate(labels) for name, data in ((f"{i}.jpg", JPEG), (f"{i}.{field}", label))]
        answers["/a.tar"] = [answer(tar([*members, ("9.jpg", JPEG), ("9.cls", b"3")]))]
    return [kind, {path: [data.decode("latin-1") for data in all_of_them] for path, all_of_them in answers.items()}]


def document_answer(value, rng):
    body = document(value, rng)
    return sent(body, rng) if rng.random() < 0.3 else answer(body)


# ---- the server ----


class Server(threading.Thread):
    """Says what the present case wants said, and hangs up. It is a proxy too, for whatever other host a redirect names."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.place = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.answers = {}
        self.start()

    def run(self):
        while True:
            connection, _ = self.listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.settimeout(LIMIT)
                head = b""
                while b"\r\n\r\n" not in head and (data := connection.recv(1 << 17)):
                    head += data
                if head:
                    connection.sendall(self.said(head))
                    connection.shutdown(socket.SHUT_WR)

    def said(self, head):
        target = head.split(b" ")[1].decode("latin-1")
        path = re.sub(r"^http://[^/]*", "", target).partition("?")[0]
        answers = self.answers.get(path) or self.answers.get("*") or [""]
        text = answers.pop(0) if len(answers) > 1 else answers[0]
        return text.replace("@", self.place).encode("latin-1")


# ---- the clients ----


def run(case, server, fetcher):
    """What comes of a case, without numbers and names."""
    kind, answers = case
    server.answers = {path: list(texts) for path, texts in answers.items()}
    http._not_before.clear()
    begin = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        said = single(server, fetcher) if kind == "image" else samples(kind, server)
    except DatagoError as error:
        said = f"{type(error).__name__} {error}"
        assert str(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert time.monotonic() - begin < LIMIT, "it took too long"
    return kind + " " + re.sub(r"https?://\S*|'.*'|\".*\"|\(.*\)|[^A-Za-z_ :]+", " ", said)[:70]


def single(server, fetcher):
    fetcher.submit([("tag", f"http://{server.place}/a.jpg")])
    ((tag, status, body, error),) = fetcher.take(LIMIT)
    assert tag == "tag" and (body is None) != (error is None)
    if error is not None:
        assert error[0] in ("remote", "not_found", "too_large") and isinstance(error[1], str), error
        return " ".join(error)
    assert status == 200 and bytes(body) is not None
    return "a body"


def samples(kind, server):
    base = f"http://{server.place}"
    source = {"url": f"{base}/o" if kind == "listing" else f"{base}/a.tar", "timeout": 3, "concurrent_downloads": 1}
    if kind == "index":
        source["shard_index"] = f"{base}/index.json"
    told = []
    config = {"source_type": "webdataset", "source_config": source, "on_error": told.append}
    if kind == "label":
        from datago import DatagoBatchDataset  # it would import torch, without what main does

        image = {
            "crop_and_resize": True,
            "default_image_size": 32,
            "downsampling_ratio": 32,
            "min_aspect_ratio": 0.9,
            "max_aspect_ratio": 1.1,
        }
        config["image_config"] = image
        dataset = DatagoBatchDataset(config, 2, classes="cls")
        count = 0
        for batch in dataset:
            count += len(batch["id"])
            assert len(batch["target"]) == len(batch["id"])
        stats = dataset._running.stats()
    else:
        client = DatagoClient(config)
        try:
            count = sum(1 for _ in client)
        finally:
            stats = client.stats()
            client.stop()
    assert stats["seen"] == stats["delivered"] + stats["failed"] + stats["skipped"] and stats["in_flight"] == 0, stats
    assert stats["failed"] == len(told) and stats["delivered"] == count, stats
    return " ".join(sorted({f"{failure.reason} {failure.text}" for failure in told})) or f"{'no' if not count else ''} samples"


def expired(*_):
    raise AssertionError(f"it took longer than {LIMIT} seconds")


def main():
    options = mutate.options()
    server = Server()
    # No name is looked up and no other host asked: what a redirect names goes through the proxy, which is the server itself.
    os.environ |= {
        "http_proxy": f"http://{server.place}", "https_proxy": f"http://{server.place}", "no_proxy": server.place,
        "DATAGO_MAX_RETRIES": "2", "DATAGO_MAX_TASKS": "1",
    }  # fmt: skip
    sys.modules["torch"] = None  # numpy will do, and takes less long to load
    logging.disable(logging.CRITICAL)
    policy.backoff, policy.MAX_RETRY_AFTER = lambda attempt: 0, 0.01  # nobody waits
    signal.signal(signal.SIGALRM, expired)
    fetcher = Fetcher(max_connections=1, timeout=3, attempts=1, max_bytes=1 << 20)
    corpus = [json.loads(gzip.decompress(path.read_bytes())) for path in sorted(CORPUS.glob("*.json.gz"))]
    known = {run(case, server, fetcher) for case in corpus}
    kinds = dict.fromkeys(("shard", "listing", "index", "image", "label"), 0)

    def one(rng):
        case = generate(rng)
        try:
            said = run(case, server, fetcher)
        except BaseException:
            print(f"{case!r:.3000}")
            raise
        if said not in known and options.keep and len(data := gzip.compress(json.dumps(case).encode(), mtime=0)) <= LARGEST:
            (CORPUS / f"{len(known):03d}.json.gz").write_bytes(data)
        known.add(said)
        kinds[case[0]] += 1

    done = mutate.repeat(one, options)
    fetcher.close()
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    print(f"{done} cases ({told}), seed {options.seed}, {len(known)} outcomes: no failure")


if __name__ == "__main__":
    main()
