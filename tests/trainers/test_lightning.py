"""Lightning's Trainer over our datasets: what it stores, and what it goes on with."""

import logging
import pathlib

import pytest
from conftest import jpeg
from training import EXAMPLES, finish, kill_at, start, steps

L = pytest.importorskip("lightning", reason="no lightning: pip install --group test-trainers")
import torch  # noqa: E402

from datago import DatagoBatchDataset, DatagoIterDataset  # noqa: E402
from datago.lightning import DataModule, Loader  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60), pytest.mark.filterwarnings("ignore")]
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net, self.seen = torch.nn.Linear(3, 1), []

    def training_step(self, batch, index):
        self.seen.append((self.current_epoch, sorted(pathlib.Path(name).name for name in batch["id"])))
        assert "state" not in batch
        return self.net(batch["image"].mean((2, 3))).mean()

    def validation_step(self, batch, index):
        assert len(batch["id"])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    root = tmp_path_factory.mktemp("all") / "pictures"
    root.mkdir()
    for i in range(5):  # a folder that these count for: a pass has fewer batches than its length says
        (root.parent / f"{i}.jpg").write_bytes(b"broken")
    for i in range(18):
        (root / f"{i:02d}.jpg").write_bytes(jpeg(*[(40, 40), (60, 40), (40, 60)][i % 3], seed=i))
    return root


CROPS = {"random_resized_crop": 32}
BUCKETS = {"crop_and_resize": True, "default_image_size": 32, "downsampling_ratio": 16, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2.0}


def batches(root, image=CROPS, **more):
    of_source = {"root_path": str(root), "random_sampling": True}
    config = {"source_type": "file", "source_config": of_source, "seed": 1, "ordered": True, "image_config": image}
    return DatagoBatchDataset({**config, **more}, batch_size=4, dtype="float32")


class SaveAlways(L.Callback):
    def __init__(self, root):
        self.root, self.saved = root, []

    def on_train_batch_end(self, trainer, *_):
        self.save(trainer, "batch")

    def on_train_epoch_end(self, trainer, *_):
        self.save(trainer, "epoch")

    def save(self, trainer, when):
        path = self.root / f"{when}-{trainer.global_step}.ckpt"
        trainer.save_checkpoint(path)
        self.saved.append((trainer.global_step, path))


def fit(data, callbacks=(), checkpoint=None, **more):
    model = Model()
    trainer = L.Trainer(
        accelerator="cpu", max_epochs=3, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=list(callbacks), num_sanity_val_steps=0, **more,
    )  # fmt: skip
    loaders = {"datamodule": data} if isinstance(data, DataModule) else {"train_dataloaders": data}
    trainer.fit(model, **loaders, **({"ckpt_path": checkpoint, "weights_only": False} if checkpoint else {}))
    return model.seen


KINDS = {
    "length": lambda root: batches(root),
    "shorter": lambda root: batches(root.parent),
    "buckets": lambda root: batches(root, BUCKETS),
    "workers": lambda root: DataModule(batches(root), workers=1),
    "bucket-workers": lambda root: DataModule(batches(root, BUCKETS), batches(root), workers=2),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_checkpoint_goes_on_behind_its_last_batch(kind, pictures, tmp_path):
    saver = SaveAlways(tmp_path)
    whole = fit(KINDS[kind](pictures), [saver])
    names = sorted(path.name for path in pictures.iterdir())
    for epoch in range(3):
        assert sorted(name for of, batch in whole for name in batch if of == epoch) == names
    assert [batch for epoch, batch in whole if epoch == 0] != [batch for epoch, batch in whole if epoch == 1]  # each has its own order
    assert len(saver.saved) == len(whole) + 3
    turns = kind != "bucket-workers"  # there workers take turns, which begin anew; and to start them takes its time
    for step, path in saver.saved if turns else saver.saved[2:9]:
        rest = fit(KINDS[kind](pictures), checkpoint=path)
        assert rest == whole[step:] if turns else sorted(rest) == sorted(whole[step:]), path.name


def test_a_trainer_whose_user_sets_the_epochs(pictures):
    data = batches(pictures)

    class Seven(L.Callback):
        def on_train_epoch_start(self, trainer, _):
            data.set_epoch(7)

    seen = fit(data, [Seven()])
    assert [batch for epoch, batch in seen if epoch == 1] == [batch for epoch, batch in seen if epoch == 2]


def test_a_loader_outside_of_a_trainer(pictures):
    loader = Loader(batches(pictures), workers=2)
    assert len(loader) == 6  # 9 pictures for each worker
    assert sorted(name for batch in loader for name in batch["id"]) == sorted(str(path) for path in pictures.iterdir())
    with pytest.raises(ValueError, match="return_python_types=False"):
        Loader(DatagoIterDataset({"source_type": "file", "source_config": {"root_path": str(pictures)}}, return_python_types=False), 1)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("before, after, workers", [(1, 1, 2), (2, 2, 1), (2, 4, 0), (4, 1, 0)])
def test_ranks_are_killed_and_go_on(before, after, workers, tmp_path):
    names = [f"{i:02d}.jpg" for i in range(32)]
    for i, name in enumerate(names):
        (tmp_path / "pictures").mkdir(exist_ok=True)
        (tmp_path / "pictures" / name).write_bytes(jpeg(40 + i, 40, seed=i))
    program = EXAMPLES / "with_lightning.py", tmp_path / "pictures", tmp_path / "saved", "--batch-size", 2, "--workers", workers
    first = steps(kill_at(start(*program, "--devices", before, "--save-every", 3), "epoch 0 step 4 "))
    rest = steps(finish(start(*program, "--devices", after)))
    saved = min(step for _, step in rest) - 1
    assert saved in (3, 6)  # every third step is saved, and on a busy machine the signal comes later than it was sent
    begun = [name for (_, step), ranks in first.items() if step <= saved for of_rank in ranks.values() for name in of_rank]
    assert len(begun) == 2 * before * saved
    for epoch, already in ((0, begun), (1, [])):
        read = [name for (of, _), ranks in rest.items() if of == epoch for of_rank in ranks.values() for name in of_rank]
        # 32 pictures are dealt out evenly before; what is left of them need not be, and "drop" leaves fewer than `after` out
        assert len(already + read) == len(set(already + read)) and 32 - len(already + read) == (32 - len(already)) % after
    assert all(len(ranks) == after for ranks in rest.values())
