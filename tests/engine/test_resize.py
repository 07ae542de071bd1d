"""crop_and_resize against PIL.ImageOps.fit(image, size, LANCZOS): exact to the bit, fast to a floor in dB."""

import io
import random

import numpy
import PIL
import pytest
from conftest import SMALL, TINY, config, jpeg, photo, png, read, saved
from PIL import Image, ImageOps

# Pillow 13 changed which pass comes first where the height shrinks more than the width, and with it some last bits.
pillow_13 = pytest.mark.skipif(int(PIL.__version__.split(".")[0]) < 13, reason="equal to Pillow 13 and later")


def psnr(a, b):
    square = ((a.astype(float) - b.astype(float)) ** 2).mean()
    return 99 if square == 0 else 10 * numpy.log10(255**2 / square)


def fitted(sample, mode):
    """What Pillow makes of the sample's file, at the sample's size."""
    image = Image.open(sample.id)
    return numpy.asarray(ImageOps.fit(image.convert(mode), sample.image.size, Image.LANCZOS)).reshape(sample.image.to_numpy_array().shape)


@pillow_13
@pytest.mark.parametrize("channels, mode", [(1, "L"), (3, "RGB"), (4, "RGBA"), (2, "LA")])
def test_exact_is_pillows(tmp_path, channels, mode):
    rng = random.Random(channels)
    for i in range(25):
        w, h = rng.randint(1, 300), rng.randint(1, 300)
        picture = photo(w, h, seed=i) if i % 2 else numpy.random.default_rng(i).integers(0, 256, (h, w, 3), dtype=numpy.uint8)
        alpha = numpy.random.default_rng(i).integers(0, 256, (h, w, 1), dtype=numpy.uint8)
        if channels == 2:
            rows = b"".join(b"\0" + row.tobytes() for row in numpy.concatenate([picture[:, :, :1], alpha], 2))
            data = png(w, h, 8, 4, rows)
        else:
            data = saved({1: picture[:, :, 0], 3: picture, 4: numpy.concatenate([picture, alpha], 2)}[channels])
        (tmp_path / f"{i}.png").write_bytes(data)
    samples, _ = read(config(tmp_path, image_config={**TINY, "resize_mode": "exact"}))
    assert len(samples) == 25
    for sample in samples:
        assert numpy.array_equal(sample.image.to_numpy_array(), fitted(sample, mode)), sample.id


@pillow_13
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}, {"mode": "L"}])
def test_exact_jpegs_resample_what_is_decoded(tmp_path, options):
    for i, size in enumerate([(300, 200), (64, 500), (33, 35), (200, 100)]):
        (tmp_path / f"{i}.jpg").write_bytes(jpeg(*size, seed=i, **options))
    plain, _ = read(config(tmp_path))
    exact, _ = read(config(tmp_path, image_config={**TINY, "resize_mode": "exact"}))
    for whole, sample in zip(sorted(plain, key=lambda s: s.id), sorted(exact, key=lambda s: s.id), strict=True):
        pixels = whole.image.to_numpy_array()
        image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
        wanted = numpy.asarray(ImageOps.fit(image, sample.image.size, Image.LANCZOS)).reshape(sample.image.to_numpy_array().shape)
        assert numpy.array_equal(sample.image.to_numpy_array(), wanted)


def test_pil_readers_get_the_same_pixels(tmp_path):
    from datago import DatagoClient

    for i in range(4):
        (tmp_path / f"{i}.jpg").write_bytes(jpeg(300, 200, seed=i))
        (tmp_path / f"{i}.png").write_bytes(saved(photo(120, 90, seed=i)))
    for mode in ("fast", "exact"):
        top = config(tmp_path, image_config={**TINY, "resize_mode": mode})
        raw = {s.id: s.image.to_numpy_array() for s in read(top)[0]}
        client = DatagoClient(top)
        pictures = {s["id"]: numpy.asarray(s["image"]) for s in iter(client.get_sample_auto_convert, None)}
        assert raw.keys() == pictures.keys() and len(raw) == 8
        assert all(numpy.array_equal(raw[key], pictures[key]) for key in raw)


@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"subsampling": 0}, {"subsampling": 1}, {"mode": "L"}, {"restart_marker_blocks": 2}]
)
@pytest.mark.parametrize("size", [(1000, 700), (511, 903), (300, 301), (225, 225), (120, 80)])
def test_fast_is_near_exact(tmp_path, options, size):
    """Smooth pictures at every DCT scale, odd sizes and enlargements: no shift in position or colour."""
    (tmp_path / "a.jpg").write_bytes(jpeg(*size, seed=3, **options))
    (fast,), _ = read(config(tmp_path, image_config=SMALL))
    (exact,), _ = read(config(tmp_path, image_config={**SMALL, "resize_mode": "exact"}))
    a, b = fast.image.to_numpy_array(), exact.image.to_numpy_array()
    assert a.shape == b.shape
    assert psnr(a, b) > 38
    assert abs((a.astype(float) - b.astype(float)).mean(axis=(0, 1))).max() < 0.5


def test_fast_does_not_alias(tmp_path):
    """A checkerboard of single pixels becomes grey: Lanczos leaves 127 and 128, aliasing would leave stripes."""
    board = (numpy.indices((1024, 1024)).sum(0) % 2 * 255).astype(numpy.uint8)
    (tmp_path / "a.png").write_bytes(saved(board))
    (tmp_path / "b.jpg").write_bytes(saved(board, "JPEG"))
    settings = {**TINY, "default_image_size": 100, "downsampling_ratio": 4, "min_aspect_ratio": 1, "max_aspect_ratio": 1}
    for mode in ("fast", "exact"):
        samples, _ = read(config(tmp_path, image_config={**settings, "resize_mode": mode}))
        for sample in samples:
            array = sample.image.to_numpy_array()
            assert array.shape[:2] == (100, 100) and array.min() >= 118 and array.max() <= 138, (sample.id, mode)


def test_the_crop_is_centred(tmp_path):
    """A picture twice as wide as the bucket: left and right quarters go, and the middle line stays the middle line."""
    wide = numpy.zeros((64, 256, 3), numpy.uint8)
    wide[:, :72], wide[:, 184:], wide[:, 72:128] = (255, 0, 0), (0, 0, 255), (0, 255, 0)
    (tmp_path / "a.png").write_bytes(saved(wide))
    out = io.BytesIO()
    Image.fromarray(wide).save(out, "JPEG", quality=95, subsampling=0)
    (tmp_path / "b.jpg").write_bytes(out.getvalue())
    settings = {**TINY, "min_aspect_ratio": 1.9, "max_aspect_ratio": 2.1, "default_image_size": 64, "downsampling_ratio": 2}
    for mode in ("fast", "exact"):
        for sample in read(config(tmp_path, image_config={**settings, "resize_mode": mode}))[0]:
            array = sample.image.to_numpy_array().astype(int)
            h, w = array.shape[:2]
            assert array[h // 2, 2, 0] > 200 and array[h // 2, w - 3, 2] > 200  # a little red and blue at the ends
            assert array[h // 2, w // 2 - 4, 1] > 200 and array[h // 2, w // 2 + 4].max() < 60


def test_alpha_leaves_no_fringe(tmp_path):
    """A red square on transparent magenta: nothing of the magenta may show, composited or not."""
    picture = numpy.zeros((128, 128, 4), numpy.uint8)
    picture[:] = (255, 0, 255, 0)
    picture[32:96, 32:96] = (255, 0, 0, 255)
    (tmp_path / "a.png").write_bytes(saved(picture))
    (kept,), _ = read(config(tmp_path, image_config=TINY))
    array = kept.image.to_numpy_array()
    assert array[:, :, 2][array[:, :, 3] > 0].max() == 0
    (flat,), _ = read(config(tmp_path, image_config={**TINY, "image_to_rgb8": True, "background": 0}))
    assert flat.image.to_numpy_array()[:, :, 2].max() == 0


def test_sixteen_bits_are_resampled_as_such(tmp_path):
    ramp = numpy.tile(numpy.linspace(0, 65535, 256).astype(">u2"), (256, 1))
    (tmp_path / "a.png").write_bytes(png(256, 256, 16, 0, b"".join(b"\0" + row.tobytes() for row in ramp)))
    (sample,), _ = read(config(tmp_path, image_config=TINY))
    array = sample.image.to_numpy_array()
    assert array.shape == (64, 64, 1) and array.dtype == numpy.uint16
    wanted = numpy.linspace(0, 65535, 256).reshape(64, 4).mean(1)
    assert abs(array[32, 4:-4, 0].astype(float) - wanted[4:-4]).max() < 130


@pytest.mark.slow
def test_huge_pictures_are_streamed_down(tmp_path):
    """10000 x 10000 to 512: the picture itself would be 300 MB; what is held is a band of rows."""
    import json
    import subprocess
    import sys

    picture = Image.linear_gradient("L").resize((10000, 10000), Image.BILINEAR).convert("RGB")
    picture.save(tmp_path / "a.jpg", quality=80)
    del picture
    top = config(tmp_path, image_config={**SMALL, "default_image_size": 512, "downsampling_ratio": 32})
    script = (
        "import json, resource, sys; from datago import DatagoClient; before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "config = json.loads(sys.argv[1]); config['image_config']['resize_mode'] = sys.argv[2]\n"
        "assert DatagoClient(config).get_sample(timeout=60).image.size == (512, 512)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    for mode in ("fast", "exact"):
        done = subprocess.run([sys.executable, "-c", script, json.dumps(top), mode], capture_output=True, text=True, timeout=55)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) < 40_000, mode  # kB
