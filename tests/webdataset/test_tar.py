"""The tar reader: what is in an archive, what is wrong with it, and how little memory either takes."""

import functools
import gzip
import io
import random
import struct
import tarfile
import threading
import tracemalloc

import pytest

from datago.sources.webdataset._tar import Member, TarError, TarReader

END = bytes(1024)


def tar(members, format=tarfile.GNU_FORMAT, end=True, **options):
    """An archive of (name, data) or (TarInfo, data), with two zero blocks at its end and no more."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format, **options) as archive:
        for info, data in members:
            if isinstance(info, str):
                info = tarfile.TarInfo(info)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        length = archive.offset
    return out.getvalue()[:length] + (END if end else b"")


def header(name=b"a.jpg", size=0, kind=b"0", magic=b"ustar\x0000", signed=False, **fields):
    """One header block; `size` is a number, or the twelve bytes of its field."""
    block = bytearray(512)
    block[: len(name)] = name
    block[124:136] = size if isinstance(size, bytes) else b"%011o\0" % size
    block[156:157] = kind
    block[257:265] = magic.ljust(8, b"\0")
    for place, value in fields.items():
        block[int(place[2:]) : int(place[2:]) + len(value)] = value
    block[148:156] = b" " * 8
    total = sum(block) - (256 * sum(b >> 7 for b in block) if signed else 0)
    block[148:156] = b"%06o\0 " % total
    return bytes(block)


def padded(data):
    return data + bytes(-len(data) % 512)


def member(name, data, **fields):
    return header(name, len(data), **fields) + padded(data)


def record(key, value):
    line = b" " + key + b"=" + value + b"\n"
    length = len(line) + 1
    while len(b"%d" % length) + len(line) > length:
        length += 1
    return b"%d" % length + line


def pax(*records, kind=b"x", **fields):
    data = b"".join(record(*r) for r in records)
    return header(b"PaxHeaders/a", len(data), kind, **fields) + padded(data)


def long_name(name, kind=b"L"):
    return header(b"././@LongLink", len(name) + 1, kind, b"ustar  \0") + padded(name + b"\0")


def base256(number):
    return b"\x80\0\0\0" + struct.pack(">Q", number)


def feed(reader, data, cut=None):
    """The members of `data`, fed in blocks of `cut` bytes, or whole. The end is left open."""
    members = []
    for at in range(0, len(data), cut or len(data) or 1):
        members += reader.feed(data[at : at + (cut or len(data))])
    return members


def read(data, cut=None, **options):
    """(name, data) of every member of a sound archive, and the reader."""
    reader = TarReader(**options)
    members = feed(reader, data, cut)
    reader.close()
    assert reader.ended and reader.members == len(members) and reader.offset == len(data)
    return [(m.name, bytes(m)) for m in members], reader


def names(data):
    return [name for name, _ in read(data)[0]]


def broken(data, cut=None):
    """The members before the damage, and the error's text. Damage is never silent."""
    reader, members = TarReader(), []
    with pytest.raises(TarError) as caught:
        for at in range(0, len(data), cut or len(data) or 1):
            members += reader.feed(data[at : at + (cut or len(data))])
        reader.close()
    with pytest.raises(TarError) as again:  # and stays so
        reader.close()
    assert str(again.value) == str(caught.value) and reader.skippable == 0
    return [(m.name, bytes(m)) for m in members], str(caught.value)


PICTURE = random.Random(0).randbytes(3000)
SHARD = [pair for i in range(5) for pair in ((f"000{i}.jpg", PICTURE[i:]), (f"000{i}.txt", b"caption %d" % i))]
STORED = [(name.encode(), data) for name, data in SHARD]
CUTS = [None, 1, 511, 512, 513, 5000, 10240]


# ---- dialects -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_the_formats_give_the_same_members(format, cut):
    members, reader = read(tar(SHARD, format), cut)
    assert members == STORED
    assert set(reader.skipped.values()) == {0} and reader.trailing == reader.lone_zero_blocks == 0


@pytest.mark.parametrize("cut", CUTS)
def test_extended_headers_are_no_members(cut):  # T01
    infos = [(tarfile.TarInfo(name), data) for name, data in SHARD]
    for info, _ in infos:
        info.pax_headers = {"mtime": "1.5"}
    assert read(tar(infos, tarfile.PAX_FORMAT), cut)[0] == STORED
    assert read(tar(SHARD, tarfile.PAX_FORMAT, pax_headers={"comment": "x" * 600}), cut)[0] == STORED


def test_names_are_bytes_as_stored():  # T03
    assert names(tar([("日本語/é.jpg", b"")], tarfile.PAX_FORMAT)) == ["日本語/é.jpg".encode()]
    assert names(tar([("café.jpg", b"")], encoding="latin-1")) == [b"caf\xe9.jpg"]
    assert names(tar([("./a.jpg", b""), ("../b", b""), ("/c", b"")])) == [b"./a.jpg", b"../b", b"/c"]  # T04
    odd = ["README", ".jpg", "x.", "dir.with.dot/noext", "a b\n.txt"]  # T31
    assert names(tar([(name, b"") for name in odd])) == [name.encode() for name in odd]
    binary = b"\xff\xfe=\n.jpg"
    assert names(pax((b"hdrcharset", b"BINARY"), (b"path", binary)) + header() + END) == [binary]


@pytest.mark.parametrize(
    "format, length",
    [
        (format, length)
        for format in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
        for length in (99, 100, 101, 155, 156, 220, 255, 256, 257, 5000)
        if length < 221 or format != tarfile.USTAR_FORMAT
    ],
)
def test_long_names(format, length):
    name = (("d" * 60 + "/") * 100)[: length - 5].replace("/.", "x.") + "x.jpg"
    assert len(name) == length
    assert names(tar([(name, b"1"), ("b", b"2")], format)) == [name.encode(), b"b"]


def test_prefix_belongs_to_posix_headers_only():
    assert names(header(b"b.jpg", at345=b"dir") + END) == [b"dir/b.jpg"]
    assert names(header(b"b.jpg", at345=b"dir/") + END) == [b"dir/b.jpg"]
    assert names(header(b"b" * 100, at345=b"p" * 155) + END) == [b"p" * 155 + b"/" + b"b" * 100]
    atime = b"14537400000\0"  # as tar --incremental writes
    assert names(header(b"b.jpg", magic=b"ustar  \0", at345=atime) + END) == [b"b.jpg"]
    assert names(header(b"b.jpg", magic=b"", at345=b"junk") + END) == [b"b.jpg"]  # v7


def test_pax_records():
    plain = member(b"a.jpg", b"12345")
    for size in (0, 7, b"garbage here"):  # the record overrides the header
        sized = pax((b"size", b"5"), (b"linkpath", b"q"), (b"uid", b"x")) + header(size=size) + padded(b"12345")
        assert read(sized + plain + END)[0] == [(b"a.jpg", b"12345")] * 2
    assert names(pax((b"path", b"new"), (b"path", b"newer")) + plain + plain + END) == [b"newer", b"a.jpg"]
    assert names(pax((b"path", b"new"), (b"path", b"")) + plain + END) == [b"a.jpg"]
    assert names(pax((b"path", b"one")) + pax((b"comment", b"y")) + plain + END) == [b"one"]
    assert names(pax((b"path", b"solaris"), kind=b"X") + plain + END) == [b"solaris"]
    assert names(pax((b"comment", b"a=b=c\n7 x=\n")) + plain + END) == [b"a.jpg"]
    assert names(pax() + plain + END) == [b"a.jpg"]
    records = record(b"path", b"p")
    assert names(header(b"x", len(records) + 9, b"x") + padded(records) + plain + END) == [b"p"]  # NULs after it
    everywhere = pax((b"path", b"all"), kind=b"g")
    assert names(everywhere + plain + pax((b"path", b"own")) + plain + plain + END) == [b"all", b"own", b"all"]
    assert names(everywhere + pax((b"path", b""), kind=b"g") + plain + END) == [b"a.jpg"]
    assert names(pax((b"comment", b"x"), kind=b"g") + END) == []


def test_gnu_long_names():
    name, target = long_name(b"n" * 700), long_name(b"target", b"K")
    assert names(name + target + header() + header(b"b") + END) == [b"n" * 700, b"b"]
    assert names(target + name + header() + END) == [b"n" * 700]
    assert names(header(b"L", 0, b"L") + header() + END) == [b"a.jpg"]


@pytest.mark.parametrize(
    "size",
    [
        b"00000001274\0",
        b"00000001274 ",
        b"000000001274",
        b"     001274 ",
        b"1274 \0 junk ",
        b"1274\0\0\0\0\0\0\0\0",
        b"\x000000001274\0",
        base256(700),
    ],
)
def test_sizes_as_they_are_written(size):
    assert read(header(size=size) + padded(b"x" * 700) + header(b"b") + END)[0] == [(b"a.jpg", b"x" * 700), (b"b", b"")]


def test_blank_size_is_zero():
    assert names(header(size=bytes(12)) + header(b"b", b" " * 12) + END) == [b"a.jpg", b"b"]


def test_both_checksums():
    latin = b"caf\xe9\xff.jpg"
    assert header(latin) != header(latin, signed=True)
    assert names(header(latin) + header(latin, signed=True) + END) == [latin, latin]
    assert broken(header(latin) + header(latin, signed=True)[:511] + b"\1" + END)[0] == [(latin, b"")]


def test_regular_types_and_the_directory_of_v7():
    assert names(header(kind=b"\0", magic=b"") + header(b"b", kind=b"7") + header(b"c") + END) == [b"a.jpg", b"b", b"c"]
    for kind in (b"\0", b"0"):
        members, reader = read(header(b"d/", kind=kind) + header(b"d/a") + END)
        assert members == [(b"d/a", b"")] and reader.skipped["directory"] == 1


def test_entries_that_are_not_files_are_counted_and_keep_the_alignment():  # T05, T25
    archive = (
        header(b"a/", kind=b"5")
        + header(b"weird.jpg/", 4096, b"5")
        + header(b"l.jpg", 9, b"2")
        + header(b"h.jpg", kind=b"1")
        + header(b"c", kind=b"3")
        + header(b"b", kind=b"4")
        + header(b"f.jpg", kind=b"6")
        + header(b"label", kind=b"V")
        + member(b"dump", b"Ya\0Nb\0\0", kind=b"D")
        + member(b"m.jpg", b"m" * 600, kind=b"M")
        + member(b"?", b"z" * 513, kind=b"Z")
        + header(b"s1", 700, b"S", b"ustar  \0", at482=b"\1")  # two blocks of its map, then its data
        + bytes(504)
        + b"\1"
        + bytes(7)
        + bytes(512)
        + padded(b"s" * 700)
        + member(b"s2", b"s" * 513, kind=b"S", magic=b"ustar  \0")
        + pax((b"GNU.sparse.major", b"1"), (b"GNU.sparse.name", b"s3"))
        + member(b"s3", b"1\n0\n9\n" + b"s" * 700)
        + pax((b"GNU.sparse.map", b"0,1"))
        + member(b"s4", b"s")
        + header(b"acl", 5, b"A")
        + padded(b"acl=1")
        + member(b"1.jpg", b"ok")
    )
    counts = {"directory": 3, "symlink": 1, "link": 1, "sparse": 4, "device": 2, "fifo": 1, "other": 3, "unselected": 0}
    for cut in CUTS:
        members, reader = read(archive + END, cut)
        assert members == [(b"1.jpg", b"ok")] and reader.skipped == counts


def test_links_and_v7_directories_may_have_data():
    for first in (header(b"l", 700, b"1"), header(b"d/", 700)):
        assert names(first + header() + END) == [b"a.jpg"]
        assert names(first + padded(b"x" * 700) + header() + END) == [b"a.jpg"]
        assert names(first + END) == []
        assert "wrong checksum" in broken(first + padded(b"x" * 1100) + header() + END)[1]


def test_empty_members_keep_the_alignment():  # T15
    members = [("1.jpg", b""), ("1.txt", b"x"), ("2.jpg", PICTURE), ("2.txt", b""), ("3.jpg", PICTURE)]
    for cut in CUTS:
        assert read(tar(members), cut)[0] == [(name.encode(), data) for name, data in members]


# ---- where archives end ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", CUTS)
def test_the_end_marker_ends_it(cut):  # T27
    one, two = tar(SHARD[:2]), tar(SHARD[2:])
    members, reader = read(one + bytes(5000) + two, cut)
    assert members == STORED[:2] and reader.trailing == len(two)
    assert read(one + bytes(9000), cut)[1].trailing == 0
    assert read(one + bytes(100) + b"\1\0\0", cut)[1].trailing == 3


@pytest.mark.parametrize("cut", CUTS)
def test_a_single_zero_block_is_passed_over(cut):  # T27
    archive = bytes(512) + member(b"a", b"1") + bytes(512) + member(b"b", b"2") + END
    members, reader = read(archive, cut)
    assert members == [(b"a", b"1"), (b"b", b"2")] and reader.lone_zero_blocks == 2


def test_what_is_no_tar_is_named():  # T28, T19
    for length in (1024, 10240):
        assert read(bytes(length))[0] == []
    page = b"\n<HTML><body>404"
    for start, text in (
        (b"", "not a tar: it is empty"),
        (page + b" " * 2000, "not a tar: it looks like html"),
        (page, "not a tar: it is 16 bytes long, and it looks like html"),
        (page + b" " * 400, "not a tar: it is 416 bytes long, and it looks like html"),
        (gzip.compress(tar(SHARD)), "not a tar: it looks like gzip"),
        (b"\x28\xb5\x2f\xfd" + PICTURE, "not a tar: it looks like zstd"),
        (b"PK\3\4" + PICTURE, "not a tar: it looks like zip"),
        (b"\xff\xd8\xff\xe0" + PICTURE, "not a tar: it looks like jpeg"),
        (b'<?xml version="1.0"?><Error>' + b" " * 2000, "not a tar: it looks like xml"),
        (
            b"version https://git-lfs.github.com/spec/v1\n",
            "not a tar: it is 43 bytes long, and it looks like a git-lfs pointer, its file not pulled",
        ),
        (PICTURE, f"not a tar: it begins with {PICTURE[:16]!r}"),
    ):
        for cut in (None, 1, 100):
            assert broken(start, cut) == ([], text)


def test_truncation_is_never_silent():  # T16, T17
    """Cut at every byte: the members that are complete, then an error."""
    archive = (
        member(b"a.jpg", b"1" * 700)
        + member(b"a.txt", b"")
        + header(b"d/", kind=b"5")
        + pax((b"path", b"p" * 130))
        + member(b"", b"2" * 512)
        + header(b"s", 600, b"S", b"ustar  \0", at482=b"\1")
        + bytes(512)
        + padded(b"s" * 600)
        + long_name(b"l" * 130)
        + member(b"", b"3")
        + END
    )
    whole, _ = read(archive)
    ends = []  # where each member's last byte stands
    reader = TarReader()
    for at in range(len(archive)):
        ends += [at + 1] * len(reader.feed(archive[at : at + 1]))
    assert ends == [1212, 2048, 4608, 8193]
    for length in range(len(archive)):
        members, text = broken(archive[:length])
        assert members == whole[: sum(end <= length for end in ends)]
        assert text.startswith((f"truncated at byte {length}:", "not a tar: it is"))


def test_truncation_says_where():
    archive = member(b"caf\xc3\xa9\n.jpg", b"1" * 700) + pax((b"path", b"p" * 600)) + member(b"", b"2") + END
    for length, text in (
        (300, "inside the header at 0"),
        (600, "inside the member at 0, 'café\\n.jpg', with 88 of 700 bytes"),
        (1400, "in the padding after the member at 0"),
        (1536, "no end-of-archive marker (two zero blocks)"),
        (1600, "inside the header at 1536"),
        (2100, "inside the extended header at 1536"),
        (3000, "inside the extended header at 1536"),
        (3072, "after the extended header at 1536, before its member"),
        (3500, "inside the header at 3072"),
        (4200, "inside the end-of-archive marker (two zero blocks)"),
        (4800, "inside the end-of-archive marker (two zero blocks)"),
    ):
        assert broken(archive[:length])[1] == f"truncated at byte {length}: {text}"
    reader = TarReader(lambda name, size: False)
    reader.feed(archive[:600])
    with pytest.raises(TarError, match=r"truncated at byte 600: inside the member at 0, 'café\\n.jpg'$"):
        reader.close()


# ---- damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad, text",
    [
        (header(at0=b"x")[:100] + b"\1" + header(at0=b"x")[101:], "damaged header at offset 1024: wrong checksum"),
        (b"garbage!" * 64, "damaged header at offset 1024: wrong checksum"),
        (header(size=b"00000000019\0"), "damaged header at offset 1024: the size is not a number"),
        (header(size=b"0x000000001\0"), "damaged header at offset 1024: the size is not a number"),
        (header(size=b"-0000000001\0"), "damaged header at offset 1024: the size is negative"),
        (header(size=b"\xff" * 12), "damaged header at offset 1024: the size is negative"),
        (header(size=b"\x80" + b"\xff" * 11), "damaged header at offset 1024: the size is too large"),
        (header(size=base256(2**63 - 1)), "damaged header at offset 1024: the size is too large"),
        (header(size=base256(2**60 + 1)), "damaged header at offset 1024: the size is too large"),
        (pax((b"size", b"-1")) + header(), "damaged header at offset 1024: the size is negative"),
        (pax((b"size", b"1.5")) + header(), "damaged header at offset 1024: the size is not a number"),
        (pax((b"size", b"9" * 30)) + header(), "damaged header at offset 1024: the size is too large"),
        (header(size=5, kind=b"x") + padded(b"hello") + header(), "damaged extended header at offset 1024"),
        (header(size=7, kind=b"x") + padded(b"99 a=b\n") + header(), "damaged extended header at offset 1024"),
        (header(size=7, kind=b"g") + padded(b"7 a=bcd") + header(), "damaged extended header at offset 1024"),
        (header(size=6, kind=b"x") + padded(b"6 abc\n") + header(), "damaged extended header at offset 1024"),
        (header(size=3, kind=b"x") + padded(b"0 \n") + header(), "damaged extended header at offset 1024"),
        (header(size=2, kind=b"x") + padded(b"2 ") + header(), "damaged extended header at offset 1024"),
        (header(size=2, kind=b"x") + padded(b"22") + header(), "damaged extended header at offset 1024"),
        (header(size=2**20 + 1, kind=b"x"), "damaged extended header at offset 1024: longer than 1048576 bytes"),
        (header(size=2**33, kind=b"L"), "damaged extended header at offset 1024: longer than 1048576 bytes"),
        (pax((b"path", b"p" * 5000), kind=b"g") + header(), "damaged extended header at offset 1024"),
        (pax((b"path", b"p")), "damaged: the archive ends after the extended header at offset 1024, without its member"),
    ],
)
def test_damage_after_a_good_member(bad, text):
    for cut in CUTS:
        assert broken(member(b"a.jpg", b"fine") + bad + END, cut) == ([(b"a.jpg", b"fine")], text)


def test_the_members_before_the_damage_come_first():
    reader = TarReader()
    assert [m.name for m in reader.feed(member(b"a", b"1") + b"garbage!" * 64)] == [b"a"]
    assert reader.offset == 1536
    for call in (functools.partial(reader.feed, b"x"), functools.partial(reader.skip, 0), reader.close):
        with pytest.raises(TarError, match="damaged header at offset 1024"):
            call()


def test_a_first_header_that_is_damaged_is_still_a_tar():
    archive = bytearray(tar(SHARD))
    archive[3] ^= 1
    assert broken(archive) == ([], "damaged header at offset 0: wrong checksum")


def test_claims_take_no_memory():
    claims = (header(size=base256(2**33)), pax((b"size", b"%d" % 2**40)) + header())
    tracemalloc.start()
    try:
        for claim in claims:
            reader = TarReader()
            reader.feed(claim)
            for _ in range(40):
                assert reader.feed(bytes(100_000)) == []
            with pytest.raises(TarError, match="with 4000000 of"):
                reader.close()
            del reader
        reader = TarReader()
        everywhere = pax((b"path", b"p" * 4000), kind=b"g")
        assert len(reader.feed(everywhere + header() * 2000)) == 2000
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


# ---- blocks and memory ----------------------------------------------------------------------------------------------


def test_no_copy_of_what_lies_in_one_block():
    block = bytearray(tar(SHARD))
    members = TarReader().feed(block)
    place = block.index(PICTURE)
    block[place] ^= 0xFF
    assert members[0].data[0] == PICTURE[0] ^ 0xFF
    with pytest.raises(BufferError):
        block.append(0)  # the members hold it
    view = members[0].data
    assert view.readonly and view.nbytes == len(members[0]) == members[0].size == 3000
    del members
    with pytest.raises(BufferError):
        block.append(0)
    del view
    block.append(0)


def test_members_outlive_block_and_reader():
    members = TarReader().feed(b"".join([tar(SHARD)]))
    churn = [bytes([i]) * 30_000 for i in range(100)]
    assert [(m.name, bytes(m.data)) for m in members] == STORED and churn


def test_empty_members_hold_no_block():
    block = bytearray(member(b"a", b"") + END)
    members = TarReader().feed(block)
    block.append(0)
    assert bytes(members[0].data) == b""


def test_any_bytes_will_do():
    archive = tar(SHARD)
    for kind in (bytes, bytearray, memoryview, lambda data: memoryview(data).cast("H") if len(data) % 2 == 0 else data):
        reader = TarReader()
        assert reader.feed(kind(b"")) == []
        assert [(m.name, bytes(m)) for m in reader.feed(kind(archive))] == STORED
    for wrong in ("text", 5, None, memoryview(archive)[::2]):
        with pytest.raises((TypeError, BufferError)):
            TarReader().feed(wrong)


def test_many_members_in_one_block():
    """More than a batch holds, of entries and of name bytes."""
    expected = [(b"%d" % i, b"%d" % i) for i in range(5000)]
    assert read(b"".join(member(*m) for m in expected) + END)[0] == expected
    wide = [(b"%d" % i + b"n" * 20_000, b"x") for i in range(30)]
    assert read(b"".join(long_name(name) + member(b"", data) for name, data in wide) + END)[0] == wide
    huge = b"h" * (2**20 - 1)
    assert names(long_name(huge) + header() + pax((b"path", huge[:-30])) + header() + END) == [huge, huge[:-30]]


def test_member_shows_itself():
    shown = repr(TarReader().feed(member("é\n.jpg".encode(), b"123") + END)[0])
    assert shown == "<Member 'é\\n.jpg', 3 bytes, at 0>"
    with pytest.raises(AttributeError):
        TarReader().feed(header())[0].name = b"x"
    assert Member


# ---- choosing, skipping, resuming -----------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", CUTS)
def test_select_is_asked_once_for_each_regular_member(cut):
    asked = []

    def select(name, size):
        asked.append((name, size))
        return name.endswith(b".txt")

    members, reader = read(header(b"d/", kind=b"5") + tar(SHARD), cut, select=select)
    assert members == [m for m in STORED if m[0].endswith(b".txt")]
    assert asked == [(name, len(data)) for name, data in STORED]
    assert reader.skipped["unselected"] == 5 and reader.skipped["directory"] == 1


def test_a_huge_member_is_passed_over():  # T32
    size = 200 << 20
    block = bytes(1 << 20)
    for skip in (False, True):
        tracemalloc.start()
        reader = TarReader(lambda name, size: not name.endswith(b".mp4"))
        found = reader.feed(member(b"a.jpg", b"1") + header(b"a.mp4", size))
        assert reader.skippable == size
        if skip:
            reader.skip(size - 5)
            reader.skip(0)
            reader.feed(bytes(5))
        else:
            for _ in range(200):
                reader.feed(block)
        assert reader.skippable == 0
        found += reader.feed(member(b"b.jpg", b"2") + END)
        reader.close()
        assert [m.name for m in found] == [b"a.jpg", b"b.jpg"] and reader.offset == 1024 + 512 + size + 1024 + 1024
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        tracemalloc.stop()


def test_skip_is_bounded():
    reader = TarReader(lambda name, size: False)
    assert reader.skippable == 0
    reader.feed(header(size=700))
    assert reader.skippable == 1024
    for size in (1025, -1, 2**62):
        with pytest.raises(ValueError, match="wanted 0 to 1024"):
            reader.skip(size)
    reader.skip(1024)
    reader.feed(END)
    assert reader.skippable == 0 and reader.ended
    reader.close()


def test_links_and_sparse_files_can_be_skipped_too():
    reader = TarReader()
    reader.feed(header(b"s", 1 << 30, b"S", b"ustar  \0"))
    assert reader.skippable == 1 << 30
    reader.skip(1 << 30)
    assert [m.name for m in reader.feed(header() + END)] == [b"a.jpg"]


def test_resume_at_any_member():
    archive = (
        member(b"a", b"1")
        + pax((b"path", b"long"))
        + member(b"", PICTURE)
        + header(b"d/", kind=b"5")
        + long_name(b"l" * 200)
        + member(b"", b"3")
        + bytes(512)
        + member(b"z", b"")
        + END
    )
    whole = TarReader().feed(archive)
    for cut in (None, 1, 700):
        reader = TarReader()
        assert [m.offset for m in feed(reader, archive, cut)] == [m.offset for m in whole] == [0, 1024, 6144, 8704]
    for i, first in enumerate(whole):
        reader = TarReader(offset=first.offset)
        rest = reader.feed(archive[first.offset :])
        reader.close()
        assert [(m.name, m.offset, bytes(m)) for m in rest] == [(m.name, m.offset, bytes(m)) for m in whole[i:]]
        assert reader.offset == len(archive)
    reader = TarReader(offset=512)
    with pytest.raises(TarError, match="damaged header at offset 512"):
        reader.feed(archive[512:])
    with pytest.raises(ValueError, match="offset: got -1"):
        TarReader(offset=-1)


def test_what_select_raises_ends_the_reader():
    def select(name, size):
        if name == b"0001.jpg":
            raise KeyError("no")
        return True

    for cut in (None, 1):
        reader = TarReader(select)
        with pytest.raises(KeyError, match="no"):
            feed(reader, tar(SHARD), cut)
        for call in (reader.close, functools.partial(reader.feed, b"")):
            with pytest.raises(RuntimeError, match="ended when select raised KeyError"):
                call()


def test_a_reader_is_used_by_one_at_a_time():
    reader = TarReader(lambda name, size: reader.feed(b""))
    with pytest.raises(RuntimeError, match="one thread at a time"):
        reader.feed(tar(SHARD))

    inside, go = threading.Event(), threading.Event()
    reader = TarReader(lambda name, size: inside.set() or go.wait(10))
    thread = threading.Thread(target=reader.feed, args=(tar(SHARD[:1]),))
    thread.start()
    assert inside.wait(10)
    with pytest.raises(RuntimeError, match="one thread at a time"):
        reader.feed(b"")
    go.set()
    thread.join()
    reader.close()


def test_close():
    reader = TarReader()
    reader.feed(tar(SHARD))
    reader.close()
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.feed(b"")
