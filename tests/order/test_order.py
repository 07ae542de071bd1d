"""Which samples come, in which order, on which rank, and what is left after a stop: the file source."""

import json
import os
import random
import subprocess
import sys

import pytest
from conftest import config, ids, jpeg, killed_epoch, read

from datago import DatagoClient, SourceError
from datago.order.ranks import VARIABLES


@pytest.fixture(scope="module")
def hundred(tmp_path_factory):
    """A hundred pictures in ten folders, every ninth of them large: threads overtake each other."""
    root = tmp_path_factory.mktemp("hundred")
    small, large = jpeg(24, 24), jpeg(900, 700)
    for i in range(100):
        (root / f"{i % 10}").mkdir(exist_ok=True)
        (root / f"{i % 10}" / f"{i:03d}.jpg").write_bytes(large if i % 9 == 0 else small)
    return root


def names(count):
    return [f"{i:03d}.jpg" for i in range(count)]


def few(root, count):
    for name in names(count):
        (root / name).write_bytes(jpeg(16, 16))
    return root


def order(root, **top):
    return ids(read(config(root, ordered=True, **top))[0])


# ---- order ----


@pytest.fixture
def many_threads(monkeypatch):
    monkeypatch.setenv("DATAGO_MAX_TASKS", "8")


def test_ordered_is_the_order_of_the_paths_whatever_the_threads_do(hundred, many_threads):
    paths = sorted(hundred.rglob("*.jpg"), key=lambda path: os.fsencode(path))
    for buffer in (1, 2, 64):
        assert order(hundred, samples_buffer_size=buffer) == [path.name for path in paths]


def test_a_failure_keeps_its_place(hundred, tmp_path):
    few(tmp_path, 9)
    (tmp_path / "004.jpg").write_bytes(b"\xff\xd8\xff")
    seen = []
    client = DatagoClient(config(tmp_path, ordered=True, on_error="raise"))
    while True:
        try:
            sample = client.get_sample(timeout=20)
        except ValueError as error:
            seen.append(os.path.basename(error.name))
            continue
        if sample is None:
            break
        seen += ids([sample])
    assert seen == names(9)
    assert order(tmp_path, limit=6) == ["000.jpg", "001.jpg", "002.jpg", "003.jpg", "005.jpg", "006.jpg"]


def test_the_order_of_a_seed_is_fixed_for_ever(tmp_path):
    few(tmp_path, 12)
    assert order(tmp_path, seed=2026) == [names(12)[i] for i in [11, 2, 6, 9, 1, 7, 10, 0, 4, 8, 5, 3]]


def test_seed_and_epoch_decide(hundred, many_threads):
    first = order(hundred, seed=1)
    assert sorted(first) == names(100) and first != order(hundred)
    assert order(hundred, seed=1) == order(hundred, seed=1, epoch=0) == order(hundred, seed=1, random_sampling=True) == first
    others = [
        order(hundred, seed=2),
        order(hundred, seed=1, epoch=1),
        order(hundred, random_sampling=True),
        order(hundred, random_sampling=True),
    ]
    assert len({tuple(other) for other in [first, *others]}) == 5
    assert order(hundred, seed=1, random_sampling=False) == order(hundred)


def test_another_interpreter_finds_the_same_order(hundred):
    script = "import json, sys; from datago import DatagoClient; print(*(s.id for s in DatagoClient(json.loads(sys.argv[1]))))"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    text = json.dumps(config(hundred, ordered=True, seed=3))
    done = subprocess.run([sys.executable, "-c", script, text], capture_output=True, text=True, timeout=60, env=environment, check=True)
    assert [os.path.basename(path) for path in done.stdout.split()] == order(hundred, seed=3)


def test_the_root_may_lie_elsewhere(hundred, tmp_path):
    os.symlink(hundred, tmp_path / "link")
    assert order(tmp_path / "link", seed=3) == order(hundred, seed=3)


def test_set_epoch(tmp_path):
    few(tmp_path, 30)
    client = DatagoClient(config(tmp_path, ordered=True, seed=5))
    first = ids(client)
    client.set_epoch(1)
    second = ids(client)
    client.set_epoch(0)
    assert ids(client) == first != second == order(tmp_path, seed=5, epoch=1)
    for wrong in (-1, "1", 1.0, None, True):
        with pytest.raises(ValueError, match="epoch: got"):
            client.set_epoch(wrong)


# ---- ranks ----


@pytest.mark.parametrize("count", [1, 2, 3, 7, 10])
@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
def test_ranks_share_every_sample_once(tmp_path, count, world_size):
    few(tmp_path, count)
    for how in ({}, {"seed": 4}, {"random_sampling": True}):
        parts = []
        for rank in range(world_size):
            client = DatagoClient(config(tmp_path, rank=rank, world_size=world_size, **how))
            if rank >= count:
                with pytest.raises(SourceError, match=f"rank {rank} of world_size {world_size} has no image: {count} below"):
                    client.get_sample(timeout=20)
            else:
                parts.append(ids(client))
        assert sorted(sum(parts, [])) == names(count) and max(map(len, parts)) - min(map(len, parts)) <= 1


def test_ranks_take_turns_in_one_order(hundred):
    whole = order(hundred, seed=6)
    for rank in range(3):
        assert order(hundred, seed=6, rank=rank, world_size=3) == whole[rank::3]


def test_auto_without_a_launcher_is_alone(hundred, monkeypatch):
    for pair in VARIABLES:
        for name in pair:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert len(order(hundred, rank="auto")) == 100


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "SLURM_PROCID": "3", "SLURM_NTASKS": "8"},  # torchrun inside of srun
        {"LOCAL_RANK": "1", "WORLD_SIZE": "4", "NODE_RANK": "0"},
        {"LOCAL_RANK": "0", "WORLD_SIZE": "4", "NODE_RANK": "1", "LOCAL_WORLD_SIZE": "1"},
        {"SLURM_PROCID": "1", "SLURM_NTASKS": "4"},
        {"SLURM_PROCID": "1", "SLURM_NTASKS": "64", "SLURM_STEP_NUM_TASKS": "4"},
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"},
        {"PMI_RANK": "1", "PMI_SIZE": "4"},
    ],
)
def test_auto_reads_what_launchers_set(hundred, monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert order(hundred, rank="auto", world_size="auto") == order(hundred, rank=1, world_size=4)
    assert order(hundred, world_size="auto") == order(hundred, rank=1, world_size=4)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": "x", "WORLD_SIZE": "4"}, "RANK='x'"),
        ({"RANK": "4", "WORLD_SIZE": "4"}, "got 4 .auto., wanted less than world_size, which is 4"),
        ({"WORLD_SIZE": "4"}, "neither RANK nor LOCAL_RANK"),
        ({"WORLD_SIZE": "4", "LOCAL_RANK": "0", "NODE_RANK": "1"}, "not how many ranks a node has"),
    ],
)
def test_auto_refuses_half_an_answer(hundred, monkeypatch, variables, message):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        DatagoClient(config(hundred, rank="auto")).start()


@pytest.mark.parametrize("kind", ["drop", "pad"])
def test_equal_ranks(hundred, kind):
    parts = [order(hundred, seed=1, rank=rank, world_size=7, uneven=kind) for rank in range(7)]
    whole = order(hundred, seed=1)
    assert {len(part) for part in parts} == {14 if kind == "drop" else 15}
    dealt = [name for turn in zip(*parts, strict=True) for name in turn]
    assert dealt == (whole[:98] if kind == "drop" else whole + whole[:5])


@pytest.mark.parametrize("kind", ["drop", "pad"])
def test_equal_ranks_although_files_are_broken(tmp_path, kind):
    """What fails on a rank is replaced by another of its samples: nobody waits for it in a collective."""
    few(tmp_path, 11)
    for name in ("000.jpg", "002.jpg", "005.jpg"):
        (tmp_path / name).write_bytes(b"")
    wanted = {"drop": ("46846", "13791"), "pad": ("468a46", "137913")}[kind]  # a: 010.jpg; rank 1's padding is 000.jpg, broken too
    for rank in range(2):
        samples, stats = read(config(tmp_path, rank=rank, world_size=2, uneven=kind, ordered=True))
        assert "".join(f"{int(name[:3]):x}" for name in ids(samples)) == wanted[rank] and stats["failures"].keys() == {"empty"}


def test_a_promise_that_cannot_be_kept_is_an_error(tmp_path):
    few(tmp_path, 4)
    for name in ("000.jpg", "002.jpg"):
        (tmp_path / name).write_bytes(b"")
    client = DatagoClient(config(tmp_path, rank=0, world_size=2, uneven="drop"))
    with pytest.raises(SourceError, match="uneven 'drop' promises 2 samples on every rank, but only 0 were"):
        list(client)
    for rank in range(8):
        with pytest.raises(SourceError, match=f"rank {rank} of world_size 8 has no image: 4 below .*, and uneven is 'drop'"):
            DatagoClient(config(tmp_path, rank=rank, world_size=8, uneven="drop")).start()


# ---- resume ----


def test_the_rest_of_the_epoch_and_then_a_whole_one(hundred, many_threads):
    client = DatagoClient(config(hundred, seed=1, epoch=3))
    first = ids(client.get_sample(timeout=20) for _ in range(37))
    state = client.state_dict()
    kept = json.dumps(state)
    again = DatagoClient(config(hundred, seed=1))
    again.load_state_dict(state)
    assert again.epoch == 3 and again.state_dict() == state
    rest = ids(again)
    assert sorted(first + rest) == names(100) and json.dumps(state) == kept
    assert sorted(ids(again)) == names(100)


def test_ordered_goes_on_where_it_was(hundred, many_threads):
    whole = order(hundred, seed=9)
    for cut in (0, 1, 50, 99, 100):
        client = DatagoClient(config(hundred, seed=9, ordered=True))
        first = ids(client.get_sample(timeout=20) for _ in range(cut))
        again = DatagoClient(config(hundred, seed=9, ordered=True))
        again.load_state_dict(client.state_dict())
        assert first + ids(again) == whole


def test_states_of_the_beginning_and_the_end(hundred):
    client = DatagoClient(config(hundred, seed=1))
    fresh = DatagoClient(config(hundred, seed=1))
    fresh.load_state_dict(client.state_dict())
    assert len(ids(fresh)) == 100
    ended = fresh.state_dict()
    assert ended["ended"] and ended["delivered"] == 100
    client.load_state_dict(ended)
    assert client.get_sample(timeout=20) is None
    assert len(ids(client)) == 100
    client.load_state_dict(ended)
    client.set_epoch(1)  # another epoch: of that, nothing was handed out
    assert len(ids(client)) == 100
    fresh.set_epoch(2)
    assert fresh.state_dict()["source"] is None and fresh.state_dict()["epoch"] == 2


def test_without_a_seed_the_drawn_one_is_remembered(hundred):
    client = DatagoClient(config(hundred, random_sampling=True, ordered=True, rank=1, world_size=2))
    first = ids(client.get_sample(timeout=20) for _ in range(20))
    again = DatagoClient(config(hundred, random_sampling=True, ordered=True, rank=1, world_size=2))
    again.load_state_dict(client.state_dict())
    rest = ids(again)
    assert sorted(first + rest) == sorted(order(hundred, rank=1, world_size=2))
    client.load_state_dict(client.state_dict())  # of itself, in mid-pass
    assert ids(client) == rest


def test_the_limit_holds_over_a_resume(hundred, tmp_path):
    client = DatagoClient(config(hundred, limit=30, ordered=True))
    first = ids(client.get_sample(timeout=20) for _ in range(12))
    again = DatagoClient(config(hundred, limit=30, ordered=True))
    again.load_state_dict(client.state_dict())
    assert first + ids(again) == order(hundred, limit=30)
    assert len(ids(again)) == 30


def test_failures_are_not_tried_again(tmp_path):
    few(tmp_path, 6)
    (tmp_path / "001.jpg").write_bytes(b"")
    client = DatagoClient(config(tmp_path, ordered=True))
    assert ids([client.get_sample(timeout=20), client.get_sample(timeout=20)]) == ["000.jpg", "002.jpg"]
    samples = DatagoClient(config(tmp_path, ordered=True))
    samples.load_state_dict(client.state_dict())
    assert ids(samples) == ["003.jpg", "004.jpg", "005.jpg"] and samples.stats()["failed"] == 0


@pytest.mark.parametrize("kind", ["keep", "drop", "pad"])
@pytest.mark.parametrize("seed", [None, 8])
def test_resuming_with_another_number_of_ranks(hundred, kind, seed):
    """Two ranks stop at different places, five go on, stop too, and three read the rest."""
    handed, states = [], None
    for world_size, take in ((2, 20), (5, 6), (3, 100)):
        following = []
        for rank in range(world_size):
            client = DatagoClient(config(hundred, seed=seed, rank=rank, world_size=world_size, uneven=kind))
            if states:
                client.load_state_dict(states)
            for _ in range(take + rank):
                if (sample := client.get_sample(timeout=20)) is None:
                    break
                handed += ids([sample])
            following.append(client.state_dict())
            client.stop()
        states = following
    if kind == "keep":
        assert sorted(handed) == names(100)
    elif kind == "drop":
        assert len(set(handed)) == len(handed) and 98 <= len(handed)
    else:
        assert set(handed) == set(names(100)) and len(handed) <= 102


def test_a_limit_is_kept_with_another_number_of_ranks(hundred):
    states, handed = [], 0
    for rank in range(4):
        client = DatagoClient(config(hundred, limit=20, rank=rank, world_size=4))
        handed += len([client.get_sample(timeout=20) for _ in range(5 + rank)])
        states.append(client.state_dict())
    for rank in range(3):
        client = DatagoClient(config(hundred, limit=20, rank=rank, world_size=3))
        client.load_state_dict(states)
        handed += len(ids(client))
    assert handed == 80


def refused(message, state, **top):
    client = DatagoClient(top.pop("config", None) or config(top.pop("root"), **top))
    with pytest.raises(ValueError, match=message):
        client.load_state_dict(state)


def test_states_that_do_not_fit(hundred):
    def state(**top):
        client = DatagoClient(config(hundred, **top))
        client.get_sample(timeout=20)
        return client.state_dict()

    mine = state(seed=1)
    refused("seed: 1 when the state was taken, 2 in the config", mine, root=hundred, seed=2)
    refused("random_sampling: True when the state was taken, False in the config", mine, root=hundred)
    refused("uneven: 'keep' when the state was taken, 'pad' in the config", mine, root=hundred, seed=1, uneven="pad")
    shards = {"source_type": "webdataset", "source_config": {"url": "/x.tar", "random_sampling": True}, "seed": 1}
    refused("source_type: 'file' in the state, 'webdataset' in the config", mine, config=shards)
    half = state(seed=1, rank=0, world_size=2)
    refused("saved by rank 0 of 2, .* this is rank 1", half, root=hundred, seed=1, rank=1, world_size=2)
    refused("load the list of the states of all 2 streams .there are 1.", half, root=hundred, seed=1)
    refused("load the list of the states of all 2 streams", [half, half], root=hundred, seed=1)
    own = [state(random_sampling=True, rank=rank, world_size=2) for rank in range(2)]
    refused("without a seed every rank shuffled an order of its own", own, root=hundred, random_sampling=True)
    refused("the states are not of one run: they differ in epoch", [half, {**half, "epoch": 1}], root=hundred, seed=1)
    for wrong in (None, 3, "x", {}, [], {"version": 1}, {**mine, "version": 2}, {**mine, "delivered": "1"}, {**mine, "source": [1]}):
        refused("state: ", wrong, root=hundred, seed=1)


def test_a_folder_that_has_changed_is_not_resumed(tmp_path):
    few(tmp_path, 20)
    plain, shuffled = DatagoClient(config(tmp_path)), DatagoClient(config(tmp_path, seed=1))
    first = [ids(client.get_sample(timeout=20) for _ in range(5)) for client in (plain, shuffled)]
    states = [client.state_dict() for client in (plain, shuffled)]
    (tmp_path / "zzz.jpg").write_bytes(jpeg(16, 16))  # behind all that was walked: plain order does not mind
    plain.load_state_dict(states[0])
    assert sorted(first[0] + ids(plain)) == [*names(20), "zzz.jpg"]
    shuffled.load_state_dict(states[1])
    with pytest.raises(SourceError, match="has changed since the state was taken .20 images then, 21 now.: it cannot be resumed"):
        list(shuffled)
    os.rename(tmp_path / "zzz.jpg", tmp_path / "0000.jpg")
    for client, state in zip((plain, shuffled), states, strict=True):
        client.load_state_dict(state)
        with pytest.raises(SourceError, match="has changed"):
            list(client)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_killed_at_fifty_moments_of_one_epoch(tmp_path):
    """Eight threads, no order among them: what was handed out before each kill and after the last one is the epoch, once."""
    small, large = jpeg(24, 24), jpeg(700, 500)
    for i in range(600):
        (tmp_path / f"{i:03d}.jpg").write_bytes(large if i % 7 == 0 else small)
    handed, state = killed_epoch(config(tmp_path, seed=3), 50, 20, random.Random(1))
    assert sorted(map(os.path.basename, handed)) == names(600)
    assert state["delivered"] == 600 and len(json.dumps(state)) < 10_000


def test_a_state_is_small_whatever_is_in_flight(hundred, many_threads):
    client = DatagoClient(config(hundred, seed=1))
    for _ in range(60):
        client.get_sample(timeout=20)
        assert len(json.dumps(client.state_dict())) < 1000
