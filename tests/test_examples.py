"""The programs under examples/, started as their users would."""

import os
import re
import subprocess
import sys

import pytest
from conftest import jpeg
from training import EXAMPLES, finish, kill_at, launch, steps

pytestmark = pytest.mark.slow


@pytest.mark.timeout(240)
def test_distributed_training_is_killed_and_goes_on(tmp_path):
    """159 pictures on 2 ranks, one picture broken; killed in mid-epoch; resumed on 4 ranks."""
    pytest.importorskip("torch", reason="torch is not installed")
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for i in range(159):
        (pictures / f"{i:03d}.jpg").write_bytes(jpeg(64 + i, 64, seed=i) if i != 30 else b"")
    arguments = (EXAMPLES / "distributed.py", pictures, tmp_path / "checkpoint.pt")

    lines = kill_at(launch(2, *arguments), "epoch 0 step 5 ")
    before, after = steps(lines), steps(finish(launch(4, *arguments)))
    checkpoint = min(step for _, step in after) - 1  # what came behind it was lost with the process, and is done again
    assert 4 <= checkpoint < 20
    first = [n for (_, step), ranks in before.items() if step <= checkpoint for names in ranks.values() for n in names]
    rest = [n for (epoch, _), ranks in after.items() if epoch == 0 for names in ranks.values() for n in names]
    second = [n for (epoch, _), ranks in after.items() if epoch == 1 for names in ranks.values() for n in names]
    assert len(first) == 2 * 4 * checkpoint
    for epoch in (first + rest, second):
        assert set(epoch) <= {f"{i:03d}.jpg" for i in range(159)} - {"030.jpg"}
        assert len(set(epoch)) >= 159 - 1 - 3 - 1  # the broken one; at most three dropped, once
        assert len(epoch) - len(set(epoch)) <= 1  # one was read again in the broken one's place
    for ranks in after.values():
        assert len(ranks) == 4 and len({len(names) for names in ranks.values()}) == 1  # nobody waited for anybody


def run(*arguments):
    command = [sys.executable, "-W", "ignore", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(240)
def test_a_classifier_learns_and_goes_on(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    program = EXAMPLES / "imagenet.py", tmp_path / "pictures", tmp_path / "checkpoint.pt"
    assert "stopped after step 20, 320 pictures of epoch 0" in run(*program, "--stop-after", 20)
    first, second = re.findall(r"epoch (\d): (\d+) pictures, loss ([\d.]+), (\d+)% right", run(*program))
    assert (first[:2], second[:2]) == (("0", "40"), ("1", "360"))  # the rest of the first epoch, and all of the second
    assert float(second[2]) < float(first[2]) and int(second[3]) > 70


@pytest.mark.timeout(120)
def test_buckets_are_printed(tmp_path):
    for i in range(12):
        (tmp_path / f"{i}.jpg").write_bytes(jpeg(300, (300, 200, 450)[i % 3], seed=i))
    out = run(EXAMPLES / "buckets.py", tmp_path, "--size", 128, "--batch-size", 3)
    assert re.findall(r"(\d+) x (\d+) +(\d+) pictures in (\d+) batches", out) == [
        ("96", "160", "4", "2"), ("128", "128", "4", "2"), ("160", "96", "4", "2"),
    ] and out.endswith("12 pictures\n")  # fmt: skip
