"""What a dataset says of its passes: stats, metrics and the end, in this process and over DataLoader workers."""

import itertools
import os
import pathlib
import pickle
import signal
import subprocess
import sys

import pytest
from conftest import config, jpeg

from datago import DatagoBatchDataset, DatagoIterDataset, stats
from datago.shared_stats import SharedStats

CROPS = {"random_resized_crop": 32}
ZEROS = {"seen": 0, "delivered": 0, "failed": 0, "skipped": 0, "in_flight": 0}


def counts(dataset):
    return {key: value for key, value in dataset.stats().items() if key in ZEROS}


@pytest.fixture
def damaged(tmp_path):
    """17 pictures, and three files that are none."""
    for i in range(17):
        (tmp_path / f"{i:02d}.jpg").write_bytes(jpeg(40, 40 + i, seed=i))
    for i in range(3):
        (tmp_path / f"bad{i}.jpg").write_bytes(b"not a picture" if i else b"")
    return tmp_path


def batches(root, **more):
    return DatagoBatchDataset(config(root, seed=1, image_config=CROPS, **more), batch_size=4, remainder="drop")


def test_where_every_picture_went(damaged):
    dataset = batches(damaged)
    assert counts(dataset) == ZEROS
    assert sum(len(batch["id"]) for batch in dataset) == 16
    found = dataset.stats()
    assert counts(dataset) == {"seen": 20, "delivered": 16, "failed": 3, "skipped": 1, "in_flight": 0}
    assert sum(found["failures"].values()) == 3 and len(found["dropped"]) == 1 and found["skips"] == {"remainder": 1}
    assert {pathlib.Path(failure["name"]).name for failure in found["last_failures"]} == {"bad0.jpg", "bad1.jpg", "bad2.jpg"}
    assert 'datago_samples_total{rank="3",outcome="delivered"} 16\n' in dataset.metrics(rank="3")
    iter(dataset)
    assert dataset.stats()["delivered"] == 16  # nobody has read yet: the last pass
    assert next(iter(dataset)) and dataset.stats()["delivered"] == 4


def test_the_end_comes_early(damaged):
    with DatagoIterDataset(config(damaged)) as dataset:
        iterator = iter(dataset)
        next(iterator)
    assert next(iterator, None) is None
    found = dataset.stats()
    assert found["delivered"] == 1 and found["seen"] == found["delivered"] + found["failed"] + found["skipped"] + found["in_flight"]
    dataset.close()
    assert len(list(dataset)) == 17  # another pass
    DatagoIterDataset(config(damaged)).close()  # none had begun


def loader(dataset, workers, **more):
    loading = pytest.importorskip("torch.utils.data", reason="torch is not installed")
    return loading.DataLoader(dataset, batch_size=None, num_workers=workers, **more)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_the_sum_over_workers(start, damaged):
    dataset = batches(damaged)
    read = loader(dataset, 2, persistent_workers=True, multiprocessing_context=start)
    for epoch in range(2):
        dataset.set_epoch(epoch)
        delivered = sum(len(batch["id"]) for batch in read)
        found = dataset.stats()
        assert counts(dataset) == {"seen": 20, "delivered": delivered, "failed": 3, "skipped": 17 - delivered, "in_flight": 0}
        assert len(found["dropped"]) == 17 - delivered == found["skips"]["remainder"] and sum(found["failures"].values()) == 3
        assert {pathlib.Path(failure["name"]).name for failure in found["last_failures"]} == {"bad0.jpg", "bad1.jpg", "bad2.jpg"}
        assert found["work_ring"]["passed"] == 20 and found["bottleneck"]
    del read
    if start == "fork":
        assert sum(1 for _ in loader(dataset, 3)) == dataset.stats()["delivered"] // 4  # none of the two before counts
    list(dataset)
    assert dataset.stats()["delivered"] == 16  # this process's own pass is the last one


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_worker_that_is_killed_stays_counted(damaged):
    dataset = batches(damaged, samples_buffer_size=1)
    iterator = iter(loader(dataset, 1, prefetch_factor=1))
    next(iterator)
    (worker,) = iterator._workers
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises((RuntimeError, OSError), match="exited unexpectedly|killed by signal|reset by peer"):
        list(iterator)
    found = dataset.stats()
    assert found["seen"] == found["delivered"] + found["failed"] + found["skipped"] + found["in_flight"] and found["delivered"] >= 4


def test_nothing_is_left_behind(tmp_path, damaged):
    program = """
import sys, datago
from torch.utils.data import DataLoader
dataset = datago.DatagoIterDataset({"source_type": "file", "source_config": {"root_path": sys.argv[1]}})
list(DataLoader(dataset, batch_size=None, num_workers=1, collate_fn=lambda sample: sample["id"]))
sys.stdout.write(str(dataset.stats()["delivered"]))
"""
    pytest.importorskip("torch", reason="torch is not installed")
    place = tmp_path / "place"
    place.mkdir()
    environment = {**os.environ, "TMPDIR": str(place)}
    command = [sys.executable, "-W", "ignore", "-c", program, str(damaged)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, env=environment)
    assert done.stdout == "17", done.stderr
    assert not [path for path in place.iterdir() if path.name.startswith("datago")]


def test_without_a_temporary_folder(damaged, monkeypatch, caplog):
    monkeypatch.setattr("datago.shared_stats._folders", {})
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    dataset = batches(damaged)
    assert "stats of DataLoader workers will not be known" in caplog.text
    assert sum(1 for _ in dataset) == 4 and dataset.stats()["delivered"] == 16


def test_a_pickled_dataset_has_watched_nothing(damaged):
    dataset = batches(damaged)
    list(itertools.islice(dataset, 2))
    assert counts(pickle.loads(pickle.dumps(dataset))) == ZEROS


def test_sums():
    ring = {"depth": 1, "capacity": 8, "passed": 10, "push_waits": 0, "pop_waits": 1}
    one = {
        "seen": 5, "failures": {"io": 2}, "skips": {}, "last_failures": [{"name": f"{i}", "reason": "io", "text": ""} for i in range(10)],
        "dropped": ["a"], "bottleneck": None, "memory": {"peak": 3}, "work_ring": ring, "ready_ring": ring,
    }  # fmt: skip
    total = stats.merged([one, {**one, "failures": {"decode": 1}, "work_ring": {**ring, "pop_waits": 19}}])
    assert (total["seen"], total["failures"], total["dropped"], total["memory"]) == (10, {"io": 2, "decode": 1}, ["a", "a"], {"peak": 6})
    assert len(total["last_failures"]) == 16 and total["bottleneck"].startswith("source is slow")
    assert SharedStats().newest() == (None, 0)
