"""One state for all ranks, and states of what a loop is done with, not of what was read ahead."""

import itertools
import json
import multiprocessing
import pathlib

import pytest
from conftest import config, jpeg

import datago
from datago import DatagoBatchDataset, DatagoIterDataset, gather_state

CROPS = {"random_resized_crop": 32}


def names(batches):
    return [name for batch in batches for name in batch["id"]]


def test_each_batch_has_the_state_right_after_it(folder):
    def batches():
        return DatagoBatchDataset(config(folder, seed=1, ordered=True, image_config=CROPS), batch_size=3, with_state=True)

    whole = list(batches())
    assert len(whole) == 7 and [batch["state"]["delivered"] for batch in whole] == [3, 6, 9, 12, 15, 18, 20]
    for number, batch in enumerate(whole[:-1], 1):
        rest = batches()
        rest.load_state_dict(json.loads(json.dumps(batch["state"])))
        assert names(rest) == names(whole[number:])
    assert "state" not in next(iter(DatagoBatchDataset(config(folder, image_config=CROPS), batch_size=3)))


def test_each_sample_has_one_too(folder):
    whole = list(DatagoIterDataset(config(folder, seed=1, ordered=True), with_state=True))
    rest = DatagoIterDataset(config(folder, seed=1, ordered=True))
    rest.load_state_dict(whole[11]["state"])
    assert [sample["id"] for sample in rest] == [sample["id"] for sample in whole[12:]]
    with pytest.raises(ValueError, match="with_state: got True, wanted False where return_python_types is False"):
        DatagoIterDataset(config(folder), return_python_types=False, with_state=True)


def test_what_a_prefetcher_holds_is_not_done(folder):
    def batches():
        return DatagoBatchDataset(config(folder, seed=1, ordered=True, image_config=CROPS), batch_size=3, with_state=True)

    dataset = batches()
    ahead = iter(list(itertools.islice(dataset, 5)))
    begun = dataset.state_dict()["delivered"]
    done = [next(ahead), next(ahead)]
    for batch in done:
        dataset.update(batch)
    assert (begun, dataset.state_dict()["delivered"]) == (15, 6)
    rest = batches()
    rest.load_state_dict(dataset.state_dict())
    assert names(done) + names(rest) == names(batches())
    dataset.set_epoch(1)
    assert (dataset.state_dict()["epoch"], dataset.state_dict()["delivered"]) == (1, 0)


def test_a_second_pass_of_an_epoch_begins_with_nothing_done(folder):
    dataset = DatagoBatchDataset(config(folder, seed=1, image_config=CROPS), batch_size=3, with_state=True)
    for batch in dataset:
        dataset.update(batch)
    assert dataset.state_dict()["delivered"] == 20
    second = iter(dataset)
    next(second)
    assert dataset.state_dict()["delivered"] == 0
    dataset.update(next(second))
    assert dataset.state_dict()["delivered"] == 6


@pytest.mark.parametrize(
    "wrong", [None, {}, {"state": None}, {"state": []}, {"state": [{"workers": 1}, None]}, {"state": {"workers": "1"}}]
)
def test_what_has_no_state_is_refused(folder, wrong):
    with pytest.raises(ValueError, match="update: wanted a batch with the state"):
        DatagoIterDataset(config(folder)).update(wrong)


def test_a_collated_batch_of_samples(folder):
    dataset = DatagoIterDataset(config(folder, seed=1), with_state=True)
    samples = list(itertools.islice(dataset, 8))
    dataset.update({"state": [sample["state"] for sample in samples[:5]]})
    assert dataset.state_dict()["delivered"] == 5


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_that_read_ahead(folder, persistent):
    loading = pytest.importorskip("torch.utils.data", reason="torch is not installed")
    whole = sorted(str(path) for path in pathlib.Path(folder).rglob("*.jpg"))

    def loader(dataset, workers):
        return loading.DataLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=persistent and workers > 0)

    def batches():
        return DatagoBatchDataset(config(folder, seed=1, image_config=CROPS), batch_size=3, with_state=True)

    for done, after in ((0, 2), (1, 2), (4, 2), (4, 3), (4, 0), (8, 2)):
        dataset, seen = batches(), []
        for batch in itertools.islice(loader(dataset, 2), done):
            dataset.update(batch)
            seen += batch["id"]
        state = json.loads(json.dumps(dataset.state_dict()))
        rest = batches()
        rest.load_state_dict(gather_state(state))
        read = loader(rest, after)
        for batch in itertools.islice(read, 2):  # once more, before all workers have given something
            rest.update(batch)
            seen += batch["id"]
        last = batches()
        last.load_state_dict(rest.state_dict())
        assert sorted(seen + names(loader(last, after))) == whole
        last.set_epoch(1)
        assert sorted(names(loader(last, after))) == whole


def test_the_beginning_fits_any_number_of_workers():
    """Of a source too that cannot deal anew: nothing was read."""
    shards = {"source_type": "webdataset", "source_config": {"url": "/nowhere/{0..7}.tar", "random_sampling": True}, "seed": 1}
    state = datago.DatagoClient(shards).state_dict()
    client = datago.DatagoClient(shards).part(1, 2)
    client.load_state_dict([state])
    assert client.state_dict()["worker"] == 1 and client.state_dict()["source"] is None


# ---- all ranks ----


def test_one_rank_alone(folder):
    state = DatagoIterDataset(config(folder)).state_dict()
    assert gather_state(state) == [state] == gather_state([state])
    half = DatagoIterDataset(config(folder, rank=0, world_size=2)).state_dict()
    with pytest.raises(ValueError, match="nobody gave the state of rank 1: every rank has to call gather_state, with torch.distributed"):
        gather_state(half)


def test_the_state_of_another_rank_says_what_to_call(folder):
    half = DatagoIterDataset(config(folder, rank=0, world_size=2)).state_dict()
    for other in ({"rank": 1, "world_size": 2}, {}):
        dataset = DatagoIterDataset(config(folder, **other))
        dataset.load_state_dict(half)
        with pytest.raises(ValueError, match=r"datago.gather_state\(state\)"):
            next(iter(dataset))


def of_rank(rank, world, store, root, gathered):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    dataset = DatagoBatchDataset(config(root, seed=1, rank="auto", image_config=CROPS), batch_size=2)
    if gathered:
        dataset.load_state_dict(gathered)
    seen = names(itertools.islice(dataset, 2) if not gathered else dataset)
    alone, group = "", dist.new_group([0])
    try:
        if rank == 0:
            gather_state(dataset.state_dict(), group)
    except ValueError as error:
        alone = str(error)
    pathlib.Path(f"{store}-{rank}.json").write_text(json.dumps([seen, gather_state(dataset.state_dict()), alone]))
    dist.destroy_process_group()


def ranks(world, store, root, gathered=None):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=of_rank, args=(rank, world, store, root, gathered)) for rank in range(world)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(100)
        assert process.exitcode == 0
    return [json.loads(pathlib.Path(f"{store}-{rank}.json").read_text()) for rank in range(world)]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_all_ranks_have_all_states(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    root = tmp_path / "pictures"
    root.mkdir()
    for i in range(20):
        (root / f"{i:02d}.jpg").write_bytes(jpeg(40, 40 + i, seed=i))
    before = ranks(2, tmp_path / "two", root)
    states = before[0][1]
    assert before[1][1] == states and [state["rank"] for state in states] == [0, 1]
    assert "nobody gave the state of rank 1" in before[0][2]
    seen = before[0][0] + before[1][0]
    assert len(seen) == 8
    rest = ranks(3, tmp_path / "three", root, states)
    assert sorted(seen + [name for one in rest for name in one[0]]) == sorted(map(str, root.iterdir()))
