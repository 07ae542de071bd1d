"""Prepares TIFF files for Pillow: refuses variants that Pillow decodes wrongly, and drops all tags that the pixels do not depend on."""

import re
import struct

from datago.engine import pillow
from datago.engine.variants import Corrupt, Truncated, Unsupported

_SIZES = {1: (1, "B"), 3: (2, "H"), 4: (4, "I"), 13: (4, "I"), 16: (8, "Q")}  # type -> (bytes, struct's letter); integers only
_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _FILL_ORDER, _STRIPS = 256, 257, 258, 259, 262, 266, 273
_ORIENTATION, _SAMPLES, _ROWS, _STRIP_BYTES, _PLANAR, _PREDICTOR, _COLORMAP = 274, 277, 278, 279, 284, 317, 320
_TILE_WIDTH, _TILE_HEIGHT, _TILES, _TILE_BYTES, _INKS, _EXTRA, _FORMAT, _XMP = 322, 323, 324, 325, 332, 338, 339, 700
# The tags that pixels depend on, including CCITT's options, JPEG's tables and YCbCr's coefficients. All other tags are metadata.
_KEPT = {
    _WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _FILL_ORDER, _STRIPS, _SAMPLES, _ROWS, _STRIP_BYTES, _PLANAR, 292, 293,
    _PREDICTOR, _COLORMAP, _TILE_WIDTH, _TILE_HEIGHT, _TILES, _TILE_BYTES, _EXTRA, _FORMAT, 347, *range(512, 522), *range(529, 533),
}  # fmt: skip
_PACKED = {5, 8, 32946, 34925, 50000}  # LZW, deflate, LZMA and Zstandard, which can be combined with predictors
_CODINGS = {1, 2, 3, 4, 6, 7, 32773, 50001} | _PACKED
_FAX = {2, 3, 4}
_OPTIONAL = {34925: "lzma", 50000: "zstd", 50001: "webp"}  # Libtiff may be built without these.


class _Directory:
    """The first directory of a TIFF file. Raises struct.error if it, or one of its values, lies beyond the end of the file."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.order = "<" if data[:2] == b"II" else ">"
        self.big = struct.unpack_from(f"{self.order}H", data, 2)[0] == 43
        self.inline = 8 if self.big else 4
        self.entry = f"{self.order}HH{'Q' if self.big else 'I'}"
        head = f"{self.order}{'Q' if self.big else 'I'}"
        (at,) = struct.unpack_from(head, data, 8 if self.big else 4)
        count_format = f"{self.order}{'Q' if self.big else 'H'}"
        (count,) = struct.unpack_from(count_format, data, at)
        at += struct.calcsize(count_format)
        width = struct.calcsize(self.entry) + self.inline
        if at + count * width > len(data):
            raise Truncated("the directory is cut off")
        self.entries: dict[int, tuple[int, int, int]] = {}  # tag -> (type, number of values, offset of the values or of their offset)
        for i in range(count):
            tag, kind, number = struct.unpack_from(self.entry, data, at + i * width)
            self.entries.setdefault(tag, (kind, number, at + i * width + width - self.inline))

    def _place(self, tag: int) -> tuple[int, int, int, int]:
        """(type, number of values, offset of the values, their size in bytes) of a tag."""
        kind, number, at = self.entries[tag]
        size = _BYTES.get(kind, 0) * number
        if size > self.inline:
            (at,) = struct.unpack_from(f"{self.order}{'Q' if self.big else 'I'}", self.data, at)
        if at + size > len(self.data):
            raise Truncated(f"tag {tag} lies beyond the end of the file")
        return kind, number, at, size

    def numbers(self, tag: int, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """The values of a tag of integers as a tuple."""
        if tag not in self.entries:
            return default
        kind, number, at, _ = self._place(tag)
        if kind not in _SIZES or number == 0:
            raise Corrupt(f"tag {tag} has no integers")
        return struct.unpack_from(f"{self.order}{number}{_SIZES[kind][1]}", self.data, at)

    def number(self, tag: int, default: int) -> int:
        return self.numbers(tag, (default,))[0]

    def orientation(self) -> int:
        """The orientation by its tag, or by XMP if there is no such tag; 1 if neither is valid."""
        value = 1
        try:
            if _ORIENTATION in self.entries:
                value = self.number(_ORIENTATION, 1)
            elif _XMP in self.entries:
                _, _, at, size = self._place(_XMP)
                found = re.search(rb'tiff:Orientation(?:="|>)([1-8])', self.data[at : at + size])
                value = int(found[1]) if found else 1
        except (Corrupt, Truncated, struct.error):
            pass  # Damaged metadata must not make an image fail.
        return value if value in range(1, 9) else 1

    def stripped(self, changed: dict[int, int]) -> bytes:
        """The file with a single new directory that has only the tags in _KEPT. `changed` has new values of tags that are one SHORT."""
        out: list[bytes] = []
        for tag in sorted(_KEPT & self.entries.keys()):
            kind, number, at = self.entries[tag]
            value = self.data[at : at + self.inline]
            if tag in changed:
                kind, number, value = 3, 1, struct.pack(f"{self.order}H", changed[tag]).ljust(self.inline, b"\0")
            out += struct.pack(self.entry, tag, kind, number), value
        begin = 16 if self.big else 8
        start = self.data[:2] + struct.pack(f"{self.order}3H" if self.big else f"{self.order}H", *((43, 8, 0) if self.big else (42,)))
        at = (len(self.data) + 15) // 16 * 16
        count = struct.pack(f"{self.order}{'Q' if self.big else 'H'}", len(out) // 2)
        where = struct.pack(f"{self.order}{'Q' if self.big else 'I'}", at)
        return b"".join((start, where, self.data[begin:], bytes(at - len(self.data)), count, *out, bytes(8)))


def prepare(data: bytes) -> tuple[bytes, int, bool]:
    """(file for Pillow, orientation, whether the caller has to invert the pixels: 16-bit grey in which 0 is white, which Pillow does not
    invert).

    Raises Unsupported for a variant that Pillow, or libtiff as Pillow uses it, decodes to wrong pixels or not at all."""
    try:
        directory = _Directory(data)
        inverted = _check(directory)
    except struct.error:
        raise Truncated("the directory lies beyond the end of the file") from None
    return directory.stripped({_PHOTOMETRIC: 1} if inverted else {}), directory.orientation(), inverted


def _check(directory: _Directory) -> bool:
    width, height = directory.number(_WIDTH, 0), directory.number(_HEIGHT, 0)
    if not width or not height:
        raise Corrupt("width or height is missing or 0")
    coding = directory.number(_COMPRESSION, 1)
    samples = directory.number(_SAMPLES, 3 if coding == 6 else 1)
    if directory.big and directory.order == ">":
        raise Unsupported("BigTIFF, most significant byte first")
    bits = directory.numbers(_BITS, (1,))
    if samples > 6:
        raise Unsupported(f"{samples} samples a pixel")
    bits = bits * samples if len(bits) == 1 else bits[:samples]
    if samples == 0 or len(bits) != samples:
        raise Corrupt(f"{samples} samples a pixel, but BitsPerSample has {len(bits)} values")
    formats = set(directory.numbers(_FORMAT, (1,)))
    if formats != {1}:
        words = {3: "floating point numbers", 2: "signed numbers"}
        raise Unsupported(f"pixels are {words.get(max(formats), 'numbers')} of no known range")
    if len(set(bits)) > 1 or bits[0] not in (1, 2, 4, 8, 16):
        raise Unsupported(f"{', '.join(map(str, bits))} bits a sample")
    predictor = directory.number(_PREDICTOR, 1)
    photometric, planar = directory.number(_PHOTOMETRIC, 0), directory.number(_PLANAR, 1) == 2 and samples > 1
    if coding not in _CODINGS or (coding == 6 and photometric != 6) or (coding in (6, 7) and bits[0] != 8):
        raise Unsupported(f"compression {coding} of {bits[0]} bits")
    if coding in _OPTIONAL and not pillow.libtiff_has(_OPTIONAL[coding]):
        raise Unsupported(f"compression {_OPTIONAL[coding]}, which this libtiff was built without")
    if coding in _PACKED and predictor != 1 and (predictor != 2 or bits[0] < 8):
        raise Unsupported(f"predictor {predictor} of {bits[0]} bits")
    if directory.number(_FILL_ORDER, 1) == 2 and (bits[0] > 8 or coding not in {1, *_FAX}):
        raise Unsupported(f"fill order 2 of {bits[0]} bits in compression {coding}")
    if photometric not in (0, 1, 2, 3, 5, 6) or (photometric == 5 and directory.number(_INKS, 1) != 1):
        raise Unsupported(f"colours of kind {photometric}")
    extra = directory.numbers(_EXTRA)
    if photometric == 6 and (samples != 3 or bits[0] != 8):
        raise Unsupported(f"YCbCr of {samples} samples")
    if bits[0] == 16 and 1 in extra:
        raise Unsupported("colours of 16 bits multiplied by alpha")
    if planar and (photometric not in (2, 5, 6) or bits[0] < 8 or (photometric == 5 and extra) or (any(extra) and len(extra) > 1)):
        raise Unsupported("samples in planes")
    if photometric == 3 and len(directory.numbers(_COLORMAP)) < 3 << bits[0]:
        raise Corrupt("the palette is too short")
    _check_extent(directory, width, height, samples if planar else 1)
    return photometric == 0 and bits == (16,)


def _check_extent(directory: _Directory, width: int, height: int, planes: int) -> None:
    """Raises Corrupt or Truncated if strips or tiles are missing, since neither Pillow nor libtiff notices that."""
    if _TILE_WIDTH in directory.entries:
        across, down = directory.number(_TILE_WIDTH, 0), directory.number(_TILE_HEIGHT, 0)
        offsets = directory.numbers(_TILES, directory.numbers(_STRIPS))
        sizes = directory.numbers(_TILE_BYTES, directory.numbers(_STRIP_BYTES))
    else:
        across, down = width, min(directory.number(_ROWS, height), height)  # without sizes libtiff computes them
        offsets, sizes = directory.numbers(_STRIPS), directory.numbers(_STRIP_BYTES)
    if not across or not down:
        raise Corrupt("strips or tiles have no size")
    wanted = -(-width // across) * -(-height // down) * planes
    if 513 in directory.entries:
        return  # Old-style JPEG has its data elsewhere.
    if len(offsets) < wanted or (sizes and len(sizes) < wanted):
        raise Corrupt(f"{len(offsets)} strips or tiles where {wanted} are needed")
    if any(at + size > len(directory.data) for at, size in zip(offsets[:wanted], sizes, strict=False)):
        raise Truncated("the pixels lie beyond the end of the file")
