#!/usr/bin/env python3
"""Damages archives and reads them.   tests/fuzz/fuzz_tar.py [--seconds 60] [--count N] [--seed S] [--keep]

Meant for a build with DATAGO_SANITIZE=address, with LD_PRELOAD=$(gcc -print-file-name=libasan.so), PYTHONMALLOC=malloc
and ASAN_OPTIONS=detect_leaks=0. Besides crashes it looks for answers that depend on what they must not depend on: an
archive gives the same members and the same error however it is cut into blocks; who wants fewer members, or skips what
need not be read, or begins at a later member, gets the same ones. A failure tells its number N: --seed S --first N
--count 1 repeats it. The corpus is in corpus_tar: archives that gave an account of their own (the error, what was skipped); --keep adds
to it.
"""

import io
import pathlib
import random
import re
import tarfile
import zlib

import mutate

from datago.sources.webdataset._tar import TarError, TarReader

CORPUS = pathlib.Path(__file__).parent / "corpus_tar"
LARGEST = 16384  # bytes of an archive that is kept
SIZES = [
    b"0",
    b"777",
    b"00000000000\0",
    b"77777777777\0",
    b"-1",
    b"\x80" + bytes(10) + b"\5",
    b"\x80" + b"\xff" * 11,
    b"\xff" * 12,
    b"\x80\0\0\0\x0f" + b"\xff" * 7,
    b" " * 8,
    bytes(12),
    b"9",
    b"00000001000\0",
    b"00000000777\0",
    b"00004000001\0",
]
FIELDS = {0: 100, 124: 12, 148: 8, 156: 1, 257: 8, 345: 155, 482: 1, 504: 1}  # where they stand, and their width
LIKELY = (124, 124, 156, 156, *FIELDS)
TYPES = b"0\x001234567xXgLKASDMVNZ"
RECORDS = [
    b"12 path=ab/\n",
    b"9 size=5\n",
    b"10 size=-1\n",
    b"32 size=99999999999999999999999\n",
    b"8 path=\n",
    b"5 a=\n",
    b"5 =a\n",
    b"22 GNU.sparse.major=1\n",
    b"999999 path=x\n",
    b"3 \n",
    b"0 a=b\n",
    b"99999999999999999999 a=b\n",
    b"13 path=a\0b/\n",
]


def seeds(rng):
    """Sound archives of all formats, small ones."""
    found = []
    for format in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        for everywhere in ({}, {"comment": "c" * 30}):
            out = io.BytesIO()
            with tarfile.open(fileobj=out, mode="w", format=format, pax_headers=everywhere) as tar:
                for i in range(8):
                    info = tarfile.TarInfo(f"d{i}/" * rng.choice((1, 1, 12, 60)) + f"{i}.jpg")
                    if format == tarfile.USTAR_FORMAT:
                        info.name = info.name[-140:]
                    info.type = rng.choice((b"0", b"0", b"0", b"0", b"\0", b"7", b"5", b"1", b"2", b"6"))
                    info.mtime = rng.choice((0, 1.5))
                    info.linkname = "" if info.isreg() else "target" * rng.choice((1, 14))
                    data = rng.randbytes(rng.choice((0, 1, 100, 512, 513, 1300))) if info.isreg() else b""
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
                end = tar.offset
            found.append(out.getvalue()[:end] + bytes(rng.choice((1024, 2048))))
    return found


def fix_sum(archive, at):
    archive[at + 148 : at + 156] = b" " * 8
    archive[at + 148 : at + 156] = b"%06o\0 " % sum(archive[at : at + 512])


def damage(archive, rng, others):
    """One change, in place."""
    blocks = max(len(archive) // 512, 1)
    at = rng.randrange(blocks) * 512
    kind = rng.randrange(10)
    if kind < 4 and at + 512 <= len(archive):  # a header field, mostly with a sum that fits
        start = rng.choice(LIKELY)
        width = FIELDS[start]
        value = rng.choice((bytes(width), b"/" * width, rng.randbytes(width), b"a" * width))
        if start == 124:
            value = rng.choice(SIZES)
        elif start == 156:
            value = bytes([rng.choice(TYPES)])
        elif start == 257:
            value = rng.choice((b"ustar\x0000", b"ustar  \0", bytes(8)))
        archive[at + start : at + start + min(width, len(value))] = value[:width]
        if rng.random() < 0.85:
            fix_sum(archive, at)
    elif kind == 4:
        for _ in range(rng.randint(1, 8)):
            archive[rng.randrange(len(archive))] = rng.choice((0, 10, 32, 47, 48, 57, 61, 128, 255, rng.randrange(256)))
    elif kind == 5:
        del archive[rng.randrange(len(archive)) :]
    elif kind == 6:
        del archive[at : at + rng.choice((512, 512, 1024, 1, 100))]
    elif kind == 7:
        copy = bytes(archive[at : at + 512])
        archive[at:at] = rng.choice((bytes(512), copy, rng.randbytes(512), bytes(1024), rng.randbytes(7)))
    elif kind == 8:
        other = rng.choice(others)
        begin = rng.randrange(len(other) // 512 + 1) * 512
        archive[at:at] = other[begin : begin + 512 * rng.randint(1, 6)]
    else:
        records = b"".join(rng.choices(RECORDS, k=rng.randint(1, 4)))
        block = bytearray(512)
        block[:1], block[124:136] = b"x", b"%011o\0" % len(records)
        block[156:157] = rng.choice((b"x", b"x", b"g", b"L", b"X"))
        fix_sum(block, 0)
        archive[at:at] = block + records + bytes(-len(records) % 512)
    if not archive:
        archive[:] = b"\0"


def read(archive, rng=None, select=None, offset=0, skip=False):
    """([(name, data, offset)], error or None, reader)."""
    reader, members, error, at = TarReader(select, offset), [], None, offset
    typical = rng.choice((1, 30, 300, 512, 512, 2000, 2000)) if rng else 0
    try:
        while at < len(archive):
            if skip and reader.skippable:
                size = min(rng.randint(1, reader.skippable), len(archive) - at)
                reader.skip(size)
            else:
                size = rng.randint(1, 2 * typical) if rng else len(archive)
                members += reader.feed(archive[at : at + size])
            at += size
        reader.close()
    except TarError as caught:
        error = str(caught)
    return [(m.name, bytes(m), m.offset) for m in members], error, reader


def check(archive, rng):
    members, error, reader = read(archive)
    account = (error, reader.skipped, reader.lone_zero_blocks, reader.trailing, reader.members)
    for skip in (False, True):
        again, text, other = read(archive, rng, skip=skip)
        assert again == members, "the cut into blocks changed the members"
        told = (text, other.skipped, other.lone_zero_blocks, other.trailing, other.members)
        assert told == account, f"the cut into blocks changed the account: {account} {told}"
    if error is None:
        assert reader.ended and reader.offset == len(archive)
    for _, data, offset in members:
        assert 0 <= offset < len(archive) and (not data or data in archive)
    salt = rng.getrandbits(32)

    def wanted(name, size):
        return zlib.crc32(name, salt) % 2

    for skip in (False, True):
        fewer, text, other = read(archive, rng, wanted, skip=skip)
        assert fewer == [m for m in members if wanted(m[0], len(m[1]))], "select changed what was selected"
        assert (text is None) == (error is None), f"select changed the error: {error} {text}"
    everywhere = any(archive[i + 156 : i + 157] == b"g" for i in range(0, len(archive), 512))
    if members and not everywhere:
        first = rng.randrange(len(members))
        rest, text, _ = read(archive, rng, offset=members[first][2])
        assert rest == members[first:] and text == error, f"resuming gave something else: {error} {text}"
    return error, reader.skipped


def signature(error, skipped):
    return re.sub(r"\d+|'.*'", "", error or ""), tuple(sorted(skipped))


def main():
    options = mutate.options()
    sound = seeds(random.Random(options.seed))
    for archive in sound:
        assert check(archive, random.Random(0))[0] is None
    corpus = [path.read_bytes() for path in sorted(CORPUS.glob("*.tar"))]
    known = {signature(*check(archive, random.Random(0))) for archive in corpus}
    sound += corpus
    kinds = {}

    def one(rng):
        archive = bytearray(rng.choice(sound))
        for _ in range(rng.choice((1, 1, 2, 4))):
            damage(archive, rng, sound)
        error, skipped = check(bytes(archive), rng)
        if (sign := signature(error, skipped)) not in known and options.keep and len(archive) <= LARGEST:
            (CORPUS / f"{len(known):03d}.tar").write_bytes(archive)
            known.add(sign)
        kind = "".join(c for c in (error or "read to its end").split(", ")[0] if not c.isdigit())[:60]
        kinds[kind] = kinds.get(kind, 0) + 1

    done = mutate.repeat(one, options)
    for kind, count in sorted(kinds.items(), key=lambda item: -item[1])[:25]:
        print(f"{count:9} {kind}")
    print(f"{done} damaged archives, seed {options.seed}: no failure")


if __name__ == "__main__":
    main()
