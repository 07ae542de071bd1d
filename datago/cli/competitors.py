"""What else reads pictures for training, timed by the same Meter: run by `datago bench --compare` in an interpreter that has it.

Both give every picture as an array, decoded by Pillow, cropped and resized to a square of `size` if that is set; a DataLoader has as
many workers as datago has threads.
"""

import json
import os
import sys

from measure import Meter  # run as a script: what lies beside it is found


def pixels(image, size):
    """uint8 of shape (height, width, 3)."""
    import numpy
    from PIL import Image, ImageOps

    image = image.convert("RGB")
    return numpy.asarray(ImageOps.fit(image, (size, size), Image.LANCZOS) if size else image)


class Pictures:
    """A map-style dataset of the files `paths`."""

    def __init__(self, paths, size):
        self.paths, self.size = paths, size

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, number):
        from PIL import Image

        with Image.open(self.paths[number]) as image:
            return pixels(image, self.size)


def torch_dataset(root, size):
    """Of the images below a folder, sorted by their paths."""
    suffixes = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
    paths = [os.path.join(where, name) for where, _, names in os.walk(root) for name in names if name.lower().endswith(suffixes)]
    return Pictures(sorted(paths), size)


def webdataset_dataset(shards, size, suffix):
    """Of the samples in `shards`."""
    import functools

    import webdataset

    dataset = webdataset.WebDataset(shards, shardshuffle=False, nodesplitter=lambda shards: shards, empty_check=False)
    return dataset.decode("pil").to_tuple(suffix).map_tuple(functools.partial(pixels, size=size))


def run(package, workers, seconds, given):
    """A row of `package`; ImportError if it is not installed."""
    import torch

    dataset = {"torch": torch_dataset, "webdataset": webdataset_dataset}[package](**given)
    meter, going, before = Meter(seconds), True, -1
    while going and before != meter.count:
        before = meter.count
        meter.begin_pass()
        loader = iter(torch.utils.data.DataLoader(dataset, num_workers=workers, batch_size=None))
        for _ in loader:
            going = meter.add()
            if not going:
                break
        del loader  # its workers end, and their CPU time is known
    return meter.row(workers)


if __name__ == "__main__":
    try:
        print(json.dumps(run(**json.loads(sys.stdin.read()))))
    except ImportError as error:
        print(json.dumps({"missing": str(error)}))
