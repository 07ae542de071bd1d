"""accelerate's loaders over our datasets, in two processes: what it may split, and what it is refused."""

import json

import pytest
from conftest import jpeg
from training import finish, launch

pytest.importorskip("accelerate", reason="no accelerate: pip install --group test-trainers")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

PROGRAM = """
import sys, json, warnings
warnings.simplefilter("ignore")
from accelerate import Accelerator
from accelerate.data_loader import DataLoaderShard
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader
from datago import DatagoBatchDataset

def batches(rank, **more):
    source = {"root_path": sys.argv[1], **({"rank": "auto"} if rank else {})}
    config = {"source_type": "file", "source_config": source, "image_config": {"random_resized_crop": 32}, **more}
    return DatagoBatchDataset(config, batch_size=4, classes="folder")

accelerator = Accelerator(cpu=True)
said = {}
for name, rank, dispatch, workers, more in (
    ("dispatch what ranks split", True, None, 0, {}), ("dispatch with workers", True, None, 1, {}), ("shard what ranks split", True, False, 0, {}),
    ("shard without order", False, False, 0, {}), ("dispatch", False, None, 0, {}), ("shard", False, False, 0, {"ordered": True, "seed": 1}),
):
    accelerator.dataloader_config.dispatch_batches = dispatch
    # accelerate's own shards want a batch size, so these only begin an epoch
    loader = accelerator.prepare(DataLoader(batches(rank, **more), batch_size=None if dispatch is None else 1, num_workers=workers))
    try:
        said[name] = loader.set_epoch(0) if dispatch is False else sum(len(batch["image"]) for batch in loader)
    except ValueError as error:
        said[name] = str(error)
dataset = batches(True, uneven="drop")
assert accelerator.prepare(dataset) is dataset
said["dataset"] = sum(len(batch["image"]) for batch in dataset)
dataset.set_epoch(3)
state = dataset.state_dict()
dataset = batches(True, uneven="drop")
dataset.load_state_dict(state)
shard = DataLoaderShard(dataset, batch_size=None)
try:
    next(iter(shard))
except ValueError as error:
    said["epoch"] = str(error)
shard.set_epoch(3)
said["right epoch"] = sum(len(batch["image"]) for batch in shard)
sys.stdout.write(json.dumps(said) + "\\n")
"""


def test_what_accelerate_may_split(tmp_path):
    for i in range(24):
        folder = tmp_path / "pictures" / ("cat", "dog")[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{i:02d}.jpg").write_bytes(jpeg(40 + i, 40, seed=i))
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    for said in map(json.loads, finish(launch(2, program, tmp_path / "pictures"))):
        for case in ("dispatch what ranks split", "dispatch with workers", "shard what ranks split"):
            assert "would split once more" in said[case] and "give accelerator.prepare the dataset itself" in said[case]
        assert '"ordered": true and a seed' in said["shard without order"]
        assert said["dispatch"] == 12  # read by one process, images and targets sent to both
        assert said["shard"] is None  # nothing was said against it
        assert said["dataset"] == 12
        assert "accelerate's loader begins 0, the state is of 3" in said["epoch"] and said["right epoch"] == 12
