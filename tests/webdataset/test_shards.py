"""Members grouped into samples, whatever the archive is packed with, and what is said of a shard that ends early."""

import gzip
import json
import random
import tarfile
import tracemalloc

import pytest
from conftest import jpeg
from conftest import read as stream
from tars import J, blocks, standard, tar

from datago.net.stream import open_stream
from datago.sources.webdataset.shard_reader import ShardReader, split_name


def read(data, size=1 << 20, reference="jpg", name="s.tar"):
    """(entries, failures, skips) of a shard given as bytes."""
    reader = ShardReader(name, reference, ["mask", "seg"])
    found = [entry for batch in reader.read(blocks(data, size)) for entry in batch]
    entries = [entry for entry in found if hasattr(entry, "images")]
    return entries, [entry for entry in found if not hasattr(entry, "images")], reader.skipped


def fields(entry):
    """A sample in short: (key, main image?, other images, attributes, other bytes)."""
    roles = [role for role, _, _ in entry.images]
    names = [name for role, name, _ in entry.images if role != "image"]
    return entry.id, roles.count("image"), names, json.loads(entry.attributes), entry.latents


@pytest.mark.parametrize("size", [1, 512, 700, 10_000, 1 << 20])
def test_a_standard_shard(size):
    entries, failures, skips = read(tar(standard()), size)
    assert [fields(e) for e in entries] == [(f"{i:04d}", 1, [], {"txt": f"text {i}"}, {}) for i in range(6)]
    assert all(bytes(e.images[0][2]) == J and e.source == "s.tar" for e in entries)
    assert failures == [] and skips == {}


@pytest.mark.parametrize(
    "name, wanted",
    [
        ("a.jpg", ("a", "jpg")),
        ("x/1.seg.PNG", ("x/1", "seg.png")),
        ("./0001.jpg", ("0001", "jpg")),
        ("22.05.png", ("22", "05.png")),
        ("d.with.dot/a.jpg", ("d.with.dot/a", "jpg")),
        ("README", (None, "no suffix")),
        ("x.", (None, "no suffix")),
        ("d.x/noext", (None, "no suffix")),
        (".jpg", (None, "litter")),
        ("d/.hidden.jpg", (None, "litter")),
        ("._a.jpg", (None, "litter")),
        ("__MACOSX/._b.jpg", (None, "litter")),
        ("__MACOSX/b.jpg", (None, "litter")),
        ("Thumbs.db", (None, "litter")),
    ],
)
def test_names(name, wanted):
    assert split_name(name) == wanted


def test_suffixes_in_the_config_are_in_any_case():
    members = [("a.png", J), ("a.JPG", J), ("a.Left.Seg.png", J), ("a.right.jpg", J)]
    for reference, main in (("JPG", "jpg"), (".jpeg", "jpg"), ("right.jpg", "right.jpg"), ("PNG", "png")):
        reader = ShardReader("s.tar", reference, ["SEG"])
        entry = next(entry for batch in reader.read(blocks(tar(members))) for entry in batch)
        others = [name.partition(".")[2].lower() for role, name, _ in entry.images if role == "additional"]
        assert sorted(others) == sorted({"jpg", "png", "right.jpg"} - {main})
        assert [name for role, name, _ in entry.images if role == "mask"] == ["left.seg"]
    for given, name in (("left.seg", "left.seg"), ("seg.png", "left.seg"), (".left", "left.seg"), ("right.jpg", "right")):
        reader = ShardReader("s.tar", "jpg", [given])
        entry = next(entry for batch in reader.read(blocks(tar(members))) for entry in batch)
        assert [name for role, name, _ in entry.images if role == "mask"] == [name]


def test_nothing_is_overwritten_in_silence():
    """Two members with one field, and two masks with one name."""
    other = jpeg(8, 8)
    entries, failures, skips = read(tar([("a.jpg", J), ("a.JPG", other), ("a.seg.jpg", J), ("a.seg.png", other)]))
    assert [(role, name, bytes(data)) for role, name, data in entries[0].images] == [
        ("image", None, other),
        ("mask", "seg", J),
        ("mask", "seg.png", other),
    ]
    assert failures == [] and skips == {"repeated member": 1}


@pytest.mark.parametrize("pack", [gzip.compress, lambda data: pytest.importorskip("zstandard").compress(data)])
def test_compression_is_seen_in_bytes_that_come_one_by_one(pack):
    data = pack(tar(standard()))
    reader = ShardReader("s.tar", "jpg", [])
    found = [e for batch in reader.read(iter([data[:1], data[1:2], data[2:3], data[3:]])) for e in batch]
    assert len(found) == 6 and all(hasattr(entry, "images") for entry in found)


def test_the_largest_member_is_the_configs(tmp_path):
    (tmp_path / "s.tar").write_bytes(tar([("a.jpg", J), ("a.txt", b"x"), ("b.jpg", J + bytes(5000)), ("c.jpg", J), ("c.npy", bytes(5000))]))
    source = {"source_type": "webdataset", "source_config": {"url": str(tmp_path / "s.tar")}, "max_file_bytes": 4000}
    samples, stats = stream(source)
    assert sorted(sample.id for sample in samples) == ["a", "c"] and stats["failures"] == {"too_large": 1}
    assert stats["last_failures"][0]["text"] == "jpg: larger than max_file_bytes, which is 4000" and stats["skips"] == {"large member": 1}


def test_fields_of_one_sample():
    entries, failures, _ = read(
        tar([("a.jpg", J), ("a.seg.png", J), ("a.left.jpg", J), ("a.json", b'{"x": 1}'), ("b.jpg", J), ("b.npy", b"\1\2"), ("b.cls", b"7")])
    )
    assert [fields(e) for e in entries] == [
        ("a", 1, ["seg", "a.left.jpg"], {"json": '{"x": 1}'}, {}),
        ("b", 1, [], {"cls": "7"}, {"npy": b"\1\2"}),
    ]
    assert [role for role, _, _ in entries[0].images] == ["image", "mask", "additional"]
    assert failures == []


@pytest.mark.parametrize("order", [["seg.png", "jpg"], ["jpg", "seg.png"], ["left.png", "jpg", "seg.png"]])
def test_the_reference_comes_first_wherever_it_stands(order):
    (entry,), _, _ = read(tar([(f"a.{field}", J + field.encode()) for field in order]))
    assert entry.images[0][0] == "image" and bytes(entry.images[0][2]) == J + b"jpg"
    assert len(entry.images) == len(order)


def test_another_reference_and_none():
    (entry,), _, _ = read(tar([("a.jpg", J), ("a.png", J + b"!")]), reference="png")
    assert bytes(entry.images[0][2]) == J + b"!" and entry.images[1][:2] == ("additional", "a.jpg")
    (entry,), _, _ = read(tar([("a.webp", J), ("a.left.webp", J)]))
    assert [role for role, _, _ in entry.images] == ["image", "additional"]


def test_upper_case_and_long_suffixes():
    entries, _, _ = read(tar([("1.JPG", J), ("1.TXT", b"t"), ("2.Jpeg", J), ("3.PNG", J), ("4.jfif", J)]))
    assert [fields(e)[:4] for e in entries] == [("1", 1, [], {"txt": "t"}), ("2", 1, [], {}), ("3", 1, [], {}), ("4", 1, [], {})]


def test_folders_keep_equal_names_apart():
    entries, _, _ = read(tar([("x/1.jpg", J), ("x/1.txt", b"x"), ("y/1.jpg", J), ("y/1.txt", b"y")]))
    assert [(e.id, json.loads(e.attributes)["txt"]) for e in entries] == [("x/1", "x"), ("y/1", "y")]


def test_folders_and_litter_split_no_sample():
    members = [
        ("a/", None),
        ("weird.jpg/", None),
        ("._0001.jpg", bytes(200)),
        ("0001.jpg", J),
        ("._0001.txt", b"x"),
        ("0001.txt", b"t"),
        ("__MACOSX/._0002.jpg", b"x"),
        (".DS_Store", b"x"),
        ("d/.hidden.jpg", b"x"),
        ("Thumbs.db", b"x"),
        ("__meta__", b"x"),
    ]
    entries, failures, skips = read(tar(members))
    assert [fields(e)[:4] for e in entries] == [("0001", 1, [], {"txt": "t"})]
    assert failures == [] and skips == {"litter": 7}


def test_keys_that_come_back_are_named():
    entries, failures, _ = read(tar([("0.jpg", J), ("1.jpg", J), ("0.txt", b"a"), ("1.txt", b"b")]))
    assert [(f.name, f.reason) for f in failures] == [("s.tar:0", "sample"), ("s.tar:1", "sample")]
    assert "duplicate or non-contiguous sample key; fields: txt" in failures[0].text and len(entries) == 2


def test_missing_and_odd_fields():
    entries, failures, skips = read(
        tar(
            [
                ("0.jpg", J),
                ("0.txt", b"x"),
                ("1.jpg", J),
                ("2.txt", b"x"),
                ("3.jpg", J),
                ("3.npy", b"n"),
                ("3.cls", b"1"),
                ("4.jpg", b""),
                ("4.txt", b""),
            ]
        )
    )
    assert [e.id for e in entries] == ["0", "1", "3", "4"] and failures == [] and skips == {"no image": 1}
    assert json.loads(entries[3].attributes) == {"txt": ""} and bytes(entries[3].images[0][2]) == b""


def test_text_is_kept_as_stored():
    stored = "日本語 \r\n\t".encode() + b"caf\xe9"
    (entry,), _, _ = read(tar([("a.jpg", J), ("a.txt", stored)]))
    assert json.loads(entry.attributes)["txt"].encode("utf-8", "surrogateescape") == stored


# ---- damage ----


@pytest.mark.parametrize("kept", range(1, 12))
def test_cut_at_a_members_end(kept):
    """What is complete by the sample before it is delivered, and the shard is reported."""
    members = standard()
    whole = tar(members[:kept])
    end = sum(512 + (len(data) + 511) // 512 * 512 for _, data in members[:kept])
    for cut in (whole[:end], tar(members)[: end + 100]):
        entries, failures, _ = read(cut)
        assert len(entries) == kept // 2 if kept > 2 else len(entries) <= 1
        assert [(f.name, f.reason) for f in failures] == [("s.tar", "shard")] and "truncated" in failures[0].text


def test_cut_inside_a_member():
    data = tar(standard())
    at = data.index(b"0003.jpg") + 512 + 300
    entries, failures, _ = read(data[:at])
    assert [e.id for e in entries] == ["0000", "0001", "0002"]
    assert "inside the member at" in failures[0].text and "0003.jpg" in failures[0].text


def test_every_cut_loses_nothing_complete():
    data = tar(standard(3))
    for cut in range(0, len(data.rstrip(b"\0")), 97):
        entries, failures, _ = read(data[:cut])
        assert len(failures) == 1
        assert all(bytes(e.images[0][2]) == J and "txt" in e.attributes or e.id == "0000" for e in entries)
        assert len(entries) >= data[:cut].count(b"text") - 1


@pytest.mark.parametrize(
    "data, text",
    [(b"", "empty"), (b"<html><body>" + bytes(600), "html"), (random.Random(1).randbytes(4096), "not a tar"), (J * 20, "jpeg")],
)
def test_what_is_no_shard(data, text):
    entries, failures, _ = read(data)
    assert entries == [] and failures[0].reason == "shard" and text in failures[0].text


def test_an_empty_archive_is_legal():
    assert read(bytes(10240)) == ([], [], {})


def test_concatenated_archives_are_counted():
    entries, failures, skips = read(tar(standard(2)) + tar(standard(1)))
    assert len(entries) == 2 and failures == [] and skips == {"bytes after the end of an archive": 1}


# ---- compression ----


def test_gzip_by_content():
    data = tar(standard())
    halves = gzip.compress(data[:5000]) + gzip.compress(data[5000:])
    for packed in (gzip.compress(data), halves, gzip.compress(data) + bytes(512)):
        entries, failures, _ = read(packed, 1000)
        assert len(entries) == 6 and failures == []
    entries, failures, _ = read(gzip.compress(data)[:-200], 100)
    assert failures[0].text == "the gzip stream ends early"
    bomb = gzip.compress(tar([("a.jpg", J), ("a.mp4", bytes(100 << 20))]), 1)
    tracemalloc.start()
    entries, failures, skips = read(bomb)
    assert tracemalloc.get_traced_memory()[1] < 16 << 20 and skips == {"large member": 1}
    tracemalloc.stop()
    broken = bytearray(gzip.compress(data, 0))
    broken[300] ^= 1
    entries, failures, _ = read(bytes(broken))
    assert len(failures) == 1


def test_zstd_is_read_or_named():
    try:
        import zstandard
    except ImportError:
        entries, failures, _ = read(b"\x28\xb5\x2f\xfd" + bytes(100))
        assert entries == [] and "zstd-compressed: install" in failures[0].text
        return
    data = zstandard.compress(tar(standard()))
    assert len(read(data, 100)[0]) == 6 and read(data, 100)[1] == []
    assert read(data[: len(data) * 2 // 3], 100)[1][0].text == "the zstd stream ends early"
    noise = tar([(f"{i}.jpg", random.Random(i).randbytes(100_000)) for i in range(9)])
    entries, (failure,), _ = read(zstandard.compress(noise)[:500_000], 1000)
    assert "truncated at byte" in failure.text and 2 <= len(entries) < 6
    assert "damaged zstd stream" in read(data[:6] + b"\xff" * 7 + data[13:])[1][0].text
    two = zstandard.compress(tar(standard())[:5000]) + zstandard.compress(tar(standard())[5000:])
    assert len(read(two)[0]) == 6


# ---- memory ----


def test_a_huge_member_is_passed_over(tmp_path):
    """200 MB that nobody wants are not read into memory, and sought over in a file."""
    path = tmp_path / "s.tar"
    with open(path, "wb") as file:
        file.write(tar([("0.jpg", J)])[: 512 + (len(J) + 511) // 512 * 512])
        info = tarfile.TarInfo("0.mp4")
        info.size = 200 << 20
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        file.seek(200 << 20, 1)
        file.write(tar([("1.jpg", J)]))
    reader, source = ShardReader("s.tar", "jpg", []), open_stream(str(path))
    tracemalloc.start()
    found = [entry for batch in reader.read(source) for entry in batch]
    source.close()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [entry.id for entry in found] == ["0", "1"] and reader.skipped == {"large member": 1}
    assert peak < 8 << 20


def test_entries_can_own_their_bytes():
    (entry,), _, _ = read(tar([("a.jpg", J)]))
    entry.own()
    assert entry.images == [("image", None, J)]
