"""Data-parallel training that can be killed and resumed. Every rank reads its own part of the samples, and all take as many steps.

    torchrun --nproc-per-node 2 examples/distributed.py PICTURES CHECKPOINT.pt

PICTURES is a folder with any number of images. Starting again with the same CHECKPOINT.pt resumes after the last checkpoint. The number
of ranks may be another one.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from datago import DatagoIterDataset

SIZE = 32


def dataset(root: str) -> DatagoIterDataset:
    return DatagoIterDataset(
        {
            "source_type": "file",
            "source_config": {"root_path": root, "rank": "auto"},
            "image_config": {
                "crop_and_resize": True, "default_image_size": SIZE, "downsampling_ratio": SIZE,
                "min_aspect_ratio": 0.9, "max_aspect_ratio": 1.1, "image_to_rgb8": True,
            },
            "seed": 2026,
            "uneven": "drop",  # a rank with one sample more than the others would wait for them in its last step
        },
        return_python_types=False,
    )  # fmt: skip


def batches(samples: Iterable[Any], size: int) -> Iterator[list[Any]]:
    batch: list[Any] = []
    for sample in samples:
        batch.append(sample)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def save(path: str, **content: Any) -> None:
    """Saves a checkpoint with the states of all ranks after one step. One rank writes it, and the file is replaced atomically."""
    states: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(states, content.pop("state"))
    if dist.get_rank() == 0:
        torch.save({**content, "states": states}, f"{path}.new")
        os.replace(f"{path}.new", path)
    dist.barrier()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures")
    parser.add_argument("checkpoint")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--save-every", type=int, default=2, help="steps between two checkpoints")
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    # A network that predicts the difference between the mean colours of a picture's upper and lower half.
    layers = torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(3 * (SIZE // 8) ** 2, 3)
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    images, first, step = dataset(arguments.pictures), 0, 0
    if os.path.exists(arguments.checkpoint):
        found = torch.load(arguments.checkpoint)
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        images.load_state_dict(found["states"])
        first, step = found["epoch"], found["step"]

    for epoch in range(first, arguments.epochs):
        images.set_epoch(epoch)  # keeps the state that was loaded, if it is of this epoch
        for batch in batches(images, arguments.batch_size):
            pixels = torch.stack([torch.from_numpy(sample.image.to_numpy_array()) for sample in batch])
            pixels = pixels.permute(0, 3, 1, 2).float() / 255
            target = pixels[:, :, : SIZE // 2].mean((2, 3)) - pixels[:, :, SIZE // 2 :].mean((2, 3))
            loss = torch.nn.functional.mse_loss(model(pixels), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            where = f"epoch {epoch} step {step} rank {dist.get_rank()}"
            sys.stdout.write("".join(f"{where} {os.path.basename(sample.id)} loss {loss.item():.4f}\n" for sample in batch))
            sys.stdout.flush()
            if step % arguments.save_every == 0:
                save(
                    arguments.checkpoint, model=model.state_dict(), optimizer=optimizer.state_dict(), epoch=epoch, step=step,
                    state=images.state_dict(),
                )  # fmt: skip
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
