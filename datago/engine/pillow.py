"""A copy of Pillow's Python modules that belongs to datago alone.

Pillow keeps its limits, its registered plugins and its decoders in module globals (Image.MAX_IMAGE_PIXELS,
ImageFile.LOAD_TRUNCATED_IMAGES, Image.OPEN …), which a program sets for its own use of Pillow. They must not decide what datago
delivers, and datago must not change them while other threads use Pillow. So the modules are loaded a second time, under the name
_datago_pillow; only the compiled parts, which keep no such state, are shared. In the copy warnings and log records go nowhere.
"""

import contextlib
import functools
import importlib
import importlib.util
import io
import logging
import sys
import threading
import types
from typing import Any

from datago.engine import variants

# What is decoded, and by which plugin; tried in this order. These are the formats that cameras, scanners, browsers and image editors
# write. What is not listed is never tried, because it
# - starts a program or opens another file: EPS (Ghostscript), WMF, IPTC (opens what it contains as any format), FPX, MIC;
# - decodes nothing without a handler that somebody registers: BUFR, GRIB, HDF5, MPEG;
# - begins with no signature worth the name, so that other files pass for it: IMT, PCD, SPIDER, MCIDAS, XVTHUMB, GBR; or
# - is met in no collection of pictures, and its code by few eyes: BLP, CUR, DCX, FITS, FLI, FTEX, IM, MSP, PIXAR, PSD, SUN, XBM, XPM.
# TGA has no signature, so it comes last and its failures mean nothing.
FORMATS = {
    "GIF": "Gif", "BMP": "Bmp", "TIFF": "Tiff", "WEBP": "WebP", "AVIF": "Avif", "JPEG2000": "Jpeg2K", "JPEG": "Jpeg", "PNG": "Png",
    "QOI": "Qoi", "ICNS": "Icns", "DDS": "Dds", "SGI": "Sgi", "PPM": "Ppm", "ICO": "Ico", "PCX": "Pcx", "DIB": "Bmp", "TGA": "Tga",
}  # fmt: skip
_NAME = "_datago_pillow"


class TooLarge(Exception):
    """A picture has more pixels than `limit.max_pixels`."""

    def __init__(self, width: int, height: int) -> None:
        super().__init__(f"{width} x {height} pixels")
        self.width, self.height, self.format = width, height, ""


limit = threading.local()


def check_size(size: tuple[int, int], **_: object) -> None:
    """Called by Pillow's plugins with every size before they allocate pixels, also of pictures within an icon."""
    if size[0] * size[1] > limit.max_pixels:
        raise TooLarge(*size)


def _plugin(name: str) -> Any:
    return sys.modules[f"{_NAME}.{name}"]


def _mend(image: Any) -> None:
    """Texts and profiles of a PNG within an icon are no reason to drop it, and BMP's runs are decoded by its rules."""

    def skip(self: Any, _: int, length: int) -> Any:
        return _plugin("ImageFile")._safe_read(self.fp, length)

    class Runs(_plugin("BmpImagePlugin").BmpRleDecoder):  # type: ignore[misc]  # its base is known only at run time
        def decode(self, _: bytes) -> tuple[int, int]:
            pixels = variants.bmp_runs(self.fd.read, self.state.xsize, self.state.ysize, self.args[1])
            self.set_as_raw(pixels, "L" if self.mode in ("1", "L") else "P", (0, self.args[-1]))
            return -1, 0

    for chunk in ("tEXt", "zTXt", "iTXt", "iCCP"):
        setattr(_plugin("PngImagePlugin").PngStream, f"chunk_{chunk}", skip)
    image.register_decoder("bmp_rle", Runs)


def _load() -> tuple[Any, Any, dict[str, Any], dict[str, Any]]:
    pillow: Any = importlib.import_module("PIL")
    spec: Any = importlib.util.spec_from_file_location(_NAME, pillow.__file__, submodule_search_locations=list(pillow.__path__))
    package = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = package
    spec.loader.exec_module(package)
    for compiled in ("_imaging", "_webp", "_avif"):
        with contextlib.suppress(ImportError):  # this Pillow was built without it
            module = importlib.import_module(f"PIL.{compiled}")
            sys.modules[f"{_NAME}.{compiled}"] = module
            setattr(package, compiled, module)
    logger = logging.getLogger(_NAME)
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    image: Any = importlib.import_module(f"{_NAME}.Image")
    for plugin in FORMATS.values():
        with contextlib.suppress(ImportError):
            importlib.import_module(f"{_NAME}.{plugin}ImagePlugin")
    modules: dict[str, Any] = dict(sys.modules)
    silent = types.SimpleNamespace(warn=lambda *_, **__: None)
    for name, module in modules.items():
        if name.startswith(f"{_NAME}.") and hasattr(module, "warnings"):
            module.warnings = silent
    _plugin("TiffImagePlugin").READ_LIBTIFF = True  # it knows more than Pillow's own reader: planes, strips, sizes
    image._initialized = 2  # no other plugin is ever looked for
    image._decompression_bomb_check = check_size
    _mend(image)
    # The first picture of an MPO file is a JPEG like any other, so the index that JPEG's own factory reads does not matter.
    factories = {name: image.OPEN[name][0] for name in FORMATS if name in image.OPEN}
    factories["JPEG"] = _plugin("JpegImagePlugin").JpegImageFile
    accepts = {name: image.OPEN[name][1] for name in factories}
    return image, _plugin("ImagePalette").raw, factories, accepts


Image, raw_palette, factories, accepts = _load()


@functools.cache
def libtiff_has(codec: str) -> bool:
    """Whether the libtiff at hand has a codec that it may be built without. It says so only when it is used."""
    try:
        Image.new("RGB", (16, 16)).save(io.BytesIO(), "TIFF", compression=codec)
    except Exception:
        return False
    return True
