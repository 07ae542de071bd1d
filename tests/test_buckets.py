import math
import random

import pytest
from conftest import config, photo, read
from test_sample import saved

import datago
from datago import DatagoClient

LARGE = {"crop_and_resize": True, "default_image_size": 1024, "downsampling_ratio": 32, "min_aspect_ratio": 0.5, "max_aspect_ratio": 2.0}
SMALL = {**LARGE, "default_image_size": 224, "downsampling_ratio": 16}
TINY = {**LARGE, "default_image_size": 64, "downsampling_ratio": 16}


def by_the_book(size, ratio, least, most):
    """The list as the contract words it, keys as text."""
    p = size // ratio
    area, found = p * p, {}
    for pw in range(math.ceil(math.sqrt(area * least)), math.floor(math.sqrt(area * most)) + 1):
        w, h = pw * ratio, math.floor(area / pw) * ratio
        found[f"{w / h:.3f}"] = (w, h)
    for ph in range(math.ceil(math.sqrt(area / most)), math.floor(math.sqrt(area / least)) + 1):
        w, h = math.floor(area / ph) * ratio, ph * ratio
        found[f"{w / h:.3f}"] = (w, h)
    return [found[key] for key in sorted(found, key=float)]


def test_known_lists():
    large = datago.aspect_buckets(1024, 32, 0.5, 2.0)
    assert len(large) == 27 and large[0] == (704, 1440) and large[-1] == (1440, 704)
    assert datago.aspect_buckets(224, 16, 0.5, 2.0) == [
        (160, 304), (160, 288), (176, 272), (192, 256), (208, 240), (224, 224),
        (240, 208), (256, 192), (272, 176), (288, 160), (304, 160)]


@pytest.mark.parametrize("seed", range(40))
def test_lists_by_the_book(seed):
    rng = random.Random(seed)
    ratio = rng.choice([1, 8, 14, 16, 32, 64])
    size = ratio * rng.randint(2, 60) + rng.randint(0, ratio - 1)
    least = rng.uniform(0.2, 1)
    most = rng.uniform(1, 4)
    assert datago.aspect_buckets(size, ratio, least, most) == by_the_book(size, ratio, least, most)


def test_the_choice(tmp_path):
    """Nearest aspect, ties up, ends beyond the ends; on real pictures."""
    buckets = datago.aspect_buckets(64, 16, 0.5, 2.0)
    rng = random.Random(5)
    sizes = {(rng.randint(1, 90), rng.randint(1, 90)) for _ in range(60)} | {(1, 1), (1, 90), (90, 1), (64, 64)}
    for w, h in sizes:
        (tmp_path / f"{w}x{h}.png").write_bytes(saved(photo(w, h)))
    samples, _ = read(config(tmp_path, image_config=TINY))
    assert len(samples) == len(sizes)
    for sample in samples:
        w, h = sample.image.original_width, sample.image.original_height
        assert sample.id.endswith(f"/{w}x{h}.png")
        wanted = min(reversed(buckets), key=lambda bucket: abs(round(bucket[0] / bucket[1], 3) - w / h))
        assert (sample.image.width, sample.image.height) == wanted, (w, h)


@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_a_picture_of_a_buckets_size_is_untouched(tmp_path, mode):
    from conftest import jpeg

    (tmp_path / "a.png").write_bytes(saved(photo(48, 80)))
    (tmp_path / "b.jpg").write_bytes(jpeg(64, 64))
    assert (48, 80) in datago.aspect_buckets(64, 16, 0.5, 2.0)
    plain, _ = read(config(tmp_path, ordered=True))
    cropped, _ = read(config(tmp_path, ordered=True, image_config={**TINY, "resize_mode": mode}))
    assert [bytes(s.image.data) for s in cropped] == [bytes(s.image.data) for s in plain]


@pytest.mark.parametrize("size", [(1, 1), (1, 2000), (2000, 1), (1920, 3)])
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_extreme_shapes(tmp_path, size, kind, mode):
    (tmp_path / f"a.{kind.lower()}").write_bytes(saved(photo(*size), kind))
    (sample,), _ = read(config(tmp_path, image_config={**SMALL, "resize_mode": mode}))
    ends = (160, 304), (304, 160), (224, 224)
    assert (sample.image.width, sample.image.height) == ends[0 if size[0] < size[1] else 1 if size[0] > size[1] else 2]


@pytest.mark.parametrize("change, wanted", [
    ({"default_image_size": 0}, "default_image_size"),
    ({"downsampling_ratio": 0}, "downsampling_ratio"),
    ({"downsampling_ratio": -1}, "downsampling_ratio: got -1"),
    ({"default_image_size": 20, "downsampling_ratio": 32}, "default_image_size: got 20, wanted at least downsampling_ratio"),
    ({"min_aspect_ratio": 3.0}, "max_aspect_ratio: got 2.0, wanted at least min_aspect_ratio, which is 3.0"),
    ({"min_aspect_ratio": float("nan")}, "min_aspect_ratio: got nan"),
    ({"max_aspect_ratio": "2"}, "max_aspect_ratio: got '2'"),
    ({"crop_and_resize": "False"}, "crop_and_resize: got 'False', wanted true or false"),
    ({"resize_mode": "best"}, "resize_mode: got 'best', wanted one of 'fast', 'exact'"),
    ({"background": [1, 2]}, "background: got \\[1, 2\\], wanted a grey level"),
    ({"jpeg_quality": 300}, "jpeg_quality: got 300, wanted an integer from 0 to 255"),
])
def test_wrong_settings(change, wanted):
    with pytest.raises(ValueError, match=wanted):
        DatagoClient(config("/pictures", image_config={**LARGE, **change}))


def test_wrong_arguments():
    for arguments in [(0, 16, 0.5, 2), (64, 0, 0.5, 2), (64, 16, 2, 1), (64, 16, 0, 1), (64, 16, float("nan"), 1),
                      (2**40, 16, 0.5, 2), (64, -(2**70), 0.5, 2)]:
        with pytest.raises(ValueError):
            datago.aspect_buckets(*arguments)
