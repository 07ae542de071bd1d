"""Formats without a native decoder, through Pillow: called by a worker, with the GIL."""

import contextlib
import functools
import io
import re
import sys
from typing import Any

from datago.engine import pillow, tiff, variants
from datago.engine._sample import Failure
from datago.engine.pillow import TooLarge
from datago.engine.variants import Corrupt, Truncated, Unsupported

_UNSUPPORTED = re.compile(
    r"unsupported|unimplemented|not implemented|not available|not installed|not (yet )?supported|no codec|cannot handle"
    r"|cannot load this image|unknown (tga|pcx|pixel|data)|palette size|unable to determine|no 32bit icon|conversion from", re.IGNORECASE
)  # fmt: skip
_TRUNCATED = re.compile(
    r"truncated|incomplete|not enough|eof while|but only got|requires a buffer|index out of range|ends early", re.IGNORECASE
)


class _Opened:
    """A picture of which Pillow has read the header."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name, self.inverted = name, False
        self.orientation: int | None = None  # None: as EXIF says
        self.has_alpha = name == "TGA" and variants.tga_has_alpha(data)
        if name == "TIFF":
            _silence_libtiff()
            source, self.orientation, self.inverted = tiff.prepare(data)
        else:
            source = variants.PREPARE.get(name, bytes)(data)
        self.image: Any = pillow.factories[name](io.BytesIO(source), "")
        if name in variants.OPENED:
            variants.OPENED[name](self.image, data, pillow.raw_palette)
        pillow.check_size(self.image.size)


class _Broken(Exception):
    """No plugin can open the file. `name` is the format whose signature it has, `error` what that plugin raised."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(name, error)
        self.name, self.error = name, error


def _open(data: bytes, max_pixels: int) -> _Opened | None:
    """The picture, or None for no known format. Raises TooLarge beyond `max_pixels`, _Broken for what cannot be opened."""
    pillow.limit.max_pixels = max_pixels
    prefix = data[:16]
    broken = None
    for name, accept in pillow.accepts.items():
        try:
            if accept is not None and accept(prefix) is not True:
                continue
        except Exception:
            continue  # some look at bytes that a tiny file has not
        try:
            return _Opened(name, data)
        except TooLarge as stated:
            stated.format = name
            raise
        except MemoryError:
            raise
        except Exception as error:  # plugins raise whatever they like on broken files
            if accept is not None and broken is None:
                broken = _Broken(name, error)
    if broken is not None:
        raise broken
    return None


def size(data: memoryview) -> tuple[int, int]:
    """(width, height) that a file states, before any pixel is decoded; (0, 0) where no plugin can tell.

    Args:
        data: the file's bytes, a memoryview that is only valid during the call.
    """
    try:
        _open(bytes(data), 0)
    except TooLarge as stated:
        return stated.width, stated.height
    except (_Broken, MemoryError):
        pass  # decode() will report it
    return 0, 0


def upright_size(data: memoryview, orient: bool) -> tuple[int, int] | Failure:
    """What `decode` would find: (width, height), turned as EXIF says if `orient`; or a Failure. No pixel is decoded.

    Args:
        data: the file's bytes, a memoryview that is only valid during the call.
    """
    try:
        opened = _open(bytes(data), sys.maxsize)
        if opened is None:
            return Failure("", "unsupported", "unknown format")
        width, height = opened.image.size
        orientation = _orientation(opened) if opened.orientation is None else opened.orientation
        return (height, width) if orient and orientation >= 5 else (width, height)
    except MemoryError:
        return Failure("", "no_memory", "Pillow ran out of memory")
    except _Broken as broken:
        return _failure(broken.name, broken.error)


def decode(data: memoryview, max_pixels: int, memory_pixels: int) -> tuple[bytes, int, int, int, int, int] | Failure:
    """Decodes the first frame of an image.

    Args:
        data: the file's bytes, a memoryview that is only valid during the call.
        max_pixels: width x height beyond which the picture is refused.
        memory_pixels: the same, by memory_limit.

    Returns:
        (pixels, width, height, channels, depth, orientation): bytes of interleaved samples without padding (16-bit ones in
        native byte order), and EXIF's orientation, 1 to 8. Or a Failure; its text is empty where no plugin knows the format.
    """
    name = ""
    try:
        opened = _open(bytes(data), min(max_pixels, memory_pixels))
        if opened is None:
            return Failure("", "unsupported", "")
        name = opened.name
        box = opened.image.tile[0][1] if name == "GIF" else None
        opened.image.load()
        return *_samples(opened, box), _orientation(opened) if opened.orientation is None else opened.orientation
    except TooLarge as error:
        text = f"max_pixels is {max_pixels}" if error.width * error.height > max_pixels else f"memory_limit allows {memory_pixels}"
        return Failure("", "too_large", f"{name or error.format}: {error}, {text}")
    except MemoryError:
        return Failure("", "no_memory", "Pillow ran out of memory")
    except _Broken as broken:
        return _failure(broken.name, broken.error)
    except Exception as error:
        return _failure(name, error)


def _failure(name: str, error: Exception) -> Failure:
    text = str(error) or type(error).__name__
    if isinstance(error, (Unsupported, NotImplementedError)) or _UNSUPPORTED.search(text):
        reason = "unsupported"
    elif isinstance(error, Truncated) or (not isinstance(error, Corrupt) and _TRUNCATED.search(text)):
        reason = "truncated"
    else:
        reason = "corrupt"
    return Failure("", reason, f"{name}: {' '.join(text.split())}")


def _orientation(opened: _Opened) -> int:
    try:
        value = opened.image.getexif().get(0x0112, 1)
    except Exception:  # metadata is never a reason to drop pixels
        return 1
    return value if value in range(1, 9) else 1


@functools.cache
def _silence_libtiff() -> None:
    """Stops libtiff from printing its errors, since Pillow stops only its warnings. It is looked for among the libraries that are
    loaded; where it is linked into one of Pillow's modules it goes on printing."""
    import ctypes

    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for path in {line.split(maxsplit=5)[5].strip() for line in maps if "/libtiff" in line}:
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(path).TIFFSetErrorHandler(None)


def _samples(opened: _Opened, box: tuple[int, int, int, int] | None) -> tuple[bytes, int, int, int, int]:
    """(bytes, width, height, channels, depth) of a loaded image: grey, grey + alpha, RGB or RGBA. `box` is where a GIF's first frame
    lies; around it nothing is shown."""
    image, name = opened.image, opened.name
    mode, alpha = image.mode, "transparency" in image.info
    if mode.startswith("I;16") or (mode == "I" and name in ("PPM", "PNG")):
        import numpy

        pixels = numpy.asarray(image).clip(0, 0xFFFF).astype(numpy.uint16)
        return (0xFFFF - pixels if opened.inverted else pixels).tobytes(), *image.size, 1, 16
    if mode in ("I", "F"):
        raise Unsupported(f"pixels are {'floating point' if mode == 'F' else 'whole'} numbers of no known range")
    if name == "TGA":
        alpha = opened.has_alpha
    elif mode == "P":
        alpha = alpha or (image.palette is not None and image.palette.mode == "RGBA")
    else:
        alpha = alpha or mode in ("RGBA", "RGBa", "PA", "LA", "La")
    if name == "GIF":
        image, channels = image.convert("RGBA"), 4
        if box != (0, 0, *image.size):
            shown = image.crop(box)
            image = pillow.Image.new("RGBA", image.size)
            image.paste(shown, box)
    elif mode in ("1", "L", "LA", "La"):
        image, channels = (image.convert("LA"), 2) if alpha else (image.convert("L"), 1)
    else:
        image, channels = (image.convert("RGBA"), 4) if alpha else (image.convert("RGB"), 3)
    return image.tobytes(), *image.size, channels, 8
