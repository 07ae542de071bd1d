"""What goes through Pillow: which formats, right pixels or a named failure, and nothing but our options decides."""

import json
import os
import struct
import subprocess
import sys
import warnings

import numpy
import pytest
from conftest import config, photo, png, read
from PIL import Image, ImageFile, features
from test_formats import one, written

from datago import SampleError

PICTURE = photo(60, 40)
RAMP = numpy.linspace(0, 65535, 48).astype(numpy.uint16).reshape(6, 8)
COLOURS = numpy.stack([RAMP, RAMP[::-1], RAMP[:, ::-1]], -1)


def tiff(strips, bits, photometric, width=8, height=6, order="<", big=False, **tags):
    """A TIFF of uncompressed strips; `tags`: more of them by number, t339=[1], all SHORT, or bytes for ASCII."""
    known = {256: [width], 257: [height], 258: bits, 259: [1], 262: [photometric], 277: [len(bits)], 278: [height]}
    known |= {279: [len(strip) for strip in strips], 273: [0] * len(strips)} | {int(name[1:]): values for name, values in tags.items()}
    head, entry, room = (16, f"{order}HHQ", 8) if big else (8, f"{order}HHI", 4)
    begin = head + struct.calcsize(f"{order}Q" if big else f"{order}H") + len(known) * (struct.calcsize(entry) + room) + (8 if big else 4)

    def packed(tag, offsets):
        if tag in (273, 279):
            return 4, len(strips), struct.pack(f"{order}{len(strips)}I", *(offsets if tag == 273 else known[tag]))
        if isinstance(known[tag], bytes):
            return 2, len(known[tag]), known[tag]
        return 3, len(known[tag]), struct.pack(f"{order}{len(known[tag])}H", *known[tag])

    outside = sum(len(data) for tag in known if len(data := packed(tag, [0] * len(strips))[2]) > room)
    offsets = [begin + outside + sum(map(len, strips[:i])) for i in range(len(strips))]
    entries = blob = b""
    for tag in sorted(known):
        kind, count, data = packed(tag, offsets)
        if len(data) > room:
            data, blob = struct.pack(f"{order}{'Q' if big else 'I'}", begin + len(blob)), blob + data
        entries += struct.pack(entry, tag, kind, count) + data.ljust(room, b"\0")
    mark = b"II" if order == "<" else b"MM"
    if big:
        start = mark + struct.pack(f"{order}HHHQQ", 43, 8, 0, 16, len(known))
    else:
        start = mark + struct.pack(f"{order}HIH", 42, 8, len(known))
    return start + entries + bytes(8 if big else 4) + blob + b"".join(strips)


def planes(array):
    return [array[..., i].tobytes() for i in range(array.shape[-1])]


BIG_ENDIAN = COLOURS.astype(">u2")
ALPHA = numpy.concatenate([COLOURS, 65535 - COLOURS[..., :1]], -1)
EIGHT = (COLOURS >> 8).astype(numpy.uint8)
CLEAR = (ALPHA >> 8).astype(numpy.uint8)


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize(
    "data, wanted",
    [
        ((planes(COLOURS), [16] * 3, 2, "t284=2"), COLOURS >> 8),
        ((planes(BIG_ENDIAN), [16] * 3, 2, "t284=2", ">"), COLOURS >> 8),
        (([COLOURS.tobytes()], [16] * 3, 2), COLOURS >> 8),
        (([BIG_ENDIAN.tobytes()], [16] * 3, 2, ">"), COLOURS >> 8),
        ((planes(ALPHA), [16] * 4, 2, "t284=2", "t338=2"), ALPHA >> 8),
        (([RAMP.tobytes()], [16], 0), 65535 - RAMP),
        (([RAMP.astype(">u2").tobytes()], [16], 0, ">"), 65535 - RAMP),
        (([RAMP.astype(">u2").tobytes()], [16], 1, ">"), RAMP),
        (([EIGHT[..., 0].tobytes()], [8], 0), 255 - EIGHT[..., 0]),
        ((planes(EIGHT), [8] * 3, 2, "t284=2"), EIGHT),
        ((planes(CLEAR), [8] * 4, 2, "t284=2", "t338=2"), CLEAR),
        (([CLEAR.tobytes()], [8] * 4, 2, "t338=0"), EIGHT),
        (([EIGHT[..., :2].tobytes()], [8] * 2, 1, "t338=2"), EIGHT[..., :2]),
        (([bytes([0x0F, 0xF0, 0xAA]) * 2], [1], 1), None),
        (([bytes([0x0F, 0xF0, 0x55]) * 2], [1], 1, "t266=2"), None),
    ],
)
def test_tiffs_of_right_pixels(tmp_path, data, wanted, big):
    strips, bits, photometric, *more = data
    if big and ">" in more:
        with pytest.raises(SampleError, match="unsupported: TIFF: BigTIFF"):
            one(tmp_path, tiff(strips, bits, photometric, order=">", big=True))
        return
    tags = {tag.split("=")[0]: [int(tag.split("=")[1])] for tag in more if tag != ">"}
    array = one(tmp_path, tiff(strips, bits, photometric, order=">" if ">" in more else "<", big=big, **tags)).to_numpy_array()
    if wanted is None:
        lines = [[0] * 4 + [255] * 4, [255] * 4 + [0] * 4, [255, 0] * 4]
        wanted = numpy.array((lines if not tags else [lines[1], lines[0], lines[2]]) * 2)
    assert numpy.array_equal(array.squeeze(), wanted)


def test_subsampled_colours_of_an_uncompressed_tiff(tmp_path):
    """Six samples for two by two pixels: four of luma, one of each chroma. The chroma here is that of grey."""
    luma = numpy.arange(64, 64 + 8 * 6 * 2, 2, dtype=numpy.uint8).reshape(6, 8)
    units = b"".join(luma[y : y + 2, x : x + 2].tobytes() + b"\x80\x80" for y in range(0, 6, 2) for x in range(0, 8, 2))
    array = one(tmp_path, tiff([units], [8] * 3, 6, t530=[2, 2])).to_numpy_array()
    assert numpy.abs(array.astype(int) - luma[..., None]).max() <= 1


@pytest.mark.parametrize("file, text", [
    (([bytes(192)], [32], 1), "32 bits"),
    (([bytes(96)], [16], 1, {"t339": [2]}), "signed numbers of no known range"),
    (([bytes(48)], [8], 1, {"t339": [2]}), "signed numbers of no known range"),
    (([bytes(72)], [12], 1), "12 bits"),
    (([bytes(240)], [8] * 5, 1, {"t338": [0] * 4}), "unknown pixel mode"),
    (([bytes(192)], [16] * 2, 1, {"t338": [2]}), "unknown pixel mode"),
    (([bytes(48)] * 2, [8] * 2, 1, {"t338": [2], "t284": [2]}), "samples in planes"),
    (([bytes(384)], [16] * 4, 2, {"t338": [1]}), "multiplied by alpha"),
    (([bytes(144)], [8] * 3, 8), "colours of kind 8"),
    (([bytes(192)], [8] * 4, 5, {"t332": [2]}), "colours of kind 5"),
    (([bytes(48)], [8], 1, {"t259": [33005]}), "compression 33005"),
    (([bytes(48)], [8], 1, {"t259": [5], "t317": [3]}), "predictor 3"),
    (([bytes(144)], [8, 8, 4], 2), "8, 8, 4 bits"),
])  # fmt: skip
def test_sound_tiffs_that_are_not_decoded(tmp_path, file, text):
    strips, bits, photometric, *tags = file
    with pytest.raises(SampleError, match=f"unsupported: TIFF: .*{text}"):
        one(tmp_path, tiff(strips, bits, photometric, **(tags[0] if tags else {})))


def test_damaged_tiffs_are_not_called_unsupported(tmp_path):
    whole = tiff([EIGHT[:3].tobytes(), EIGHT[3:].tobytes()], [8] * 3, 2, t278=[3])
    assert numpy.array_equal(one(tmp_path, whole).to_numpy_array(), EIGHT)
    for broken, reason in ((whole[:-1], "truncated"), (whole[:40], "truncated"), (whole[:6], "truncated")):
        with pytest.raises(SampleError, match=reason):
            one(tmp_path, broken)
    with pytest.raises(SampleError, match="corrupt: TIFF: 1 strips or tiles where 2 are needed"):
        one(tmp_path, tiff([EIGHT.tobytes()], [8] * 3, 2, t278=[3]))
    with pytest.raises(SampleError, match="corrupt: TIFF: width or height is missing or 0"):
        one(tmp_path, tiff([EIGHT.tobytes()], [8] * 3, 2, width=0))


def test_metadata_of_a_tiff_costs_no_pixels(tmp_path):
    data = tiff([EIGHT.tobytes()], [8] * 3, 2, t282=b"no number\0", t296=[3], t34675=b"no profile", t34665=[7], t700=b"<x", t274=b"?\0")
    assert numpy.array_equal(one(tmp_path, data).to_numpy_array(), EIGHT)


def test_orientation_of_a_tiff_is_an_option_too(tmp_path):
    data = written(Image.fromarray(PICTURE), "TIFF", tiffinfo={0x0112: 6})
    image = one(tmp_path, data, apply_exif_orientation=False)
    assert numpy.array_equal(image.to_numpy_array(), PICTURE) and image.original_width == 60
    xmp = tiff([EIGHT.tobytes()], [8] * 3, 2, t700=b'<rdf tiff:Orientation="3"/>')
    assert numpy.array_equal(one(tmp_path, xmp).to_numpy_array(), EIGHT[::-1, ::-1])


# ---- BMP, icons and others ----


def bmp(bits, rows, colours=b"", compression=0, height=2, header=40, masks=b"", used=0, width=4):
    begin = 14 + header + (len(masks) if header == 40 else 0) + len(colours)
    info = struct.pack("<IiiHHIIiiII", header, width, height, 1, bits, compression, len(rows), 0, 0, used or len(colours) // 4, 0)
    return b"BM" + struct.pack("<IHHI", begin + len(rows), 0, 0, begin) + (info + masks).ljust(header, b"\0") + colours + rows


BLACK_WHITE = bytes([0, 0, 0, 0, 255, 255, 255, 0])
PALETTE = bytes([10, 20, 30, 0, 40, 50, 60, 0, 70, 80, 90, 0])
ROWS = [[10, 20, 30], [40, 50, 60], [70, 80, 90]]  # as BMP has them: blue first


def coloured(indices):
    return numpy.array([[ROWS[i][::-1] for i in row] for row in indices])


@pytest.mark.parametrize("data, wanted", [
    (bmp(8, bytes([0, 1, 1, 0, 1, 1, 1, 0]), BLACK_WHITE), [[255, 255, 255, 0], [0, 255, 255, 0]]),
    (bmp(4, b"\x01\x10\0\0\x11\x10\0\0", BLACK_WHITE), [[255, 255, 255, 0], [0, 255, 255, 0]]),
    (bmp(1, b"\x60\0\0\0\xe0\0\0\0", BLACK_WHITE), [[255, 255, 255, 0], [0, 255, 255, 0]]),
    (bmp(8, bytes([0, 1, 2, 0, 1, 1, 1, 0]), PALETTE), coloured([[1, 1, 1, 0], [0, 1, 2, 0]])),
    (bmp(8, bytes([0, 1, 2, 0, 1, 1, 1, 0]), PALETTE, height=-2), coloured([[0, 1, 2, 0], [1, 1, 1, 0]])),
    # Runs: two pixels of 1 and the end of the row, an empty row, a jump over one pixel, three pixels as they are, the end.
    (bmp(8, bytes([2, 1, 0, 0, 0, 0, 0, 2, 1, 0, 0, 3, 1, 2, 1, 0, 0, 1]), PALETTE, 1, 3), coloured([[0, 1, 2, 1], [0] * 4, [1, 1, 0, 0]])),
    (bmp(4, bytes([4, 0x12, 0, 0, 0, 3, 0x21, 0x20, 0, 1]), PALETTE, 2), coloured([[2, 1, 2, 0], [1, 2, 1, 2]])),
    (bmp(16, struct.pack("<8H", *[0xF800, 0x07E0, 0x001F, 0xFFFF] * 2), b"", 3, masks=struct.pack("<3I", 0xF800, 0x7E0, 0x1F)),
     [[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255] * 3]] * 2),
    (bmp(16, struct.pack("<8H", *[0x7C00, 0x03E0, 0x001F, 0x7FFF] * 2)), [[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255] * 3]] * 2),
])  # fmt: skip
def test_bmps_of_right_pixels(tmp_path, data, wanted):
    array = one(tmp_path, data).to_numpy_array().squeeze()
    wanted = numpy.array(wanted)
    assert numpy.array_equal(array if array.ndim == wanted.ndim else array[..., 0], wanted)


@pytest.mark.parametrize("data, reason", [
    (bmp(8, bytes([2, 1, 0, 0]), PALETTE, 1, 3), "truncated"),
    (bmp(24, bytes(12)), "truncated"),
    (bmp(0, b"\xff\xd8\xff\xe0" + bytes(20), b"", 4), "unsupported"),
    (bmp(16, bytes(16), b"", 3, header=56, masks=struct.pack("<4I", 0x7C00, 0x3E0, 0x1F, 0x8000)), "unsupported: BMP: 16 bits with alpha"),
    (bmp(32, bytes(32), b"", 3, masks=struct.pack("<3I", 0x3FF00000, 0xFFC00, 0x3FF)), "unsupported: BMP: Unsupported BMP bitfields"),
    (b"P5 4 2", "truncated"),
    (b"\x0a\x05\x01\x08" + struct.pack("<4H", 0, 0, 3, 1) + bytes(53) + b"\1" + struct.pack("<H", 16) + bytes(200), "unsupported: PCX: rows of 16"),
    (b"\x0a\x05\x01\x08" + struct.pack("<4H", 0, 0, 3, 1) + bytes(53) + b"\5" + struct.pack("<H", 4) + bytes(200), "unsupported: PCX: unknown PCX"),
    (b"\x01\xda\0\1" + struct.pack(">4H", 3, 4, 2, 2) + bytes(600), "unsupported: SGI: Unsupported SGI image mode"),
    (b"DDS " + struct.pack("<31I", 124, 0, 2, 4, *[0] * 14, 32, 4, int.from_bytes(b"DX99", "little"), *[0] * 10), "unsupported: DDS"),
    (b"\0\0\0\x1cftypmif1\0\0\0\0mif1heic\0\0\0\0" + bytes(40), "unsupported"),
])  # fmt: skip
def test_reasons(tmp_path, data, reason):
    with pytest.raises(SampleError, match=reason):
        one(tmp_path, data)


def icon(bits, pixels, mask, stated=None, size=None):
    image = struct.pack("<IiiHHIIiiII", 40, 4, 4, 1, bits, 0, 0, 0, 0, 0, 0) + pixels + mask
    return struct.pack("<3H4B2H2I", 0, 1, 1, 4, 2, 0, 0, 1, bits if stated is None else stated, size or len(image), 22) + image


@pytest.mark.parametrize("stated, size", [(None, None), (0, None), (None, 40), (24, 1000)])
def test_icons_whatever_their_list_says(tmp_path, stated, size):
    """Rows from the bottom; the list of pictures may state another depth and another size than the picture has."""
    pixels = bytes(range(32))
    alpha = icon(32, pixels, bytes(8), stated, size)
    wanted = numpy.frombuffer(pixels, numpy.uint8).reshape(2, 4, 4)[::-1, :, [2, 1, 0, 3]]
    assert numpy.array_equal(one(tmp_path, alpha).to_numpy_array(), wanted)
    masked = icon(24, pixels[:24], b"\xa0\0\0\0\0\0\0\0", stated, size)
    array = one(tmp_path, masked).to_numpy_array()
    assert array[..., 3].tolist() == [[255] * 4, [0, 255, 0, 255]] and array[1, 1].tolist() == [5, 4, 3, 255]
    unused = icon(32, b"\1\2\3\0" * 8, b"\xa0\0\0\0\0\0\0\0", stated, size)  # alpha that nobody set: the mask is the one that counts
    assert one(tmp_path, unused).to_numpy_array()[..., 3].tolist() == [[255] * 4, [0, 255, 0, 255]]


@pytest.mark.parametrize("sizes", [[(16, 16)], [(16, 16), (32, 32)]])
@pytest.mark.parametrize("mode", ["RGB", "P", "1"])
def test_icons_that_pillow_wrote(tmp_path, mode, sizes):
    """Their masks are shorter than they should be, so that Pillow itself takes pixels, or the next picture, for a part of them."""
    picture = Image.fromarray(photo(32, 32)).convert(mode)
    array = one(tmp_path, written(picture, "ICO", sizes=sizes, bitmap_format="bmp")).to_numpy_array()
    assert (array[..., 3] == 255).all()
    if len(sizes) == 2:
        assert numpy.array_equal(array[..., :3], numpy.asarray(picture.convert("RGB")))


def gif(left, top, control=b""):
    """A canvas of 4 x 3 with a first frame of 2 x 1 pixels of colours 1 and 0: clear code, two pixels, end code."""
    codes = 4 | 1 << 3 | 0 << 6 | 5 << 9
    frame = b"," + struct.pack("<4HB", left, top, 2, 1, 0) + b"\x02\x02" + struct.pack("<H", codes) + b"\0"
    return b"GIF89a" + struct.pack("<2H3B", 4, 3, 0x80, 0, 0) + bytes([200, 0, 0, 0, 0, 200]) + control + frame + b";"


def test_around_a_first_frame_nothing_is_shown(tmp_path):
    array = one(tmp_path, gif(1, 2)).to_numpy_array()
    assert array[2, 1].tolist() == [0, 0, 200, 255] and array[2, 2].tolist() == [200, 0, 0, 255]
    assert numpy.count_nonzero(array[..., 3]) == 2
    clear = one(tmp_path, gif(1, 2, b"!\xf9\x04\x01\0\0\0\0")).to_numpy_array()
    assert clear[2, 1].tolist() == [0, 0, 200, 255] and numpy.count_nonzero(clear[..., 3]) == 1


@pytest.mark.parametrize("data, wanted", [
    (b"P5 2 1 4095\n" + struct.pack(">2H", 4095, 2048), [65535, 32776]),
    (b"P5 2 1 65535\n" + struct.pack(">2H", 4095, 2048), [4095, 2048]),
    (b"P5 2 1 100\n" + bytes([100, 50]), [255, 128]),
    (b"P2 2 1 7\n 7 0\n", [255, 0]),
    (b"P6 1 1 65535\n" + struct.pack(">3H", 65535, 0x1234, 0), [255, 18, 0]),
    (b"P4 8 1\n\x0f", [255] * 4 + [0] * 4),
])  # fmt: skip
def test_netpbm(tmp_path, data, wanted):
    assert numpy.abs(one(tmp_path, data).to_numpy_array().ravel().astype(int) - wanted).max() <= 1


def tga(depth, flags, pixels):
    return struct.pack("<3BHHB4H2B", 0, 0, 2, 0, 0, 0, 0, 0, 2, 2, depth, flags) + pixels


def test_tga(tmp_path):
    pixels = bytes([1, 2, 3, 0, 4, 5, 6, 128] * 2)
    assert one(tmp_path, tga(32, 8, pixels)).to_numpy_array()[0].tolist() == [[3, 2, 1, 0], [6, 5, 4, 128]]
    assert one(tmp_path, tga(32, 0, pixels)).to_numpy_array()[0].tolist() == [[3, 2, 1], [6, 5, 4]]
    assert one(tmp_path, tga(16, 0, struct.pack("<4H", 0xFC00, 0x03E0, 31, 0))).to_numpy_array()[1].tolist() == [[255, 0, 0], [0, 255, 0]]
    turned = one(tmp_path, tga(32, 0x38, pixels)).to_numpy_array()
    assert turned[0].tolist() == [[6, 5, 4, 128], [3, 2, 1, 0]]
    with pytest.raises(SampleError, match="unsupported|no image format"):
        one(tmp_path, tga(16, 1, bytes(8)))


@pytest.mark.skipif(not features.check("jpg_2000"), reason="this Pillow has no JPEG 2000")
@pytest.mark.parametrize("at, value", [(0, 15), (0, 3), (0, 0x87), (1, 2)])
def test_jpeg_2000_with_other_components(tmp_path, at, value):
    """16 bits of colour, of which Pillow makes black where it is white; four bits; signed ones; a component of half the width."""
    data = bytearray(written(Image.fromarray(PICTURE), "JPEG2000"))
    for i in range(3):
        data[data.index(b"\xff\x4f\xff\x51") + 42 + 3 * i + at] = value
    with pytest.raises(SampleError, match="unsupported: JPEG2000: components of"):
        one(tmp_path, bytes(data))


# ---- what decides ----

GLOBALS = """
import json, numpy, sys, warnings
from PIL import GifImagePlugin, Image, ImageFile, PngImagePlugin, TiffImagePlugin
from datago import DatagoClient
class Evil:
    def __init__(self, *_):
        print("CALLED")
        raise KeyboardInterrupt
for own in sys.argv[2:]:
    exec(own)
warnings.simplefilter("error")
before = list(warnings.filters), dict(Image.OPEN), Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, Image._initialized
client = DatagoClient(json.loads(sys.argv[1]))
found = sorted((sample.id[-7:], sample.image.to_numpy_array().tobytes().hex()) for sample in client)
assert before == (list(warnings.filters), dict(Image.OPEN), Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, Image._initialized)
print(json.dumps([found, client.stats()["failures"]]))
"""


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("own", [
    "Image.MAX_IMAGE_PIXELS = 10",
    "Image.MAX_IMAGE_PIXELS = 70",  # a warning, which is an error
    "ImageFile.LOAD_TRUNCATED_IMAGES = True",
    "PngImagePlugin.MAX_TEXT_CHUNK = PngImagePlugin.MAX_TEXT_MEMORY = 1",
    "GifImagePlugin.LOADING_STRATEGY = GifImagePlugin.LoadingStrategy.RGB_ALWAYS",
    "for name in ('gif', 'raw', 'bmp_rle', 'libtiff'): Image.register_decoder(name, Evil)",
    "Image.register_open('EVIL', Evil, lambda prefix: True); Image.ID.insert(0, 'EVIL')",
    "Image.preinit(); Image.OPEN.clear(); Image.ID.clear(); Image._initialized = 2",
    "Image.open = Image.new = ImageFile.ImageFile.load = Evil",
])  # fmt: skip
def test_what_a_program_sets_for_its_own_pillow_decides_nothing(tmp_path, own):
    for kind in ("GIF", "BMP", "TIFF", "TGA", "PPM", "ICO"):
        data = written(Image.fromarray(photo(16, 8)), kind)
        (tmp_path / f"{kind}.png").write_bytes(data)
        (tmp_path / f"{kind}-half.png").write_bytes(data[: len(data) // 2])

    def run(*own):
        command = [sys.executable, "-c", GLOBALS, json.dumps(config(tmp_path)), *own]
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=50, check=True).stdout)

    plain = run()
    assert run(own) == plain and len(plain[0]) == 6


def test_a_program_may_use_pillow_meanwhile(tmp_path):
    """Its limits hold for its own pictures, and what it hears of them is not silenced."""
    for i in range(20):
        (tmp_path / f"{i}.gif").write_bytes(written(Image.fromarray(PICTURE), "GIF"))
    samples, _ = read(config(tmp_path))
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        Image.MAX_IMAGE_PIXELS, before = 1500, Image.MAX_IMAGE_PIXELS
        try:
            Image.open(tmp_path / "0.gif").close()
        finally:
            Image.MAX_IMAGE_PIXELS = before
    assert len(samples) == 20 and [type(w.message) for w in heard].count(Image.DecompressionBombWarning) == 1
    assert not ImageFile.LOAD_TRUNCATED_IMAGES


def test_formats_that_are_never_tried(tmp_path):
    """Whatever else this Pillow opens; PostScript would start Ghostscript."""
    programs = tmp_path / "programs"
    programs.mkdir()
    called = programs / "called"
    for name in ("gs", "gswin32c", "djpeg", "netpbm"):
        (programs / name).write_text(f"#!/bin/sh\necho $0 >> {called}\n")
        (programs / name).chmod(0o755)
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    (pictures / "a.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n0 0 8 8 rectfill\nshowpage\n%%EOF\n")
    (pictures / "b.jpg").write_bytes(b"\xc5\xd0\xd3\xc6" + struct.pack("<2I", 32, 100) + bytes(200))
    (pictures / "c.jpg").write_bytes(b"\xd7\xcd\xc6\x9a\0\0" + struct.pack("<4h", 0, 0, 8, 8) + bytes(60))  # WMF
    (pictures / "d.jpg").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512))  # FPX, MIC
    (pictures / "e.jpg").write_bytes(b"GRIB\0\0\0\1" + bytes(60))
    (pictures / "f.jpg").write_bytes(b"\x1c\x03\x3c" + bytes(60))  # IPTC
    (pictures / "g.jpg").write_bytes(b"\0\0\1\xb3\x01\0\x10" + bytes(60))  # MPEG
    names = ["BLP", "EPS", "MSP", "PDF", "PALM", "SPIDER", "XBM"]
    for name in names:
        try:
            data = written(Image.new("P" if name in ("BLP", "PALM") else "1" if name in ("MSP", "XBM") else "L", (8, 8)), name)
        except (OSError, KeyError):
            continue
        (pictures / f"{name}.jpg").write_bytes(data)
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    command = [sys.executable, "-c", NEVER, json.dumps(config(pictures))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True, env={**os.environ, "PATH": path})
    failures = json.loads(done.stdout)
    assert failures == {"unsupported": len(list(pictures.iterdir()))} and not called.exists()


NEVER = """
import json, sys
from datago import DatagoClient, SourceError
client = DatagoClient(json.loads(sys.argv[1]))
try:
    print(list(client), file=sys.stderr)
except SourceError:
    pass  # nothing could be decoded
print(json.dumps(client.stats()["failures"]))
"""


@pytest.mark.slow
def test_max_pixels_alone_decides(tmp_path):
    """Pillow's own limit is 179 megapixels."""
    (tmp_path / "a.bmp").write_bytes(bmp(1, bytes(13600 // 8 * 13400), BLACK_WHITE, width=13600, height=13400))
    samples, _ = read(config(tmp_path, on_error="raise"))
    assert (samples[0].image.width, samples[0].image.height) == (13600, 13400)
    with pytest.raises(SampleError, match="too_large: BMP: 13600 x 13400 pixels, max_pixels is 182239999"):
        read(config(tmp_path, image_config={"max_pixels": 13600 * 13400 - 1}, on_error="raise"))


def test_max_pixels_holds_within_an_icon(tmp_path):
    inside = png(300, 300, 8, 0, bytes(301 * 300))
    data = struct.pack("<3H4B2H2I", 0, 1, 1, 4, 2, 0, 0, 1, 32, len(inside), 22) + inside
    assert one(tmp_path, data).width == 300
    with pytest.raises(SampleError, match="too_large: ICO: 300 x 300 pixels"):
        one(tmp_path, data, max_pixels=89_999)


EXIF = b"MM\0*\0\0\0\x08\0\1\1\x28\0\3\0\0\0\1\0\2\0\0\0\0\0\0"  # a unit of resolution


@pytest.mark.parametrize("exif", [b"no TIFF structure", b"Exif\0\0MM\0*\0\0", b"Exif\0\0II*\0\xff\xff\xff\xff", b""])
@pytest.mark.parametrize("kind, options", [
    ("WEBP", {"save_all": True, "append_images": [Image.new("RGB", (32, 24))]}), ("AVIF", {}), ("TIFF", {}), ("JPEG2000", {}), ("GIF", {}),
])  # fmt: skip
def test_exif_that_is_none_costs_no_picture(tmp_path, kind, options, exif):
    if not features.check({"AVIF": "avif", "JPEG2000": "jpg_2000"}.get(kind, "webp")):
        pytest.skip(f"this Pillow has no {kind}")
    if kind == "AVIF":
        data = written(Image.new("RGB", (32, 24)), kind, exif=b"Exif\0\0" + EXIF)
        assert data.count(EXIF) == 1
        assert one(tmp_path, data.replace(EXIF, exif.ljust(len(EXIF), b"?"))).width == 32
        return
    if kind == "WEBP":
        options = {**options, "exif": exif, "xmp": b"tiff:Orientation", "icc_profile": b"no profile"}
    assert one(tmp_path, written(Image.new("RGB", (32, 24), (200, 40, 90)), kind, **options)).width == 32


def test_a_pillow_that_is_not_there_is_named(tmp_path):
    (tmp_path / "a.png").write_bytes(written(Image.fromarray(PICTURE), "GIF"))
    code = "import sys; sys.modules['PIL'] = None\n" + NEVER.replace('stats()["failures"]', 'stats()["last_failures"]')
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(config(tmp_path))], capture_output=True, text=True, timeout=50, check=True
    )
    (failure,) = json.loads(done.stdout)
    assert failure["reason"] == "unsupported" and failure["text"].startswith("Pillow fallback failed: ModuleNotFoundError: ")
