#!/usr/bin/env python3
"""Pages that no server would send.   tests/fuzz/fuzz_pages.py [--seconds 60] [--count N] [--seed S] [--keep]

A database client reads from a real server on loopback, whose answers are hurt: heads, bodies and their codings, redirects, `next`, records.
All records end as samples, counted failures or skipped ones, or the stream ends with a SourceError; nothing else, within ten seconds, and
neither the key nor a signature is in what is said. The corpus is in corpus_pages: pages to begin with. --keep adds those that came to be on the
way to a new answer. A failure tells its number N: --seed S --first N --count 1 repeats it.
"""

import copy
import gzip
import json
import logging
import os
import pathlib
import re
import sys
import time
import zlib

os.environ["DATAGO_MAX_RETRIES"] = "2"
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import mutate
from faulty import Faulty, answer

from datago import DatagoClient, SourceError
from datago.net import policy
from datago.sources.db import source as db

CORPUS = pathlib.Path(__file__).parent / "corpus_pages"
KEY = "hunter2" * 4
GREY = b"GIF89a\1\0\1\0\0\0\0!\xf9\4\1\0\0\0\0,\0\0\0\0\1\0\1\0\0\2\1D\0;"  # one pixel
DEEP = json.loads("[" * 200 + "]" * 200)
VALUES = [None, True, False, 0, -1, 1.5, 2**31, 2**80, -(10**400), 10**4000, float("nan"), float("inf"), "", "x", "\ud800", "\udc80\0\n\x9b", "é" * 5000, [],
          {}, [[]], [None], {"": 1}, ["a", 1], {"vector": [1, "x"]}, {"vector": [10**400]}, {"vector": [0.5] * 4}, DEEP, {"a": DEEP}]  # fmt: skip
URLS = ["", "/file", "//", "?", "?cursor=a", "?cursor=\ud800", "http://[", "http://[::1", "http://h:99999/x?cursor=1", "https://127.0.0.1/", "ftp://x/",
        "file:///etc/passwd", "http://" + "a" * 300 + "/", "http://\uff0f/", "http://é.invalid/", "http://u:hunter2hunter2@127.0.0.1:1/", "//h\\x", "\0",
        " \t", "http://127.0.0.1:1/", "javascript:x", "../../x", "http://xn--/", "/" + "y" * 70000, "#", "http:///x", "HTTP://127.0.0.1:0/"]  # fmt: skip
HEADERS = [
    "Retry-After",
    "Content-Encoding",
    "Content-Length",
    "Transfer-Encoding",
    "Location",
    "Content-Type",
    "Connection",
    "",
    "X\0",
    " y",
]
WORDS = ["gzip", "deflate", "br", "zstd", "identity", "gzip, gzip", "chunked", "Chunked, chunked", "-1", "0", "99999999999999999999", "1e9", "0x10", "9" * 5000,
         "Mon, 20 Nov 9999999999 12:00:00 +0000", "Mon, 20 Nov 2023 12:00:00 +99999999999999", "\xb2", "5;5", "", " ", "a\rb", "\xff" * 300]  # fmt: skip
STATUSES = ["200 OK", "200", "204 No", "206 Part", "301 M", "302 Found", "303 S", "307 T", "308 P", "400 Bad", "401 No", "403 No", "404 No", "414 Long",
            "429 Busy", "500 E", "503 B", "999 ?", "20 OK", "2000 OK", "100 Continue", "\xb2\xb2\xb2 ?"]  # fmt: skip


class Server(Faulty):
    """Answers with what `pages` says, one after the other, then with an empty page."""

    def __init__(self):
        self.pages, self.at = [], 0
        super().__init__(None)

    def action(self, path, target, number):
        if path == "/file":
            return answer(GREY)
        if path.endswith("/count/"):
            return answer(b'{"count": 3}')
        self.at += 1
        return self.pages[self.at - 1] if self.at <= len(self.pages) else answer(b'{"next": null, "results": []}')


def places(value, depth=8):
    """(container, key) of what is in a page."""
    for key, inside in list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()):
        yield value, key
        yield from places(inside, depth - 1) if depth else ()


def change(page, rng):
    """One change, in place."""
    container, key = rng.choice([(page, "next"), (page, "results"), *places(page)])
    kind = rng.random()
    if kind < 0.1 and isinstance(container, dict):
        container.pop(key, None)
    elif kind < 0.2 and isinstance(container, dict):
        container[rng.choice(["", "id", "\ud800", "x" * 9999, "vector"])] = copy.deepcopy(rng.choice(VALUES))
    elif kind < 0.3 and isinstance(container, list):
        container.extend(copy.deepcopy(container[:5]))
    else:
        container[key] = copy.deepcopy(rng.choice(URLS if kind < 0.6 or "url" in str(key) or key == "next" else VALUES))


def text_of(page):
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return json.dumps(page).encode()
    finally:
        sys.set_int_max_str_digits(limit)


def hurt(data, rng):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 3, 10))):
        at = rng.randrange(len(data) + 1)
        data[at : at + rng.choice((0, 1, 1, 5, 500))] = rng.choice(
            (
                b"",
                b"[" * 3000,
                b"{",
                b'"',
                b"\\ud800",
                b"\xff",
                b"1e999",
                b"1" * 5000,
                b",",
                b"-",
                b"\r\n",
                b"\r\n\r\n",
                b"\0",
                bytes([rng.randrange(256)]),
            )
        )
    return bytes(data)


def body_of(page, rng):
    """The body and its headers, now and then in a coding that it is in, or not."""
    body, headers = text_of(page), []
    kind = rng.random()
    if kind < 0.15:
        body = hurt(body, rng)
    if kind < 0.03 or 0.15 < kind < 0.3:
        coding = rng.choice(("gzip", "deflate", "x-gzip"))
        body = gzip.compress(body, 1) if "gzip" in coding else zlib.compress(body)[rng.choice((0, 2)) :]
        if rng.random() < 0.2:
            body = gzip.compress(b" " * 4_000_000 + body, 1)
        headers.append(("Content-Encoding", coding))
        if rng.random() < 0.3:
            body = hurt(body, rng)
    return body, headers


def message(page, rng):
    """The bytes of an answer."""
    body, headers = body_of(page, rng)
    status = "200 OK" if rng.random() < 0.8 else rng.choice(STATUSES)
    if status[:1] == "3" or rng.random() < 0.03:
        headers.append(("Location", rng.choice(URLS)))
    if rng.random() < 0.2:
        chunks = [body[at : at + 1000] for at in range(0, len(body), 1000)]
        body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
        headers.append(("Transfer-Encoding", "chunked"))
        body = body if rng.random() < 0.6 else hurt(body, rng)
    else:
        headers.append(("Content-Length", str(len(body) + rng.choice((0, 0, 0, 0, 0, 0, -1, 1)))))
    if rng.random() < 0.15:
        headers.append((rng.choice(HEADERS), rng.choice(WORDS)))
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers), "", ""]
    head = "\r\n".join(lines).encode("utf-8", "surrogatepass")
    data = (hurt(head, rng) if rng.random() < 0.05 else head) + body
    data = data if rng.random() < 0.95 else data[: rng.randrange(len(data) + 1)]

    def action(connection):
        connection.sendall(data)
        return True

    return action


def outcome(server, **keys):
    """What comes of it, in words."""
    source = {"sources": "", "page_size": 3, "api_url": f"{server.url}/api/", "api_key": KEY, "read_timeout": 2, "page_timeout": 2, **keys}
    begin = time.monotonic()
    with DatagoClient({"source_config": source}) as client:
        said = []
        try:
            while (sample := client.get_sample_auto_convert(timeout=10)) is not None:
                said.append(repr(sample))
            end = "the end"
        except SourceError as error:
            end = str(error)
            assert end.isprintable() or "\n" not in end
            end.encode()
        stats = client.stats()
    assert stats["seen"] == stats["delivered"] + stats["failed"] + stats["skipped"] + stats["in_flight"], stats
    assert time.monotonic() - begin < 10, "it took more than ten seconds"
    failures = [failure["text"] for failure in stats["last_failures"]]
    shown = " ".join([end, *failures])
    # A change that takes the question mark out of a signed url makes the signature a part of its path, which is shown.
    assert "hunter2" not in shown and not re.search(r"\?\S*SIGNED", shown), shown
    return re.sub(r"http\S*|'.*?'|[^a-zA-Z_:]+", " ", " | ".join([end[:80], *sorted({text[:40] for text in failures})]))


def main():
    options = mutate.options()
    logging.disable(logging.CRITICAL)
    policy.backoff, policy.MAX_RETRY_AFTER = lambda attempt: 0.001, 0.5
    db.ANSWER = 1 << 20
    corpus = [json.loads(path.read_text()) for path in sorted(CORPUS.glob("*.json"))]
    server, known = Server(), set()
    for page in corpus:
        server.pages, server.at = [answer(text_of(page))], 0
        known.add(outcome(server))

    def one(rng):
        pages = copy.deepcopy([rng.choice(corpus) for _ in range(rng.choice((1, 1, 2, 3)))])
        for page in pages:
            for _ in range(rng.choice((0, 0, 1, 1, 3))):
                change(page, rng)
        server.pages, server.at = [message(page, rng) for page in pages], 0
        server.requests.clear()
        keys = {
            "random_sampling": rng.random() < 0.15,
            "require_images": rng.random() < 0.7,
            "has_latents": "depth",
            "require_embeddings": True,
        }
        try:
            said = outcome(server, **keys)
        except BaseException:
            print(f"{pages!r:.2000}")
            raise
        if said not in known and options.keep and len(text_of(pages[0])) < 5000:
            (CORPUS / f"{len(corpus):03d}.json").write_bytes(text_of(pages[0]))
            corpus.append(pages[0])
        known.add(said)

    try:
        done = mutate.repeat(one, options)
    finally:
        server.stop()
    print(f"{done} streams of hurt pages, seed {options.seed}, {len(known)} different answers: no failure")


if __name__ == "__main__":
    main()
