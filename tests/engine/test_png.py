import io
import pathlib
import zlib

import numpy
import pytest
from conftest import chunk, config, decode, photo, png, read
from PIL import Image

SUITE = pathlib.Path(__file__).parents[2] / "shared" / "data" / "pngsuite"


def saved(array, **options):
    out = io.BytesIO()
    Image.fromarray(array).save(out, "PNG", **options)
    return out.getvalue()


@pytest.mark.parametrize(
    "depth, rows, wanted",
    [
        (1, b"\0\xaa\x80", [255, 0, 255, 0, 255, 0, 255, 0, 255]),
        (2, b"\0\x1b\xc0", [0, 85, 170, 255, 255]),
        (4, b"\0\x01\x8f\x30", [0, 17, 136, 255, 51]),
        (8, b"\0\0\x07\xff", [0, 7, 255]),
    ],
)
def test_grey_of_every_depth(tmp_path, depth, rows, wanted):
    array, _ = decode(tmp_path, png(len(wanted), 2, depth, 0, rows * 2))
    assert array[:, :, 0].tolist() == [wanted] * 2


@pytest.mark.parametrize(
    "depth, rows, indices",
    [(1, b"\0\xaa\x80", [1, 0] * 4 + [1]), (2, b"\0\x1b\x40", [0, 1, 2, 3, 1]), (4, b"\0\x01\x23\x10", [0, 1, 2, 3, 1])],
)
def test_palettes_of_every_depth(tmp_path, depth, rows, indices):
    colours = [[9, 8, 7], [200, 100, 0], [1, 2, 3], [255, 255, 0]]
    palette = chunk(b"PLTE", bytes(sum(colours, [])))
    array, _ = decode(tmp_path, png(len(indices), 3, depth, 3, rows * 3, palette))
    assert array.tolist() == [[colours[i] for i in indices]] * 3


def test_interlaced_equals_plain(tmp_path):
    """Adam7 written by hand: seven reduced pictures after each other, in the plain file's pixels."""
    picture = photo(13, 11)
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    rows = b"".join(b"\0" + row.tobytes() for x, y, dx, dy in passes for row in picture[y::dy, x::dx] if row.size)
    data = bytearray(png(13, 11, 8, 2, rows))
    data[28] = 1
    data[29:33] = zlib.crc32(bytes(data[12:29])).to_bytes(4)
    assert numpy.array_equal(decode(tmp_path, bytes(data))[0], picture)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_every_filter(tmp_path, channels):
    picture = numpy.random.default_rng(3).integers(0, 256, (40, 37, channels), dtype=numpy.uint8)
    flat, rows = picture.reshape(40, -1).astype(int), b""
    for y, row in enumerate(flat):
        left = numpy.concatenate([[0] * channels, row[:-channels]])
        up = flat[y - 1] if y else row * 0
        corner = numpy.concatenate([[0] * channels, up[:-channels]])
        guess = left + up - corner
        distance = numpy.abs([guess - left, guess - up, guess - corner])
        paeth = numpy.choose(distance.argmin(0), [left, up, corner])
        kind = y % 5
        rows += bytes([kind]) + ((row - [row * 0, left, up, (left + up) // 2, paeth][kind]) % 256).astype(numpy.uint8).tobytes()
    assert numpy.array_equal(decode(tmp_path, png(37, 40, 8, [0, 0, 4, 2, 6][channels], rows))[0], picture)


def test_chunk_damage(tmp_path):
    picture = photo(40, 30)
    data = saved(picture)
    assert numpy.array_equal(decode(tmp_path, data + b"after the end")[0], picture)
    assert numpy.array_equal(decode(tmp_path, data[: data.index(b"IEND") - 4])[0], picture)
    bad_text = chunk(b"tEXt", b"a\0b")[:-1] + b"?"
    garbage_profile = chunk(b"iCCP", b"x\0\0junk")
    at = data.index(b"IDAT") - 4
    assert numpy.array_equal(decode(tmp_path, data[:at] + bad_text + garbage_profile + data[at:])[0], picture)
    assert decode(tmp_path, data[: len(data) // 2]) == (None, "truncated")
    broken = bytearray(data)
    broken[len(data) // 2] ^= 0x10  # still a deflate stream, but of other pixels
    assert decode(tmp_path, bytes(broken))[1] in ("corrupt", "truncated")
    stored = saved(picture, compress_level=0)
    broken = bytearray(stored)
    broken[len(stored) // 2] ^= 1  # a pixel's bit: only the checksum can tell
    assert decode(tmp_path, bytes(broken)) == (None, "corrupt")
    assert numpy.array_equal(decode(tmp_path, png(40, 30, 8, 2, b"".join(b"\0" + row.tobytes() for row in picture) + b"more"))[0], picture)


@pytest.mark.parametrize("width, height", [(2**31 - 1, 2**31 - 1), (60000, 60000), (2**31 - 1, 1)])
def test_huge_headers_are_refused_at_once(tmp_path, width, height):
    assert decode(tmp_path, png(width, height, 8, 2, b"\0")) == (None, "too_large")


def test_impossible_headers(tmp_path):
    for broken in (
        png(0, 5, 8, 2, b""),
        png(5, 0, 8, 2, b""),
        png(4, 4, 3, 0, b"\0" * 20),
        png(4, 4, 8, 5, b"\0" * 20),
        png(4, 4, 8, 3, b"\0\0\0\0\0" * 4),
    ):
        assert decode(tmp_path, broken) == (None, "corrupt")


def test_nothing_reaches_stderr(tmp_path, capfd):
    decode(tmp_path, png(4, 1, 8, 2, b"\0" * 13, chunk(b"iCCP", b"known incorrect\0\0junk")))
    decode(tmp_path, b"\x89PNG\r\n\x1a\n")
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(not SUITE.exists(), reason="PngSuite is not here")
def test_pngsuite(tmp_path):
    """Every picture of the suite: the good ones equal Pillow's pixels, the broken ones (x…) are failures."""
    samples, stats = read(config(SUITE))
    broken = [p for p in SUITE.glob("x*.png") if p.name != "xcsn0g01.png"]  # that one: a wrong CRC, but a right Adler-32
    assert stats["failed"] == len(broken) and stats["delivered"] == len(list(SUITE.glob("*.png"))) - len(broken)
    for sample in samples:
        array = sample.image.to_numpy_array()
        if sample.image.bit_depth == 16:
            continue  # Pillow has no 16-bit colour; test_sample.py has the values
        image = Image.open(sample.id)
        image.load()
        mode = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}[array.shape[2]]
        wanted = numpy.asarray(image.convert(mode)).reshape(array.shape)
        if array.shape[2] in (2, 4):  # under alpha 0 colours may differ
            seen = array[:, :, -1:] > 0
            assert numpy.array_equal(array * seen, wanted * seen), sample.id
        else:
            assert numpy.array_equal(array, wanted), sample.id
