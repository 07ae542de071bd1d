"""Training with accelerate that can be killed: the next start goes on behind the last checkpoint, on any number of processes.

    accelerate launch --cpu --num_processes 2 examples/with_accelerate.py PICTURES CHECKPOINT

PICTURES is a folder of images, CHECKPOINT one for what is saved.
This file is not called accelerate.py, as Python would take it for the package.
"""

import argparse
import pathlib
import sys
from typing import Any

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

import datago

SIZE = 32


class Data:
    """What accelerate stores: it asks all processes for `state_dict` in `save_state`, and gives them the one that was written."""

    def __init__(self, dataset: datago.DatagoBatchDataset) -> None:
        self.dataset, self.epoch, self.step = dataset, 0, 0

    def state_dict(self) -> dict[str, Any]:
        return {"states": datago.gather_state(self.dataset.state_dict()), "epoch": self.epoch, "step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.dataset.load_state_dict(state["states"])
        self.epoch, self.step = state["epoch"], state["step"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures")
    parser.add_argument("checkpoint")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--save-every", type=int, default=2, help="steps between two checkpoints")
    parser.add_argument("--workers", type=int, default=0, help="DataLoader workers; none is needed")
    arguments = parser.parse_args()

    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    # A network that tells the mean colour of a picture's upper half from its lower half.
    layers = torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(3 * (SIZE // 8) ** 2, 3)
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    dataset = datago.DatagoBatchDataset(
        {
            "source_type": "file",
            "source_config": {"root_path": arguments.pictures, "rank": "auto"},
            "image_config": {"random_resized_crop": SIZE},
            "seed": 2026,
            "uneven": "drop",  # a rank with one batch more would wait for the others in its last step
        },
        batch_size=arguments.batch_size,
        dtype="float32",
        with_state=True,
    )
    # A dataset goes through `prepare` as it is. A DataLoader over it stays out: accelerate would split what the ranks have split.
    model, optimizer, dataset = accelerator.prepare(model, optimizer, dataset)
    loader = DataLoader(dataset, batch_size=None, num_workers=arguments.workers)
    data = Data(dataset)
    accelerator.register_for_checkpointing(data)
    saved = sorted(pathlib.Path(arguments.checkpoint).glob("step-*[0-9]"), key=lambda path: int(path.name[5:]))
    if saved:
        accelerator.load_state(saved[-1])

    for epoch in range(data.epoch, arguments.epochs):
        dataset.set_epoch(epoch)  # keeps what was loaded for this very epoch
        data.epoch = epoch
        for batch in loader:
            pixels = batch["image"].to(accelerator.device)
            target = pixels[:, :, : SIZE // 2].mean((2, 3)) - pixels[:, :, SIZE // 2 :].mean((2, 3))
            loss = torch.nn.functional.mse_loss(model(pixels), target)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            dataset.update(batch)  # done: from now on it is in the state
            data.step += 1
            where = f"epoch {epoch} step {data.step} rank {accelerator.process_index}"
            sys.stdout.write("".join(f"{where} {pathlib.Path(name).name} loss {loss.item():.4f}\n" for name in batch["id"]))
            sys.stdout.flush()
            if data.step % arguments.save_every == 0:  # on all ranks
                folder = pathlib.Path(arguments.checkpoint) / f"step-{data.step}"
                accelerator.save_state(f"{folder}.new")
                if accelerator.is_main_process:
                    pathlib.Path(f"{folder}.new").rename(folder)
                accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
