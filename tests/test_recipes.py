"""The recipes of docs/recipes.md against the PIL code that each of them stands for."""

import math
import pathlib
import re

import numpy
import pytest
from conftest import jpeg
from PIL import Image, ImageOps

torch = pytest.importorskip("torch")
PAGE = (pathlib.Path(__file__).parent.parent / "docs" / "recipes.md").read_text()
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def recipe(tmp_path):
    """Runs the block that defines `name`, on a few pictures, and gives all its batches and the names that the block has defined."""
    for folder in ("train", "val"):
        for i, size in enumerate([(500, 375), (375, 500), (640, 200), (120, 90), (333, 333), (250, 251)]):
            path = tmp_path / "imagenet" / folder / ("cat", "dog")[i % 2] / f"{i}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(jpeg(*size, seed=i))

    def run(name):
        (block,) = (block for block in re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S) if f"\n{name} = " in block)
        names = {}
        exec(block.replace('"/data/', f'"{tmp_path}/'), names)
        return list(names[name]), names

    return run


def pictures(batches):
    """Each picture's original and what became of it, as an array of shape (height, width, 3), as its batch has it."""
    found = [
        (Image.open(name), pixels.permute(1, 2, 0)) for batch in batches for name, pixels in zip(batch["id"], batch["image"], strict=True)
    ]
    assert len(found) == 6
    return found


def test_evaluation_is_timms(recipe):
    batches, names = recipe("evaluation")
    mean, std = numpy.array([0.485, 0.456, 0.406]), numpy.array([0.229, 0.224, 0.225])
    for image, got in pictures(batches):
        scaled, (w, h) = math.floor(names["size"] / names["crop_pct"]), image.size
        image = image.resize((scaled, int(scaled * h / w)) if w <= h else (int(scaled * w / h), scaled), Image.BICUBIC)
        left, top = round((image.width - 224) / 2.0), round((image.height - 224) / 2.0)
        wanted = numpy.asarray(image.crop((left, top, left + 224, top + 224)))
        pixels = numpy.rint((got.numpy().astype(float) * std + mean) * 255)
        assert (pixels == wanted).all()
        assert numpy.abs(got.numpy() - (wanted / 255 - mean) / std).max() < 1e-5
    assert sorted(target for batch in batches for target in batch["target"].tolist()) == [0, 0, 0, 1, 1, 1]


def test_training_on_buckets(recipe):
    batches, _ = recipe("training")
    assert len({batch["bucket"] for batch in batches}) >= 4
    mirrored = 0
    for image, got in pictures(batches):
        height, width, _ = got.shape
        assert width % 16 == height % 16 == 0
        fitted = torch.from_numpy(numpy.array(ImageOps.fit(image, (width, height), Image.BICUBIC)))
        straight, turned = ((pixels.double() / 255 - 0.5) / 0.5 for pixels in (fitted, fitted.flip(1)))
        right = [torch.equal(got, wanted.float().bfloat16()) for wanted in (straight, turned)]
        assert any(right)
        mirrored += right[1]
    assert 0 < mirrored < 6


def test_letterboxes(recipe):
    batches, _ = recipe("letterboxes")
    for image, got in pictures(batches):
        wanted = ImageOps.pad(image, (640, 640), Image.BILINEAR, (124, 116, 104), (0, 0))
        assert (got.numpy() == numpy.asarray(wanted)).all()
