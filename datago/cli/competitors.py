"""Times other packages that load images for training, by the same Meter. `datago bench --compare` runs it in an interpreter that has them.

Both packages give every picture as an array, decoded by Pillow, and cropped and resized to a square if `size` is not 0. The DataLoader
has as many workers as datago has threads.
"""

import json
import os
import sys
from typing import Any

from measure import Meter  # this file is run as a script, so its own folder is on the path


def pixels(image: Any, size: int) -> Any:
    """The pixels of a PIL image: uint8 of shape (height, width, 3)."""
    import numpy
    from PIL import Image, ImageOps

    image = image.convert("RGB")
    return numpy.asarray(ImageOps.fit(image, (size, size), Image.Resampling.LANCZOS) if size else image)


class Pictures:
    """A map-style dataset of the files `paths`."""

    def __init__(self, paths: list[str], size: int) -> None:
        self.paths, self.size = paths, size

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> Any:
        from PIL import Image

        with Image.open(self.paths[number]) as image:
            return pixels(image, self.size)


def torch_dataset(root: str, size: int) -> Pictures:
    """The dataset of the images below a folder, sorted by path."""
    suffixes = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
    paths = [os.path.join(where, name) for where, _, names in os.walk(root) for name in names if name.lower().endswith(suffixes)]
    return Pictures(sorted(paths), size)


def webdataset_dataset(shards: list[str], size: int, suffix: str) -> Any:
    """The dataset of the samples in `shards`."""
    import functools

    import webdataset

    dataset = webdataset.WebDataset(shards, shardshuffle=False, nodesplitter=lambda shards: shards, empty_check=False)
    return dataset.decode("pil").to_tuple(suffix).map_tuple(functools.partial(pixels, size=size))


def run(package: str, workers: int, seconds: float, given: dict[str, Any]) -> dict[str, Any]:
    """The row of `package`. Raises ImportError if the package is not installed."""
    import torch

    make: Any = {"torch": torch_dataset, "webdataset": webdataset_dataset}[package]
    dataset = make(**given)
    meter, going, before = Meter(seconds), True, -1
    while going and before != meter.count:
        before = meter.count
        meter.begin_pass()
        loader = iter(torch.utils.data.DataLoader(dataset, num_workers=workers, batch_size=None))
        for _ in loader:
            going = meter.add()
            if not going:
                break
        del loader  # this ends its workers, whose CPU time then counts
    row: dict[str, Any] = meter.row(workers)
    return row


if __name__ == "__main__":
    try:
        print(json.dumps(run(**json.loads(sys.stdin.read()))))
    except ImportError as error:
        print(json.dumps({"missing": str(error)}))
