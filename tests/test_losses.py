"""What a pass has lost: one warning at its end, and an error where it is too much."""

import logging
import subprocess
import sys

import pytest
from conftest import jpeg
from tars import tar

from datago import DatagoBatchDataset, DatagoClient, SampleError, SourceError
from datago.engine._sample import Failure
from datago.losses import Losses


def folder(path, good, bad):
    """So many pictures, with the bad ones before the good ones in their order."""
    path.mkdir(exist_ok=True)
    for k in range(bad):
        (path / f"a{k:04}.jpg").write_bytes(b"junk" * (k + 1))
    for k in range(good):
        (path / f"b{k:04}.jpg").write_bytes(jpeg(8, 8))
    return {"source_type": "file", "source_config": {"root_path": str(path)}, "ordered": True}


def told(caplog):
    return [one.getMessage() for one in caplog.records if one.name == "datago" and one.levelno == logging.WARNING]


@pytest.mark.parametrize("most, failed, items, too_many", [
    (None, 50, 100, False),
    (None, 51, 100, True),
    (None, 51, 51, True),
    (None, 51, 101, False),
    (0, 1, 1000, True),
    (3, 3, 3, False),
    (3, 4, 1000, True),
    (1, 2, 2, True),
    (0.1, 10, 10, False),
    (0.1, 11, 50, True),
    (0.1, 20, 200, False),
    (0.1, 21, 200, True),
    (0.0, 1, 10**6, True),
    (1.0, 500, 500, False),
])  # fmt: skip
def test_how_many_are_too_many(most, failed, items, too_many):
    losses = Losses(most, True)
    for k in range(failed):
        losses.add(Failure(f"{k}", "corrupt", "text"))
    assert losses.too_many(items) is too_many
    assert most is not None or not too_many or not Losses(None, False).too_many(items)


def test_one_warning_at_the_end(tmp_path, caplog):
    config = folder(tmp_path / "set", 20, 5)
    client = DatagoClient(config)
    assert len(list(client)) == 20
    (text,) = told(caplog)
    first = [f"{tmp_path}/set/a000{k}.jpg: " for k in range(3)]
    assert text.startswith(f"5 of 25 items failed (5 unsupported); the first: {first[0]}") and all(name in text for name in first)
    assert "a0003.jpg" not in text and "stats()" in text
    assert client.stats()["failures"] == {"unsupported": 5} and len(client.stats()["last_failures"]) == 5


def test_nothing_lost_nothing_said(tmp_path, caplog):
    assert len(list(DatagoClient(folder(tmp_path / "set", 5, 0)))) == 5
    assert told(caplog) == []


def test_a_pass_that_is_stopped_tells_too(tmp_path, caplog):
    with DatagoClient(folder(tmp_path / "set", 500, 5)) as client:
        client.get_sample(timeout=20)
    assert len(told(caplog)) == 1 and "5 of 6 items failed" in told(caplog)[0]


def test_more_than_half_of_the_first_hundred(tmp_path):
    with pytest.raises(SourceError, match="max_failures") as error:
        list(DatagoClient(folder(tmp_path / "set", 500, 60)))
    assert "51 of 51 items failed (51 unsupported); the first: " in str(error.value) and "a0000.jpg" in str(error.value)
    config = folder(tmp_path / "set", 500, 60)
    assert len(list(DatagoClient({**config, "max_failures": 60}))) == 500
    assert len(list(DatagoClient({**config, "max_failures": 0.6}))) == 500
    assert len(list(DatagoClient({**config, "on_error": lambda failure: None}))) == 500


def test_a_number_that_is_allowed(tmp_path):
    config = {**folder(tmp_path / "set", 10, 3), "max_failures": 2}
    client = DatagoClient(config)
    with pytest.raises(SourceError, match="3 of 3 items failed"):
        list(client)
    assert client.get_sample() is None and client.stats()["in_flight"] == 0  # the pass is over
    with pytest.raises(SourceError, match="1 of 1 items failed"):
        list(DatagoBatchDataset({**config, "max_failures": 0, "image_config": {"random_resized_crop": 8}}, batch_size=2))


def test_each_one_that_is_raised_counts(tmp_path):
    client = DatagoClient({**folder(tmp_path / "set", 10, 3), "max_failures": 1, "on_error": "raise"})
    with pytest.raises(SampleError):
        client.get_sample(timeout=20)
    with pytest.raises(SourceError, match="2 of 2 items failed"):
        client.get_sample(timeout=20)


@pytest.mark.parametrize("value", [-1, 1.5, True, "half", float("nan")])
def test_wrong_values(tmp_path, value):
    with pytest.raises(ValueError, match="max_failures: got"):
        DatagoClient({**folder(tmp_path / "set", 1, 0), "max_failures": value})


PROGRAM = "from datago import DatagoClient\nprint(sum(1 for _ in DatagoClient({config})))"


@pytest.mark.parametrize("missing", [0, 2])
def test_it_is_seen_without_any_set_up(tmp_path, missing):
    (tmp_path / "0.tar").write_bytes(tar([("0.jpg", jpeg(8, 8)), ("1.jpg", jpeg(8, 8))]))
    config = {"source_type": "webdataset", "source_config": {"url": f"{tmp_path}/{{0..{missing}}}.tar"}}
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(config=config)], capture_output=True, text=True, timeout=30)
    assert done.stdout == "2\n" and done.returncode == 0
    lines = done.stderr.splitlines()
    assert len(lines) == bool(missing) and (not missing or "2 of 4 items failed (2 shard)" in lines[0] and "/1.tar: " in lines[0])
