"""States that are damaged, or of another config: refused when they are loaded, or harmless, and nothing else."""

import copy
import itertools
import json

import pytest
from conftest import config, jpeg, read
from database import database
from tars import config as shard_config
from tars import shards

from datago import DatagoBatchDataset, DatagoClient, DatagoIterDataset

pytestmark = pytest.mark.timeout(300)

GONE = object()
VALUES = [GONE, None, True, -1, 1.5, 2**80, "x", "\ud800", [], [[]], {}, [1, 2], [["x", 2, 3]], [5, 1]]


def folder(root, count=12):
    for i in range(count):
        (root / f"{i:02d}.jpg").write_bytes(jpeg(16, 16))


def cut(top, most):
    """The state of a pass after `most` samples."""
    with DatagoClient(top) as client:
        for _ in range(most):
            client.get_sample(timeout=20)
        return client.state_dict()


def of_files(root, **keys):
    folder(root)
    return config(root, **keys)


def restriped(root):
    """A state that has a phase: two ranks began, one went on."""
    states = [cut(of_files(root, seed=1, rank=rank, world_size=2), 2) for rank in range(2)]
    client = DatagoClient(config(root, seed=1))
    client.load_state_dict(states)
    with client:
        for _ in range(3):
            client.get_sample(timeout=20)
        return config(root, seed=1), client.state_dict()


def of_shards(root, **keys):
    shards(root, [5, 3, 4])
    return shard_config(root / "*.tar", **keys)


def paths(value):
    """Where every key and item lies, at every depth."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inside in items:
        yield (key,)
        yield from ((key, *rest) for rest in paths(inside))


def damaged(state):
    for path, value in itertools.product(list(paths(state)), VALUES):
        wrong = copy.deepcopy(state)
        *outer, last = path
        place = wrong
        for key in outer:
            place = place[key]
        if value is GONE:
            del place[last]
        else:
            place[last] = value
        yield path, value, wrong


def walk(state, load):
    """Every damage is refused by a ValueError that says what is wrong, or does no harm."""
    for path, value, wrong in damaged(state):
        try:
            load(wrong)
        except ValueError as error:
            # The list of files or shards is looked at when the pass begins.
            assert type(error) is ValueError and ": " in str(error) or "changed since the state was taken" in str(error), repr(error)
        else:
            assert value is not GONE or isinstance(path[-1], int), path  # no key may be missing; an item of a list may


def reading(top, whole):
    def load(state):
        client = DatagoClient(top)
        client.load_state_dict(state)
        with client:
            found = []
            while (sample := client.get_sample(timeout=20)) is not None:
                found.append(sample.id)
            stats = client.stats()
        assert stats["seen"] == stats["delivered"] + stats["failed"] + stats["skipped"] and stats["failed"] == 0
        assert len(set(found)) == len(found) and set(found) <= whole
        json.dumps(client.state_dict())

    return load


def everything(top):
    return {sample.id for sample in read(top)[0]}


@pytest.mark.parametrize("keys", [{}, {"seed": 3, "ordered": True}, {"random_sampling": True}])
def test_files(tmp_path, keys):
    top = of_files(tmp_path, **keys)
    walk(cut(top, 5), reading(top, everything(top)))


def test_files_of_several_phases(tmp_path):
    top, state = restriped(tmp_path)
    assert len(state["source"]["phases"]) == 1 and len(list(paths(state))) > 30
    walk(state, reading(top, everything(top)))


@pytest.mark.parametrize(
    "keys", [{}, {"seed": 2, "ordered": True}, {"shuffle_buffer": 4}, {"shuffle_buffer": 4, "seed": 2, "ordered": True}]
)
def test_shards(tmp_path, keys):
    top = of_shards(tmp_path, **keys)
    state = cut(top, 6)
    assert state["source"]["partial"]
    walk(state, reading(top, everything(top)))


def test_batches(tmp_path):
    top = of_files(tmp_path, image_config={"random_resized_crop": 16}, ordered=True)
    dataset = DatagoBatchDataset(top, 2)
    iterator = iter(dataset)
    next(iterator)
    state = dataset.state_dict()
    iterator.close()

    def load(state):
        again = DatagoBatchDataset(top, 2)
        again.load_state_dict(state)
        names = [name for batch in again for name in batch["id"]]
        assert len(set(names)) == len(names) <= 12

    walk(state, load)


@pytest.mark.network
def test_a_database(tmp_path):
    serving = pytest.importorskip("serving", reason="needs the packages of datago[serve]")
    with serving.serve(serving.make_album(tmp_path)) as server:
        source = {"sources": "A,B", "page_size": 20, "api_url": server.api_url, "api_key": serving.TOKEN, "max_short_edge": 4000}
        top = {"source_config": {**source, "require_images": True}}
        whole = everything(top)
        state = cut(top, 5)
        names = sorted(whole)
        state["source"] = {"last": names[9], "after": names[2], "missing": names[3:5]}
        walk(state, reading(top, whole))


def test_what_is_wrong_is_said(tmp_path):
    top = of_files(tmp_path, seed=1)
    state = cut(top, 5)
    client, dataset = DatagoClient(top), DatagoIterDataset(top)
    done = state["source"]["done"]
    for source, message in (
        ({}, "^state: damaged: source.done: missing$"),
        ({**state["source"], "phases": [{}]}, r"^state: damaged: source.phases\[0\].world_size: missing$"),
        (
            {**state["source"], "done": [[3, 3]]},
            r"^state: damaged: source.done: got \[\[3, 3\]\], wanted a list of \[begin, end\], in order$",
        ),
        ({**state["source"], "listing": done}, r"source.listing: got .*, wanted \[an integer of at least 0, an integer from 0 to "),
    ):
        for one in (client, dataset):
            with pytest.raises(ValueError, match=message):
                one.load_state_dict({**state, "source": source})
    with pytest.raises(ValueError, match="^state: number 1 of the list: damaged: seed: got 'x', wanted an integer .*, or null$"):
        client.load_state_dict([state, {**state, "seed": "x"}])
    with pytest.raises(ValueError, match="^state: damaged: seed: got None, wanted the seed of the shuffled order$"):
        client.load_state_dict({**state, "seed": None})
    with pytest.raises(ValueError, match="^state: damaged: rank: got 1, wanted less than world_size, which is 1$"):
        client.load_state_dict({**state, "rank": 1})
    huge = {**state, "world_size": 2**62, "workers": 2**62}  # nobody makes a list of them
    with pytest.raises(ValueError, match="load the list of the states of all"):
        client.load_state_dict(huge)


# ---- the config is another one ----


@pytest.mark.network
def test_a_database_under_other_filters():
    order = [f"{i:02d}" for i in range(20)]
    with database(order) as server:
        mine = {"tags": "cat", "min_short_edge": 10, "tags_empty": False}
        state = json.loads(json.dumps(cut(server.config(**mine), 5)))
        assert state["selection"] == {"sources": "", "tags": "cat", "min_short_edge": 10, "tags_empty": False}
        for keys, message in (
            ({**mine, "tags": "dog"}, "^tags: 'cat' when the state was taken, 'dog' in the config$"),
            ({**mine, "tags": ""}, "^tags: 'cat' when the state was taken, None in the config$"),
            ({**mine, "sources": "A"}, "^sources: '' when the state was taken, 'A' in the config$"),
            ({**mine, "attributes": "aes__gte:0.5"}, "^attributes: None when the state was taken, 'aes__gte:0.5' in the config$"),
            ({**mine, "duplicate_state": "none"}, "^duplicate_state: None .*, 'none' in the config$"),
            ({**mine, "min_short_edge": 11}, "^min_short_edge: 10 .*, 11 in the config$"),
        ):
            for make in (DatagoClient, DatagoIterDataset):
                with pytest.raises(ValueError, match=message):
                    make(server.config(**keys)).load_state_dict(state)
        # what only says how the same records are fetched
        client = DatagoClient(server.config(**mine, page_size=3, max_connections=2, return_latents="raw", ordered=True))
        client.load_state_dict(state)
        assert sum(1 for _ in client) == 15
