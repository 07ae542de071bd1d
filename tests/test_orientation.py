import functools
import io
import os
import resource
import struct
import warnings
import zlib

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


# ---- Pillow is the oracle: carriers, types, byte orders, values, in every combination ----

TYPES = {1: "B", 2: "s", 3: "H", 4: "I", 5: "II", 6: "b", 7: "s", 8: "h", 9: "i", 10: "ii", 11: "f", 12: "d", 13: "I", 16: "Q", 14: "I"}


def directory(endian, kind, value, count=1, first=None):
    """A TIFF structure with the orientation as any type of value, after an entry `first` if there is one."""
    e, form = {"II": "<", "MM": ">"}[endian], TYPES[kind]
    content = struct.pack(e + form, *{1: [value], 2: [value, 1]}[len(form)]) if form != "s" else b"%d" % value
    content *= count
    entries = [first] if first else []
    behind = 8 + 2 + 12 * (len(entries) + 1) + 4
    field = content.ljust(4, b"\0") if len(content) <= 4 else struct.pack(e + "I", behind)
    units = count if form != "s" else len(content)
    entries.append(struct.pack(e + "HHI", 0x112, kind, units) + field)
    head = endian.encode() + struct.pack(e + "HI", 42, 8) + struct.pack(e + "H", len(entries))
    return head + b"".join(entries) + bytes(4) + (content if len(content) > 4 else b"")


def xmp(value, element=False, before=""):
    inside = f"<tiff:Orientation>{value}</tiff:Orientation>" if element else ""
    attribute = "" if element else f' tiff:Orientation="{value}"'
    return f'<x:xmpmeta xmlns:x="adobe:ns:meta/">{before}<rdf:Description{attribute}>{inside}</rdf:Description></x:xmpmeta>'.encode()


def hexadecimal(raw, kind=b"exif"):
    """A raw profile as ImageMagick writes it."""
    digits = raw.hex().encode()
    return b"\n%s\n%8d\n" % (kind, len(raw)) + b"".join(digits[at : at + 72] + b"\n" for at in range(0, len(digits), 72))


def text(kind, key, content, deflated=True):
    """A text chunk of PNG."""
    if kind == b"tEXt":
        return chunk(kind, key + b"\0" + content)
    if kind == b"zTXt":
        return chunk(kind, key + b"\0\0" + zlib.compress(content))
    return chunk(kind, key + b"\0" + bytes([deflated, 0]) + b"en\0\0" + (zlib.compress(content) if deflated else content))


def segment(content):
    return b"\xff\xe1" + struct.pack(">H", len(content) + 2) + content


def jpeg_of(*segments):
    plain = saved_as("JPEG")
    return plain[:2] + b"".join(map(segment, segments)) + plain[2:]


def png_of(*before, after=()):
    plain = saved_as("PNG")
    at = plain.index(b"IDAT") - 4
    end = plain.index(b"IEND") - 4
    return plain[:at] + b"".join(before) + plain[at:end] + b"".join(after) + plain[end:]


def webp_of(*chunks, flags=8 | 4):
    plain = saved_as("WEBP")
    body = b"VP8X" + struct.pack("<IB", 10, flags) + bytes(3) + (63).to_bytes(3, "little") + (31).to_bytes(3, "little") + plain[12:]
    for kind, content in chunks:
        body += kind + struct.pack("<I", len(content)) + content + bytes(len(content) % 2)
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


@functools.cache
def saved_as(format):
    out = io.BytesIO()
    Image.fromarray(CORNER).save(out, format, **{"JPEG": {"quality": 95}, "PNG": {}, "WEBP": {"lossless": True}}[format])
    return out.getvalue()


XAP = b"http://ns.adobe.com/xap/1.0/\0"
KEY = b"Raw profile type exif"
ADOBE = b"XML:com.adobe.xmp"


def carriers(raw):
    """Name → a file that carries this EXIF."""
    return {
        "a.jpg": jpeg_of(b"Exif\0\0" + raw), "b.png": png_of(chunk(b"eXIf", raw)), "c.png": png_of(after=[chunk(b"eXIf", raw)]),
        "d.webp": webp_of((b"EXIF", raw)), "e.webp": webp_of((b"EXIF", b"Exif\0\0" + raw)), "f.png": png_of(text(b"tEXt", KEY, hexadecimal(raw))),
        "g.png": png_of(text(b"zTXt", KEY, hexadecimal(b"Exif\0\0" + raw))), "h.png": png_of(text(b"iTXt", KEY, hexadecimal(raw))),
        "i.png": png_of(after=[text(b"iTXt", KEY, hexadecimal(raw), deflated=False)]), "j.png": png_of(text(b"tEXt", b"exif", raw)),
    }  # fmt: skip


def xmp_carriers(packet):
    return {
        "a.jpg": jpeg_of(XAP + packet), "b.png": png_of(text(b"iTXt", ADOBE, packet)), "c.png": png_of(text(b"iTXt", ADOBE, packet, False)),
        "d.webp": webp_of((b"XMP ", packet)), "e.png": png_of(after=[text(b"zTXt", ADOBE, packet)]), "f.png": png_of(text(b"tEXt", ADOBE, packet)),
    }  # fmt: skip


def check_against_pillow(tmp_path, files):
    """Every file as PIL.ImageOps.exif_transpose turns it; where that fails over the metadata, it is delivered all the same."""
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    samples, stats = read(config(tmp_path))
    assert stats["delivered"] == len(files), stats["last_failures"]
    for sample in samples:
        name = os.path.relpath(sample.id, tmp_path)
        try:
            with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(files[name])) as image:
                wanted = where(numpy.asarray(ImageOps.exif_transpose(image)))
        except Exception:
            continue
        assert where(sample.image.to_numpy_array()) == wanted, name


def named(*groups):
    return {f"{number}{name}": data for number, files in enumerate(groups) for name, data in files.items()}


@pytest.mark.parametrize("endian", ["II", "MM"])
@pytest.mark.parametrize("kind", TYPES)
def test_pillow_agrees_on_types_and_values(tmp_path, endian, kind):
    values = [0, 1, 3, 6, 8, 9] + ([-1, -6] if TYPES[kind][0] in "bihfd" else [])
    check_against_pillow(tmp_path, named(*(carriers(directory(endian, kind, value, count)) for value in values for count in (0, 1, 3))))


@pytest.mark.parametrize("endian", ["II", "MM"])
def test_pillow_agrees_on_damaged_directories(tmp_path, endian):
    e = {"II": "<", "MM": ">"}[endian]
    maker = [struct.pack(e + "HHII", 0x10F, 2, count, offset) for count, offset in ((10, 0), (10, 99), (10, 2**32 - 1), (2**32 - 1, 0), (0, 99))]
    twice = [struct.pack(e + "HHIHH", 0x112, kind, count, 3, 0) for kind, count in ((3, 1), (3, 0), (99, 1), (2, 1))]
    whole = directory(endian, 3, 6)
    broken = [whole[:size] for size in range(len(whole))] + [whole[:2] + whole[3:1:-1] + whole[4:], whole[:2] + b"++" + whole[4:], b"", b"junk"]
    raws = [directory(endian, 3, 6, first=first) for first in maker + twice] + broken
    check_against_pillow(tmp_path, named(*map(carriers, raws)))


@pytest.mark.parametrize("value", [0, 1, 2, 6, 9, 10, "x", ""])
def test_pillow_agrees_on_xmp(tmp_path, value):
    packets = [xmp(value), xmp(value, element=True), xmp(value, before="tiff:Orientation"), xmp(6).replace(b'"', b"'"), xmp(value) + xmp(3), b""]
    check_against_pillow(tmp_path, named(*map(xmp_carriers, packets)))


def test_pillow_agrees_on_what_comes_first(tmp_path):
    six, three, zero = (directory("MM", 3, value) for value in (6, 3, 0))
    none = b"MM\0*\0\0\0\x08\0\0\0\0\0\0"
    odd = b"\xff\xfe not UTF-8 " + xmp(5)
    deep = zlib.compress(bytes(3 << 20))
    files = {}
    for raw in (six, zero, none, b"", b"junk"):
        files[f"{len(files)}.jpg"] = jpeg_of(b"Exif\0\0" + raw, XAP + xmp(8))
        files[f"{len(files)}.jpg"] = jpeg_of(XAP + xmp(8), b"Exif\0\0" + raw, b"Exif\0\0" + three, XAP + xmp(2))
        files[f"{len(files)}.png"] = png_of(text(b"iTXt", ADOBE, xmp(8)), chunk(b"eXIf", raw))
        files[f"{len(files)}.png"] = png_of(text(b"zTXt", KEY, hexadecimal(raw)), text(b"iTXt", ADOBE, xmp(8)))
        files[f"{len(files)}.png"] = png_of(chunk(b"eXIf", three), chunk(b"eXIf", raw), text(b"zTXt", KEY, hexadecimal(six)))
        files[f"{len(files)}.png"] = png_of(chunk(b"eXIf", raw), after=[chunk(b"eXIf", three)[:-1] + b"?"])  # a wrong CRC
        files[f"{len(files)}.png"] = png_of(text(b"tEXt", KEY, hexadecimal(raw)), text(b"zTXt", KEY, hexadecimal(three)))
        files[f"{len(files)}.png"] = png_of(text(b"tEXt", b"Raw profile type APP1", hexadecimal(raw, b"APP1")))
        files[f"{len(files)}.webp"] = webp_of((b"XMP ", xmp(8)), (b"EXIF", raw), (b"EXIF", three))
        files[f"{len(files)}.webp"] = webp_of((b"XMP ", xmp(8)), (b"EXIF", raw), flags=4)
        files[f"{len(files)}.webp"] = webp_of((b"XMP ", xmp(8)), (b"XMP ", xmp(2)), (b"EXIF", raw), flags=8)
        files[f"{len(files)}.png"] = png_of(chunk(b"zTXt", KEY + b"\0\1" + zlib.compress(hexadecimal(raw))))
        files[f"{len(files)}.png"] = png_of(chunk(b"zTXt", KEY + b"\0\0" + zlib.compress(hexadecimal(raw))[:-3]))
    files["odd.jpg"], files["odd.png"] = jpeg_of(XAP + odd), png_of(text(b"iTXt", ADOBE, odd))
    files["odd.webp"] = webp_of((b"XMP ", odd))
    files["bare.png"] = png_of(chunk(b"tEXt", KEY), chunk(b"zTXt", KEY), chunk(b"iTXt", ADOBE), chunk(b"zTXt", ADOBE + b"\0\0" + deep))
    check_against_pillow(tmp_path, files)


def test_text_that_inflates_without_end_costs_little(tmp_path):
    """A thousand texts of 64 MB each: only the last one of a kind is inflated, and no more than a mebibyte of it."""
    bomb = zlib.compress(bytes(64 << 20), 9)
    (tmp_path / "a.png").write_bytes(png_of(*[chunk(b"zTXt", key + b"\0\0" + bomb) for key in (KEY, ADOBE)] * 500))
    before = resource.getrusage(resource.RUSAGE_SELF)
    (sample,), _ = read(config(tmp_path))
    used = resource.getrusage(resource.RUSAGE_SELF)
    assert where(sample.image.to_numpy_array()) == WANTED[1]
    assert used.ru_maxrss - before.ru_maxrss < 300 << 10
