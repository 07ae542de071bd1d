"""Data-parallel training that can be killed: every rank reads its part, all take as many steps, and the next start goes on.

    torchrun --nproc-per-node 2 examples/distributed.py PICTURES CHECKPOINT.pt

PICTURES is a folder of images, of any number. Starting again with the same CHECKPOINT.pt, on as many ranks or on others, resumes behind
the last checkpoint.
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from datago import DatagoIterDataset

SIZE = 32


def dataset(root):
    return DatagoIterDataset(
        {
            "source_type": "file",
            "source_config": {"root_path": root, "rank": "auto"},
            "image_config": {
                "crop_and_resize": True, "default_image_size": SIZE, "downsampling_ratio": SIZE,
                "min_aspect_ratio": 0.9, "max_aspect_ratio": 1.1, "image_to_rgb8": True,
            },
            "seed": 2026,
            "uneven": "drop",  # a rank with one sample more would wait for the others in its last step
        },
        return_python_types=False,
    )  # fmt: skip


def batches(samples, size):
    batch = []
    for sample in samples:
        batch.append(sample)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def save(path, **content):
    """All ranks' states of one step, written by one of them, whole or not at all."""
    states = [None] * dist.get_world_size()
    dist.all_gather_object(states, content.pop("state"))
    if dist.get_rank() == 0:
        torch.save({**content, "states": states}, f"{path}.new")
        os.replace(f"{path}.new", path)
    dist.barrier()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("pictures")
    arguments.add_argument("checkpoint")
    arguments.add_argument("--epochs", type=int, default=2)
    arguments.add_argument("--batch-size", type=int, default=4)
    arguments.add_argument("--save-every", type=int, default=2, help="steps between two checkpoints")
    arguments = arguments.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    # A network that tells the mean colour of a picture's upper half from its lower half.
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
        images.set_epoch(epoch)  # keeps what was loaded for this very epoch
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
