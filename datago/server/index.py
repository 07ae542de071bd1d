"""Makes the database record of an image from its Entry (the image and its sidecar files). `datago.cli.serve` describes the conventions."""

import hashlib
import io
import json
import math
import os
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

from datago.server.partition import partition_of
from datago.server.walk import Entry, Part, Report
from datago.sources.names import IMAGES, TEXT_NAMES

VERSION = 2  # incremented when records or tables change, so that the index is made again
LATENTS = frozenset("npy npz bin dat raw pt pth safetensors pkl zst".split())
HEADER_BYTES = 2**16  # of a file, which contain nearly every image's header; if they do not, LARGEST bytes are tried
LARGEST = 2**24  # bytes of a text or JSON file, or of an image's header
DEEPEST = 100  # nested lists and objects
LONGEST = 300  # characters of a tag or of an attribute's name


def describe(entry: Entry, root: str, source: str, report: Report) -> dict[str, Any]:
    """The record of an image: the columns of `tables.images` except the fingerprint, structured ones as Python values, and its "files".

    Args:
        source: the source of an image whose JSON file names none.
        report: counts sidecar files with invalid content.
    """
    own: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    latents: dict[str, tuple[Part, dict[str, Any]]] = {}
    for field, part in sorted(entry.sidecars.items()):
        name, _, suffix = field.rpartition(".")
        suffix = suffix.lower()
        if suffix == "json":
            value = _json(part, root, report)
            if name:
                attributes[name] = value
            elif isinstance(value, dict):
                own = _take_own(value, part, report)
                attributes.update(value)
            elif value is not None:
                report.add("json is not an object", part.path)
        elif suffix in ("txt", "cls"):
            attributes[name or TEXT_NAMES.get(suffix, suffix)] = _text(part, root, suffix, report)
        elif suffix in IMAGES or suffix in LATENTS:
            kind, is_mask = _latent_type(name, suffix)
            latents[kind] = (part, {"latent_type": kind, "is_mask": is_mask, "reference": part.reference})
        else:
            report.add("unknown suffix beside an image", part.path)
    width, height = _dimensions(entry.image, root, report)
    identity = own.get("id") or default_id(entry.key)
    ratio = Fraction(width, height).limit_denominator(10) if width and height else None
    attributes = {clean(name): value for name, value in attributes.items()}
    for name in [name for name in attributes if len(name) > LONGEST]:
        report.add("name of an attribute is too long, ignored", entry.image.path)
        del attributes[name]
    return {
        "id": identity,
        "location": entry.image.reference,
        "partition": partition_of(identity),
        "draw": hashlib.sha256(identity.encode()).hexdigest(),
        "source": own.get("source") or source,
        "width": width,
        "height": height,
        "short_edge": min(width, height) if width and height else None,
        "pixel_count": width * height if width and height else None,
        "aspect_ratio": width / height if width and height else None,
        "aspect_ratio_fraction": f"{ratio.numerator}:{ratio.denominator}" if ratio else None,
        "duplicate_state": own.get("duplicate_state"),
        "coca_embedding": own.get("coca_embedding"),
        "date": _date(entry.image.stamp),
        "tags": own.get("tags", []),
        "datasets": own.get("datasets", []),
        "attributes": attributes,
        "latents": [latent for _, latent in latents.values()],
        "files": [entry.image, *(part for part, _ in latents.values())],
    }


def _date(stamp: int) -> str:
    """The UTC date and time of `stamp` (ns), clamped to the years 1 to 9999."""
    seconds = min(max(stamp // 10**9, -62135596800), 253402300799)
    moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=seconds, microseconds=stamp % 10**9 // 1000)
    return moment.isoformat(timespec="microseconds")


def default_id(key: str) -> str:
    """A unique id for a path: at most 512 letters, digits, "-" and "_". A path that consists of these is its own id."""
    if re.fullmatch(r"[A-Za-z0-9_-]{1,512}", key):
        return key
    digest = hashlib.sha256(os.fsencode(key)).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9_-]+', '_', key)[-200:]}-{digest[:16]}"


def clean(value: Any, depth: int = 0) -> Any:
    """`value` in a form that every database and client accepts: text without NUL and unpaired surrogates, None for NaN and infinities.

    Raises:
        ValueError: lists and objects are nested too deeply.
    """
    if depth > DEEPEST:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        return value.replace("\0", "").encode("utf-8", "replace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [clean(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {clean(name): clean(item, depth + 1) for name, item in value.items()}
    return value


def _json(part: Part, root: str, report: Report) -> Any:
    try:
        return clean(json.loads(_read(part, root)))
    except (OSError, ValueError, RecursionError) as error:
        report.add(f"json cannot be read ({type(error).__name__})", part.path)
        return None


def _text(part: Part, root: str, suffix: str, report: Report) -> str | int | None:
    try:
        text = _read(part, root).decode("utf-8", "replace").removesuffix("\n")
    except ValueError as error:
        report.add(f"text cannot be read ({error})", part.path)
        return None
    if suffix == "cls" and re.fullmatch(r"\s*-?[0-9]{1,15}\s*", text):
        return int(text)
    return str(clean(text))


def _read(part: Part, root: str) -> bytes:
    if part.size > LARGEST:
        raise ValueError(f"more than {LARGEST} bytes")
    return part.read(root, LARGEST)


# key in the JSON file: whether a value is valid
OWN: dict[str, Callable[[Any], Any]] = {
    "id": lambda value: isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,512}", value),
    "source": lambda value: isinstance(value, str) and value != "",
    "tags": lambda value: isinstance(value, list) and all(isinstance(tag, str) and len(tag) <= LONGEST for tag in value),
    "datasets": lambda value: isinstance(value, list) and all(map(_is_dataset, value)),
    "duplicate_state": lambda value: value is None or type(value) is int and value in (1, 2),
    "coca_embedding": lambda value: value is None or isinstance(value, list) and all(map(_is_number, value)),
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_dataset(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,100}/[0-9]{1,9}", value) is not None


def _take_own(value: dict[str, Any], part: Part, report: Report) -> dict[str, Any]:
    """Removes the keys of OWN from the attributes `value`, and returns the valid ones."""
    own: dict[str, Any] = {}
    for key, is_right in OWN.items():
        if key in value:
            given = value.pop(key)
            if isinstance(given, dict) and key == "coca_embedding":
                given = given.get("vector")
            if is_right(given):
                own[key] = list(dict.fromkeys(given)) if key in ("tags", "datasets") else given
            else:
                report.add(f"{key} is invalid, ignored", part.path)
    return own


def _latent_type(name: str, suffix: str) -> tuple[str, bool]:
    """The latent type of a sidecar file, and whether it is a mask. Clients take a type with "image" and without "latent_" for an image."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", name) or suffix
    if suffix in LATENTS:
        return (f"latent_{name}" if "image" in name and "latent_" not in name else name), False
    if "latent_" in name or "image" in name:
        return name, False
    if "mask" in name or "seg" in name:
        return name, True
    return f"{name}_image", False


def _dimensions(part: Part, root: str, report: Report) -> tuple[int, int] | tuple[None, None]:
    """Width and height as stored, in pixels, or (None, None) if the header cannot be read."""
    from PIL import Image

    for most in (HEADER_BYTES, LARGEST):
        try:
            with Image.open(io.BytesIO(part.read(root, most))) as image:
                return image.size if all(0 < side < 2**31 for side in image.size) else (None, None)
        except Exception as error:  # Pillow's plugins may raise any exception for a broken file
            reason = f"image header cannot be read ({type(error).__name__})"
        if part.size <= HEADER_BYTES:
            break
    report.add(reason, part.path)
    return None, None
