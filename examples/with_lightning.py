"""Lightning training that can be killed: the next start goes on behind the last checkpoint, with every picture once an epoch.

    python examples/with_lightning.py PICTURES CHECKPOINTS --devices 2 --workers 1

PICTURES is a folder of images, CHECKPOINTS one for what is saved.
This file is not called lightning.py, as Python would take it for the package.
"""

import argparse
import pathlib
import sys
import warnings
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from datago import DatagoBatchDataset
from datago.lightning import DataModule

SIZE = 32


class Model(L.LightningModule):
    """Tells the mean colour of a picture's upper half from its lower half."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(3 * (SIZE // 8) ** 2, 3))

    def training_step(self, batch: dict[str, Any], index: int) -> Any:
        pixels = batch["image"]
        target = pixels[:, :, : SIZE // 2].mean((2, 3)) - pixels[:, :, SIZE // 2 :].mean((2, 3))
        loss = torch.nn.functional.mse_loss(self.net(pixels), target)
        where = f"epoch {self.current_epoch} step {self.global_step + 1} rank {self.global_rank}"
        sys.stdout.write("".join(f"{where} {pathlib.Path(name).name} loss {loss.item():.4f}\n" for name in batch["id"]))
        sys.stdout.flush()
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), 1e-2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures")
    parser.add_argument("checkpoints")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--save-every", type=int, default=2, help="steps between two checkpoints")
    parser.add_argument("--devices", type=int, default=1, help="processes")
    parser.add_argument("--workers", type=int, default=0, help="DataLoader workers of each; none is needed")
    arguments = parser.parse_args()

    warnings.simplefilter("ignore")
    L.seed_everything(0, verbose=False)
    data = DataModule(
        DatagoBatchDataset(
            {
                "source_type": "file",
                "source_config": {"root_path": arguments.pictures, "rank": "auto"},
                "image_config": {"random_resized_crop": SIZE},
                "seed": 2026,
                "uneven": "drop",  # a rank with one batch more would wait for the others in its last step
            },
            batch_size=arguments.batch_size,
            dtype="float32",
        ),
        workers=arguments.workers,
    )
    last = pathlib.Path(arguments.checkpoints) / "last.ckpt"
    trainer = L.Trainer(
        accelerator="cpu", devices=arguments.devices, strategy="ddp" if arguments.devices > 1 else "auto", max_epochs=arguments.epochs,
        callbacks=[ModelCheckpoint(last.parent, filename="last", every_n_train_steps=arguments.save_every, enable_version_counter=False)],
        logger=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    # weights_only is False as Lightning's own checkpoints have more than tensors in them; what datago stores is plain numbers and text.
    trainer.fit(Model(), data, **({"ckpt_path": last, "weights_only": False} if last.exists() else {}))


if __name__ == "__main__":
    main()
