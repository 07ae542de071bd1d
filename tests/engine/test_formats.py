"""Formats beyond JPEG and PNG, colours, and what the payload says."""

import io

import numpy
import pytest
from conftest import TINY, chunk, config, jpeg, photo, png, read, saved
from PIL import Image, features

from datago import DatagoClient, SampleError


def one(tmp_path, data, name="a.png", **image_config):
    path = tmp_path / name
    path.write_bytes(data)
    samples, stats = read(config(path, image_config=image_config, on_error="raise"))
    return samples[0].image


def written(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


PICTURE = photo(60, 40)
CLEAR = numpy.concatenate([PICTURE, numpy.arange(2400, dtype=numpy.uint8).reshape(40, 60, 1)], 2)


@pytest.mark.parametrize("lossless", [True, False])
@pytest.mark.parametrize("picture", [PICTURE, CLEAR])
def test_webp(tmp_path, lossless, picture):
    data = written(Image.fromarray(picture), "WEBP", lossless=lossless, exact=True, quality=80)
    image = one(tmp_path, data, "a.webp")
    assert image.channels == picture.shape[2]
    wanted = numpy.asarray(Image.open(io.BytesIO(data)))
    assert numpy.abs(image.to_numpy_array().astype(int) - wanted).max() <= (0 if lossless else 3)


def test_webp_that_ends_early(tmp_path):
    data = written(Image.fromarray(PICTURE), "WEBP")
    (tmp_path / "a.webp").write_bytes(data[: len(data) // 2])
    (tmp_path / "b.png").write_bytes(saved(PICTURE))
    _, stats = read(config(tmp_path))
    assert stats["failures"] == {"truncated": 1}


@pytest.mark.parametrize(
    "kind, options",
    [
        ("BMP", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("GIF", {}),
        ("PPM", {}),
        ("TGA", {}),
        ("JPEG2000", {"irreversible": False}),
    ],
)
def test_what_pillow_opens(tmp_path, kind, options):
    if kind == "JPEG2000" and not features.check("jpg_2000"):
        pytest.skip("this Pillow has no JPEG 2000")
    data = written(Image.fromarray(PICTURE), kind, **options)
    image = one(tmp_path, data)
    wanted = Image.open(io.BytesIO(data)).convert("RGBA" if kind == "GIF" else "RGB")
    assert numpy.array_equal(image.to_numpy_array(), numpy.asarray(wanted))
    resized = one(tmp_path, data, **TINY)
    assert (resized.original_width, resized.original_height) == (60, 40) and resized.width % 16 == resized.height % 16 == 0


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow has no AVIF")
def test_avif(tmp_path):
    data = written(Image.fromarray(PICTURE), "AVIF", quality=90)
    wanted = numpy.asarray(Image.open(io.BytesIO(data)))
    assert numpy.array_equal(one(tmp_path, data, "a.avif").to_numpy_array(), wanted)


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP"])
def test_first_frame_of_an_animation(tmp_path, kind):
    frames = [Image.new("RGB", (20, 10), colour) for colour in ((255, 0, 0), (0, 255, 0))]
    data = written(frames[0], kind, save_all=True, append_images=frames[1:], **({"lossless": True} if kind == "WEBP" else {}))
    assert one(tmp_path, data).to_numpy_array()[5, 5, :3].tolist() == [255, 0, 0]


@pytest.mark.parametrize(
    "image, channels, wanted",
    [
        (Image.new("1", (4, 4), 1), 1, [255]),
        (Image.new("L", (4, 4), 77), 1, [77]),
        (Image.new("CMYK", (4, 4), (255, 0, 0, 0)), 3, [0, 255, 255]),
        (Image.fromarray(numpy.full((4, 4), 300, numpy.uint16)), 1, [300]),
    ],
)
def test_modes_of_tiff(tmp_path, image, channels, wanted):
    payload = one(tmp_path, written(image, "TIFF"))
    assert payload.channels == channels and payload.to_numpy_array()[2, 2].tolist() == wanted


def test_a_tiff_is_turned_once(tmp_path):
    data = written(Image.fromarray(PICTURE), "TIFF", tiffinfo={0x0112: 6})
    assert numpy.array_equal(one(tmp_path, data).to_numpy_array(), numpy.rot90(PICTURE, 3))


def test_an_unknown_format_says_its_name(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(40))
    (tmp_path / "b.jpg").write_bytes(b"<!DOCTYPE html><html></html>")
    (tmp_path / "c.jpg").write_bytes(b"neither fish nor fowl")
    (tmp_path / "d.jpg").write_bytes(jpeg())
    _, stats = read(config(tmp_path))
    texts = {failure["name"][-5]: failure["text"] for failure in stats["last_failures"]}
    assert stats["failures"] == {"unsupported": 3}
    assert texts["a"] == "unsupported format: heif" and texts["b"] == "unsupported format: html"
    assert texts["c"] == "unrecognised signature: 6e 65 69 74"


def test_broken_files_of_pillows_formats(tmp_path):
    for i, kind in enumerate(("GIF", "TIFF", "BMP")):
        data = written(Image.fromarray(PICTURE), kind)
        (tmp_path / f"{i}.png").write_bytes(data[: len(data) // 2])
    (tmp_path / "9.png").write_bytes(saved(PICTURE))
    samples, stats = read(config(tmp_path))
    assert stats["failed"] + stats["delivered"] == 4 and set(stats["failures"]) <= {"truncated", "corrupt"}


def test_max_pixels_holds_for_every_format(tmp_path):
    for i, kind in enumerate(("GIF", "TIFF", "BMP", "WEBP", "PNG", "JPEG")):
        (tmp_path / f"{i}.png").write_bytes(written(Image.fromarray(PICTURE), kind))
    (tmp_path / "9.png").write_bytes(saved(photo(10, 10)))
    _, stats = read(config(tmp_path, image_config={"max_pixels": 60 * 40 - 1}))
    assert stats["failures"] == {"too_large": 6} and stats["delivered"] == 1


# ---- RGB8 ----

PALETTE = png(
    4, 4, 8, 3, (b"\0" + bytes([0, 1, 2, 1])) * 4, chunk(b"PLTE", bytes([255, 0, 0, 0, 255, 0, 0, 0, 255])) + chunk(b"tRNS", b"\0\x80")
)
KEYED = png(4, 4, 8, 2, (b"\0" + bytes([255, 0, 0] * 2 + [0, 0, 255] * 2)) * 4, chunk(b"tRNS", bytes([0, 255, 0, 0, 0, 0])))


@pytest.mark.parametrize(
    "data, background, wanted",
    [
        (PALETTE, 128, [[128] * 3, [64, 192, 64], [0, 0, 255], [64, 192, 64]]),
        (PALETTE, 255, [[255] * 3, [127, 255, 127], [0, 0, 255], [127, 255, 127]]),
        (PALETTE, [0, 10, 20], [[0, 10, 20], [0, 133, 10], [0, 0, 255], [0, 133, 10]]),
        (KEYED, 128, [[128] * 3, [128] * 3, [0, 0, 255], [0, 0, 255]]),
        (png(3, 1, 8, 4, b"\0" + bytes([255, 0, 200, 128, 9, 255])), 128, [[128] * 3, [164] * 3, [9] * 3]),
        (png(2, 1, 8, 6, b"\0" + bytes([255, 0, 0, 0, 200, 100, 50, 128])), 128, [[128] * 3, [164, 114, 89]]),
        (png(2, 1, 16, 0, b"\0" + bytes([255, 1, 128, 7])), 128, [[255] * 3, [128] * 3]),
    ],
)
def test_rgb8_composites(tmp_path, data, background, wanted):
    array = one(tmp_path, data, image_to_rgb8=True, background=background).to_numpy_array()
    assert array.shape[2] == 3 and array.dtype == numpy.uint8
    assert numpy.abs(array[0].astype(int) - wanted).max() <= 1
    assert array[0, 0].tolist() == wanted[0]


def test_rgb8_of_grey_and_opaque(tmp_path):
    assert one(tmp_path, jpeg(16, 16, mode="L"), image_to_rgb8=True).channels == 3
    opaque = numpy.concatenate([PICTURE, numpy.full((40, 60, 1), 255, numpy.uint8)], 2)
    assert numpy.array_equal(one(tmp_path, saved(opaque), image_to_rgb8=True).to_numpy_array(), PICTURE)
    with DatagoClient(config(tmp_path / "a.png", image_config={"image_to_rgb8": True})) as client:
        image = client.get_sample_auto_convert(timeout=20)["image"]
    assert image.mode == "RGB" and numpy.array_equal(numpy.asarray(image), PICTURE)


def test_the_ramp_of_sixteen_bits(tmp_path):
    ramp = png(256, 4, 16, 0, (b"\0" + b"".join((i * 257).to_bytes(2) for i in range(256))) * 4)
    assert one(tmp_path, ramp, image_to_rgb8=True).to_numpy_array()[1, :, 2].tolist() == list(range(256))


# ---- damage ----


def test_on_truncated_accept_keeps_what_there_is(tmp_path):
    data = jpeg(200, 200)
    whole = one(tmp_path, data).to_numpy_array()
    part = one(tmp_path, data[: len(data) // 2], on_truncated="accept").to_numpy_array()
    assert part.shape == whole.shape and numpy.array_equal(part[:60], whole[:60]) and not numpy.array_equal(part, whole)
    data = saved(photo(100, 100))
    part = one(tmp_path, data[: len(data) // 2], on_truncated="accept").to_numpy_array()
    assert numpy.array_equal(part[:20], photo(100, 100)[:20]) and not part[-1].any()


def test_damaged_data_is_counted_or_refused(tmp_path):
    data = bytearray(jpeg(200, 200))
    data[len(data) * 2 // 3 : len(data) * 2 // 3 + 6] = b"\xff\xd5\xff\xd3\xff\xd1"  # markers in mid-scan
    (tmp_path / "a.jpg").write_bytes(bytes(data))
    (tmp_path / "b.jpg").write_bytes(jpeg(200, 200))
    samples, stats = read(config(tmp_path))
    assert len(samples) == 2 and stats["damaged"] == 1 and stats["failed"] == 0
    samples, stats = read(config(tmp_path, image_config={"on_damaged": "error"}))
    assert len(samples) == 1 and stats["damaged"] == 0 and stats["failures"] == {"corrupt": 1}


@pytest.mark.parametrize("marker", [0xC3, 0xC5, 0xC9, 0xCA, 0xCB])
def test_rare_kinds_of_jpeg_are_decoded_or_named(tmp_path, marker):
    """Lossless, hierarchical and arithmetic coding, announced over baseline data."""
    data = bytearray(jpeg(64, 64))
    data[data.index(b"\xff\xc0") + 1] = marker
    twelve = bytearray(jpeg(64, 64))
    twelve[twelve.index(b"\xff\xc0") + 4] = 12
    (tmp_path / "a.jpg").write_bytes(bytes(data))
    (tmp_path / "b.jpg").write_bytes(bytes(twelve))
    (tmp_path / "c.jpg").write_bytes(jpeg(64, 64))
    _, stats = read(config(tmp_path))
    assert stats["delivered"] + stats["failed"] == 3 and stats["delivered"] >= 1
    assert set(stats["failures"]) <= {"unsupported", "corrupt", "truncated"}


def test_scan_bombs_end(tmp_path):
    data = jpeg(64, 64, progressive=True)
    last = data.rindex(b"\xff\xda")
    (tmp_path / "a.jpg").write_bytes(data[:-2] + data[last:-2] * 20_000 + data[-2:])
    (tmp_path / "b.jpg").write_bytes(data)
    _, stats = read(config(tmp_path))
    assert stats["delivered"] == 1 and stats["failed"] == 1


# ---- encode ----


def test_encode_png(tmp_path):
    image = one(tmp_path, saved(CLEAR), pre_encode_images=True)
    assert (image.is_encoded, image.channels, image.bit_depth, image.width, image.height) == (True, -1, 8, 60, 40)
    assert bytes(image.data[:4]) == b"\x89PNG" and image.to_pil_image().format == "PNG"
    assert numpy.array_equal(image.to_numpy_array(), CLEAR)
    wide = one(tmp_path, png(2, 1, 16, 0, b"\0\1\2\3\4"), pre_encode_images=True)
    assert wide.bit_depth == 16 and numpy.asarray(wide.to_pil_image()).tolist() == [[0x0102, 0x0304]]


@pytest.mark.parametrize("chroma, factors", [("444", (1, 1)), ("422", (2, 1)), ("420", (2, 2))])
def test_encode_jpeg(tmp_path, chroma, factors):
    smooth = numpy.asarray(Image.linear_gradient("L").resize((60, 40)).convert("RGB"))
    image = one(tmp_path, saved(smooth), pre_encode_images=True, encode_format="jpeg", jpeg_quality=95, jpeg_chroma=chroma)
    opened = image.to_pil_image()
    assert opened.format == "JPEG" and opened.layer[0][1:3] == factors
    assert numpy.abs(image.to_numpy_array().astype(int) - smooth).max() < 8
    small = one(tmp_path, saved(PICTURE), pre_encode_images=True, encode_format="jpeg", jpeg_quality=5)
    assert len(small.data) < len(image.data)


@pytest.mark.parametrize(
    "data", [saved(CLEAR), PALETTE, png(2, 1, 16, 0, b"\0\1\2\3\4"), png(2, 1, 8, 4, b"\0" + bytes(4)), saved(PICTURE[:, :, 0])]
)
def test_encode_jpeg_of_what_jpeg_has_not(tmp_path, data):
    """Alpha is composited over the background, 16 bits become 8, grey stays grey."""
    image = one(tmp_path, data, pre_encode_images=True, encode_format="jpeg")
    flat = one(tmp_path, data, image_to_rgb8=True).to_numpy_array()
    array = numpy.asarray(image.to_pil_image().convert("RGB"))
    assert numpy.abs(array.astype(int) - flat).mean() < 12 and array.shape == flat.shape


@pytest.mark.parametrize("data", [b"\xff", b"\xff\xd8", b"G", b"\0\0\1"])
def test_tiny_files_are_of_no_format(tmp_path, data):
    with pytest.raises(SampleError, match=f"unsupported: unrecognised signature: {data.hex(' ')}$"):
        one(tmp_path, data)


def test_floating_point_pixels_are_not_called_damaged(tmp_path):
    with pytest.raises(SampleError, match="unsupported: TIFF: pixels are floating point numbers"):
        one(tmp_path, saved(numpy.zeros((4, 4), numpy.float32), "TIFF"))


def test_a_jpeg_that_needs_no_change_passes_through(tmp_path):
    data = jpeg(64, 64)
    settings = {"pre_encode_images": True, "encode_format": "jpeg"}
    image = one(tmp_path, data, **settings)
    assert bytes(image.data) == data and (image.width, image.height, image.is_encoded) == (64, 64, True)
    assert bytes(one(tmp_path, data, **settings, **TINY).data) == data  # 64 x 64 is a bucket
    assert bytes(one(tmp_path, jpeg(65, 64), **settings, **TINY).data) != jpeg(65, 64)
    assert bytes(one(tmp_path, jpeg(64, 64, mode="L"), **settings, image_to_rgb8=True).data) != jpeg(64, 64, mode="L")
    (tmp_path / "a.png").write_bytes(data[: len(data) // 2])
    (tmp_path / "b.png").write_bytes(data)
    _, stats = read(config(tmp_path, image_config=settings))
    assert stats["failures"] == {"truncated": 1}


def test_a_jpeg_with_a_fault_does_not_pass_through(tmp_path):
    """Its end marker stands where it should. What would be refused elsewhere is refused, what would be patched up is, and counted."""
    whole = jpeg(64, 64)
    settings = {"pre_encode_images": True, "encode_format": "jpeg"}
    middle = (whole.index(b"\xff\xda") + len(whole)) // 2
    damaged = whole[:middle] + b"\xff\0" * 8 + whole[middle:]  # no code is all ones
    (tmp_path / "damaged.jpg").write_bytes(damaged)
    samples, stats = read(config(tmp_path, image_config=settings))
    assert stats["damaged"] == 1 and bytes(samples[0].image.data) != damaged
    with pytest.raises(SampleError, match="corrupt: jpeg: entropy-coded data is damaged"):
        read(config(tmp_path, image_config={**settings, "on_damaged": "error"}, on_error="raise"))
    (tmp_path / "damaged.jpg").write_bytes(whole.replace(b"\xff\xdb", b"\xff\xfe"))  # without its quantization tables
    with pytest.raises(SampleError, match="corrupt: jpeg: Quantization table"):
        read(config(tmp_path, image_config=settings, on_error="raise"))
    image = one(tmp_path, whole[:-2], **settings)  # only that is missing: Pillow would refuse the file as it came
    assert bytes(image.data) != whole[:-2] and image.to_pil_image().convert("RGB").size == (64, 64)


def test_encoding_keeps_pil_readers_working(tmp_path):
    (tmp_path / "a.png").write_bytes(saved(PICTURE))
    with DatagoClient(config(tmp_path, image_config={"pre_encode_images": True, **TINY})) as client:
        image = client.get_sample_auto_convert(timeout=20)["image"]
    assert image.format == "PNG" and image.mode == "RGB"
