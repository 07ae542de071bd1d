"""The examples for accelerate, Hugging Face's Trainer and timm's loop: killed with two processes, they go on with what was left."""

import importlib.util

import pytest
from conftest import jpeg
from training import EXAMPLES, finish, kill_at, launch, steps

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def needs(package):
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"no {package}: pip install --group test-trainers")


@pytest.fixture
def pictures(tmp_path):
    for i in range(32):
        folder = tmp_path / "pictures" / ("cat", "dog")[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{i:02d}.jpg").write_bytes(jpeg(40 + i, 40, seed=i))
    return tmp_path / "pictures"


@pytest.mark.parametrize(
    "program, more, before, after",
    [
        pytest.param("with_accelerate.py", ("--workers", 2), 2, 2, marks=needs("accelerate")),
        pytest.param("with_accelerate.py", (), 2, 1, marks=needs("accelerate")),
        pytest.param("trainer.py", (), 2, 2, marks=[needs("transformers"), needs("accelerate")]),
    ],
)
def test_every_picture_once_an_epoch(program, more, before, after, pictures, tmp_path):
    arguments = EXAMPLES / program, pictures, tmp_path / "saved", "--batch-size", 2, *more
    first = steps(kill_at(launch(before, *arguments, "--save-every", 3), "epoch 0 step 5 "))
    rest = steps(finish(launch(after, *arguments)))
    saved = min(step for _, step in rest) - 1
    assert saved in (3, 6)  # every third step is saved, and on a busy machine the signal comes later than it was sent
    begun = [name for (_, step), ranks in first.items() if step <= saved for of_rank in ranks.values() for name in of_rank]
    assert len(begun) == 2 * before * saved
    for epoch, already in ((0, begun), (1, [])):
        read = [name for (of, _), ranks in rest.items() if of == epoch for of_rank in ranks.values() for name in of_rank]
        assert sorted(already + read) == [f"{i:02d}.jpg" for i in range(32)]
    assert all(len(ranks) == after for ranks in rest.values())


def test_the_loop_of_timm(pictures, tmp_path):
    arguments = EXAMPLES / "timm_train.py", pictures, "--output", tmp_path, "--batch-size", 2, "--mixup", 0.2
    resume = "--resume", tmp_path / "last.pth.tar"
    kill_at(launch(2, *arguments, *resume, "--recovery-interval", 3), "epoch 0 step 5 ")
    rest = steps(finish(launch(2, *arguments, *resume)))
    saved = min(rest)[1] - 1
    assert saved in (3, 6)  # as above
    assert min(rest)[0] == 0 and max(rest) == (1, 16)  # 16 pictures for each rank: 8 batches of 2
    assert len(rest) == 16 - saved and all(ranks == {"0": ["2"], "1": ["2"]} for ranks in rest.values())
