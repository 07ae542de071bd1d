"""resize, center_crop, pad and interpolation against Pillow: exact to the bit, fast to a floor in dB.

What torchvision's transforms do to a PIL image is written out here, as torchvision itself goes with one version of torch only.
"""

import io
import random

import numpy
import PIL
import pytest
from conftest import config, jpeg, photo, png, read, saved
from PIL import Image, ImageOps
from test_orientation import exif
from test_resize import psnr

from datago import DatagoBatchDataset, DatagoClient

FILTERS = {
    "lanczos": Image.LANCZOS, "bicubic": Image.BICUBIC, "bilinear": Image.BILINEAR, "box": Image.BOX, "nearest": Image.NEAREST,
}  # fmt: skip
# Pillow 13 changed which pass comes first where the height shrinks more than the width, and with it some last bits.
pillow_13 = pytest.mark.skipif(int(PIL.__version__.split(".")[0]) < 13, reason="equal to Pillow 13 and later")


def pair(value):
    return (value, value) if isinstance(value, int) else tuple(value)


def resize(image, size, filter):
    """torchvision's Resize: of an integer the shorter side becomes that, the longer one is rounded down."""
    if isinstance(size, int):
        w, h = image.size
        size = (size, int(size * h / w)) if w <= h else (int(size * w / h), size)
    return image.resize(tuple(size), filter)


def center_crop(image, size):
    """torchvision's CenterCrop: first zeros where the picture is too small, then a cut whose corner is rounded as Python rounds."""
    (tw, th), (w, h) = pair(size), image.size
    wide, high = max(tw - w, 0), max(th - h, 0)
    if wide or high:
        padded = numpy.pad(
            numpy.asarray(image).reshape(h, w, -1), ((high // 2, (high + 1) // 2), (wide // 2, (wide + 1) // 2), (0, 0))
        )
        image = Image.fromarray(padded.squeeze(2) if padded.shape[2] == 1 else padded)
        w, h = image.size
    left, top = int(round((w - tw) / 2.0)), int(round((h - th) / 2.0))
    return image.crop((left, top, left + tw, top + th))


def letterbox(image, size, filter, fill=0, where="center", fit=True):
    """PIL.ImageOps.pad; of a picture that is not to be resized, what that does with a picture that has been."""
    across, down = {"center": (0.5, 0.5), "top_left": (1, 1), "top_right": (0, 1), "bottom_left": (1, 0), "bottom_right": (0, 0)}[where]
    if fit:
        fitted = ImageOps.contain(image, size, filter)
        image = fitted if all(fitted.size) else image.resize((max(fitted.width, 1), max(fitted.height, 1)), filter)  # something is shown
    colour = Image.new("RGB", (1, 1), pair(fill) * 2 if isinstance(fill, int) else tuple(fill)).convert(image.mode)
    canvas = Image.new(image.mode, size, colour.getpixel((0, 0)))
    canvas.paste(image, (round((size[0] - image.width) * across), round((size[1] - image.height) * down)))
    return canvas


def reference(image, settings):
    """The image_config in Pillow's terms."""
    filter = FILTERS[settings.get("interpolation", "lanczos")]
    if "resize" in settings:
        image = resize(image, settings["resize"], filter)
    if "center_crop" in settings:
        image = center_crop(image, settings["center_crop"])
    if "pad" in settings:
        given = settings["pad"] if isinstance(settings["pad"], dict) else {"size": settings["pad"]}
        fit = not ("resize" in settings or "center_crop" in settings)
        image = letterbox(image, pair(given["size"]), filter, given.get("fill", 0), given.get("where", "center"), fit)
    return image


def picture(rng, width, height, channels):
    """Noise, or a smooth picture, of 1 to 4 channels; where alpha is 0, the colour is not."""
    noise = numpy.random.default_rng(rng.randrange(2**32))
    colour = photo(width, height, rng.randrange(99)) if rng.random() < 0.5 else noise.integers(0, 256, (height, width, 3), numpy.uint8)
    alpha = noise.choice(numpy.array([0, 1, 30, 128, 254, 255], numpy.uint8), (height, width, 1))
    return {1: colour[:, :, :1], 2: numpy.concatenate([colour[:, :, :1], alpha], 2), 3: colour, 4: numpy.concatenate([colour, alpha], 2)}[
        channels
    ]


def as_png(array):
    height, width, channels = array.shape
    return png(width, height, 8, {1: 0, 2: 4, 3: 2, 4: 6}[channels], b"".join(b"\0" + row.tobytes() for row in array))


def array_of(image):
    return numpy.asarray(image).reshape(image.height, image.width, -1)


def side(rng):
    return rng.choice([1, 2, 3, rng.randint(1, 20), rng.randint(1, 300), rng.randint(1, 300)])


def random_settings(rng, filter):
    """A geometry of each kind; sizes to enlarge and to shrink to, smaller and larger than what is cropped or padded."""
    settings, kind = {"interpolation": filter, "resize_mode": "exact"}, rng.randrange(7)
    if kind in (0, 1, 2):
        settings["resize"] = rng.randint(1, 40) if kind else [side(rng), side(rng)]
    if kind in (1, 3, 5):
        settings["center_crop"] = rng.choice([side(rng), [side(rng), side(rng)]])
    if kind in (4, 5, 6):
        crop = pair(settings.get("center_crop", 0))
        if kind == 6:
            crop = settings["resize"] = [side(rng), side(rng)]
        fill, where = rng.choice([0, 255, 77, [124, 116, 104]]), rng.choice(["center", "top_left", "top_right", "bottom_left", "bottom_right"])
        settings["pad"] = {"size": [crop[0] + side(rng) - 1 or 1, crop[1] + side(rng) - 1 or 1], "fill": fill, "where": where}
    return settings


@pillow_13
@pytest.mark.timeout(240)
@pytest.mark.parametrize("simd", ["generic", None])
@pytest.mark.parametrize("filter", FILTERS)
def test_exact_is_pillows(tmp_path, monkeypatch, filter, simd):
    if simd:
        monkeypatch.setenv("DATAGO_SIMD", simd)
    rng = random.Random(filter)
    originals = {}
    for i in range(24):
        w, h = rng.choice([(side(rng), side(rng)), (rng.randint(1, 400), rng.randint(1, 400)), (1, 400), (400, 1), (1, 1)])
        if i >= 20:
            w, h = 37 + i, 200 - 5 * i
        originals[f"{i}.png"] = picture(rng, w, h, 1 + i % 4)
        (tmp_path / f"{i}.png").write_bytes(as_png(originals[f"{i}.png"]))
    compared = 0
    for _ in range(40):
        settings = random_settings(rng, filter)
        samples, stats = read(config(tmp_path, image_config=settings))
        assert len(samples) == 24, (settings, stats)
        for sample in samples:
            original = originals[sample.id.rpartition("/")[2]]
            image = Image.fromarray(original[:, :, 0] if original.shape[2] == 1 else original)
            wanted, got = array_of(reference(image, settings)), sample.image.to_numpy_array()
            assert got.shape == wanted.shape and (got == wanted).all(), (settings, original.shape, sample.id)
            compared += 1
    assert compared == 960
