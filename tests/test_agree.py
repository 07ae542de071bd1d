"""Ranks that agree on their steps, in processes of their own that are connected by gloo on this machine."""

import io
import itertools
import os
import signal
import socket
import subprocess
import sys
import tarfile
import time

import pytest
from conftest import jpeg

from datago import SourceError
from datago.agree import agreed

torch = pytest.importorskip("torch", reason="needs torch")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]
HEAD = """
import datetime, itertools, os, sys, time
from datago import SourceError
from datago.agree import agreed
import torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
rank, world = dist.get_rank(), dist.get_world_size()
def say(*words): print(*words, flush=True)
"""
TAIL = """
dist.barrier()
dist.destroy_process_group()
"""


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start(world_size, script, tail=TAIL):
    port = str(free_port())
    children = []
    for rank in range(world_size):
        found = {"RANK": str(rank), "WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
        children.append(
            subprocess.Popen(
                [sys.executable, "-c", HEAD + script + tail],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **found},
            )
        )
    return children


def ended(children, limit=100):
    """(what each has printed, its exit code)."""
    end, said = time.monotonic() + limit, []
    try:
        for child in children:
            out, error = child.communicate(timeout=max(1, end - time.monotonic()))
            said.append((out.splitlines(), child.returncode, error[-2000:]))
    finally:
        for child in children:
            child.kill()
    return said


def printed(world_size, script):
    said = ended(start(world_size, script))
    assert all(code == 0 for _, code, _ in said), said
    return [lines for lines, _, _ in said]


@pytest.mark.parametrize("world_size", [2, 4])
def test_all_ranks_end_with_the_first(world_size):
    """Pass after pass over the same group, each with another rank that has least; the last with nothing at all on one rank."""
    script = """
for least in range(world):
    say(list(agreed(range(5 + least if rank == least else 50 + rank))))
say(list(agreed(range(5 * rank))))
say(list(agreed(range(7))))
"""
    for lines in printed(world_size, script):
        assert lines == [*(str(list(range(5 + least))) for least in range(world_size)), "[]", str(list(range(7)))]


def test_a_rank_that_stops_or_fails_ends_the_others():
    """One breaks off at the batch 3, when all have been asked for batch 4: the others have that too. Then one's batches raise at 6."""
    script = """
got = []
for batch in agreed(itertools.count()):
    got.append(batch)
    if rank == 1 and batch == 3: break
say(got)
def failing():
    for number in range(20):
        if rank == 0 and number == 6: raise KeyError("a shard")
        yield number
got = []
try:
    for batch in agreed(failing()): got.append(batch)
except KeyError as error: got.append(repr(error))
say(got)
same = []
for batch in agreed(itertools.count()):
    same.append(batch)
    if batch == 2: break
say(same, list(agreed(range(3))))
"""
    zero, one, two = printed(3, script)
    assert zero[0] == two[0] == "[0, 1, 2, 3, 4]" and one[0] == "[0, 1, 2, 3]"
    assert one[1] == two[1] == str(list(range(6))) and zero[1] == "[0, 1, 2, 3, 4, 5, \"KeyError('a shard')\"]"
    assert zero[2] == one[2] == two[2] == "[0, 1, 2] [0, 1, 2]"


SLOW = """
try:
    for batch in agreed(itertools.count(), timeout=%s):
        say("batch", batch)
        time.sleep(0.05)
except SourceError as error:
    say("ended:", error)
"""


@pytest.mark.parametrize("world_size", [2, 4])
def test_a_rank_that_is_killed_ends_the_others_with_an_error(world_size):
    children = start(world_size, SLOW % 30, tail="os._exit(0)")
    *others, victim = children
    while victim.stdout.readline() != "batch 3\n":
        pass
    victim.kill()
    began = time.monotonic()
    for lines, code, error in ended(others):
        assert code == 0 and lines[-1].startswith("ended: step ") and "a rank did not answer" in lines[-1], (lines[-3:], error)
        assert int(lines[-1].split()[2].strip(":")) >= 4
    assert time.monotonic() - began < 30
    victim.communicate()


def test_a_rank_that_hangs_is_waited_for_no_longer_than_the_timeout():
    other, victim = start(2, SLOW % 3, tail="os._exit(0)")
    while victim.stdout.readline() != "batch 3\n":
        pass
    victim.send_signal(signal.SIGSTOP)
    try:
        ((lines, code, error),) = ended([other], 60)
    finally:
        victim.kill()
        victim.communicate()
    assert code == 0 and "a rank did not answer" in lines[-1] and "timeout 3 s" in lines[-1], (lines[-3:], error)


def test_an_interrupt_ends_a_wait():
    script = """
try:
    for batch in agreed(itertools.count(), timeout=100):
        say("batch", batch)
        if rank == 1: time.sleep(100)
except KeyboardInterrupt:
    say("interrupted")
"""
    waiting, asleep = start(2, script, tail="os._exit(0)")
    try:
        for expected in ("batch 0\n", "batch 1\n"):  # the sleeper has said by then that it has a batch 1
            assert waiting.stdout.readline() == expected
        waiting.send_signal(signal.SIGINT)
        ((lines, code, error),) = ended([waiting], 40)
    finally:
        asleep.kill()
        asleep.communicate()
    assert (lines, code) == (["interrupted"], 0), error


def test_ranks_at_different_steps_are_told():
    script = """
for _ in agreed(range(2)): pass
group = dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=20))
iterator = agreed(itertools.count(), 20, group)
try:
    next(iterator)
    if rank == 0: next(iterator); next(iterator); again = iterator
    else: again = agreed(itertools.count(), 20, group)
    for _ in again: pass
except SourceError as error:
    say(error)
"""
    said = ended(start(2, script, tail="os._exit(0)"))
    assert any("ranks are at different steps" in line for lines, _, _ in said for line in lines), said


def test_one_process_has_nobody_to_agree_with(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert list(agreed(range(5))) == list(range(5))
    assert list(itertools.islice(agreed(itertools.count()), 3)) == [0, 1, 2]


def test_several_ranks_need_torch_distributed(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SourceError, match="init_process_group has to be called first"):
        next(agreed(range(5)))


IMAGES = """
import json, pathlib
from datago import DatagoBatchDataset
CROP = {{"crop_and_resize": True, "default_image_size": 32, "downsampling_ratio": 8, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2.0}}
def dataset(**arguments):
    return DatagoBatchDataset({{"source_type": "webdataset", "source_config": {{"url": {url!r}, "rank": "auto", "world_size": "auto"}},
                               "image_config": CROP, "seed": 1, "ordered": True}}, 3, **arguments)
"""


@pytest.fixture
def shards(tmp_path):
    """40 pictures of two shapes, in as many shards, that two ranks have unequally many batches of."""
    for number in range(40):
        with tarfile.open(tmp_path / f"{number:02}.tar", "w") as tar:
            data = jpeg(*((32, 32) if number % 3 else (50, 25)), seed=number)
            info = tarfile.TarInfo(f"{number:02}.jpg")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return IMAGES.format(url=str(tmp_path / "{00..39}.tar"))


def test_a_dataset_whose_ranks_agree(shards):
    """The default where steps cannot be planned; what the state says, a batch that was read ahead is not in it."""
    script = """
own = [batch["id"] for batch in dataset(steps="own")]
for steps in ("agreed", None):
    found = dataset(steps=steps)
    batches = [(batch["id"], json.dumps(found.state_dict())) for batch in found]
    assert [names for names, _ in batches] == own[: len(batches)]
    over = dataset(steps=steps)
    over.load_state_dict(json.loads(json.dumps(found.state_dict())))
    assert list(over) == []  # also where this rank had more
    handed = []
    for names, state in batches[:3]:
        handed += names
        rest = dataset(steps="own")
        rest.load_state_dict(json.loads(state))
        assert sorted(handed + [name for batch in rest for name in batch["id"]]) == sorted(name for names in own for name in names)
    found.set_epoch(1)
    assert found.state_dict()["epoch"] == 1 and not found.state_dict()["ended"]
    say(len(own), len(batches))
"""
    said = printed(2, shards + script)
    own, agreed_on = zip(*(line.split() for lines in said for line in lines), strict=True)
    assert len(set(agreed_on)) == 1 and int(agreed_on[0]) == min(map(int, own))


def test_workers_of_a_data_loader_cannot_ask(shards):
    script = """
from torch.utils.data import DataLoader
try:
    list(DataLoader(dataset(steps="agreed"), batch_size=None, num_workers=1))
except ValueError as error:
    assert "datago.agreed(loader)" in str(error), error
    say("refused")
say(len(list(agreed(DataLoader(dataset(steps="own"), batch_size=None, num_workers=2)))))
"""
    said = printed(2, shards + script)
    assert said[0] == said[1] and said[0][0] == "refused" and int(said[0][1]) > 3
