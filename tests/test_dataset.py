"""DatagoIterDataset: with torch where it is installed, without it everywhere."""

import json
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys

import pytest
from conftest import config, ids, jpeg

from datago import DatagoIterDataset, SampleError

# ---- alone ----


def test_every_iteration_is_a_full_pass(folder):
    dataset = DatagoIterDataset(config(folder))
    first, second = list(dataset), list(dataset)
    assert len(first) == len(second) == 20 and {s["id"] for s in first} == {s["id"] for s in second}
    assert first[0]["image"].mode == "RGB"
    for i, _ in enumerate(dataset):
        if i == 3:
            break
    assert len(list(dataset)) == 20


def test_raw_samples_and_limit(folder):
    dataset = DatagoIterDataset(config(folder, limit=7), return_python_types=False)
    assert len(dataset) == 7 == len(list(dataset))
    assert next(iter(dataset)).image.channels == 3


def test_length(folder):
    assert len(DatagoIterDataset(config(folder))) == 20
    assert len(DatagoIterDataset(config(folder, limit=10**12))) == 20
    assert [len(DatagoIterDataset(config(folder, rank=rank, world_size=3))) for rank in range(3)] == [7, 7, 6]
    assert len(DatagoIterDataset(config(folder, rank=2, world_size=3, uneven="pad"))) == 7
    shards = {"source_type": "webdataset", "source_config": {"url": "/nowhere/{0..3}.tar"}}
    with pytest.raises(TypeError, match="not known: the config has no limit, and this source does not count"):
        len(
            DatagoIterDataset(
                {"source_type": "db", "source_config": {"sources": "", "page_size": 10, "api_url": "http://h/", "api_key": "k"}}
            )
        )
    assert len(DatagoIterDataset({**shards, "limit": 50})) == 50


def test_two_iterators_at_once(folder):
    dataset = DatagoIterDataset(config(folder, ordered=True))
    assert all(a["id"] == b["id"] for a, b in zip(dataset, dataset, strict=True))


def test_it_can_be_pickled_before_and_after(folder):
    dataset = DatagoIterDataset(config(folder))
    assert len(list(pickle.loads(pickle.dumps(dataset)))) == 20
    iterator = iter(dataset)
    next(iterator)
    assert len(list(pickle.loads(pickle.dumps(dataset)))) == 20


def test_a_wrong_config_is_refused_at_once(folder):
    with pytest.raises(ValueError, match="limit: got 0"):
        DatagoIterDataset(config(folder, limit=0))


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_what_raises_does_not_end_the_iterator(folder):
    (folder / "d0" / "003.jpg").write_bytes(b"")
    dataset = DatagoIterDataset(config(folder, ordered=True, on_error="raise"))
    iterator, seen = iter(dataset), []
    for _ in range(20):
        try:
            seen += ids([next(iterator)])
        except SampleError as error:
            seen.append(os.path.basename(error.name))
    assert sorted(seen) == [f"{number:03d}.jpg" for number in range(20)] and next(iterator, None) is None
    with pytest.raises(SampleError, match="003.jpg: empty") as kept:
        list(dataset)
    assert dataset._running._pass.pool.stopped and kept.value  # whoever leaves ends the pass, though the exception lives on
    again = pickle.loads(pickle.dumps(kept.value))
    assert (type(again), str(again), again.reason) == (type(kept.value), str(kept.value), "empty")
    data = pytest.importorskip("torch.utils.data", reason="torch is not installed")
    loader, count = iter(data.DataLoader(dataset, batch_size=None, num_workers=1)), 0
    with pytest.raises(RuntimeError, match="Caught SampleValueError in DataLoader worker process 0"):
        while next(loader):
            count += 1
    assert count + len(list(loader)) == 19


def test_state(folder):
    dataset = DatagoIterDataset(config(folder, ordered=True, seed=3))
    whole = ids(dataset)
    iterator = iter(dataset)
    first = ids(next(iterator) for _ in range(7))
    state = dataset.state_dict()
    again = DatagoIterDataset(config(folder, ordered=True, seed=3))
    again.load_state_dict(state)
    assert again.state_dict() == state
    iter(again)  # nobody reads from it: it takes nothing away
    assert first + ids(again) == whole
    assert again.state_dict()["ended"]
    again.load_state_dict(again.state_dict())
    assert ids(again) == [] and ids(again) == whole
    again.load_state_dict(state)
    again.set_epoch(1)
    assert len(ids(again)) == 20
    iterator.close()
    assert dataset.state_dict() == state  # of what was handed out, also when the loop was left
    for wrong in (None, [], {}, {"epoch": 0}):
        with pytest.raises(ValueError, match="state: "):
            dataset.load_state_dict(wrong)


def test_epochs(folder):
    dataset = DatagoIterDataset(config(folder, ordered=True, seed=3))
    first = ids(dataset)
    dataset.set_epoch(1)
    assert ids(dataset) == ids(DatagoIterDataset(config(folder, ordered=True, seed=3, epoch=1))) != first
    with pytest.raises(ValueError, match="epoch: got -1"):
        dataset.set_epoch(-1)


WITHOUT = """
import json, sys
sys.modules["torch"] = None  # what an import finds where it is not installed
from datago import DatagoIterDataset, SampleError
dataset = DatagoIterDataset(json.loads(sys.argv[1]))
dataset.set_epoch(1)
print(len(list(dataset)), any("torch" in kind.__module__ for kind in DatagoIterDataset.__mro__), dataset.state_dict()["epoch"])
"""


def test_without_torch_it_is_a_plain_iterable(folder):
    done = subprocess.run([sys.executable, "-c", WITHOUT, json.dumps(config(folder))], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["20", "False", "1"], done.stderr


def test_torch_is_loaded_by_whoever_asks_for_the_dataset():
    script = "import sys, datago; print('torch' in sys.modules, 'DatagoIterDataset' in datago.__all__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "True"]


# ---- in a DataLoader ----


@pytest.fixture
def data():
    pytest.importorskip("torch", reason="torch is not installed")
    import torch.utils.data

    return torch.utils.data


def loader(dataset, workers, kind=None, method=None, **options):
    import torch.utils.data

    kind = kind or torch.utils.data.DataLoader
    context = multiprocessing.get_context(method) if workers and method else None
    return kind(dataset, num_workers=workers, multiprocessing_context=context, collate_fn=ids, **{"batch_size": 4, **options})


def flat(batches):
    return [name for batch in batches for name in batch]


# More workers than CPUs, as the tests want, is nothing to warn of; torchdata calls what torch has given up.
quiet = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create", "ignore:'set_vital' is deprecated", "ignore:.*fork.*:DeprecationWarning"
)


def test_it_is_an_iterable_dataset(data, folder):
    dataset = DatagoIterDataset(config(folder))
    assert isinstance(dataset, data.IterableDataset) and issubclass(DatagoIterDataset, data.IterableDataset)


@pytest.mark.slow
@quiet
@pytest.mark.timeout(180)
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_workers_and_ranks_give_each_sample_once(data, folder, method):
    for workers in (0, 1, 3) if method == "fork" else (2,):
        for options in ({}, {"seed": 1}, {"random_sampling": True}) if method == "fork" else ({"seed": 1},):
            parts = []
            for rank in range(2):
                dataset = DatagoIterDataset(config(folder, rank=rank, world_size=2, **options))
                parts.append(flat(loader(dataset, workers, method=method)))
            assert sorted(sum(parts, [])) == [f"{i:03d}.jpg" for i in range(20)] and [len(part) for part in parts] == [10, 10]


WITHOUT_SHARED_MEMORY = """
import json, logging, sys
from datago import DatagoIterDataset
from torch.utils.data import DataLoader
logging.basicConfig(format="%(levelname)s")
dataset = DatagoIterDataset(json.loads(sys.argv[1]), return_python_types=False)
dataset.set_epoch(3)
print(len(list(dataset)), dataset.state_dict()["epoch"])
"""


@pytest.mark.slow
def test_without_shared_memory(data, folder):
    if not shutil.which("unshare"):
        pytest.skip("needs unshare")
    options = ["--mount"] if os.geteuid() == 0 else ["--mount", "--map-root-user"]
    wrapped = ["unshare", *options, "sh", "-c", 'mount -t tmpfs -o ro none /dev/shm && exec "$@"', "sh"]
    if subprocess.run([*wrapped, "true"], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    command = [*wrapped, sys.executable, "-c", WITHOUT_SHARED_MEMORY, json.dumps(config(folder))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("20 3\n", "")


@quiet
@pytest.mark.timeout(120)
def test_more_workers_than_samples_and_a_limit_for_all(data, tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.jpg").write_bytes(jpeg())
    assert sorted(flat(loader(DatagoIterDataset(config(tmp_path)), 4))) == ["a.jpg", "b.jpg"]
    for i in range(18):
        (tmp_path / f"{i}.jpg").write_bytes(jpeg())
    assert len(flat(loader(DatagoIterDataset(config(tmp_path, limit=7)), 3))) == 7


@quiet
@pytest.mark.timeout(120)
def test_raw_samples_travel_from_workers(data, folder):
    dataset = DatagoIterDataset(config(folder, limit=3), return_python_types=False)
    for sample in data.DataLoader(dataset, batch_size=None, num_workers=1):
        array = sample.image.to_numpy_array()
        alone = next(s for s in DatagoIterDataset(config(folder), return_python_types=False) if s.id == sample.id)
        assert (array == alone.image.to_numpy_array()).all() and array.flags.writeable


@quiet
@pytest.mark.timeout(120)
def test_workers_that_stay_see_the_epoch(data, folder):
    dataset = DatagoIterDataset(config(folder, seed=1, ordered=True))
    batches = loader(dataset, 2, persistent_workers=True)
    first = flat(batches)
    dataset.set_epoch(1)
    second = flat(batches)
    dataset.set_epoch(0)
    assert flat(batches) == first != second and sorted(first) == sorted(second)


TWO_RANKS = """
import json, sys
import torch
from torch.utils.data import DataLoader
from datago import DatagoIterDataset, SampleError

def rank(number, root, store):
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=number, world_size=2)
    dataset = DatagoIterDataset({"source_type": "file", "source_config": {"root_path": root, "rank": "auto"}})
    batches = DataLoader(dataset, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    with open(f"{store}.{number}", "w") as file:  # not printed: lines of two processes may be mixed
        json.dump([sample["id"] for sample in batches], file)
    torch.distributed.destroy_process_group()

if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, sys.argv[1:], nprocs=2)
"""


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_rank_of_torch_distributed_holds_in_spawned_workers(data, folder, tmp_path_factory):
    """No variable tells it, and in the workers nothing is initialised: it is settled in the parent."""
    place = tmp_path_factory.mktemp("two")
    (place / "two.py").write_text(TWO_RANKS)
    command = [sys.executable, "-W", "ignore", place / "two.py", folder, place / "store"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        part = json.loads((place / f"store.{rank}").read_text())
        assert sorted(part) == sorted(s["id"] for s in DatagoIterDataset(config(folder, rank=rank, world_size=2)))


@pytest.mark.slow
@quiet
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("workers", "options"), [(0, {}), (1, {}), (2, {}), (2, {"persistent_workers": True})])
def test_stateful_loader(data, folder, workers, options):
    """torchdata's loader takes the state with each batch, in the workers, so what was prefetched is not lost."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def fresh():
        return loader(DatagoIterDataset(config(folder, seed=2)), workers, stateful, **options)

    for cut in (0, 1, 3):
        batches = fresh()
        iterator = iter(batches)
        first = flat(next(iterator) for _ in range(cut))
        state = json.loads(json.dumps(batches.state_dict(), default=str)) if workers == 0 else batches.state_dict()
        del iterator
        again = fresh()
        again.load_state_dict(state)
        rest = flat(again)
        assert sorted(first + rest) == [f"{i:03d}.jpg" for i in range(20)]
        assert len(flat(again)) == 20
        end = again.state_dict()
        ended = fresh()
        ended.load_state_dict(end)
        assert len(flat(ended)) == 20  # that epoch is over: the loader begins the next
