"""Formats without a native decoder, through Pillow and whatever plugins it has: called by a worker, with the GIL."""

import contextlib
import functools
import logging
import os
import threading

from datago._sample import Failure

# Pillow logs some errors. Where nobody listens, Python would print them.
logging.getLogger("PIL").addHandler(logging.NullHandler())


def decode(data, max_pixels, most):
    """Decodes the first frame of an image.

    Args:
        data: the file's bytes, a memoryview that is only valid during the call.
        max_pixels: width x height beyond which the picture is refused.
        most: what memory_limit allows of that.

    Returns:
        (pixels, width, height, channels, depth, orientation): bytes of interleaved samples without padding (16-bit ones in
        native byte order), and EXIF's orientation, 1 to 8. Or a Failure; its text is empty where Pillow knows no more than that it
        does not know the format.
    """
    import io

    from PIL import Image, UnidentifiedImageError

    # Image.open does that too late where another thread is just at it: it then takes a format for unknown.
    Image.init()
    try:
        with _quiet, Image.open(io.BytesIO(data)) as image:
            width, height = image.size
            if width * height > min(max_pixels, most):
                limit = f"max_pixels is {max_pixels}" if width * height > max_pixels else f"memory_limit allows {most}"
                return Failure("", "too_large", f"{image.format}: {width} x {height} pixels, {limit}")
            if image.format == "TIFF":
                _silence_libtiff()
            image.load()  # this turns a TIFF already, and its EXIF then says so
            orientation = image.getexif().get(0x0112, 1)
            if image.mode == "F":
                return Failure("", "unsupported", f"{image.format}: pixels are floating point numbers of no known range")
            pixels, channels, depth = _samples(image)
            return pixels, *image.size, channels, depth, orientation if orientation in range(1, 9) else 1
    except UnidentifiedImageError:
        prefix = bytes(data[:16])  # what plugins decide by whether to try
        for name, (_, accept) in Image.OPEN.items():
            with contextlib.suppress(Exception):  # some look at bytes that a tiny file has not
                if accept is not None and accept(prefix) is True:
                    return Failure("", "corrupt", f"{name}: its header is damaged")
        return Failure("", "unsupported", "")
    except Image.DecompressionBombError as error:
        return Failure("", "too_large", str(error))
    except MemoryError:
        return Failure("", "no_memory", "Pillow ran out of memory")
    except Exception as error:  # plugins raise whatever they like on broken files
        text = f"{type(error).__name__}: {error}"
        return Failure("", "truncated" if "truncated" in text.lower() else "corrupt", " ".join(text.split()))


class _Quiet:
    """No warning of Pillow's modules is shown, or made an error of, while some thread is in here: the failure says what is wrong.

    `warnings.catch_warnings` would put back what another thread has changed."""

    def __init__(self):
        self._lock, self._inside, self._filter = threading.Lock(), 0, None

    def __enter__(self):
        import warnings

        with self._lock:
            self._inside += 1
            if self._inside == 1:
                warnings.filterwarnings("ignore", module=r"PIL\.")
                self._filter = warnings.filters[0]

    def __exit__(self, *_):
        import warnings

        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                with contextlib.suppress(ValueError):  # somebody has put back older filters
                    warnings.filters.remove(self._filter)


_quiet = _Quiet()
os.register_at_fork(after_in_child=lambda: _Quiet.__init__(_quiet))  # whoever was inside stayed in the parent, and may have had the lock


@functools.cache
def _silence_libtiff():
    """libtiff prints its errors unless it is told not to, which Pillow does for its warnings only. So it is looked for among the
    libraries that are loaded; where it is a part of Pillow's own, it goes on printing."""
    import ctypes

    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for path in {line.split(maxsplit=5)[5].strip() for line in maps if "/libtiff" in line}:
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(path).TIFFSetErrorHandler(None)


def _samples(image):
    """(bytes, channels, depth) of an opened image: grey, grey + alpha, RGB or RGBA."""
    mode = image.mode
    if mode.startswith("I;16") or mode == "I":
        import numpy

        return numpy.asarray(image).clip(0, 0xFFFF).astype(numpy.uint16).tobytes(), 1, 16
    if image.format == "GIF" or mode in ("RGBA", "RGBa", "PA") or (mode in ("P", "RGB") and "transparency" in image.info):
        return image.convert("RGBA").tobytes(), 4, 8
    if mode in ("1", "L") and "transparency" not in image.info:
        return image.convert("L").tobytes(), 1, 8
    if mode in ("1", "L", "LA", "La"):
        return image.convert("LA").tobytes(), 2, 8
    return image.convert("RGB").tobytes(), 3, 8
