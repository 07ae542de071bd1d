#!/usr/bin/env python3
"""Makes a folder of photographs to try datago on: crops of public-domain pictures that scikit-image's wheel carries.

    bench/pictures.py FOLDER [--count 600] [--side 430]

Writes JPEGs (some with full, most with halved chroma) and a few PNGs, seeded: the same pictures each time. A folder that
has the right number of them is left alone. Needs pillow, and scikit-image's wheel (installed, or fetched by pip into FOLDER).
"""

import argparse
import importlib.util
import io
import os
import random
import subprocess
import sys
import tempfile
import zipfile

from PIL import Image

PHOTOGRAPHS = ["astronaut.png", "chelsea.png", "coffee.png", "hubble_deep_field.jpg", "rocket.jpg"]


def photographs():
    """The photographs as PIL images, out of the installed package or else out of its wheel."""
    spec = importlib.util.find_spec("skimage")
    if spec:
        data = os.path.join(os.path.dirname(spec.origin), "data")
        return [Image.open(os.path.join(data, name)).convert("RGB") for name in PHOTOGRAPHS]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", folder, "scikit-image"], check=True
        )
        wheel = zipfile.ZipFile(os.path.join(folder, os.listdir(folder)[0]))
        return [Image.open(io.BytesIO(wheel.read(f"skimage/data/{name}"))).convert("RGB") for name in PHOTOGRAPHS]


def make(folder, count, side):
    """Writes `count` pictures of about `side` pixels a side below `folder`."""
    done = os.path.join(folder, f".{count}-{side}")
    if os.path.exists(done):
        return
    rng, sources = random.Random(7), photographs()
    for i in range(count):
        aspect = rng.choice([1.5, 1.33, 1.0, 0.75, 0.67])
        area = side * rng.uniform(0.6, 1.3)
        size = int(area * aspect**0.5), int(area / aspect**0.5)
        photo = rng.choice(sources)
        largest = min(photo.width / size[0], photo.height / size[1])
        zoom = largest * rng.uniform(0.4, 1)
        box = size[0] * zoom, size[1] * zoom
        x, y = rng.uniform(0, photo.width - box[0]), rng.uniform(0, photo.height - box[1])
        picture = photo.resize(size, Image.LANCZOS, box=(x, y, x + box[0], y + box[1]))
        path = os.path.join(folder, f"{i % 10:02d}")
        os.makedirs(path, exist_ok=True)
        if i % 20 == 19:
            picture.save(os.path.join(path, f"{i:06d}.png"))
        else:
            picture.save(os.path.join(path, f"{i:06d}.jpg"), quality=rng.choice([85, 90, 95]), subsampling=rng.choice([0, 2, 2]))
    open(done, "w").close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--side", type=int, default=430, help="pixels")
    arguments = parser.parse_args()
    make(arguments.folder, arguments.count, arguments.side)
