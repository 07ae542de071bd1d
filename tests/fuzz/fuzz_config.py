#!/usr/bin/env python3
"""Configs that nobody would write.   tests/fuzz/fuzz_config.py [--seconds 60] [--count N] [--seed S] [--keep]

A config gives a client, or a ValueError that names a key, within two seconds of CPU; nothing else, and no secret in it. The corpus is in
corpus_config: one JSON text for each answer met so far. --keep adds those that give a new one. A failure tells its number N: --seed S
--first N --count 1 repeats it.
"""

import copy
import json
import pathlib
import re
import time
import warnings

import mutate

from datago import DatagoClient, config
from datago.keys import keys_of
from datago.redaction import ADDRESSES, SECRETS
from datago.settings import ImageSettings, Settings
from datago.sources.webdataset import urls

CORPUS = pathlib.Path(__file__).parent / "corpus_config"
NUMBERS = [0, 1, -1, 2, 32, 255, 256, 1024, 2**16, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, 10**30, 0.5, 1e-300, 1e300, -0.0, 3.7]
TEXTS = ["", " ", "auto", "none", "true", "skip", "raise", "png", "444", "file", "db", "webdataset", "\0", "\ud800", "é" * 300, "a/" * 3000]
URLS = ["s3://b/*", "http://h/{a..c}.tar", "{0..9}{0..9}{0..9}{0..9}{0..9}{0..9}{0..9}", "{9..0}", "{{}}", "{,}", "http://[", "pipe:x", "file://h/x",
        "http://u:hunter2@h:99999/?hunter2", "x{a,b{c,d}}", "http://h/*", "{1..1000000000}", "~/x", "//", "http://é/"]  # fmt: skip
OTHERS = [None, True, False, [], {}, [[]], {"a": None}, float("inf"), float("nan"), [1, 2, 3], ["a", "b"], [None]]
SECTIONS = [keys_of(Settings), keys_of(ImageSettings), *config.source_keys().values()]
KEYS = sorted({key for section in SECTIONS for key in section})


def value(rng):
    return copy.deepcopy(rng.choice(rng.choice((NUMBERS, NUMBERS, TEXTS, URLS, OTHERS))))


def change(given, rng):
    """One change, in place, at any depth."""
    if rng.random() < 0.6:
        inner = [one for one in given.values() if isinstance(one, dict)]
        given = rng.choice(inner) if inner else given
    key = rng.choice(list(given) or KEYS) if rng.random() < 0.6 else rng.choice(KEYS)
    if rng.random() < 0.15:
        given.pop(key, None)
    elif rng.random() < 0.1:
        given[key] = given.copy()
    elif rng.random() < 0.05:
        given["".join(rng.choices("abc_\0é", k=rng.randrange(6)))] = value(rng)
    else:
        given[key] = value(rng)


def mangled(text, rng):
    """The bytes of a text, hurt."""
    data = bytearray(text.encode("utf-8", "replace"))
    for _ in range(rng.choice((1, 1, 3, 10))):
        at = rng.randrange(len(data) + 1)
        data[at : at + rng.choice((0, 1, 1, 5))] = rng.choice(
            (b"", b"[", b"{", b'"', b"\\u", b"\xff", b"1e999", b"[" * 20000, b",", b"-", bytes([rng.randrange(256)]))
        )
    return bytes(data)


def answer(given):
    """What comes of it, without numbers and values. In mangled text a secret may be a part of anything."""
    begin = time.thread_time()
    try:
        client = DatagoClient(given)
        if "url" in vars(client._config.source_config):
            urls.check_urls(client._config.source_config.url)
        said = "a client"
        source = vars(client._config.source_config)
        if not isinstance(given, bytes) and all(
            "hunter2" not in str(value) for key, value in source.items() if key not in SECRETS | ADDRESSES
        ):
            assert "hunter2" not in repr(source)  # where it is a path, it is none
        client.state_dict()
    except ValueError as error:
        said = str(error)
        assert said and (isinstance(given, bytes) or "hunter2" not in said), said
    assert time.thread_time() - begin < 2, "it took more than two seconds"
    return re.sub(r"got .*?, wanted|'.*?'|[^a-z_:]+", " ", said)[:80]


def main():
    options = mutate.options()
    warnings.simplefilter("ignore")
    corpus = [json.loads(path.read_text()) for path in sorted(CORPUS.glob("*.json"))]
    known = {answer(given) for given in corpus}

    def one(rng):
        given = json.loads(json.dumps(rng.choice(corpus)))
        for _ in range(rng.choice((1, 1, 2, 4))):
            change(given, rng)
        kind = rng.random()
        given = mangled(json.dumps(given), rng) if kind < 0.3 else json.dumps(given) if kind < 0.6 else given
        try:
            said = answer(given)
        except BaseException:
            print(f"{given!r:.2000}")
            raise
        if said not in known and options.keep and isinstance(given, dict):
            (CORPUS / f"{len(known):03d}.json").write_text(json.dumps(given))
        known.add(said)

    done = mutate.repeat(one, options)
    print(f"{done} configs, seed {options.seed}, {len(known)} different answers: no failure")


if __name__ == "__main__":
    main()
