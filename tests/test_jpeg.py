import io
import struct

import numpy
import pytest
from conftest import config, decode, jpeg, photo, read
from PIL import Image

turbojpeg = pytest.importorskip("turbojpeg")
try:
    turbojpeg.TurboJPEG()
except RuntimeError:
    pytest.skip("PyTurboJPEG finds no libturbojpeg (Debian: libturbojpeg0)", allow_module_level=True)


def oracle(data, grey=False):
    codec = turbojpeg.TurboJPEG()
    return codec.decode(data, pixel_format=turbojpeg.TJPF_GRAY if grey else turbojpeg.TJPF_RGB)


@pytest.mark.parametrize("size", [(1, 1), (7, 5), (17, 33), (64, 48), (16, 16), (257, 129)])
@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
def test_equal_to_libjpeg_turbo(tmp_path, size, subsampling, progressive):
    data = jpeg(*size, seed=3, subsampling=subsampling, progressive=progressive)
    array, _ = decode(tmp_path, data)
    assert array.shape == (size[1], size[0], 3) and array.dtype == numpy.uint8
    assert numpy.array_equal(array, oracle(data))


@pytest.mark.parametrize("mode", ["4:4:0", "4:1:1"])
def test_rare_subsamplings(tmp_path, mode):
    codec = turbojpeg.TurboJPEG()
    kind = {"4:4:0": turbojpeg.TJSAMP_440, "4:1:1": turbojpeg.TJSAMP_411}[mode]
    data = codec.encode(photo(77, 51), pixel_format=turbojpeg.TJPF_RGB, jpeg_subsample=kind)
    assert numpy.array_equal(decode(tmp_path, data)[0], oracle(data))


def test_wide_and_restart_markers(tmp_path):
    data = jpeg(65500, 1)
    assert numpy.array_equal(decode(tmp_path, data)[0], oracle(data))
    data = jpeg(120, 90, restart_marker_blocks=1)
    assert b"\xff\xd0" in data
    assert numpy.array_equal(decode(tmp_path, data)[0], oracle(data))


def test_grey_stays_one_channel(tmp_path):
    data = jpeg(33, 20, mode="L")
    array, _ = decode(tmp_path, data)
    assert array.shape == (20, 33, 1)
    assert numpy.array_equal(array, oracle(data, grey=True))


def cmyk(colour):
    out = io.BytesIO()
    Image.new("CMYK", (32, 32), colour).save(out, "JPEG", quality=95)
    return out.getvalue()


def without_segment(data, marker):
    at = data.index(bytes([0xFF, marker]))
    return data[:at] + data[at + 2 + struct.unpack(">H", data[at + 2 : at + 4])[0] :]


@pytest.mark.parametrize("colour, wanted", [((200, 100, 50, 30), (48, 137, 181)), ((255, 0, 0, 0), (0, 255, 255))])
@pytest.mark.parametrize("adobe", [True, False])
def test_cmyk(tmp_path, colour, wanted, adobe):
    data = cmyk(colour) if adobe else without_segment(cmyk(colour), 0xEE)
    array, _ = decode(tmp_path, data)
    assert array.shape == (32, 32, 3)
    assert numpy.abs(array.astype(int) - wanted).max() <= 1


def test_huge_header_is_refused_at_once(tmp_path):
    data = bytearray(jpeg())
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", 65500, 65500)
    assert decode(tmp_path, bytes(data)) == (None, "too_large")


def test_max_pixels(tmp_path):
    assert decode(tmp_path, jpeg(64, 48), image_config={"max_pixels": 64 * 48})[0] is not None
    assert decode(tmp_path, jpeg(64, 48), image_config={"max_pixels": 64 * 48 - 1}) == (None, "too_large")


def test_zero_height(tmp_path):
    data = bytearray(jpeg())
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 7] = b"\0\0"
    assert decode(tmp_path, bytes(data))[1] in ("corrupt", "unsupported")


@pytest.mark.parametrize("progressive", [False, True])
def test_truncated(tmp_path, progressive):
    data = jpeg(200, 150, progressive=progressive)
    start = data.index(b"\xff\xda")
    for cut in (len(data) // 2, len(data) - 10, start + 14, start, 20, 4):
        assert decode(tmp_path, data[:cut]) == (None, "truncated"), cut
    whole, _ = decode(tmp_path, data)
    assert numpy.array_equal(decode(tmp_path, data[:-2])[0], whole)  # nothing lacks but the end marker


def test_trailing_bytes_and_a_second_picture(tmp_path):
    data = jpeg()
    for tail in (bytes(1000), jpeg(seed=5)):
        assert numpy.array_equal(decode(tmp_path, data + tail)[0], oracle(data))


def test_broken_metadata_is_not_the_pictures(tmp_path):
    data = jpeg()
    for marker, payload in [(0xE1, b"http://ns.adobe.com/xap/1.0/\0<x>\xa8\xff</x>"), (0xE1, b"Exif\0\0MM"), (0xE2, b"ICC_PROFILE\0\1\1junk")]:
        marked = data[:2] + bytes([255, marker]) + struct.pack(">H", len(payload) + 2) + payload + data[2:]
        assert numpy.array_equal(decode(tmp_path, marked)[0], oracle(data))


def test_tables_do_not_leak_into_the_next_picture(tmp_path):
    """A file without quantisation tables must fail, whatever the worker decoded before."""
    bare = jpeg()
    while b"\xff\xdb" in bare:
        bare = without_segment(bare, 0xDB)
    for i in range(4):
        (tmp_path / f"{i}a.jpg").write_bytes(jpeg())
        (tmp_path / f"{i}b.jpg").write_bytes(bare)
    _, stats = read(config(tmp_path))
    assert stats["delivered"] == 4 and stats["failures"] == {"corrupt": 4}


def test_content_decides_not_the_suffix(tmp_path):
    picture = photo(20, 10)
    out = io.BytesIO()
    Image.fromarray(picture).save(out, "PNG")
    assert numpy.array_equal(decode(tmp_path, out.getvalue(), "png.jpg")[0], picture)
    data = jpeg()
    assert numpy.array_equal(decode(tmp_path, data, "jpeg.png")[0], oracle(data))


@pytest.mark.parametrize("data, reason", [(b"", "empty"), (b"<html></html>", "unsupported"), (b"junk", "unsupported"), (b"\xff\xd8\xff", "truncated")])
def test_what_is_no_picture(tmp_path, data, reason):
    assert decode(tmp_path, data) == (None, reason)


def test_nothing_reaches_stderr(tmp_path, capfd):
    data = jpeg(200, 150)
    for i, cut in enumerate((len(data) // 2, len(data) - 10, len(data) - 2)):
        (tmp_path / f"{i}.jpg").write_bytes(data[:cut])
    read(config(tmp_path))
    assert capfd.readouterr().err == ""
