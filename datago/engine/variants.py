"""Handles variants of formats of which Pillow decodes wrong pixels or loses alpha. They are refused by name, or the file is changed before
Pillow opens it so that Pillow decodes it rightly."""

import functools
import re
import struct
from collections.abc import Callable
from typing import Any


class Unsupported(Exception):
    """The file is valid, but of a variant that is not decoded."""


class Corrupt(Exception):
    """The file breaks the rules of its format."""


class Truncated(Exception):
    """The file ends before the picture does."""


def _refuse(condition: object, text: str) -> None:
    if condition:
        raise Unsupported(text)


def bmp(data: bytes, begin: int = 14) -> bytes:
    """Refuses 16-bit pixels with alpha, which Pillow drops."""
    size, *_ = struct.unpack_from("<I", data, begin)
    if size >= 56:
        bits, compression = struct.unpack_from("<HI", data, begin + 14)
        (alpha,) = struct.unpack_from("<I", data, begin + 52)
        _refuse(bits == 16 and compression == 3 and alpha, "16 bits with alpha")
    return data


def bmp_opened(image: Any, data: bytes, raw_palette: Callable[[str, bytes], Any], begin: int = 14) -> None:
    """Restores a palette of ascending greys, which Pillow drops. It would then read pixels of another width."""
    size, *_ = struct.unpack_from("<I", data, begin)
    (bits,) = struct.unpack_from("<H", data, begin + (10 if size == 12 else 14))
    codec, _, _, arguments = image.tile[0]
    if codec == "raw" and {"1": 1, "L": 8}.get(arguments[0], bits) != bits:
        greys = bytes((0, 255)) if arguments[0] == "1" else bytes(range(256))
        image._mode = "P"
        image.palette = raw_palette("RGB", bytes(grey for grey in greys for _ in range(3)))
        image.tile = [image.tile[0]._replace(args=({1: "P;1", 4: "P;4", 8: "P"}[bits], *arguments[1:]))]


def bmp_runs(read: Callable[[int], bytes], width: int, height: int, four: bool) -> bytes:
    """Decodes a run-length encoded BMP.

    Args:
        read: reads up to as many bytes as its argument says.
        width, height: the size in pixels.
        four: whether pixels have 4 bits, two in a byte, instead of 8.

    Returns:
        The palette indices, one byte for each pixel, with the rows in the file's order.
    """

    def pixels(count: int) -> bytes:
        found = read((count + 1) // 2 if four else count)
        return bytes(half for byte in found for half in (byte >> 4, byte & 15)) if four else found

    grid, x, y = bytearray(width * height), 0, 0
    while y < height and (x < width or y < height - 1):
        head = read(2)
        if len(head) < 2:
            raise Truncated("the pixels are cut off")
        count, value = head
        if count:
            run = (bytes((value >> 4, value & 15)) * 128 if four else bytes((value,)) * 256)[:count]
        elif value == 0:
            x, y = 0, y + 1
            continue
        elif value == 1:
            break  # Pixels that the file leaves out have colour 0.
        elif value == 2:
            right, up = read(2).ljust(2, b"\0")
            x, y = x + right, y + up
            continue
        else:
            run = pixels(value)[:value]
            if len(run) < value:
                raise Truncated("the pixels are cut off")
            read(((value + 1) // 2 if four else value) & 1)
        run = run[: max(0, width - x)]
        grid[y * width + x : y * width + x + len(run)] = run
        x += len(run)
    return bytes(grid)


def tga(data: bytes) -> bytes:
    """Refuses interleaved rows, and 16-bit pixels with alpha, which Pillow inverts. Pillow also takes bits for alpha that are none; see
    tga_has_alpha."""
    kind, depth, flags = data[2], data[16], data[17]
    _refuse(flags & 0xC0, "interleaved rows")
    _refuse(kind in (2, 10) and depth == 16 and flags & 15, "16 bits with alpha")
    return data


def tga_has_alpha(data: bytes) -> bool:
    kind, map_depth, flags = data[2], data[7], data[17]
    return map_depth == 32 if kind in (1, 9) else bool(flags & 15)


def pcx(data: bytes) -> bytes:
    """Refuses rows of unusual length, since Pillow computes the length of a row and ignores what the file says."""
    version, bits = data[1], data[3]
    left, right = struct.unpack_from("<H2xH", data, 4)
    planes, stride = struct.unpack_from("<BH", data, 65)
    least = ((right - left + 1) * bits + 7) // 8
    _refuse(stride not in (least, least + least % 2), f"rows of {stride} bytes")
    _refuse(version == 3 and planes > 1, "the palette of an EGA card")
    return data


def sgi(data: bytes) -> bytes:
    _refuse(any(data[104:108]), "a colour map")
    return data


def dds(data: bytes) -> bytes:
    kind, code, bits, *masks = struct.unpack_from("<I4s5I", data, 80)
    coded, has_alpha = kind & 4, kind & 1
    if not coded:
        _refuse(kind & 0x40 and (bits not in (8, 16, 24, 32) or 0 in masks[: 3 + has_alpha]), f"masks in {bits} bits")
    elif code == b"DX10":
        (number,) = struct.unpack_from("<I", data, 128)
        _refuse(number in (84, 95, 96), f"DXGI format {number}: signed or floating point numbers of no known range")
    _refuse(code == b"BC5S", "signed numbers")
    return data


def jpeg2000(data: bytes) -> bytes:
    """Refuses components that Pillow decodes wrongly: it rounds those of more than 8 bits up to 256, which overflows to 0, scales those of
    fewer than 8 bits wrongly, and misplaces subsampled ones."""
    at = data.find(b"\xff\x4f\xff\x51")
    if at < 0:
        raise Truncated("no code stream")
    (count,) = struct.unpack_from(">H", data, at + 40)
    _refuse(count > 4, f"{count} components")
    parts = [struct.unpack_from(">3B", data, at + 42 + 3 * i) for i in range(count)]
    whole = {(7, 1, 1)} if count > 1 else {(bits, 1, 1) for bits in range(7, 16)}
    words = ", ".join(f"of {(bits & 127) + 1} bits{' with sign' if bits > 127 else ''}, 1/{x} x 1/{y}" for bits, x, y in parts)
    _refuse(not whole.issuperset(parts), f"components {words}")
    colour = data.find(b"colr", 0, at)
    if colour > 0 and data[colour + 4] == 1:
        (space,) = struct.unpack_from(">I", data, colour + 7)
        _refuse(space not in (12, 16, 17, 18), f"colour space {space}")
    return data


def jpeg2000_opened(image: Any, data: bytes, _: object) -> None:
    _refuse(b"pclr" in data[: data.find(b"\xff\x4f\xff\x51")] and image.mode not in ("P", "PA"), "a palette of more than 8 bits")


def ico(data: bytes) -> bytes:
    """Corrects the depth and size in the list of pictures, which Pillow uses instead of those of the picture itself. A picture of 32 bits
    whose alpha is all 0 is marked as one of 24 bits, so that its mask is used, as Windows does."""
    mended, length = bytearray(data), len(data)
    (count,) = struct.unpack_from("<H", mended, 4)
    for entry in range(6, 6 + 16 * count, 16):
        (at,) = struct.unpack_from("<I", mended, entry + 12)
        if mended[at : at + 4] != b"\x89PNG":
            header, width, height, _, bits, coding = struct.unpack_from("<IiiHHI", mended, at)
            _refuse(header != 40 or coding or width < 1 or height < 2, "no plain bitmap")
            (colours,) = struct.unpack_from("<I", mended, at + 32)
            begin = at + header + 4 * ((colours or 1 << bits) if bits <= 8 else 0)
            end = begin + (width * bits + 31) // 32 * 4 * (height // 2)
            mask = (width + 31) // 32 * 4 * (height // 2)
            (stated,) = struct.unpack_from("<I", mended, entry + 8)
            stop, masked = at + stated, bits != 32 or not any(mended[begin + 3 : end : 4])
            if end > length or (masked and end + mask > length and stop > length):
                raise Truncated("the pixels lie beyond the end of the file")
            if masked and (end <= stop < end + mask or end + mask > length):
                # Pillow writes masks of zeros, for opaque pictures, without the padding of rows. They are replaced by padded ones.
                _refuse(any(mended[end:stop]), "a mask that is too short")
                end = len(mended)
                mended += bytes(mask)
            if masked and bits == 32:
                bits = 24
            struct.pack_into("<H", mended, entry + 6, bits)
            struct.pack_into("<I", mended, entry + 8, end + mask - at)
    return bytes(mended)


def avif(data: bytes) -> bytes:
    """Refuses other formats in the same container, such as HEIF with H.265. The type of Exif items is changed to an unknown one, because
    libavif refuses damaged Exif, which is not needed: AVIF states the orientation elsewhere."""
    (size,) = struct.unpack_from(">I", data, 0)
    brands = data[8 : min(size, 256)]
    _refuse(b"avif" not in brands and b"avis" not in brands, "no AVIF")
    begin = data.find(b"meta", size)
    if begin < size + 4:
        return data
    (length,) = struct.unpack_from(">I", data, begin - 4)
    meta = re.sub(rb"(infe\x02.{7})Exif", rb"\1skip", data[begin : begin + length], flags=re.DOTALL)
    return b"".join((data[:begin], meta, data[begin + length :]))


# For each format, functions that check and change the file's bytes before Pillow opens them (PREPARE), and the image after Pillow has read
# its header (OPENED).
PREPARE: dict[str, Callable[[bytes], bytes]] = {
    "BMP": bmp, "DIB": functools.partial(bmp, begin=0), "TGA": tga, "PCX": pcx, "SGI": sgi, "DDS": dds, "JPEG2000": jpeg2000, "ICO": ico,
    "AVIF": avif,
}  # fmt: skip
OPENED: dict[str, Callable[[Any, bytes, Callable[[str, bytes], Any]], None]] = {
    "BMP": bmp_opened,
    "DIB": functools.partial(bmp_opened, begin=0),
    "JPEG2000": jpeg2000_opened,
}
