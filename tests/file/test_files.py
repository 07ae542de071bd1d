import os
import random
import subprocess
import sys

import pytest
from conftest import config, jpeg, opened, read

from datago import DatagoClient, SourceError
from datago.sources._folder import Folder

J = jpeg(16, 8)


def fill(root, *names, data=J):
    for name in names:
        path = os.path.join(os.fsencode(root), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)


def ids(configuration):
    """Paths below the root, in the order in which the source lists them."""
    prefix = len(os.fsencode(configuration["source_config"]["root_path"])) + 1
    return [os.fsdecode(path[prefix:]) for batch in opened(configuration).batches() for path, _ in batch]


def test_order_is_that_of_the_whole_paths_bytes(tmp_path):
    names = ["a/z.jpg", "a.jpg", "a/b/c.jpg", "a-b/x.jpg", "Z.JPG", "é.jpg", "a0.jpg", "b.jpg", "a/b.jpg", "ab/1.jpg"]
    shuffled = names[:]
    random.Random(1).shuffle(shuffled)
    fill(tmp_path, *shuffled)
    assert ids(config(tmp_path)) == [os.fsdecode(name) for name in sorted(map(os.fsencode, names))]


def test_suffix_with_its_dot_in_any_case(tmp_path):
    images = ["a.jpg", "a.png", "a.JPG", "b.Jpeg", "c.jfif", "d.webp", "e.TIFF", "trailing .jpg", "two.dots.jpg"]
    fill(tmp_path, *images, "ajpg", ".jpg", "a.jpg~", "a.jpg.txt", "x.", "notes.txt", "jpg")
    assert sorted(ids(config(tmp_path))) == sorted(images)


def test_names_that_are_hard(tmp_path):
    names = ["new\nline.jpg", "quo\"te'.jpg", "\N{GRINNING FACE}.jpg", "a" * 251 + ".jpg", "tab\t.jpg", " lead.jpg"]
    fill(tmp_path, *names)
    fill(tmp_path, b"caf\xe9.jpg")
    samples, stats = read(config(tmp_path))
    assert stats["delivered"] == 7 and stats["failed"] == 0
    found = {os.path.basename(os.fsencode(sample.id)) for sample in samples}
    assert found == {os.fsencode(name) for name in names} | {b"caf\xe9.jpg"}


def test_unprintable_names_can_be_logged(tmp_path, capfd):
    import logging

    fill(tmp_path, b"caf\xe9.jpg", "new\nline.jpg", data=b"junk")
    handler = logging.StreamHandler()
    logging.getLogger("datago").addHandler(handler)
    try:
        with pytest.raises(SourceError, match="none of the 2 items"):
            read(config(tmp_path))
    finally:
        logging.getLogger("datago").removeHandler(handler)
    err = capfd.readouterr().err
    assert len(err.splitlines()) == 2 and "caf\\udce9.jpg" in err and "new\\nline.jpg" in err


def test_hidden_names_are_skipped_and_counted(tmp_path):
    fill(tmp_path, "x.jpg", "._x.jpg", ".ipynb_checkpoints/x-checkpoint.jpg", ".hidden.jpg")
    samples, stats = read(config(tmp_path))
    assert [os.path.basename(sample.id) for sample in samples] == ["x.jpg"]
    assert stats["skipped"] == 3 and stats["skips"] == {"hidden": 3} and stats["seen"] == 4


def test_folders_named_like_images_and_links(tmp_path):
    fill(tmp_path, "x.jpg/inside.jpg", "real.jpg")
    os.symlink("real.jpg", tmp_path / "link.jpg")
    os.symlink(".", tmp_path / "loop")
    os.symlink("gone.jpg", tmp_path / "dangling.jpg")
    os.symlink("x.jpg", tmp_path / "tofolder.jpg")
    os.symlink("self.jpg", tmp_path / "self.jpg")
    os.mkfifo(tmp_path / "fifo.jpg")
    samples, stats = read(config(tmp_path))
    assert sorted(os.path.relpath(s.id, tmp_path) for s in samples) == ["link.jpg", "real.jpg", "x.jpg/inside.jpg"]
    assert stats["failures"] == {"not_a_file": 2, "not_found": 1, "io": 1}
    assert stats["skips"] == {"symlink to a folder": 1}


def test_files_that_change_after_they_were_listed(tmp_path):
    fill(tmp_path, *[f"{i:02d}.jpg" for i in range(6)])
    source = opened(config(tmp_path))
    listed = [entry for batch in source.batches() for entry in batch]
    os.unlink(tmp_path / "01.jpg")
    os.unlink(tmp_path / "02.jpg")
    os.mkdir(tmp_path / "02.jpg")
    (tmp_path / "03.jpg").write_bytes(J[: len(J) // 2])
    (tmp_path / "04.jpg").write_bytes(b"")
    from datago import config as configuration
    from datago.engine._pool import Pool
    from datago.engine._progress import Progress

    image = configuration.parse(config(tmp_path)).image_config
    pool = Pool(threads=2, work_capacity=8, ready_capacity=8, limit=100, max_file_bytes=2**30, image=image, progress=Progress())
    pool.submit(listed)
    pool.finish()
    results = []
    while (result := pool.take(False, 10)) is not None:
        results.append(result)
    reasons = sorted((os.path.basename(r.name), r.reason) for r in results if hasattr(r, "reason"))
    assert reasons == [("01.jpg", "not_found"), ("02.jpg", "not_a_file"), ("03.jpg", "truncated"), ("04.jpg", "empty")]
    assert len(results) == 6 and pool.counts()["in_flight"] == 0


@pytest.mark.skipif(os.geteuid() == 0 and not os.path.exists("/usr/bin/setpriv"), reason="needs another user than root")
def test_unreadable_files_and_folders(tmp_path):
    import json
    import subprocess
    import sys

    fill(tmp_path, "a.jpg", "b.jpg", "closed/c.jpg", "d.jpg")
    os.chmod(tmp_path / "b.jpg", 0)
    os.chmod(tmp_path / "closed", 0)
    for parent in [tmp_path, *tmp_path.parents[:3]]:
        os.chmod(parent, os.stat(parent).st_mode | 0o055) if parent.owner() == "root" or os.geteuid() else None
    script = (
        "import json, sys; from datago import DatagoClient; c = DatagoClient(sys.argv[1]); n = sum(1 for _ in c);"
        "s = c.stats(); print(json.dumps([n, s['failures'], s['last_failures']]))"
    )
    command = [sys.executable, "-c", script, json.dumps(config(tmp_path))]
    if os.geteuid() == 0:
        command = ["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    os.chmod(tmp_path / "closed", 0o755)
    if any(sign in done.stderr for sign in ("Permission denied: '/root", "ModuleNotFound", "libpython")):
        pytest.skip("the interpreter is not readable for another user")
    assert done.returncode == 0, done.stderr
    count, failures, last = json.loads(done.stdout)
    assert count == 2 and failures == {"io": 2}
    assert {os.path.basename(f["name"]): f["text"] for f in last} == {
        "b.jpg": "open: Permission denied",
        "closed": "folder cannot be listed: Permission denied",
    }


UNREADABLE = """
import contextlib, encodings.ascii, encodings.idna, encodings.latin_1, io, json, os, sys
from datago import DatagoBatchDataset, DatagoClient
from datago.cli import main
good, root, closed, image = sys.argv[1:]
top = lambda root, **keys: {"source_type": "file", "source_config": {"root_path": root}, "image_config": json.loads(image), **keys}
DatagoClient(top(good)).get_sample()
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    main(["check", good])
    main(["check", os.path.join(good, "*.tar")])  # everything is imported now: another user may not read it
if os.geteuid() == 0:
    os.seteuid(65534)
for folder in (root, closed):
    for keys in ({}, {"seed": 1}, {"uneven": "drop"}):
        try:
            print(DatagoClient(top(folder, **keys)).get_sample(timeout=10))
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
try:
    DatagoBatchDataset(top(root), 1, classes="folder")
except Exception as error:
    print(f"{type(error).__name__}: {error}")
main(["check", root])
main(["check", closed])
main(["check", os.path.join(root, "*.tar")])
main(["check", os.path.join(closed, "*", "*.tar")])
main(["check", os.path.join(closed, "**", "*.tar")])
main(["check", os.path.join(root, "sub", "*.tar")])
main(["check", os.path.join(root, "sub")])
"""


def test_a_folder_that_may_not_be_read_is_not_called_empty(tmp_path):
    import json

    fill(tmp_path, "good/a.jpg", "root/a.jpg", "above/one/a.jpg", "above/two/b.jpg", "above/.hidden/c.jpg")
    shut = [tmp_path / "root", tmp_path / "above" / "one", tmp_path / "above" / "two"]
    for folder in shut:
        folder.chmod(0)
    for parent in [tmp_path, *tmp_path.parents[:3]]:
        os.chmod(parent, os.stat(parent).st_mode | 0o055) if parent.owner() == "root" or os.geteuid() else None
    image = {"crop_and_resize": True, "default_image_size": 32, "downsampling_ratio": 32, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2}
    command = [sys.executable, "-c", UNREADABLE, str(tmp_path / "good"), str(tmp_path / "root"), str(tmp_path / "above"), json.dumps(image)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    for folder in shut:
        folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    lines, above = done.stdout.splitlines(), tmp_path / "above"
    assert set(lines[:3]) == {f"SourceOSError: [Errno 13] root_path: Permission denied: {str(tmp_path / 'root')!r}"} == {lines[6]}
    for line in lines[3:6]:
        assert f"SourceValueError: root_path: no images below {str(above)!r} (looked for avif " in line
        assert (
            f"; 2 folders cannot be listed, the first: {above}/one: folder cannot be listed: Permission denied; passed over: 1 (hidden)"
            in line
        )
    said = [line for line in done.stderr.splitlines() if line.startswith("check:")]
    assert (
        said[0] == f"check: root_path: Permission denied: {str(tmp_path / 'root')!r}" and said[1] == f"check: {lines[3].partition(' ')[2]}"
    )
    assert said[2] == f"check: url: Permission denied: {str(tmp_path / 'root')!r}"
    assert {*said[3:5]} <= {f"check: url: Permission denied: {str(above / name)!r}" for name in ("one", "two")}
    sub = f"Permission denied: {str(tmp_path / 'root' / 'sub')!r}"
    assert said[5:] == [f"check: url: {sub}", f"check: {sub}"]


def test_every_reason_why_a_root_cannot_be_read_is_told(tmp_path):
    fill(tmp_path, "a.jpg")
    os.symlink("loop", tmp_path / "loop")
    for path, reason in ((tmp_path / "a.jpg" / "b", "Not a directory"), (tmp_path / "loop", "Too many levels of symbolic links"),
                         (tmp_path / ("x" * 300), "File name too long"), (tmp_path / "none", "No such file or directory")):  # fmt: skip
        with pytest.raises(SourceError, match=f"root_path: {reason}: '{tmp_path}"):
            DatagoClient(config(path)).get_sample()


def test_roots(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        DatagoClient(config(tmp_path / "none")).get_sample()
    with pytest.raises(SourceError, match="No such file"):
        DatagoClient(config(tmp_path / "none")).start()
    empty = tmp_path / "empty"
    empty.mkdir()
    for extra in ({}, {"random_sampling": True}):
        client = DatagoClient(config(empty, **extra))
        with pytest.raises(ValueError, match="no images below .*empty"):
            client.get_sample(timeout=10)
        assert client.get_sample() is None
    fill(empty, "notes.txt")
    with pytest.raises(SourceError, match="no images below .*empty"):
        DatagoClient(config(empty)).get_sample(timeout=10)
    fill(tmp_path, "one.jpg")
    samples, _ = read(config(tmp_path / "one.jpg"))
    assert [sample.id for sample in samples] == [str(tmp_path / "one.jpg")]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 10, 100])
@pytest.mark.parametrize("world", [1, 2, 3, 4, 8])
def test_ranks_cover_everything_once(tmp_path, count, world):
    fill(tmp_path, *[f"{i % 7}/{i:03d}.jpg" for i in range(count)], data=b"")
    everything = ids(config(tmp_path))
    for rank in range(world):
        if rank >= count:
            with pytest.raises(SourceError, match=f"rank {rank} of world_size {world} has no image: {count} below"):
                ids(config(tmp_path, rank=rank, world_size=world))
        else:
            assert ids(config(tmp_path, rank=rank, world_size=world)) == everything[rank::world]


def test_random_ranks_cover_everything_once(tmp_path):
    fill(tmp_path, *[f"{i:03d}.jpg" for i in range(50)], data=b"")
    parts = [ids(config(tmp_path, rank=rank, world_size=3, random_sampling=True)) for rank in range(3)]
    assert sorted(sum(parts, [])) == [f"{i:03d}.jpg" for i in range(50)]
    assert parts[0] != sorted(parts[0])


def test_random_sampling_with_a_limit_reaches_the_whole_tree(tmp_path):
    fill(tmp_path, *[f"{i % 10}/{i:04d}.jpg" for i in range(1000)], data=b"")
    for _ in range(5):
        first = ids(config(tmp_path, random_sampling=True))[:50]
        assert len({name.split("/")[0] for name in first}) >= 8
    assert ids(config(tmp_path, random_sampling=True)) != ids(config(tmp_path, random_sampling=True))


def test_first_batches_leave_before_the_tree_is_listed(tmp_path):
    fill(tmp_path, *[f"{i:02d}/{j}.jpg" for i in range(30) for j in range(10)], data=b"")
    source = opened(config(tmp_path))
    listed = []
    original = source._tree._list
    source._tree._list = lambda folder: listed.append(folder) or original(folder)
    assert len(next(source.batches())) == 10
    assert len(listed) == 2  # the root and its first folder


def test_a_path_costs_little_more_than_its_bytes(tmp_path):
    """What random order keeps for each path: its bytes in one block, and eight more."""
    import tracemalloc

    names = [f"{i:05d}-{'x' * 80}.jpg" for i in range(5000)]
    fill(tmp_path, *names, data=b"")
    source = opened(config(tmp_path, random_sampling=True))
    batches = source.batches()
    next(batches)
    tracemalloc.start()
    for _ in batches:
        pass
    batches = source.batches()
    next(batches)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    length = len(os.fsencode(tmp_path)) + 1 + len(names[0])
    assert kept / 5000 < length + 40


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_an_error_while_a_folder_is_read_is_no_end_of_it():
    process = subprocess.Popen(["sleep", "60"])
    folder = Folder(f"/proc/{process.pid}/net".encode())
    process.kill()
    process.wait()
    with pytest.raises(OSError, match="Invalid argument"):  # EINVAL, as from every network of a process that is gone
        folder.read()
