"""Classes: which folder has which number, and what becomes of a sample that has none."""

import io
import json
import os
import tarfile

import pytest
from conftest import check_accounts, config, jpeg
from database import database

from datago import DatagoBatchDataset, SampleError, SourceError

pytestmark = pytest.mark.timeout(60)
SQUARE = {"crop_and_resize": True, "default_image_size": 32, "downsampling_ratio": 32, "min_aspect_ratio": 0.9, "max_aspect_ratio": 1.1}
J = jpeg(40, 40)
MOST = 2**63 - 1
BAD = {  # text of a .cls member -> what is said of it
    b"dog": "'dog', wanted an integer", b"": "'', wanted", b"1.0": "'1.0', wanted", b"1e3": "'1e3', wanted", b"nan": "'nan', wanted",
    b"1_000": "'1_000', wanted", b"\xff\xfe1": "wanted an integer", "٣".encode(): "wanted an integer", b"9" * 20: "an integer of 64 bits",
    b"9223372036854775808": "an integer of 64 bits", b"-9223372036854775809": "an integer of 64 bits", b"7" * 5000: "wanted an integer",
    b"0x10": "'0x10', wanted", b"1 2": "'1 2', wanted", b"true": "'true', wanted",
}  # fmt: skip


def fill(root, *names):
    for name in names:
        path = os.path.join(os.fsencode(root), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(J)


def write_shard(path, labels):
    """A sample for each label; None: it has none."""
    with tarfile.open(path, "w") as tar:
        for number, label in enumerate(labels):
            for suffix, data in (("jpg", J), ("cls", label)):
                if data is not None:
                    info = tarfile.TarInfo(f"{number:03d}.{suffix}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    return {"source_type": "webdataset", "source_config": {"url": str(path)}, "image_config": SQUARE, "ordered": True}


def read(dataset):
    """(id, target) of all samples, the sizes of the batches, and the stats."""
    batches = list(dataset)
    stats = dataset._running.stats()
    check_accounts(stats)
    pairs = [(name, target) for batch in batches for name, target in zip(batch["id"], batch["target"].tolist(), strict=True)]
    return pairs, [len(batch["id"]) for batch in batches], stats


def of_folders(root, size=4, **top):
    return DatagoBatchDataset(config(root, image_config=SQUARE, ordered=True, **top), size, classes="folder")


def test_classes_are_numbered_over_the_folders_that_are_read(tmp_path):
    fill(tmp_path / "plain", "cat/1.jpg", "dog/2.jpg")
    fill(tmp_path / "full", "cat/1.jpg", "dog/2.jpg", ".ipynb_checkpoints/3.jpg", ".git/4.jpg", "cat/.hidden/5.jpg", "@eaDir/6.jpg",
         "__MACOSX/._7.jpg", "lost+found/8.jpg", "$RECYCLE.BIN/9.jpg", "notes.txt", "dog/@eaDir/10.jpg")  # fmt: skip
    os.symlink("cat", tmp_path / "full" / "bird")
    os.symlink(tmp_path / "plain", tmp_path / "full" / "zebra")
    found = {}
    for name in ("plain", "full"):
        dataset = of_folders(tmp_path / name)
        assert dataset.classes == {"cat": 0, "dog": 1}
        pairs, _, stats = read(dataset)
        found[name] = [(os.path.relpath(path, tmp_path / name), target) for path, target in pairs]
    assert found["plain"] == found["full"] == [("cat/1.jpg", 0), ("dog/2.jpg", 1)]
    assert stats["failed"] == 0 and stats["skips"] == {"hidden": 3, "litter": 5, "symlink to a folder": 2}


def test_classes_have_the_order_of_image_folder(tmp_path):
    names = ["a", "B", "ab", "a-b", "a.b", "10", "9", "é", "\N{GRINNING FACE}", "\uffee", os.fsdecode(b"caf\xe9"), "x.jpg", " "]
    fill(tmp_path, *[f"{name}/1.jpg" for name in names], *[f"{name}/deep/er/2.jpg" for name in names])
    dataset = of_folders(tmp_path)
    assert dataset.classes == {name: number for number, name in enumerate(sorted(names))}
    pairs, _, stats = read(dataset)
    assert stats["delivered"] == 2 * len(names)
    assert all(dataset.classes[os.path.relpath(path, tmp_path).split("/")[0]] == target for path, target in pairs)


def test_a_root_that_has_no_classes(tmp_path):
    fill(tmp_path, "1.jpg", ".a/2.jpg")
    with pytest.raises(SourceError, match=r"root_path: no folder below '.*' that could be a class"):
        of_folders(tmp_path)
    with pytest.raises(SourceError, match=r"root_path: no folder below"):
        of_folders(tmp_path / "1.jpg")
    with pytest.raises(FileNotFoundError, match="root_path: No such file"):
        of_folders(tmp_path / "none")
    for path in (str(tmp_path / "cls"), "cls.txt"):
        with pytest.raises(
            ValueError,
            match="classes: got '.*cls.*', wanted 'folder', names and numbers, or a file of them: the file of classes cannot be read",
        ):
            DatagoBatchDataset(config(tmp_path, image_config=SQUARE), 4, classes=path)


@pytest.mark.parametrize("kind", ["dict", "list", "lines", "json list", "json dict"])
def test_a_part_of_the_classes_has_the_numbers_of_all(tmp_path, kind):
    names = ["ant", "bee", "cat", "caf\N{LATIN SMALL LETTER E WITH ACUTE}", os.fsdecode(b"dog\xe9")]
    fill(tmp_path / "train", *[f"{name}/1.jpg" for name in names])
    fill(tmp_path / "val", f"{names[4]}/1.jpg", "bee/2.jpg", "wasp/3.jpg")
    numbers = of_folders(tmp_path / "train").classes
    assert sorted(numbers.values()) == [0, 1, 2, 3, 4]
    in_order = sorted(numbers, key=numbers.get)
    text = {"lines": "\n".join(in_order) + "\n\n", "json list": json.dumps(in_order), "json dict": json.dumps(numbers)}.get(kind)
    given = {"dict": numbers, "list": in_order}.get(kind, tmp_path / "classes")
    if text is not None:
        (tmp_path / "classes").write_bytes(os.fsencode(text))
    for classes in [given, str(given)] if text is not None else [given]:
        dataset = DatagoBatchDataset(config(tmp_path / "val", image_config=SQUARE, ordered=True), 4, classes=classes)
        assert dataset.classes == numbers
        pairs, _, stats = read(dataset)
        assert {os.path.basename(os.path.dirname(path)): target for path, target in pairs} == {
            name: numbers[name] for name in ("bee", names[4])
        }
        assert stats["failures"] == {"sample": 1} and stats["last_failures"][0]["name"].endswith("wasp/3.jpg")


@pytest.mark.parametrize(
    "classes, wanted",
    [
        ([], "no classes"),
        ({}, "no classes"),
        (["a", "b", "a"], "class 'a' is listed more than once"),
        (["a", 1], "1: 1: wanted a class name"),
        ({"a": True}, "'a': True: wanted a class name and an integer"),
        ({"a": 2**63}, "'a': 9223372036854775808: wanted a class name"),
        ({"a": "0"}, "'a': '0': wanted a class name"),
        (7, "no classes"),
        ("", "the file of classes cannot be read"),
    ],
)
def test_wrong_classes(tmp_path, classes, wanted):
    with pytest.raises(ValueError, match=f"classes: got .*, wanted 'folder', names and numbers, or a file of them: .*{wanted}"):
        DatagoBatchDataset(config(tmp_path, image_config=SQUARE), 4, classes=classes)


def test_a_file_of_classes_that_is_broken(tmp_path):
    for text in ('["a", ', "[" * 100000, "\n", "a\nb\na\n"):
        (tmp_path / "classes").write_text(text)
        with pytest.raises(ValueError, match="classes: got "):
            DatagoBatchDataset(config(tmp_path, image_config=SQUARE), 4, classes=tmp_path / "classes")


@pytest.mark.parametrize("random_sampling", [False, True])
def test_stray_files_and_new_folders_are_failures(tmp_path, random_sampling):
    fill(tmp_path, *[f"{name}/{number}.jpg" for name in "ab" for number in range(4)], "stray.jpg", "zz.jpg")
    dataset = of_folders(tmp_path, random_sampling=random_sampling)
    fill(tmp_path, "later/1.jpg")  # it came after the classes were numbered
    pairs, sizes, stats = read(dataset)
    assert sizes == [4, 4] and sorted(target for _, target in pairs) == [0] * 4 + [1] * 4
    assert stats["failures"] == {"sample": 3} and stats["seen"] == 11
    assert {os.path.relpath(failure["name"], tmp_path) for failure in stats["last_failures"]} == {"stray.jpg", "zz.jpg", "later/1.jpg"}
    assert {failure["text"] for failure in stats["last_failures"]} == {"not inside a class folder below root_path"}


@pytest.mark.parametrize("ordered", [False, True])
def test_a_bad_label_is_one_failure(tmp_path, ordered):
    good = [b"0", b"7", b"-3", b"+4\n", b" 5 ", b"007", str(MOST).encode(), str(-MOST - 1).encode()]
    given = write_shard(tmp_path / "a.tar", [*good, *BAD, None, *good]) | {"ordered": ordered}
    dataset = DatagoBatchDataset(given, 4, classes="cls")
    pairs, sizes, stats = read(dataset)
    wanted = [int(label) for label in good] * 2
    assert sizes == [4] * 4 and stats["failures"] == {"sample": len(BAD) + 1} and stats["delivered"] == 16
    assert [target for _, target in sorted(pairs)] == wanted
    said = {failure["name"]: failure["text"] for failure in stats["last_failures"]}
    assert len(said) == 16
    for number, text in enumerate([*BAD.values(), "None, wanted an integer"], len(good)):
        assert text in said[f"{tmp_path}/a.tar:{number:03d}"]


@pytest.mark.parametrize("limit", [1, 5, 8])
@pytest.mark.parametrize("ordered", [False, True])
def test_bad_labels_do_not_count_towards_the_limit(tmp_path, limit, ordered):
    given = write_shard(tmp_path / "a.tar", [b"x", b"1"] * 8)
    pairs, sizes, stats = read(
        DatagoBatchDataset({**given, "limit": limit, "ordered": ordered, "samples_buffer_size": 1}, 4, classes="cls")
    )
    assert stats["delivered"] == limit == len(pairs) and all(size == 4 for size in sizes[:-1])


def test_on_error_is_asked(tmp_path):
    given, told = write_shard(tmp_path / "a.tar", [b"1", b"x", b"2", None, b"3"]), []
    pairs, _, _ = read(
        DatagoBatchDataset({**given, "on_error": lambda failure: told.append((failure.name, failure.reason))}, 2, classes="cls")
    )
    assert [target for _, target in pairs] == [1, 2, 3]
    assert told == [(f"{tmp_path}/a.tar:001", "sample"), (f"{tmp_path}/a.tar:003", "sample")]


def test_raise_raises_and_the_next_call_goes_on(tmp_path):
    dataset = DatagoBatchDataset({**write_shard(tmp_path / "a.tar", [b"1", b"x", b"2", None, b"3"]), "on_error": "raise"}, 1, classes="cls")
    iterator, outcomes = iter(dataset), []
    for _ in range(5):
        try:
            outcomes.append(next(iterator)["target"].tolist())
        except SampleError as error:
            outcomes.append(error.name[-3:])
    assert outcomes == [[1], "001", [2], "003", [3]]
    assert next(iterator, None) is None
    with pytest.raises(SampleError, match=r"a.tar:001: sample: attribute 'cls' is 'x', wanted an integer as the class"):
        list(dataset)


def test_nothing_but_bad_labels_is_an_error(tmp_path):
    with pytest.raises(SourceError, match=r"none of the 3 items .*a.tar:000: sample: attribute 'cls' is 'x'"):
        list(DatagoBatchDataset(write_shard(tmp_path / "a.tar", [b"x"] * 3), 2, classes="cls"))


@pytest.mark.parametrize("ordered", [False, True])
def test_a_state_behind_bad_labels(tmp_path, ordered):
    labels = [b"x" if number % 3 == 1 else b"%d" % number for number in range(30)]
    given = {**write_shard(tmp_path / "a.tar", labels), "ordered": ordered, "seed": 1}
    wanted = [number for number in range(30) if number % 3 != 1]
    for taken in range(1, 5):
        dataset = DatagoBatchDataset(given, 4, classes="cls")
        iterator = iter(dataset)
        first = [target for _ in range(taken) for target in next(iterator)["target"].tolist()]
        again = DatagoBatchDataset(given, 4, classes="cls")
        again.load_state_dict(json.loads(json.dumps(dataset.state_dict())))
        pairs, _, stats = read(again)
        assert sorted(first + [target for _, target in pairs]) == wanted
        assert not {failure["name"][-3:] for failure in stats["last_failures"]} & {f"{number:03d}" for number in first}


def test_equal_counts_replace_bad_labels(tmp_path):
    fill(tmp_path, *[f"a/{number}.jpg" for number in range(9)], "stray.jpg")
    for rank in (0, 1):
        pairs, _, stats = read(of_folders(tmp_path, rank=rank, world_size=2, uneven="drop", seed=1))
        assert len(pairs) == 5 and all(target == 0 for _, target in pairs)


@pytest.mark.network
def test_labels_of_a_database():
    labels = {"a0": 3, "a1": "4", "a2": True, "a3": -(2**63)}
    bad = {"b0": 3.0, "b1": "dog", "b2": [1], "b3": {"a": 1}, "b4": 2**63, "b5": None, "b6": "", "b7": 10**400, "b8": float("nan")}
    with database([*labels, *bad, "b9"]) as server:
        for name, label in {**labels, **bad}.items():
            server.records[name] = {**server.record(name), "attributes": {"label": label}}
        given = {**server.config(ordered=True), "image_config": SQUARE}
        pairs, sizes, stats = read(DatagoBatchDataset(given, 4, classes="label"))
    assert pairs == [("a0", 3), ("a1", 4), ("a2", 1), ("a3", -(2**63))] and sizes == [4]
    assert stats["failures"] == {"sample": 10}
    assert [failure["name"] for failure in stats["last_failures"]] == [f"S:b{number}" for number in range(10)]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_workers_of_a_loader(tmp_path):
    data = pytest.importorskip("torch.utils.data", reason="torch is not installed")
    fill(tmp_path, *[f"{name}/{number}.jpg" for name in "ab" for number in range(6)], "stray.jpg")
    loader = data.DataLoader(of_folders(tmp_path), batch_size=None, num_workers=2)
    assert sorted(target for batch in loader for target in batch["target"].tolist()) == [0] * 6 + [1] * 6
