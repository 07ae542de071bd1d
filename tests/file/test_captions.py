"""What stands beside pictures: which file is whose, what becomes of it, and what it leaves as it is."""

import json
import os

import numpy
import pytest
from conftest import config, jpeg, opened, read

from datago import DatagoBatchDataset, DatagoClient, SourceError
from datago.checks import MAX_INT
from datago.engine import _texts

J = jpeg(24, 16)
CROP = {"random_resized_crop": 8}


def fill(root, files):
    for name, data in files.items():
        path = os.path.join(os.fsencode(root), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode() if isinstance(data, str) else json.dumps(data).encode())
    return root


def found(root, **source):
    """Path below the root → attributes."""
    given = config(root)
    given["source_config"] |= source
    samples, stats = read(given)
    assert stats["failed"] == 0
    return {os.path.relpath(sample.id, root): json.loads(sample.attributes) for sample in samples}


def failed(root):
    """Path below the root → (reason, text) of what failed, where not all did."""
    told = []
    client = DatagoClient({**config(root), "on_error": lambda failure: told.append(failure)})
    assert sum(1 for _ in client) >= 1
    return {os.path.relpath(failure.name, root): (failure.reason, failure.text) for failure in told}


def test_texts_and_json_beside_pictures(tmp_path):
    fill(tmp_path, {
        "a.jpg": J, "a.txt": "a cat\n", "b/c.d.PNG": J, "b/c.d.txt": b"\xef\xbb\xbftwo\nlines\r\n", "b/c.txt": "of nobody",
        "e.jpg": J, "e.json": {"score": 0.5, "caption": "json", "tags": ["x"]}, "e.txt": "text", "f.jpg": J, "g/h.jpg": J,
        "i.jpg": J, "i.TXT": "é", "i.JSON": "{}", b"caf\xe9.jpg": J, b"caf\xe9.txt": "a name", "README.txt": "of nobody",
    })  # fmt: skip
    assert found(tmp_path) == {
        "a.jpg": {"caption": "a cat"}, "b/c.d.PNG": {"caption": "two\nlines"}, "e.jpg": {"score": 0.5, "caption": "text", "tags": ["x"]},
        "f.jpg": {}, "g/h.jpg": {}, "i.jpg": {"caption": "é"}, os.fsdecode(b"caf\xe9.jpg"): {"caption": "a name"},
    }  # fmt: skip
    assert set(map(str, found(tmp_path, captions=False).values())) == {"{}"}
    one = DatagoClient(config(tmp_path / "e.jpg")).get_sample_auto_convert(timeout=20)
    assert one["attributes"] == {"score": 0.5, "caption": "text", "tags": ["x"]} and one["source"] == "filesystem"
    assert one["id"] == str(tmp_path / "e.jpg") and one["image"].size == (24, 16)


def test_metadata_of_folders(tmp_path):
    rows = [
        {"file_name": "a.jpg", "text": "root", "n": [1]},
        {"file_name": "d/b.jpg", "text": "far"},
        {"file_name": "./d/e/c.jpg", "text": "far"},
    ]
    fill(tmp_path, {
        "a.jpg": J, "d/b.jpg": J, "d/e/c.jpg": J, "d/e/f.jpg": J, "a.txt": "beside", "d/e/c.json": {"text": "json"},
        "metadata.jsonl": "\n\n".join(map(json.dumps, rows)) + "\n",
        "d/metadata.csv": 'file_name,text,"a, b"\nb.jpg,"near ""é""\nline two",2\nnone.jpg,x,y\n\n',
        "d/e/metadata.txt": "is a text", "d/e/metadata.json": {"file_name": "f.jpg"},
    })  # fmt: skip
    assert found(tmp_path) == {
        "a.jpg": {"text": "root", "n": [1], "caption": "beside"}, "d/b.jpg": {"text": 'near "é"\nline two', "a, b": "2"},
        "d/e/c.jpg": {"text": "json"}, "d/e/f.jpg": {},
    }  # fmt: skip
    assert found(tmp_path / "d" / "e")["c.jpg"] == {"text": "json"}


@pytest.mark.parametrize(
    "name, data, said",
    [
        ("metadata.jsonl", '{"file_name": "a.jpg"}\n\n{"file_name": ', "metadata.jsonl: line 3: not JSON: Expecting value"),
        ("metadata.jsonl", "[1]", "metadata.jsonl: line 1: got a JSON list, wanted an object"),
        ("metadata.jsonl", '{"name": "a.jpg"}', "metadata.jsonl: line 1: got no file_name, wanted the path of an image as file_name"),
        ("metadata.jsonl", '{"file_name": 7}', "metadata.jsonl: line 1: got 7, wanted"),
        ("metadata.jsonl", '{"file_name": "a", "deep": ' + "[" * 200 + "]" * 200 + "}", "line 1: attributes: nested deeper than 100"),
        ("metadata.jsonl", b'{"file_name": "\xff"}', "metadata.jsonl: line 1: not JSON: 'utf-8' codec"),
        ("metadata.csv", "file_name,text\na.jpg,x\nb.jpg\n", "metadata.csv: line 3: got 1 fields, wanted 2"),
        ("metadata.csv", "name,text\na.jpg,x\n", "metadata.csv: line 2: got no file_name"),
        ("metadata.csv", b"file_name,text\na.jpg,\xff\n", "metadata.csv: line 2: 'utf-8' codec can't decode"),
        ("metadata.csv", 'file_name,text\na.jpg,"x', "metadata.csv: line 2: unexpected end of data"),
    ],
)
def test_metadata_that_cannot_be_read_ends_the_pass(tmp_path, name, data, said):
    fill(tmp_path, {"a.jpg": J, "d/b.jpg": J, f"d/{name}": data})
    for seed in (None, 1):
        given = {**config(tmp_path), "seed": seed}
        with pytest.raises(SourceError) as caught:
            list(DatagoClient(given))
        assert str(tmp_path) in str(caught.value) and said in str(caught.value)
        assert "with source_config.captions false" in str(caught.value)
    given["source_config"]["captions"] = False
    assert len(list(DatagoClient(given))) == 2


def test_what_cannot_be_read_beside_a_picture_is_its_failure(tmp_path):
    os.makedirs(tmp_path / "f.txt")
    fill(tmp_path, {
        "a.jpg": J, "a.txt": b"\xff\xfe", "b.jpg": J, "b.json": "[]", "c.jpg": J, "c.json": "{", "d.jpg": J, "d.txt": b"x" * (2**20 + 1),
        "e.jpg": J, "e.json": "[" * 100_000, "f.jpg": J, "g.jpg": J, "g.txt": b"x" * 2**20,
    })  # fmt: skip
    told = failed(tmp_path)
    assert {name: reason for name, (reason, _) in told.items()} == {
        "a.jpg": "sample", "b.jpg": "sample", "c.jpg": "sample", "d.jpg": "too_large", "e.jpg": "sample", "f.jpg": "not_a_file",
    }  # fmt: skip
    for name, said in (
        ("a.jpg", "a.txt: not UTF-8: "), ("b.jpg", "b.json: got a JSON list, wanted an object"), ("c.jpg", "c.json: not JSON: "),
        ("d.jpg", "d.txt: more than 1048576 bytes"), ("e.jpg", "e.json: not JSON: "), ("f.jpg", "f.txt: not a regular file"),
    ):  # fmt: skip
        assert told[name][1].startswith(said) and "with source_config.captions false such files are not read" in told[name][1]


def test_order_ranks_and_what_is_drawn_stay(tmp_path):
    fill(tmp_path, {f"{i % 3}/{i:02d}.jpg": jpeg(40, 30, seed=i) for i in range(40)})
    image = {"random_resized_crop": 16, "horizontal_flip": 0.5}

    def passes(root):
        for shuffled in (False, True):
            for rank in (0, 1):
                given = config(root, image_config=image, ordered=True, seed=3)
                given["source_config"] |= {"rank": rank, "world_size": 2, "random_sampling": shuffled}
                client = DatagoClient(given)
                samples = [client.get_sample() for _ in range(7)]
                state = client.state_dict()
                samples += [*client]
                again = DatagoClient(given)
                again.load_state_dict(state)
                assert [sample.id for sample in again] == [sample.id for sample in samples[7:]]
                if not shuffled:
                    del state["source"]["listing"]  # how far the tree was walked then depends on the time
                yield state, [(sample.id, sample.image.to_numpy_array().tobytes()) for sample in samples]

    before = list(passes(tmp_path))
    fill(tmp_path, {**{f"{i % 3}/{i:02d}.txt": str(i) for i in range(0, 40, 2)}, "metadata.jsonl": '{"file_name": "1/01.jpg", "a": 1}'})
    after = list(passes(tmp_path))
    assert before == after and [len(samples) for _, samples in after] == [20] * 4
    samples = read(config(tmp_path))[0]
    assert sum(sample.attributes != "{}" for sample in samples) == 21


@pytest.mark.parametrize("memory_limit", [None, 10**7])
def test_classes_may_be_an_attribute_or_a_folder(tmp_path, memory_limit):
    rows = "".join(f"{i:02d}.jpg,{i * 3},t{i}\n" for i in range(12))
    fill(
        tmp_path,
        {**{f"k{i % 2}/{i:02d}.jpg": J for i in range(12)}, **{f"k{i % 2}/metadata.csv": f"file_name,label,text\n{rows}" for i in (0, 1)}},
    )
    given = {**config(tmp_path, image_config=CROP), "memory_limit": memory_limit}
    for classes, number in (("label", lambda i: 3 * i), ("folder", lambda i: i % 2), ({"k1": 7, "k0": 5}, lambda i: 5 + i % 2 * 2)):
        seen = 0
        for batch in DatagoBatchDataset(given, 4, classes=classes):
            numbers = [int(name[-6:-4]) for name in batch["id"]]
            assert numpy.asarray(batch["target"]).tolist() == [number(i) for i in numbers]
            assert batch["attributes"] == [{"label": str(3 * i), "text": f"t{i}"} for i in numbers]
            seen += len(numbers)
        assert seen == 12
    given["source_config"]["captions"] = False
    with pytest.raises(SourceError, match=r"none of the 12 items .*attribute 'label' is None, wanted an integer as the class"):
        list(DatagoBatchDataset(given, 4, classes="label"))


def test_a_folder_without_such_files_yields_plain_paths(tmp_path):
    fill(tmp_path, {"a.jpg": J, "b/c.jpg": J, "b/c.txt": "x", "d.csv": "x", "e.jsonl": "x", "mymetadata.csv": "x"})
    first, second = [entry for batch in opened(config(tmp_path)).batches() for entry in batch]
    assert first == (os.fsencode(tmp_path / "a.jpg"), 0)
    assert (second.position, second.path, second.name, second.attributes) == (1, second.id, second.id, '{"caption": "x"}')


def test_many_texts_are_read_by_several_threads(tmp_path):
    fill(tmp_path, {f"{i}.txt": str(i) * (i % 50) for i in range(0, 999, 2)})
    paths = [os.fsencode(tmp_path / f"{i}.txt") for i in range(999)]
    for threads in (1, 16):
        read = _texts.read_texts(paths, threads, 100, lambda: False)
        for i, data in enumerate(read):
            assert data == (None if i % 2 else ("too_large", data[1]) if len(str(i)) * (i % 50) > 100 else str(i).encode() * (i % 50))
    assert _texts.read_texts(paths, 16, MAX_INT, lambda: True) is None or read[0] == b""
