"""The tar reader on what others write: GNU tar, bsdtar and Python's tarfile, random names and sizes, in random blocks.

The truth is what was put in; tarfile is asked too where it is right (it is not about damage, sparse members or what GNU
tar keeps where others have the prefix).
"""

import io
import os
import random
import shutil
import subprocess
import tarfile

import pytest

from datago.sources.webdataset._tar import TarError, TarReader

TARS = [path for path in map(shutil.which, ("gtar", "tar")) if path]
GNU = next((path for path in TARS if b"GNU" in subprocess.check_output([path, "--version"])), None)
BSD = shutil.which("bsdtar")
needs_gnu = pytest.mark.skipif(GNU is None, reason="GNU tar is not there")
needs_bsd = pytest.mark.skipif(BSD is None, reason="bsdtar is not there")
SIZES = (0, 1, 511, 512, 513, 1024, 5000, 70_000)


def read(archive, rng):
    """(name, data) of all members, fed in random blocks; and the reader."""
    reader, members, at = TarReader(), [], 0
    typical = rng.choice((1, 100, 512, 3000, 1 << 20)) if len(archive) < 300_000 else rng.choice((512, 3000, 1 << 20))
    while at < len(archive):
        size = rng.randint(1, 2 * typical)
        members += reader.feed(archive[at : at + size])
        at += size
    reader.close()
    return [(m.name, bytes(m)) for m in members], reader


def tarfile_says(archive):
    with tarfile.open(fileobj=io.BytesIO(archive), encoding="utf-8", errors="surrogateescape") as tar:
        return [(m.name.encode("utf-8", "surrogateescape"), tar.extractfile(m).read()) for m in tar if m.isreg() and not m.issparse()]


def random_name(rng, most, odd=True):
    """A relative path of up to `most` bytes, no part longer than a file name may be."""
    alphabet = "abcXYZ019-_ ." + ("é日\n=😀" if odd else "")
    parts, length = [], rng.choice((5, 20, 99, 100, 101, 154, 155, 156, 250, 300, 1500))
    while sum(len(p.encode()) + 1 for p in parts) < min(length, most - 40):
        parts.append("".join(rng.choices(alphabet, k=rng.randint(1, 12 if odd else 30))).strip(". ") or "x")
    return "/".join([*parts, f"{rng.randrange(10**6)}.jpg"])


def make_tree(root, rng, most, odd=True, count=25):
    """Files, links, directories and a fifo below `root`; gives {name: data} of the files."""
    files = {}
    while len(files) < count:
        name = random_name(rng, most, odd)
        path = root / name
        if len(name.encode()) > most or path.exists():
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            continue
        files[name.encode()] = rng.randbytes(rng.choice(SIZES))
        path.write_bytes(files[name.encode()])
        os.utime(path, ns=(rng.randrange(2**60), rng.randrange(2**60)))
    first = sorted(files)[0]
    (root / "symlink.jpg").symlink_to("nowhere/" * rng.choice((1, 30 if most > 100 else 2)) + "x.jpg")
    os.mkfifo(root / "fifo.jpg")
    (root / "empty").mkdir()
    os.link(os.path.join(os.fsencode(root), first), root / "zz.jpg")
    files[b"zz.jpg"] = files[first]
    return files


def make_sparse(path, pieces):
    """A file of `pieces` data blocks, each after a hole."""
    with path.open("wb") as out:
        for i in range(pieces):
            out.seek((2 * i + 1) * 65536)
            out.write(bytes([65 + i % 20]) * 4096)
        out.truncate(pieces * 2 * 65536)


def write(command, root, names=(".",)):
    return subprocess.run([*command, "-C", str(root), *names], capture_output=True, check=True).stdout


def check_tree(archive, files, rng):
    members, reader = read(archive, rng)
    found = dict(members)
    linked = [name for name in files if name not in {n.removeprefix(b"./") for n in found}]
    assert len(members) == len(found) == len(files) - 1 and len(linked) == 1  # of the two names of a file one is a link
    for name, data in members:
        assert files[name.removeprefix(b"./")] == data
    for kind, count in (("link", 1), ("symlink", 1), ("fifo", 1), ("other", 0), ("sparse", 0), ("device", 0)):
        assert reader.skipped[kind] == count
    assert reader.skipped["directory"] >= 2
    assert sorted(tarfile_says(archive)) == sorted(members)


# ---- tarfile --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("seed", range(8))
def test_tarfile(format, seed):
    rng = random.Random(f"{format} {seed}")
    expected, out = [], io.BytesIO()
    everywhere = {"comment": "c" * rng.randrange(600)} if seed % 2 else {}
    with tarfile.open(fileobj=out, mode="w", format=format, encoding="utf-8", pax_headers=everywhere) as tar:
        while len(expected) < 30:
            info = tarfile.TarInfo(random_name(rng, 2000))
            info.type = rng.choice((b"0", b"0", b"0", b"0", b"0", b"0", b"\0", b"7", b"5", b"2", b"1", b"6", b"3"))
            info.mtime = rng.choice((0, 1.5, 2**35, -5 if format != tarfile.USTAR_FORMAT else 7))
            info.uid = rng.choice((0, 1000, 2**22 if format != tarfile.USTAR_FORMAT else 5))
            info.uname = rng.choice(("", "user", "üser"))
            info.linkname = "" if info.isreg() else random_name(rng, 90, odd=False)[-90:]
            if info.type == tarfile.AREGTYPE and len(info.name) > 50:
                info.type = tarfile.REGTYPE  # tarfile takes it for a directory if its name is cut after a slash
            data = rng.randbytes(rng.choice(SIZES)) if info.isreg() else b""
            info.size = len(data)
            try:
                tar.addfile(info, io.BytesIO(data))
            except ValueError:  # what ustar cannot hold
                assert format == tarfile.USTAR_FORMAT
                continue
            if info.isreg():
                expected.append((info.name.encode(), data))
    members, reader = read(out.getvalue(), rng)
    assert members == expected == tarfile_says(out.getvalue())
    assert reader.trailing == reader.lone_zero_blocks == 0


# ---- GNU tar --------------------------------------------------------------------------------------------------------


@needs_gnu
@pytest.mark.parametrize("format, most", [("v7", 97), ("oldgnu", 2000), ("gnu", 2000), ("ustar", 97), ("posix", 2000)])
@pytest.mark.parametrize("seed", range(3))
def test_gnu_tar(tmp_path, format, most, seed):
    rng = random.Random(f"{format} {seed}")
    files = make_tree(tmp_path, rng, most)
    if format == "v7":
        (tmp_path / "fifo.jpg").unlink()  # v7 has none
        archive = write([GNU, "--format=v7", "-cf", "-"], tmp_path)
        members, reader = read(archive, rng)
        assert len(members) == len(files) - 1 and all(files[n.removeprefix(b"./")] == d for n, d in members)
        assert sorted(members) == sorted(tarfile_says(archive)) and reader.skipped["directory"] >= 2
    else:
        check_tree(write([GNU, f"--format={format}", "-cf", "-"], tmp_path), files, rng)


@needs_gnu
@pytest.mark.parametrize(
    "options",
    [
        ["--format=gnu"],
        ["--format=oldgnu"],
        *(["--format=posix", f"--sparse-version={version}"] for version in ("0.0", "0.1", "1.0")),
    ],
)
@pytest.mark.parametrize("pieces", [1, 5, 30, 80])
def test_sparse_files_of_gnu_tar(tmp_path, options, pieces):
    """80 pieces need four extended sparse headers."""
    make_sparse(tmp_path / "b.jpg", pieces)
    (tmp_path / "a.jpg").write_bytes(b"a" * 700)
    (tmp_path / "c.jpg").write_bytes(b"c" * 700)
    archive = write([GNU, *options, "--sparse", "-cf", "-"], tmp_path, ["a.jpg", "b.jpg", "c.jpg"])
    assert len(archive) < pieces * 65536 + 20_480  # it did store it as sparse
    for seed in range(5):
        members, reader = read(archive, random.Random(seed))
        assert members == [(b"a.jpg", b"a" * 700), (b"c.jpg", b"c" * 700)] and reader.skipped["sparse"] == 1


@needs_gnu
def test_label_and_incremental_dumps(tmp_path):
    """Dump directories have data; the headers of these dumps keep times where others have the prefix."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "d").mkdir()
    expected = {b"./a.jpg": b"a" * 513, b"./d/b.jpg": b"b"}
    for name, data in expected.items():
        (tree / name.decode()).write_bytes(data)
    archive = write([GNU, "--format=gnu", "-V", "label", "-g", str(tmp_path / "state"), "-cf", "-"], tree)
    members, reader = read(archive, random.Random(0))
    assert dict(members) == expected and reader.skipped["directory"] == 2 and reader.skipped["other"] == 1


@needs_gnu
def test_volumes(tmp_path):
    """A volume may begin with the rest of a member and end inside one: the whole ones come, and the cut is an error."""
    for name, size in (("a", 9000), ("b", 20_000), ("c", 500)):
        (tmp_path / f"{name}.jpg").write_bytes(name.encode() * size)
    volumes = [tmp_path / "1.tar", tmp_path / "2.tar"]
    command = [GNU, "--format=gnu", "-b1", "-cM", "-L", "20", *(f"-f{v}" for v in volumes)]
    write(command, tmp_path, ["a.jpg", "b.jpg", "c.jpg"])
    first, second = (v.read_bytes() for v in volumes)
    reader = TarReader()
    assert [m.name for m in reader.feed(first)] == [b"a.jpg"]
    with pytest.raises(TarError, match="inside the member at .*, 'b.jpg'"):
        reader.close()
    members, reader = read(second, random.Random(0))
    assert members == [(b"c.jpg", b"c" * 500)] and reader.skipped["other"] == 1


@needs_gnu
def test_concatenated_with_gnu_tar(tmp_path):
    """`tar -A` leaves one archive; `cat` leaves two, of which the first is read."""
    parts = []
    for name in ("a", "b"):
        (tmp_path / f"{name}.jpg").write_bytes(name.encode())
        parts.append(write([GNU, "-cf", "-"], tmp_path, [f"{name}.jpg"]))
        (tmp_path / f"{name}.tar").write_bytes(parts[-1])
    subprocess.run([GNU, "-Af", tmp_path / "a.tar", tmp_path / "b.tar"], check=True)
    assert [n for n, _ in read((tmp_path / "a.tar").read_bytes(), random.Random(0))[0]] == [b"a.jpg", b"b.jpg"]
    members, reader = read(parts[0] + parts[1], random.Random(0))
    assert [n for n, _ in members] == [b"a.jpg"] and reader.trailing == len(parts[1])


# ---- bsdtar ---------------------------------------------------------------------------------------------------------


@needs_bsd
@pytest.mark.parametrize("format, most", [("v7", 97), ("gnutar", 2000), ("ustar", 97), ("pax", 2000), ("paxr", 2000)])
@pytest.mark.parametrize("seed", range(3))
def test_bsdtar(tmp_path, format, most, seed):
    rng = random.Random(f"{format} {seed}")
    files = make_tree(tmp_path, rng, most)
    if format == "v7":
        (tmp_path / "fifo.jpg").unlink()
        members, reader = read(write([BSD, "--format=v7", "-cf", "-"], tmp_path), rng)
        assert len(members) == len(files) - 1 and all(files[n.removeprefix(b"./")] == d for n, d in members)
    else:
        check_tree(write([BSD, f"--format={format}", "-cf", "-"], tmp_path), files, rng)


@needs_bsd
@pytest.mark.parametrize("pieces", [1, 30])
def test_sparse_files_of_bsdtar(tmp_path, pieces):
    make_sparse(tmp_path / "b.jpg", pieces)
    (tmp_path / "c.jpg").write_bytes(b"c" * 700)
    archive = write([BSD, "--format=pax", "-cf", "-"], tmp_path, ["b.jpg", "c.jpg"])
    members, reader = read(archive, random.Random(pieces))
    assert members == [(b"c.jpg", b"c" * 700)] and reader.skipped["sparse"] == 1


@needs_bsd
def test_names_that_are_not_utf8(tmp_path):
    """Both write them as they are; bsdtar says hdrcharset=BINARY in pax headers."""
    name = b"caf\xe9" + b"n" * 120 + b".jpg"
    try:
        with open(os.path.join(os.fsencode(tmp_path), name), "wb") as out:
            out.write(b"x")
    except OSError:
        pytest.skip("this file system has no such names")
    commands = [[BSD, "--format=pax"], [BSD, "--format=gnutar"]]
    if GNU:
        commands += [[GNU, "--format=posix"], [GNU, "--format=gnu"]]
    for command in commands:
        assert read(write([*command, "-cf", "-"], tmp_path, [name]), random.Random(0))[0] == [(name, b"x")]
