"""The loop of timm's train.py over datago, as torchrun starts it: its loader's protocol, mixup on tensors, --resume in mid-epoch.

    torchrun --nproc-per-node 2 examples/timm_train.py TRAIN --output OUTPUT --resume OUTPUT/last.pth.tar --mixup 0.2 --model resnet18

TRAIN is a folder of images with a folder for each class. Without --model, which wants timm, a small network is trained.
"""

import argparse
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import datago


class Loader:
    """What timm's loop takes in place of what create_loader gives: input and target, a length, a sampler that has the epoch."""

    mixup_enabled = False  # True where a loader itself mixes, which ends after --mixup-off-epoch

    def __init__(self, dataset: datago.DatagoBatchDataset) -> None:
        self.dataset = self.sampler = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.dataset:
            yield batch["image"], batch["target"]


class Mixup:
    """mixup (https://arxiv.org/abs/1710.09412) of a batch with itself reversed, as timm.data.Mixup does it in mode "batch"."""

    def __init__(self, alpha: float, classes: int, seed: int) -> None:
        self.alpha, self.classes = alpha, classes
        torch.manual_seed(seed)

    def __call__(self, image: Any, target: Any) -> tuple[Any, Any]:
        part = torch.distributions.Beta(self.alpha, self.alpha).sample()
        target = torch.nn.functional.one_hot(target, self.classes).float()
        return image * part + image.flip(0) * (1 - part), target * part + target.flip(0) * (1 - part)


def network(name: str | None, classes: int) -> Any:
    if name is None:
        return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, classes))
    import timm

    return timm.create_model(name, num_classes=classes)


def save(path: pathlib.Path, model: Any, optimizer: Any, dataset: datago.DatagoBatchDataset, **counts: Any) -> None:
    """All ranks call it: each says where it is in its data, and one writes. The names are those of timm's checkpoints."""
    states = datago.gather_state(dataset.state_dict())
    if dist.get_rank() == 0:
        content = {"state_dict": model.module.state_dict(), "optimizer": optimizer.state_dict(), "data": states, **counts}
        torch.save(content, f"{path}.new")
        pathlib.Path(f"{path}.new").replace(path)
    dist.barrier()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("--output", required=True)
    parser.add_argument("--resume", help="a checkpoint; nothing happens if it is not there yet")
    parser.add_argument("--model", help="a name that timm knows")
    parser.add_argument("--img-size", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--mixup", type=float, default=0.0)
    parser.add_argument("--recovery-interval", type=int, default=2, help="steps between two checkpoints")
    arguments = parser.parse_args()

    dist.init_process_group("gloo" if not torch.cuda.is_available() else "nccl")
    torch.set_num_threads(1)
    dataset = datago.DatagoBatchDataset(
        {
            "source_type": "file",
            "source_config": {"root_path": arguments.train, "rank": "auto"},
            "image_config": {"random_resized_crop": arguments.img_size, "horizontal_flip": 0.5},
            "seed": 2026,
            "uneven": "drop",  # a rank with one batch more would wait for the others in its last step
        },
        batch_size=arguments.batch_size, dtype="float32", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), classes="folder",
    )  # fmt: skip
    loader, classes = Loader(dataset), len(dataset.classes or {})
    mixup_fn = Mixup(arguments.mixup, classes, dist.get_rank()) if arguments.mixup else None
    torch.manual_seed(0)
    model = DistributedDataParallel(network(arguments.model, classes))
    optimizer = torch.optim.SGD(model.parameters(), arguments.lr, momentum=0.9)
    loss_fn = torch.nn.CrossEntropyLoss()  # it takes numbers of classes, and mixed ones
    first = updates = 0
    last = pathlib.Path(arguments.output) / "last.pth.tar"
    last.parent.mkdir(parents=True, exist_ok=True)
    if arguments.resume and pathlib.Path(arguments.resume).exists():
        found = torch.load(arguments.resume)
        model.module.load_state_dict(found["state_dict"])
        optimizer.load_state_dict(found["optimizer"])
        dataset.load_state_dict(found["data"])
        first, updates = found["epoch"], found["updates"]

    for epoch in range(first, arguments.epochs):
        loader.sampler.set_epoch(epoch)  # keeps what was loaded for this very epoch
        for image, target in loader:
            if mixup_fn is not None and len(image) > 1:
                image, target = mixup_fn(image, target)
            loss = loss_fn(model(image), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            updates += 1
            sys.stdout.write(f"epoch {epoch} step {updates} rank {dist.get_rank()} {len(image)} loss {loss.item():.4f}\n")
            sys.stdout.flush()
            if updates % arguments.recovery_interval == 0:
                save(last, model, optimizer, dataset, epoch=epoch, updates=updates, arch=arguments.model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
