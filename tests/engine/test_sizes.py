"""Sizes from headers are those that the loader finds when it decodes; the bucket that follows from one is the loader's own choice."""

import io
import os
import signal
import struct
import subprocess
import sys
import threading

import numpy
import pytest
from conftest import SMALL, chunk, config, jpeg, photo, png, read, saved
from PIL import Image, features

from datago import aspect_buckets
from datago.engine._sizes import bucket_numbers, read_sizes
from datago.threads import Flag

pytestmark = pytest.mark.timeout(60)
BUCKETS = {key: value for key, value in SMALL.items() if key != "crop_and_resize"}


def tiff(orientation):
    return struct.pack("<2sHIHHHIHHI", b"II", 42, 8, 1, 0x112, 3, 1, orientation, 0, 0)


def segment(marker, content):
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(content) + 2) + content


def saved_as(kind, width=37, height=20, mode="RGB", **options):
    out = io.BytesIO()
    Image.fromarray(photo(width, height)).convert(mode).save(out, kind, **options)
    return out.getvalue()


def jpegs():
    """Size and orientation behind segments that are passed over, some of which lie across what is read first."""
    plain, found = jpeg(60, 30), {}
    turned = segment(0xE1, b"Exif\0\0" + tiff(6))
    for number, length in enumerate((100, 16_355, 16_370, 16_380, 65_000)):
        profile = segment(0xE2, b"\xff\xda" * (length // 2))
        found[f"turned behind {number}.jpg"] = plain[:2] + profile + turned + plain[2:]
        found[f"turned before {number}.jpg"] = plain[:2] + turned + profile * 3 + plain[2:]
        found[f"long exif {number}.jpg"] = plain[:2] + segment(0xE1, (b"Exif\0\0" + tiff(8)).ljust(length, b"\xff")) + plain[2:]
    found["xmp.jpg"] = plain[:2] + segment(0xE1, b'http://ns.adobe.com/xap/1.0/\0<x tiff:Orientation="5"/>') + plain[2:]
    found["junk.jpg"] = plain[:20] + bytes(40_000) + turned + plain[20:]  # behind JFIF's segment
    found["progressive.jpg"] = jpeg(50, 70, progressive=True)
    found["large.jpg"] = jpeg(900, 700, quality=100)
    return found


def pngs():
    plain = saved(numpy.random.default_rng(0).integers(0, 255, (150, 200, 3), numpy.uint8))
    end = plain.index(b"IEND") - 4
    rows = b"".join(b"\0" + row.tobytes() for row in photo(30, 20))
    return {
        "plain.png": plain,
        "exif behind the pixels.png": plain[:end] + chunk(b"eXIf", tiff(6)) + plain[end:],
        "exif before.png": png(30, 20, 8, 2, rows, chunk(b"eXIf", tiff(8))),
        "long text.png": png(30, 20, 8, 2, rows, chunk(b"tEXt", b"a\0" + b"b" * 50_000) + chunk(b"eXIf", tiff(7))),
        "xmp behind.png": plain[:end] + chunk(b"iTXt", b'XML:com.adobe.xmp\0\0\0\0\0<x tiff:Orientation="6"/>') + plain[end:],
    }


def webps():
    noise = Image.fromarray(numpy.random.default_rng(0).integers(0, 255, (150, 200, 3), numpy.uint8))
    found = {}
    for lossless in (False, True):
        for name, options in (("", {}), ("turned", {"exif": b"Exif\0\0" + tiff(6)})):
            out = io.BytesIO()
            noise.save(out, "WEBP", lossless=lossless, quality=100, **options)
            found[f"{name} {lossless}.webp"] = out.getvalue()
    return found


def others():
    """What only Pillow knows."""
    found = {"a.gif": saved_as("GIF", mode="P"), "a.bmp": saved_as("BMP"), "grey.tif": saved_as("TIFF", mode="L")}
    found["turned.tif"] = saved_as("TIFF", tiffinfo={0x112: 6})
    if features.check("avif"):
        found["a.avif"] = saved_as("AVIF")
        found["turned.avif"] = saved_as("AVIF", exif=tiff(6))
    # the loader looks at what a file is, whatever its name says
    for kind in ("ICO", "ICNS", "PPM", "PCX", "SGI", "TGA", "DDS", "QOI", "JPEG2000"):
        if kind == "JPEG2000" and not features.check("jpg_2000"):
            continue
        size = (32, 32) if kind in ("ICO", "ICNS") else (37, 20)
        found[f"{kind}.bmp"] = saved_as(kind, *size)
    return found


def written(folder, files):
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return [os.fsencode(folder / name) for name in sorted(files)]


@pytest.mark.parametrize("orient", [True, False])
@pytest.mark.parametrize("kind", [jpegs, pngs, webps, others])
def test_sizes_are_those_that_the_loader_finds(tmp_path, kind, orient):
    paths = written(tmp_path, kind())
    sizes, failures = read_sizes(paths, 3, orient=orient)
    assert not failures and sizes.dtype == numpy.int32
    samples, stats = read(config(tmp_path, image_config={"apply_exif_orientation": orient}))
    found = {os.fsencode(s.id): (s.image.original_width, s.image.original_height) for s in samples}
    assert stats["failed"] == 0 and dict(zip(paths, map(tuple, sizes.tolist()), strict=True)) == found
    assert (sizes != read_sizes(paths, 1, orient=not orient)[0]).any()


def test_a_file_without_a_size_is_a_failure_with_a_name(tmp_path):
    good, huge = jpeg(40, 30), b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 0, 9, 8, 2, 0, 0, 0))
    paths = written(tmp_path, {
        "a.jpg": good, "b.jpg": b"", "c.jpg": good[:30], "d.jpg": b"<html>not found</html>", "e.png": huge, "f.gif": b"GIF89a\x01",
        "g.jpg": good, "h.jpg": b"nothing that is known", "i.jpg": bytes(5000),
    })  # fmt: skip
    paths += [os.fsencode(tmp_path), os.fsencode(tmp_path / "gone.jpg"), os.fsencode(tmp_path / "fifo.jpg")]
    os.mkfifo(tmp_path / "fifo.jpg")
    sizes, failures = read_sizes(paths, 2, max_file_bytes=4999)
    assert [os.path.basename(paths[number]) for number in numpy.flatnonzero(sizes[:, 0])] == [b"a.jpg", b"g.jpg"]
    assert sizes.sum() == 140
    assert [(number, os.path.basename(failure.name), failure.reason) for number, failure in failures] == [
        (1, "b.jpg", "empty"), (2, "c.jpg", "corrupt"), (3, "d.jpg", "unsupported"), (4, "e.png", "corrupt"), (5, "f.gif", "truncated"),
        (7, "h.jpg", "unsupported"), (8, "i.jpg", "too_large"), (9, os.path.basename(tmp_path), "not_a_file"), (10, "gone.jpg", "not_found"),
        (11, "fifo.jpg", "not_a_file"),
    ]  # fmt: skip
    assert "max_file_bytes is 4999" in failures[6][1].text and "No such file" in failures[8][1].text
    assert read_sizes([], 4)[0].shape == (0, 2)


def test_progress_is_told_and_may_end_it(tmp_path):
    paths, told = written(tmp_path, {"a.jpg": jpeg(40, 30)}) * 3000, []
    sizes, failures = read_sizes(paths, 2, progress=told.append)
    assert (sizes == (40, 30)).all() and told[-1] == 3000 and told == sorted(told)

    def refuse(_):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        read_sizes(paths, 2, progress=refuse)


def test_a_flag_ends_it(tmp_path):
    """Formats for Pillow take long enough that not all are read by then."""
    paths, stop, told = written(tmp_path, {"a.gif": saved_as("GIF", 300, 300, mode="P")}) * 100_000, Flag(), []
    stop.set()
    assert read_sizes(paths, 2, progress=told.append, stop=stop) is None
    assert told[-1] < len(paths)


INTERRUPTED = """
import sys
from datago.engine._sizes import read_sizes
try:
    read_sizes([sys.argv[1].encode()] * 10**6, 2, progress=lambda done: print(done, flush=True))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_an_interrupt_ends_it(tmp_path):
    (tmp_path / "a.gif").write_bytes(saved_as("GIF", 300, 300, mode="P"))
    child = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(tmp_path / "a.gif")], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline().strip().isdigit()
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=30)
    assert out.split()[-1] == "interrupted" and child.returncode == 0


def test_memory_does_not_grow_with_files(tmp_path):
    """Of a file of 200 MB, of which the sizes stand at the beginning and the end, a few pages are read."""
    path = tmp_path / "a.png"
    head = saved(photo(30, 20))
    end = head.index(b"IEND") - 4
    with open(path, "wb") as file:
        file.write(head[:end] + struct.pack(">I", 200_000_000) + b"IDAT")
        file.seek(200_000_004, os.SEEK_CUR)
        file.write(chunk(b"eXIf", tiff(6)) + head[end:])
    script = (
        "import resource, sys\nfrom datago.engine._sizes import read_sizes\nread_sizes([], 1)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\nprint(read_sizes([sys.argv[1].encode()] * 50, 2)[0][0].tolist())\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, timeout=50, check=True)
    size, grown = done.stdout.splitlines()
    assert size == "[20, 30]" and int(grown) < 20_000


def test_threads_are_gone_afterwards(tmp_path):
    before = threading.active_count()
    read_sizes(written(tmp_path, {"a.jpg": jpeg(40, 30)}) * 100, 4)
    assert threading.active_count() == before


def test_buckets_are_the_loaders_own_choice(tmp_path):
    rng = numpy.random.default_rng(5)
    shapes = [(int(w), int(h)) for w, h in rng.integers(20, 400, (40, 2))] + [(20, 400), (400, 20), (64, 64)]
    paths = written(tmp_path, {f"{w}x{h}.png": saved(photo(w, h)) for w, h in shapes})
    sizes, _ = read_sizes(paths, 2)
    numbers, buckets = bucket_numbers(sizes, **BUCKETS), aspect_buckets(**BUCKETS)
    samples, _ = read(config(tmp_path, image_config=SMALL))
    found = {os.fsencode(s.id): (s.image.width, s.image.height) for s in samples}
    assert {path: buckets[number] for path, number in zip(paths, numbers, strict=True)} == found


def test_what_has_no_size_has_no_bucket():
    assert bucket_numbers(numpy.array([[0, 0], [5, 0], [100, 100]]), **BUCKETS).tolist() == [
        -1,
        -1,
        aspect_buckets(**BUCKETS).index((224, 224)),
    ]
    assert bucket_numbers(numpy.zeros((0, 2), int), **BUCKETS).shape == (0,)
    with pytest.raises(ValueError, match="downsampling_ratio"):
        bucket_numbers([[1, 1]], **{**BUCKETS, "downsampling_ratio": 0})
