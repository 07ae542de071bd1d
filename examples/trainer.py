"""Hugging Face's Trainer over datago, killed at any time: the next start goes on behind the last checkpoint.

    torchrun --nproc-per-node 2 examples/trainer.py PICTURES CHECKPOINTS

PICTURES is a folder of images, CHECKPOINTS one for what is saved.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

import datago

SIZE = 32
STATES = "datago.json"  # in a checkpoint's folder


class Model(torch.nn.Module):
    """Tells the mean colour of a picture's upper half from its lower half."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(3 * (SIZE // 8) ** 2, 3))

    def forward(self, pixel_values: Any) -> dict[str, Any]:
        target = pixel_values[:, :, : SIZE // 2].mean((2, 3)) - pixel_values[:, :, SIZE // 2 :].mean((2, 3))
        return {"loss": torch.nn.functional.mse_loss(self.net(pixel_values), target)}


class Batches:
    """What the Trainer's loop reads: the arguments of the model's `forward`, and the names, which are only printed."""

    def __init__(self, dataset: datago.DatagoBatchDataset) -> None:
        self.dataset, self.epoch = dataset, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.dataset.set_epoch(epoch)  # keeps what was loaded for this very epoch

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.dataset:
            yield {"pixel_values": batch["image"], "names": batch["id"]}


class DatagoTrainer(Trainer):
    """A Trainer whose batches are those of a dataset, not ones that accelerate would split or put together."""

    def get_train_dataloader(self) -> Batches:
        self.batches = Batches(self.train_dataset)
        return self.batches

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Any:
        names = inputs.pop("names")
        loss = super().training_step(model, inputs, num_items_in_batch)
        where = f"epoch {self.batches.epoch} step {self.state.global_step + 1} rank {self.args.process_index}"
        sys.stdout.write("".join(f"{where} {pathlib.Path(name).name} loss {loss.item():.4f}\n" for name in names))
        sys.stdout.flush()
        return loss


class SaveStates(TrainerCallback):
    """Writes the state of all ranks beside each checkpoint; `on_save` runs on all of them."""

    def __init__(self, dataset: datago.DatagoBatchDataset) -> None:
        self.dataset = dataset

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        states = datago.gather_state(self.dataset.state_dict())
        if state.is_world_process_zero:
            path = pathlib.Path(args.output_dir) / f"checkpoint-{state.global_step}" / STATES
            path.write_text(json.dumps(states))


def last_whole(folder: str) -> pathlib.Path | None:
    """The last checkpoint that has its states: the process may have been killed before they were written."""
    for path in sorted(pathlib.Path(folder).glob("checkpoint-*"), key=lambda path: int(path.name[11:]), reverse=True):
        if (path / STATES).exists():
            return path
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures")
    parser.add_argument("checkpoints")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--save-every", type=int, default=2, help="steps between two checkpoints")
    arguments = parser.parse_args()

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
    )
    settings = TrainingArguments(
        arguments.checkpoints, num_train_epochs=arguments.epochs, per_device_train_batch_size=arguments.batch_size,
        save_steps=arguments.save_every, use_cpu=True, report_to=[], disable_tqdm=True, logging_strategy="no",
        ignore_data_skip=True,  # the dataset goes on by itself; the Trainer would read again what it has had, and throw it away
    )  # fmt: skip
    trainer = DatagoTrainer(Model(), settings, train_dataset=dataset, callbacks=[SaveStates(dataset)])
    checkpoint = last_whole(arguments.checkpoints)
    if checkpoint:
        dataset.load_state_dict(json.loads((checkpoint / STATES).read_text()))
    trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint))


if __name__ == "__main__":
    main()
