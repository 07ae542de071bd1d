"""Makes the seeds of fuzz_image: make_corpus.py FOLDER. Each is a tiny picture and the six bytes of options behind it."""
import io
import pathlib
import random
import struct
import sys
import zlib

from PIL import Image

folder = pathlib.Path(sys.argv[1])
# Flags (fuzz_image.c's options_read), encoding and roles, quality, buckets, where the second picture is cut, checks. The checks:
# 1 encoded decodes, 2 a second picture, 4 the same again, 8 plain C; and 16 a random position, 32 mirrored.
RGBX, TRUNCATED, DAMAGED, EXACT, ORIENT, NEAREST, RGB8 = (1 << i for i in range(7))
NOT, PNG, JPEG = range(3)
MASK, ADDITIONAL = 1 << 2, 2 << 2
NO_BUCKETS, RESIZED = 8, 9
TURN = [  # taken in turn, so that every kind of file meets every option in the end
    bytes([ORIENT, NOT, 0, NO_BUCKETS, 200, 15]),
    bytes([ORIENT | RGB8 | RGBX, NOT, 0, 4, 128, 15]),
    bytes([ORIENT | EXACT, PNG, 0, 3, 250, 15]),
    bytes([RGB8 | TRUNCATED | DAMAGED, JPEG, 84, 2, 100, 7]),
    bytes([ORIENT | NEAREST, MASK | PNG, 0, 6, 60, 11]),
    bytes([RGBX | TRUNCATED, ADDITIONAL | NOT, 0, 1, 180, 15]),
    bytes([EXACT | RGB8, JPEG | 2 << 6, 94, NO_BUCKETS, 30, 15]),
    bytes([ORIENT | DAMAGED, MASK | NOT, 0, 5, 220, 11]),
]
count = 0
rng = random.Random(1)


def keep(name, data, options=None):
    global count
    (folder / name).write_bytes(data + (options or TURN[count % len(TURN)]))
    count += 1


def picture(mode, size=(45, 37)):
    """A gradient with noise and a hard edge."""
    image = Image.new("RGBA", size)
    width, height = size
    image.putdata([
        (x * 255 // width, y * 255 // height, (x * y + rng.randrange(40)) % 256, 255 if x > y else (x * 9) % 256)
        for y in range(height) for x in range(width)
    ])
    return image.convert(mode)


def saved(image, format, **options):
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


def exif(orientation, big=True):
    order = ">" if big else "<"
    entry = struct.pack(order + "HHIHHI", 0x112, 3, 1, orientation, 0, 0)
    return b"Exif\0\0" + (b"MM\0*" if big else b"II*\0") + struct.pack(order + "IH", 8, 1) + entry


def segment(marker, content):
    return bytes([0xFF, marker]) + struct.pack(">H", len(content) + 2) + content


def jpegs():
    rgb = picture("RGB")
    for name, options in {
        "420": {"subsampling": 2}, "422": {"subsampling": 1}, "444": {"subsampling": 0}, "progressive": {"progressive": True},
        "restart": {"restart_marker_blocks": 2}, "progressive_restart": {"progressive": True, "restart_marker_rows": 1},
        "optimized": {"optimize": True, "quality": 95}, "rough": {"quality": 5}, "rgb": {"keep_rgb": True},
    }.items():
        keep(f"jpeg_{name}.jpg", saved(rgb, "JPEG", **options))
    keep("jpeg_grey.jpg", saved(picture("L"), "JPEG"))
    keep("jpeg_grey_progressive.jpg", saved(picture("L", (9, 70)), "JPEG", progressive=True))
    keep("jpeg_cmyk.jpg", saved(picture("CMYK"), "JPEG"))
    keep("jpeg_cmyk_progressive.jpg", saved(picture("CMYK"), "JPEG", progressive=True))
    keep("jpeg_1x1.jpg", saved(picture("RGB", (1, 1)), "JPEG"))
    keep("jpeg_wide.jpg", saved(picture("RGB", (200, 3)), "JPEG"))
    # Smooth and far larger than its bucket: decoded at a fraction of its size, plane by plane.
    large = picture("RGB", (40, 30)).resize((400, 300))
    for subsampling in (0, 1, 2):
        for options in (0, 2):
            data = saved(large, "JPEG", quality=30, subsampling=subsampling, progressive=options == 2)
            keep(f"jpeg_large_{subsampling}_{options}.jpg", data, bytes([ORIENT, NOT, 0, 3 + options, 200, 15]))
    # Sampling factors that Pillow does not write. 4:4:0 has the blocks of 4:2:2, and 4:1:1 those of 4:2:0, so a new header will do
    # (and a scrambled picture); the data of the last two fits only roughly.
    square = picture("RGB", (64, 64))
    for name, subsampling, factors in ("440", 1, 0x12), ("411", 2, 0x41), ("410", 2, 0x42), ("311", 1, 0x31):
        data = bytearray(saved(square, "JPEG", subsampling=subsampling, quality=40))
        data[data.index(b"\xff\xc0") + 11] = factors
        keep(f"jpeg_{name}.jpg", bytes(data))
    plain, rgb_444 = saved(rgb, "JPEG", quality=40), saved(rgb, "JPEG", subsampling=0)
    for orientation in range(1, 9):
        keep(f"jpeg_exif_{orientation}.jpg",
             plain[:2] + segment(0xE1, exif(orientation, orientation % 2 == 0)) + plain[2:])
    keep("jpeg_exif_broken.jpg", plain[:2] + segment(0xE1, exif(6)[:-5]) + plain[2:])
    cmyk = saved(picture("CMYK"), "JPEG")
    adobe = cmyk.index(b"Adobe") + 11
    keep("jpeg_ycck.jpg", cmyk[:adobe] + b"\2" + cmyk[adobe + 1:])
    keep("jpeg_icc.jpg", plain[:2] + segment(0xE2, b"ICC_PROFILE\0\1\1" + bytes(40)) + plain[2:])
    keep("jpeg_cut.jpg", plain[:len(plain) * 2 // 3])
    keep("jpeg_no_end.jpg", plain[:-2])
    keep("jpeg_trailing.jpg", plain + b"\0" * 9)
    keep("jpeg_damaged.jpg", plain[:-60] + bytes(b ^ 0x5A for b in plain[-60:-40]) + plain[-40:])
    # Two components, which have no colour space; and one scan, 600 times.
    frame, scan = rgb_444.index(b"\xff\xc0"), rgb_444.index(b"\xff\xda")
    two = segment(0xC0, rgb_444[frame + 4:frame + 9] + b"\2" + rgb_444[frame + 10:frame + 16])
    keep("jpeg_two.jpg", rgb_444[:frame] + two + rgb_444[frame + 19:scan] + segment(0xDA, b"\2\1\0\2\x11\0\x3f\0")
         + rgb_444[scan + 14:])
    dots = saved(picture("L", (8, 8)), "JPEG", progressive=True, quality=20)
    last = dots.rindex(b"\xff\xda")
    keep("jpeg_scans.jpg", dots[:last] + dots[last:-2] * 600 + dots[-2:])


def chunk(name, content):
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png(width, height, depth, colour, interlaced=0, extra=b"", parts=1, filters=range(5), level=6):
    """Pillow writes few of PNG's kinds; the rows are noise with runs."""
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    rows = []
    for x, y, dx, dy in passes if interlaced else [(0, 0, 1, 1)]:
        across, down = (width - x + dx - 1) // dx, (height - y + dy - 1) // dy
        if across <= 0:
            continue
        size = (across * samples * depth + 7) // 8
        for row in range(max(down, 0)):
            filter = filters[(row // 4 + row) % len(filters)]
            rows.append(bytes([filter]) + bytes((i // 7 * 16 + rng.randrange(3)) % 256 for i in range(size)))
    data = zlib.compress(b"".join(rows), level)
    cut = -(-len(data) // parts)
    idats = b"".join(chunk(b"IDAT", data[i:i + cut]) for i in range(0, len(data), cut))
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + idats + chunk(b"IEND", b"")


def pngs():
    depths = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
    for colour, all_depths in depths.items():
        for depth in all_depths:
            palette = b""
            if colour == 3:
                palette = chunk(b"PLTE", bytes(i * 37 % 256 for i in range(3 << depth)))
            for interlaced in (0, 1):
                keep(f"png_{colour}_{depth}_{interlaced}.png", png(23, 19, depth, colour, interlaced, palette))
            transparent = {0: struct.pack(">H", 16 % (1 << depth)), 2: struct.pack(">HHH", 16, 16, 17), 3: b"\0\x80"}
            if colour in transparent:
                extra = palette + chunk(b"tRNS", transparent[colour])
                keep(f"png_{colour}_{depth}_trns.png", png(21, 9, depth, colour, 0, extra))
                keep(f"png_{colour}_{depth}_trns_interlaced.png", png(9, 7, depth, colour, 1, extra))
    keep("png_parts.png", png(30, 30, 8, 2, parts=5))
    keep("png_stored.png", png(17, 20, 8, 6, parts=3, level=0))
    keep("png_paeth.png", png(70, 24, 8, 2, filters=[4]))
    keep("png_paeth_alpha.png", png(33, 20, 8, 6, filters=[4, 4, 3]))
    keep("png_1x1.png", png(1, 1, 8, 2))
    keep("png_tall.png", png(1, 90, 8, 6))
    keep("png_wide.png", png(65501, 1, 1, 0), bytes([0, JPEG, 50, NO_BUCKETS, 0, 15]))  # beyond what a JPEG can be
    keep("png_exif.png", png(20, 10, 8, 2, extra=chunk(b"eXIf", exif(6)[6:])))
    whole = png(30, 30, 8, 2, filters=[0, 4])
    keep("png_cut.png", whole[:len(whole) * 2 // 3])
    keep("png_bad_filter.png", png(8, 8, 8, 2, filters=[0, 7]))
    keep("png_bad_crc.png", whole[:-20] + b"\0" + whole[-19:])
    keep("png_more_rows.png", whole.replace(whole[16:33], chunk(b"IHDR", struct.pack(">IIBBBBB", 30, 20, 8, 2, 0, 0, 0))[8:]))
    keep("png_apple.png", whole[:8] + chunk(b"CgBI", bytes(4)) + whole[8:])


def webps():
    rgba, rgb = picture("RGBA", (40, 33)), picture("RGB", (40, 33))
    for name, image, options in (
        ("lossy", rgb, {}), ("lossless", rgb, {"lossless": True}), ("alpha", rgba, {}),
        ("lossless_alpha", rgba, {"lossless": True, "exact": True}), ("exif", rgb, {"exif": exif(8)}),
    ):
        keep(f"webp_{name}.webp", saved(image, "WEBP", quality=50, **options))
    keep("webp_animated.webp", saved(rgb, "WEBP", save_all=True, append_images=[rgb.rotate(90)], quality=10))
    whole = saved(rgb, "WEBP")
    keep("webp_cut.webp", whole[:len(whole) // 2])
    keep("webp_1x1.webp", saved(picture("RGB", (1, 1)), "WEBP"))


def others():
    """Pixels of another decoder: after the magic, fuzz_image reads channels, depth, width, height and orientation."""
    for channels in range(4):
        for depth in range(4):
            shape = bytes([channels, depth, 30 + 9 * channels, 20 + 3 * depth, channels + 4 * (depth & 1) + 1])
            keep(f"other_{channels}_{depth}.gif", b"GIF8" + shape + bytes(rng.randrange(256) for _ in range(50)))
    keep("html", b"<!DOCTYPE html><html>")
    keep("empty", b"")


def crops():
    """Parts of pictures, and where they are placed: quality and the cut say how large, and in which layout and type."""
    whole = picture("RGB")
    for i, (format, options) in enumerate([("JPEG", {}), ("JPEG", {"progressive": True}), ("JPEG", {"subsampling": 0}), ("PNG", {}), ("WEBP", {})]):
        data = saved(whole, format, exif=exif(i + 3), **options)
        keep(f"crop_{i}", data, bytes([ORIENT | RGB8, NOT, 31 + 5 * i, RESIZED, 20 + i, 32 + 15]))
        keep(f"crop_placed_{i}", data, bytes([EXACT if i % 2 else RGBX, NOT, 18 + 2 * i, RESIZED, 30 - i, 96 + 15]))
        keep(f"crop_bucket_{i}", data, bytes([ORIENT | RGB8, JPEG if i % 2 else NOT, 90 + i, 2, 50, 32 + 16 + 15]))


folder.mkdir(parents=True, exist_ok=True)
for old in folder.iterdir():
    old.unlink()
for make in (jpegs, pngs, webps, others, crops):
    make()
print(count, "seeds,", sum(path.stat().st_size for path in folder.iterdir()), "bytes")
