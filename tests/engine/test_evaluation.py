"""resize, center_crop, pad and interpolation against Pillow: exact to the bit, fast to a floor in dB.

What torchvision's transforms do to a PIL image is written out here, as torchvision itself goes with one version of torch only.
"""

import random

import numpy
import PIL
import pytest
from conftest import TINY, config, jpeg, photo, png, read, saved
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
        padded = numpy.pad(numpy.asarray(image).reshape(h, w, -1), ((high // 2, (high + 1) // 2), (wide // 2, (wide + 1) // 2), (0, 0)))
        image = Image.fromarray(padded.squeeze(2) if padded.shape[2] == 1 else padded)
        w, h = image.size
    left, top = round((w - tw) / 2.0), round((h - th) / 2.0)
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
        fill, where = (
            rng.choice([0, 255, 77, [124, 116, 104]]),
            rng.choice(["center", "top_left", "top_right", "bottom_left", "bottom_right"]),
        )
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


@pillow_13
@pytest.mark.timeout(60)
@pytest.mark.parametrize("filter", FILTERS)
def test_exact_random_resized_crops_are_of_the_box_alone(tmp_path, filter):
    """Pictures of the same names and sizes have the same boxes. Where each pixel says where it is, the nearest pixels tell the box."""
    rng, pixels = random.Random(filter), {}
    for i in range(20):
        w, h = rng.randint(1, 250), rng.randint(1, 250)
        places = numpy.zeros((h, w, 3), numpy.uint8)
        places[:, :, 0], places[:, :, 1] = numpy.arange(w), numpy.arange(h)[:, None]
        pixels[f"{i}.png"] = picture(rng, w, h, 1 + i % 4)
        for folder, array in (("places", places), ("pictures", pixels[f"{i}.png"])):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / f"{i}.png").write_bytes(as_png(array))
    crop, kinds = {"size": [300, 290], "scale": [0.05, 0.9], "ratio": [0.5, 2]}, {"resize_mode": "exact", "interpolation": filter}
    found, _ = read(config(tmp_path / "places", seed=4, image_config={"random_resized_crop": crop, "interpolation": "nearest"}))
    boxes = {}
    for sample in found:
        corners = sample.image.to_numpy_array()[[0, -1], [0, -1], :2].astype(int)
        boxes[sample.id.rpartition("/")[2]] = (*corners[0], *(corners[1] + 1))
    for size in ([300, 290], [32, 48]):
        samples, _ = read(config(tmp_path / "pictures", seed=4, image_config={"random_resized_crop": {**crop, "size": size}, **kinds}))
        assert len(samples) == 20
        for sample in samples:
            name = sample.id.rpartition("/")[2]
            original = pixels[name]
            image = Image.fromarray(original[:, :, 0] if original.shape[2] == 1 else original)
            wanted = image.crop(boxes[name]).resize(tuple(size), FILTERS[filter])
            assert (sample.image.to_numpy_array() == array_of(wanted)).all(), (name, boxes[name])


@pillow_13
@pytest.mark.timeout(60)
@pytest.mark.parametrize("filter", FILTERS)
def test_exact_buckets_by_any_filter(tmp_path, filter):
    rng, pixels = random.Random(filter), {}
    for i in range(20):
        pixels[f"{i}.png"] = picture(rng, rng.randint(1, 250), rng.randint(1, 250), 1 + i % 4)
        (tmp_path / f"{i}.png").write_bytes(as_png(pixels[f"{i}.png"]))
    samples, _ = read(config(tmp_path, image_config={**TINY, "resize_mode": "exact", "interpolation": filter}))
    for sample in samples:
        original = pixels[sample.id.rpartition("/")[2]]
        image = Image.fromarray(original[:, :, 0] if original.shape[2] == 1 else original)
        assert (sample.image.to_numpy_array() == array_of(ImageOps.fit(image, sample.image.size, FILTERS[filter]))).all(), sample.id


GEOMETRIES = [
    {"resize": 128, "center_crop": 112},
    {"resize": [150, 90]},
    {"resize": 60},
    {"resize": 70, "center_crop": [60, 110], "pad": {"size": [120, 130], "where": "top_left", "fill": [250, 3, 77]}},
    {"pad": {"size": [90, 140], "where": "bottom_right", "fill": [250, 3, 77]}},
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_exact_jpegs_turned_and_fast_ones_near(tmp_path, geometry, filter):
    """JPEGs as a camera stores them, small and large, of every orientation, mirrored or not, as RGB: exact ones are what Pillow makes of
    the upright picture, and fast ones, of which only the part that is kept is resampled as it is stored, are near."""
    for orientation in range(1, 9):
        for i, size in enumerate([(611, 407), (170, 230)]):
            (tmp_path / f"{orientation}{i}.jpg").write_bytes(jpeg(*size, orientation, exif=b"Exif\0\0" + exif("MM", orientation)))
    upright = {sample.id: sample.image.to_numpy_array() for sample in read(config(tmp_path))[0]}
    for flip in (0, 1):
        image = {**geometry, "interpolation": filter, "image_to_rgb8": True, "horizontal_flip": flip}
        exact, _ = read(config(tmp_path, image_config={**image, "resize_mode": "exact"}))
        fast = {sample.id: sample.image.to_numpy_array() for sample in read(config(tmp_path, image_config=image))[0]}
        assert len(exact) == len(fast) == 16
        for sample in exact:
            wanted = array_of(reference(Image.fromarray(upright[sample.id]), image))[:, :: -1 if flip else 1]
            assert (sample.image.to_numpy_array() == wanted).all() or int(PIL.__version__.split(".")[0]) < 13, sample.id
            assert fast[sample.id].shape == wanted.shape
            if filter == "nearest":
                assert (fast[sample.id] == wanted).all()
            assert psnr(fast[sample.id], wanted) > 36, sample.id
            assert abs((fast[sample.id].astype(float) - wanted).mean(axis=(0, 1))).max() < 0.5, sample.id


def test_the_size_of_the_first_picture_is_that_of_its_mask(tmp_path):
    """A mask of half the size shows the same part, resized by its own filter; its canvas is 0."""
    from tars import tar

    pixels = photo(240, 160)
    labels = numpy.kron(numpy.arange(1, 7, dtype=numpy.uint8).reshape(2, 3), numpy.ones((40, 40), numpy.uint8))
    (tmp_path / "a.tar").write_bytes(tar([("s.png", saved(pixels)), ("s.seg.png", saved(labels))]))
    source = {"url": str(tmp_path / "a.tar"), "reference_image_type": "png", "mask_suffixes": ["seg.png"]}
    image = {"resize": 80, "center_crop": 60, "pad": {"size": [70, 64], "fill": 9, "where": "bottom_right"}, "mask_resample": "nearest"}
    (sample,) = DatagoClient({"source_type": "webdataset", "source_config": source, "image_config": {**image, "resize_mode": "exact"}})
    (mask,) = sample.masks.values()
    # 120 x 80 pixels of labels, 40 x 40 each, of which columns 30 to 90 and rows 10 to 70 are kept
    wanted = numpy.zeros((64, 70, 1), numpy.uint8)
    wanted[:60, :60, 0] = labels[10:70, 30:90]
    assert (mask.to_numpy_array() == wanted).all()
    assert sample.image.size == (70, 64) and (sample.image.to_numpy_array()[60:] == 9).all()


def test_sixteen_bits(tmp_path):
    ramp = numpy.random.default_rng(1).integers(0, 65536, (40, 60), numpy.uint16)
    (tmp_path / "a.png").write_bytes(png(60, 40, 16, 0, b"".join(b"\0" + row.astype(">u2").tobytes() for row in ramp)))
    (cut,), _ = read(config(tmp_path, image_config={"center_crop": [50, 50]}))
    wanted = numpy.zeros((50, 50, 1), numpy.uint16)
    wanted[5:45, :, 0] = ramp[:, 5:55]
    assert (cut.image.to_numpy_array() == wanted).all()
    (half,), _ = read(config(tmp_path, image_config={"pad": {"size": 30, "fill": 77, "where": "top_left"}, "interpolation": "nearest"}))
    assert (half.image.to_numpy_array()[10:, :, 0] == ramp[1::2, 1::2]).all() and (half.image.to_numpy_array()[:10] == 77 * 257).all()


def test_what_grows_beyond_max_pixels_is_a_failure(tmp_path):
    (tmp_path / "a.png").write_bytes(saved(photo(1, 2000)))
    (tmp_path / "b.jpg").write_bytes(jpeg(2000, 1))
    (tmp_path / "c.jpg").write_bytes(jpeg(40, 30))
    samples, stats = read(config(tmp_path, image_config={"resize": 64, "max_pixels": 10**6}))
    assert [sample.image.size for sample in samples] == [(85, 64)] and stats["failed"] == 2
    samples, stats = read(config(tmp_path, image_config={"resize": 64, "center_crop": 64, "max_pixels": 10**6}))
    assert [sample.image.size for sample in samples] == [(64, 64)] * 3


def test_jpegs_pass_through_unless_something_is_to_be_done(tmp_path):
    data = jpeg(64, 48)
    (tmp_path / "a.jpg").write_bytes(data)
    encode = {"pre_encode_images": True, "encode_format": "jpeg"}
    for geometry, same in [
        ({"center_crop": [64, 48]}, True),
        ({"resize": 48}, True),
        ({"pad": [64, 48]}, True),
        ({"pad": [66, 48]}, False),
    ]:
        (sample,), _ = read(config(tmp_path, image_config={**geometry, **encode}))
        assert (bytes(sample.image.data) == data) == same, geometry


@pytest.mark.timeout(60)
@pytest.mark.parametrize("geometry", [GEOMETRIES[i] for i in (0, 1, 3, 4)])
def test_batches_have_one_size(tmp_path, geometry):
    for i in range(7):
        (tmp_path / f"{i}.jpg").write_bytes(jpeg(60 + 30 * i, 150, i, mode="L" if i % 2 else "RGB"))
    image = {**geometry, "image_to_rgb8": True}
    alone = {sample.id: sample.image.to_numpy_array() for sample in read(config(tmp_path, image_config=image))[0]}
    dataset = DatagoBatchDataset(config(tmp_path, image_config=geometry, memory_limit=10**7), 3, layout="NHWC")
    found = list(dataset)
    assert [len(batch["id"]) for batch in found] == [3, 3, 1] and len(dataset) == 3
    for batch in found:
        for name, pixels in zip(batch["id"], numpy.asarray(batch["image"]), strict=True):
            assert batch["bucket"] == pixels.shape[1::-1] and (pixels == alone[name]).all()
