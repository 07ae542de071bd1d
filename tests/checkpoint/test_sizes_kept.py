"""Sizes that are kept from run to run: whole, of the right listing, or not used."""

import os
import re
import subprocess
import sys
import time

import numpy
import pytest
from conftest import jpeg

from datago.checkpoint import sizes as kept
from datago.checkpoint.sizes import listing_key, load, save, sizes_of


@pytest.fixture
def paths(tmp_path):
    (tmp_path / "pictures").mkdir()
    for number in range(6):
        (tmp_path / "pictures" / f"{number}.jpg").write_bytes(jpeg(20 + number, 10))
    return [os.fsencode(tmp_path / "pictures" / f"{number}.jpg") for number in range(6)]


@pytest.fixture
def reads(monkeypatch):
    """How many files each call has read headers of."""
    counts = []

    def counted(paths, *arguments):
        counts.append(len(paths))
        return original(paths, *arguments)

    original = kept.read_sizes
    monkeypatch.setattr(kept, "read_sizes", counted)
    return counts


def files(folder):
    return sorted(os.listdir(folder))


def test_headers_are_read_once(tmp_path, paths, reads):
    folder = tmp_path / "new" / "kept"
    for _ in range(2):
        sizes, failures = sizes_of(paths, 2, folder)
        assert sizes.tolist() == [[20 + number, 10] for number in range(6)] and sizes.dtype == numpy.int32 and not failures
    assert reads == [6, 0]
    (name,) = files(folder)
    assert re.fullmatch(r"[0-9a-f]{64}\.sizes", name) and os.path.getsize(folder / name) == 16 + 32 + 6 * 8
    sizes_of(paths, 2)
    assert reads == [6, 0, 6] and files(folder) == [name]


def test_another_listing_is_read_anew(tmp_path, paths, reads):
    sizes_of(paths, 2, tmp_path / "kept")
    sizes_of(paths, 2, tmp_path / "kept", orient=False)
    sizes_of(paths[:5], 2, tmp_path / "kept")
    sizes_of(paths[::-1], 2, tmp_path / "kept")
    os.utime(paths[2], ns=(1, 1))
    sizes_of(paths, 2, tmp_path / "kept")
    with open(paths[3], "wb") as file:
        file.write(jpeg(77, 50))
    sizes, _ = sizes_of(paths, 2, tmp_path / "kept")
    assert reads == [6, 6, 5, 6, 6, 6] and len(files(tmp_path / "kept")) == 6 and sizes[3].tolist() == [77, 50]


def test_what_had_no_size_is_asked_again(tmp_path, paths, reads):
    with open(paths[4], "r+b") as file:
        file.truncate(20)
        os.utime(paths[4], ns=(5, 5))
    for _ in range(2):
        sizes, ((number, failure),) = sizes_of(paths, 2, tmp_path / "kept")
        assert (number, failure.reason, sizes[4].tolist(), sizes[5].tolist()) == (4, "corrupt", [0, 0], [25, 10])
    with open(paths[4], "wb") as file:  # as if the disk had failed before: the same facts, and it can be read now
        file.write(jpeg(24, 10))
    key = listing_key(paths)
    save(tmp_path / "kept", key, sizes)
    assert sizes_of(paths, 2, tmp_path / "kept")[0][4].tolist() == [24, 10] and load(tmp_path / "kept", key, 6)[4].tolist() == [24, 10]
    assert reads == [6, 1, 1]


def damage(data):
    yield b""
    yield data[:-1]
    yield data + b"\0"
    yield data[:60] + bytes([data[60] ^ 1]) + data[61:]
    yield data[:20] + bytes([data[20] ^ 1]) + data[21:]
    yield b"PK" + data[2:]
    yield data[:48]


def test_a_damaged_or_foreign_file_is_written_anew(tmp_path, paths, reads, caplog):
    first, _ = sizes_of(paths, 2, tmp_path)
    (name,) = [name for name in files(tmp_path) if name.endswith(".sizes")]
    whole = (tmp_path / name).read_bytes()
    others = tmp_path / "others"
    sizes_of(paths[::-1], 2, others)
    bad = [*damage(whole), (others / files(others)[0]).read_bytes()]  # the last is whole, of as many pictures, and of another listing
    for number, data in enumerate(bad):
        caplog.clear()
        (tmp_path / name).write_bytes(data)
        found, _ = sizes_of(paths, 2, tmp_path)
        assert (found == first).all() and (tmp_path / name).read_bytes() == whole, number
        assert "are not used" in caplog.text
    assert reads == [6, 6, *[6] * len(bad)]


def test_a_disk_that_refuses_is_no_failure(tmp_path, paths, caplog):
    (tmp_path / "file").write_bytes(b"")
    assert len(sizes_of(paths, 2, tmp_path / "file")[0]) == 6
    assert "cannot be kept" in caplog.text
    key = listing_key(paths)
    os.mkdir(tmp_path / f"{key}.sizes")
    assert len(sizes_of(paths, 2, tmp_path)[0]) == 6
    assert not [name for name in files(tmp_path) if name.endswith(".part")]


WRITER = """
import os, sys
import numpy
from datago.checkpoint.sizes import load, save
folder, key, number = sys.argv[1], "a" * 64, int(sys.argv[2])
wanted = numpy.arange(20_000, dtype=numpy.int32).reshape(-1, 2) + 1
for _ in range(60):
    save(folder, key, wanted)
    assert (load(folder, key, 10_000) == wanted).all()
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_ranks_that_write_at_once_do_not_disturb_each_other(tmp_path):
    """Each finds a whole file at every moment, while others replace it."""
    children = [subprocess.Popen([sys.executable, "-c", WRITER, tmp_path, str(n)], stderr=subprocess.PIPE, text=True) for n in range(3)]
    said = [child.communicate(timeout=100)[1] for child in children]
    assert said == ["", "", ""] and files(tmp_path) == ["a" * 64 + ".sizes"]


def test_what_a_killed_writer_left_is_removed(tmp_path, paths):
    old, new, foreign = (tmp_path / f"{'b' * 64}.{name}.part" for name in (f"{0:016}.sizes", f"{1:016}.sizes", f"{2:016}"))
    for path in (old, new, foreign):
        path.write_bytes(b"half")
        os.utime(path, (time.time() - (path != new) * 2 * kept.DEAD_S,) * 2)
    sizes_of(paths, 2, tmp_path)
    assert not old.exists() and new.exists() and foreign.exists()
