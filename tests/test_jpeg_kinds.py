"""JPEGs of kinds that libjpeg, or this version of it, does not read, and those that would take it too long for nothing."""

import io
import struct

import numpy
import pytest
from conftest import config, decode, jpeg, photo
from PIL import Image, ImageOps, features
from test_buckets import TINY

from datago import DatagoClient, SampleError

ACCEPT = {"on_damaged": "accept", "on_truncated": "accept"}


def refused(tmp_path, data, **top):
    """(reason, text) of the failure that a picture is."""
    (tmp_path / "x.jpg").write_bytes(data)
    with DatagoClient(config(tmp_path, on_error="raise", **top)) as client, pytest.raises(SampleError) as caught:
        client.get_sample(timeout=60)
    return caught.value.reason, str(caught.value).partition(": ")[2].partition(": ")[2]


def marker(code, content):
    return bytes([0xFF, code]) + struct.pack(">H", len(content) + 2) + content


def entropy(bits):
    bits += "1" * (-len(bits) % 8)
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8)).replace(b"\xff", b"\xff\0")


def scan(components, first=0, last=63, high=0, low=0):
    return marker(0xDA, bytes([len(components)]) + b"".join(bytes([c, 0]) for c in components) + bytes([first, last, high << 4 | low]))


def huffman(kind, symbols):
    """A table whose codes all have 8 bits."""
    return marker(0xC4, bytes([kind << 4]) + bytes(7) + bytes([len(symbols)]) + bytes(8) + bytes(symbols))


def frame(code, width, height, components=3, bits=8):
    return marker(code, struct.pack(">BHHB", bits, height, width, components) + b"".join(bytes([c + 1, 0x11, 0]) for c in range(components)))


def lossless(grey, bits=8):
    """A lossless JPEG (SOF3) of a grey picture: the difference to the left neighbour, in the first column to the one above."""
    code = ""
    for y, row in enumerate(grey.astype(int)):
        for x, value in enumerate(row):
            left = row[x - 1] if x else grey[y - 1, 0] if y else 1 << bits - 1
            difference = int(value) - int(left)
            size = abs(difference).bit_length()
            code += f"{size:08b}" + (f"{difference if difference > 0 else difference + (1 << size) - 1:0{size}b}" if size else "")
    height, width = grey.shape
    return b"\xff\xd8" + frame(0xC3, width, height, 1, bits) + huffman(0, range(17)) + scan([1], 1, 0) + entropy(code) + b"\xff\xd9"


@pytest.mark.parametrize("image", [{}, {**TINY, "resize_mode": "exact"}, TINY])
def test_lossless(tmp_path, image):
    """By Pillow, where libjpeg is too old for it."""
    pixels = photo(90, 70)[:, :, 0]
    data = lossless(pixels)
    if not features.check_feature("libjpeg_turbo") or features.version("libjpeg_turbo") < "3":
        pytest.skip("Pillow's libjpeg cannot read it either")
    assert (numpy.asarray(Image.open(io.BytesIO(data))) == pixels).all()
    array, reason = decode(tmp_path, data, image_config=image)
    assert reason is None and array.shape[2] == 1
    if not image:
        assert (array[:, :, 0] == pixels).all()
    else:
        wanted = ImageOps.fit(Image.fromarray(pixels), (array.shape[1], array.shape[0]), Image.LANCZOS)
        assert numpy.abs(array[:, :, 0].astype(int) - numpy.asarray(wanted)).max() <= 1


def test_sound_files_that_nobody_reads_are_unsupported(tmp_path):
    twelve = jpeg(16, 16).replace(b"\x08\x00\x10\x00\x10", b"\x0c\x00\x10\x00\x10", 1)
    hierarchical = jpeg(16, 16).replace(b"\xff\xc0", b"\xff\xc5", 1)
    for data in (twelve, hierarchical, lossless(photo(20, 20)[:, :, 0], bits=12)):
        reason, text = refused(tmp_path, data)
        assert reason == "unsupported" and text.lower().startswith("jpeg: "), text


def runs(blocks):
    """End-of-band runs over so many blocks, as bits: nothing is new in them."""
    out = ""
    while blocks:
        size = min(blocks.bit_length() - 1, 14)
        run = min(blocks, (2 << size) - 1)
        out += f"{size:08b}" + (f"{run - (1 << size):0{size}b}" if size else "")
        blocks -= run
    return out


EMPTY = {
    "scans that refine": (0xC2, lambda blocks: scan([1], 1, 63, 1, 0) + entropy(runs(blocks))),
    "first scans": (0xC2, lambda blocks: scan([1], 1, 63) + entropy(runs(blocks))),
    "scans of all components": (0xC2, lambda blocks: scan([1, 2, 3], 0, 0, 1, 0) + bytes(8)),
    "sequential scans": (0xC1, lambda blocks: scan([1])),
    "sequential scans of three": (0xC1, lambda blocks: scan([1]) + scan([2]) + scan([3])),
    "arithmetic coding": (0xC9, lambda blocks: scan([1]) + scan([2])),
    "progressive arithmetic coding": (0xCA, lambda blocks: scan([1], 1, 63) + bytes(range(1, 99))),
}


def of_scans(kind, width, height, count, restart=0):
    code, one = EMPTY[kind]
    head = marker(0xDB, b"\0" + b"\1" * 64) + frame(code, width, height) + huffman(0, range(12)) + huffman(1, [*(k << 4 for k in range(15)), 1])
    head += marker(0xDD, struct.pack(">H", restart)) if restart else b""
    return b"\xff\xd8" + head + one((width + 7) // 8 * ((height + 7) // 8)) * count + b"\xff\xd9"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", EMPTY)
@pytest.mark.parametrize("image", [{}, TINY, {"pre_encode_images": True, "encode_format": "jpeg"}, {"random_resized_crop": 64}], ids=["whole", "fit", "check", "part"])
def test_scans_that_say_nothing_are_more_work_than_a_picture(tmp_path, kind, image):
    """64 megapixels in some kilobytes, a few hundred times over: seconds for nothing."""
    for restart in (0, 1):
        reason, text = refused(tmp_path, of_scans(kind, 8000, 8000, 400, restart), image_config={**image, **ACCEPT})
        assert reason == "too_large" and "scans of 8000 x 8000 pixels" in text, text


@pytest.mark.parametrize("kind", EMPTY)
def test_no_real_number_of_scans_is_refused(tmp_path, kind):
    """Thirty scans of 3 megapixels without content; and 400 of a small picture."""
    for width, height, count in ((2000, 1500, 30), (64, 48, 160)):
        array, reason = decode(tmp_path, of_scans(kind, width, height, count), image_config=ACCEPT)
        assert reason is None and array.shape == (height, width, 3)


@pytest.mark.timeout(120)
def test_a_large_progressive_picture_passes(tmp_path):
    """Ten scans of 100 megapixels of one colour, the least content that such a file can have."""
    out = io.BytesIO()
    Image.new("RGB", (10000, 10000), (90, 120, 33)).save(out, "JPEG", progressive=True, subsampling=0)
    array, reason = decode(tmp_path, out.getvalue(), image_config=TINY)
    assert reason is None and numpy.abs(array.astype(int) - (90, 120, 33)).max() <= 2
