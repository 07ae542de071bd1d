import io
import struct

import numpy
import pytest
from conftest import chunk, config, photo, png, read
from PIL import Image, ImageOps
from test_buckets import TINY


def exif(endian, orientation, kind=3):
    """A TIFF structure with nothing but the orientation: kind 3 is SHORT, 4 LONG."""
    e = {"II": "<", "MM": ">"}[endian]
    value = struct.pack(e + "HH", orientation, 0) if kind == 3 else struct.pack(e + "I", orientation)
    return endian.encode() + struct.pack(e + "HI", 42, 8) + struct.pack(e + "H", 1) + struct.pack(e + "HHI", 0x112, kind, 1) + value + bytes(4)


def turned(picture, orientation, endian="II", kind=3, format="JPEG"):
    out = io.BytesIO()
    options = {"JPEG": {"quality": 95, "subsampling": 0}, "WEBP": {"lossless": True}}[format]
    Image.fromarray(picture).save(out, format, exif=b"Exif\0\0" + exif(endian, orientation, kind), **options)
    return out.getvalue()


CORNER = numpy.zeros((32, 64, 3), numpy.uint8)
CORNER[:16, :32] = (255, 0, 0)
# orientation: (width, height), where the red quadrant is: top or bottom, left or right
WANTED = {1: (64, 32, "TL"), 2: (64, 32, "TR"), 3: (64, 32, "BR"), 4: (64, 32, "BL"), 5: (32, 64, "TL"), 6: (32, 64, "TR"), 7: (32, 64, "BR"), 8: (32, 64, "BL"), 0: (64, 32, "TL"), 9: (64, 32, "TL")}


def where(array):
    h, w = array.shape[:2]
    spots = {"TL": (h // 4, w // 4), "TR": (h // 4, 3 * w // 4), "BL": (3 * h // 4, w // 4), "BR": (3 * h // 4, 3 * w // 4)}
    (red,) = [name for name, (y, x) in spots.items() if array[y, x, 0] > 200]
    return w, h, red


@pytest.mark.parametrize("orientation", WANTED)
@pytest.mark.parametrize("format", ["JPEG", "WEBP"])
def test_every_orientation(tmp_path, orientation, format):
    (tmp_path / "a.jpg").write_bytes(turned(CORNER, orientation, format=format))
    (sample,), _ = read(config(tmp_path))
    assert where(sample.image.to_numpy_array()) == WANTED[orientation]
    assert (sample.image.original_width, sample.image.original_height) == WANTED[orientation][:2]
    (stored,), _ = read(config(tmp_path, image_config={"apply_exif_orientation": False}))
    assert where(stored.image.to_numpy_array()) == (64, 32, "TL")


@pytest.mark.parametrize("endian", ["II", "MM"])
@pytest.mark.parametrize("kind", [3, 4])
def test_byte_orders_and_types(tmp_path, endian, kind):
    (tmp_path / "a.jpg").write_bytes(turned(CORNER, 6, endian, kind))
    (sample,), _ = read(config(tmp_path))
    assert where(sample.image.to_numpy_array()) == WANTED[6]


def test_png_exif(tmp_path):
    rows = b"".join(b"\0" + row.tobytes() for row in CORNER)
    before = png(64, 32, 8, 2, rows, chunk(b"eXIf", exif("MM", 6)))
    end = before.index(b"IEND") - 4
    plain = png(64, 32, 8, 2, rows)
    after = plain[: plain.index(b"IEND") - 4] + chunk(b"eXIf", exif("II", 8)) + before[end:]
    for data, orientation in ((before, 6), (after, 8)):
        (tmp_path / "a.png").write_bytes(data)
        (sample,), _ = read(config(tmp_path))
        assert where(sample.image.to_numpy_array()) == WANTED[orientation]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_the_bucket_is_chosen_from_the_turned_size(tmp_path, orientation, mode):
    picture = photo(200, 100, seed=2)
    (tmp_path / "a.jpg").write_bytes(turned(picture, orientation))
    (sample,), _ = read(config(tmp_path, image_config={**TINY, "resize_mode": mode}))
    array = sample.image.to_numpy_array()
    assert (array.shape[1] > array.shape[0]) == (orientation < 5)
    image = ImageOps.exif_transpose(Image.open(tmp_path / "a.jpg"))
    wanted = numpy.asarray(ImageOps.fit(image, (array.shape[1], array.shape[0]), Image.LANCZOS))
    difference = numpy.abs(array.astype(int) - wanted)
    assert difference.max() <= (2 if mode == "exact" else 12)  # (2: Pillow's own libjpeg may be another version)


@pytest.mark.parametrize("orientation", range(2, 9))
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("depth", [8, 16])
def test_every_layout_is_turned(tmp_path, orientation, channels, depth):
    dtype = numpy.uint8 if depth == 8 else numpy.uint16
    picture = numpy.random.default_rng(1).integers(0, 2**depth, (37, 53, channels)).astype(dtype)
    rows = b"".join(b"\0" + row.astype(picture.dtype.newbyteorder(">")).tobytes() for row in picture)
    (tmp_path / "a.png").write_bytes(png(53, 37, depth, [0, 0, 4, 2, 6][channels], rows, chunk(b"eXIf", exif("II", orientation))))
    (sample,), _ = read(config(tmp_path))
    turn = {2: lambda a: a[:, ::-1], 3: lambda a: a[::-1, ::-1], 4: lambda a: a[::-1], 5: lambda a: a.swapaxes(0, 1), 6: lambda a: numpy.rot90(a, 3), 7: lambda a: a[::-1, ::-1].swapaxes(0, 1), 8: lambda a: numpy.rot90(a)}
    assert numpy.array_equal(sample.image.to_numpy_array(), turn[orientation](picture))
