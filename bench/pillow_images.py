#!/usr/bin/env python3
"""Streams Pillow's own test images, a thousand odd and broken files, and compares what both decode.

    bench/pillow_images.py [FOLDER]

Without FOLDER the images come from Pillow's source distribution, which pip fetches into a temporary folder. Every file must be
delivered or be a named failure; where Pillow and datago both give pixels of one layout these differ by at most 3 levels (JPEG
chroma of another libjpeg aside). What differs is listed.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import warnings
from collections import Counter

import numpy
from PIL import Image, ImageOps

from datago import DatagoClient
from datago.sources.file import source as files


def fetch(folder):
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", folder, "pillow"]
    subprocess.run(command, check=True)
    (name,) = os.listdir(folder)
    with tarfile.open(os.path.join(folder, name)) as archive:
        archive.extractall(folder, filter="data")
    return os.path.join(folder, name.removesuffix(".tar.gz"), "Tests", "images")


def by_pillow(path, channels, depth):
    """Pillow's pixels of a file as an array of as many channels, or None."""
    mode = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[channels]
    try:
        with Image.open(path) as image:
            image.load()
            image = ImageOps.exif_transpose(image)
            array = numpy.asarray(image if depth == 16 else image.convert(mode))
            return array.reshape(image.height, image.width, channels)
    except Exception:
        return None


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = sys.argv[1] if len(sys.argv) > 1 else fetch(temporary)
        files.SUFFIXES = frozenset(name.rpartition(b".")[2].lower() for _, _, names in os.walk(os.fsencode(folder)) for name in names)
        client = DatagoClient({"source_type": "file", "source_config": {"root_path": folder}})
        compared, apart, only = 0, [], 0
        for sample in client:
            if sample.image.bit_depth == 16 and sample.image.channels > 1:
                continue  # Pillow has no such mode
            array = sample.image.to_numpy_array().astype(int)
            wanted = by_pillow(sample.id, *array.shape[2:], sample.image.bit_depth)
            if wanted is None:
                only += 1
                continue
            compared += 1
            if wanted.shape != array.shape:
                apart.append((sample.id, f"shape {array.shape}, Pillow {wanted.shape}"))
                continue
            shown = array[:, :, -1:] > 0 if array.shape[2] in (2, 4) else 1  # under alpha 0 colours may differ
            difference = numpy.abs((array - wanted) * shown).max()
            if difference > 3:
                apart.append((sample.id, f"differs by {difference}"))
        stats = client.stats()
    print(f"{stats['seen']} files: {stats['delivered']} delivered, {stats['failed']} failed {stats['failures']}")
    print(f"{compared} compared with Pillow, {only} that only datago decodes; {len(apart)} differ by more than 3:")
    for path, what in apart:
        print(f"  {os.path.relpath(path, folder)}: {what}")
    print(Counter(what.split()[0] for _, what in apart))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
