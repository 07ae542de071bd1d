"""Trains a classifier for two epochs on a folder with one subfolder per class, with random resized crops and random flips.

    python examples/imagenet.py PICTURES CHECKPOINT.pt

If the folder PICTURES does not exist, pictures of three classes are generated there. Starting again with the same CHECKPOINT.pt resumes
after the last checkpoint.
"""

import argparse
import os

import torch

from datago import DatagoBatchDataset

CLASSES = {"checks": 0, "columns": 1, "rows": 2}


def generate(root: str, each: int) -> None:
    """Writes `each` pictures per class: patterns of black and one random colour."""
    from PIL import Image

    generator = torch.Generator().manual_seed(1)
    for name in CLASSES:
        os.makedirs(f"{root}/{name}", exist_ok=True)
        for number in range(each):
            height, width, step = (int(torch.randint(low, high, (), generator=generator)) for low, high in ((90, 160), (90, 160), (6, 12)))
            y, x = torch.arange(height)[:, None] // step % 2, torch.arange(width)[None] // step % 2
            pattern = {"checks": y ^ x, "columns": x.expand(height, width), "rows": y.expand(height, width)}[name]
            light = torch.randint(120, 256, (3,), generator=generator)
            Image.fromarray((pattern[..., None] * light).to(torch.uint8).numpy()).save(f"{root}/{name}/{number:03d}.jpg", quality=90)


def network(classes: int) -> torch.nn.Module:
    def block(before: int, after: int) -> list[torch.nn.Module]:
        return [torch.nn.Conv2d(before, after, 3, 2, 1), torch.nn.BatchNorm2d(after), torch.nn.ReLU()]

    return torch.nn.Sequential(
        *block(3, 16), *block(16, 32), *block(32, 64), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, classes)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures")
    parser.add_argument("checkpoint")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--stop-after", type=int, help="end after so many steps, as if killed")
    arguments = parser.parse_args()
    if not os.path.isdir(arguments.pictures):
        generate(arguments.pictures, 120)

    batches = DatagoBatchDataset(
        {
            "source_type": "file",
            "source_config": {"root_path": arguments.pictures},
            "image_config": {"random_resized_crop": {"size": 64, "scale": [0.25, 1]}, "horizontal_flip": 0.5},
            "seed": 2026,
        },
        batch_size=arguments.batch_size, dtype="float32", mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225], classes="folder",
    )  # fmt: skip
    torch.manual_seed(0)
    model = network(len(batches.classes or ()))
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    first, step = 0, 0
    if os.path.exists(arguments.checkpoint):
        found = torch.load(arguments.checkpoint)
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        batches.load_state_dict(found["data"])
        first, step = found["epoch"], found["step"]

    for epoch in range(first, arguments.epochs):
        batches.set_epoch(epoch)  # keeps the state that was loaded, if it is of this epoch
        losses, right, seen = [], 0, 0
        for batch in batches:
            scores = model(batch["image"])
            loss = torch.nn.functional.cross_entropy(scores, batch["target"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            losses.append(loss.item())
            right, seen = right + (scores.argmax(1) == batch["target"]).sum().item(), seen + len(batch["id"])
            if step % 10 == 0 or step == arguments.stop_after:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "data": batches.state_dict()}
                torch.save({**state, "epoch": epoch, "step": step}, f"{arguments.checkpoint}.new")
                os.replace(f"{arguments.checkpoint}.new", arguments.checkpoint)
            if step == arguments.stop_after:
                print(f"stopped after step {step}, {seen} pictures of epoch {epoch}")
                return
        print(f"epoch {epoch}: {seen} pictures, loss {sum(losses) / len(losses):.3f}, {right / seen:.0%} right")


if __name__ == "__main__":
    main()
