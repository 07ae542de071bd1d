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

# The formats that are decoded, and their plugins, in the order in which they are tried. These are the formats that cameras, scanners,
# browsers and image editors write. Other plugins of Pillow are never used, because they
# - start a program or open another file: EPS (Ghostscript), WMF, IPTC (opens what it contains as any format), FPX, MIC;
# - decode nothing without a handler that the program registers: BUFR, GRIB, HDF5, MPEG;
# - recognise files by a weak signature or none, so that they accept other files: IMT, PCD, SPIDER, MCIDAS, XVTHUMB, GBR; or
# - are for formats that data sets do not have, in code that few people review: BLP, CUR, DCX, FITS, FLI, FTEX, IM, MSP, PIXAR, PSD, SUN,
#   XBM, XPM.
# TGA has no signature, so it comes last, and a failure of it does not say that the file is a damaged TGA.
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
    """Replaces two parts of Pillow: damaged texts and profiles of a PNG in an icon are skipped, and run-length encoded BMPs are decoded by
    the rules of the format."""

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
        with contextlib.suppress(ImportError):  # Pillow may be built without it.
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
    _plugin("TiffImagePlugin").READ_LIBTIFF = True  # libtiff supports more planes, strips and sizes than Pillow's own reader.
    image._initialized = 2  # Pillow then never looks for other plugins.
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
    """Whether libtiff has an optional codec. The only way to find out is to use it."""
    try:
        Image.new("RGB", (16, 16)).save(io.BytesIO(), "TIFF", compression=codec)
    except Exception:
        return False
    return True
