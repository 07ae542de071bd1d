"""From an Entry (an image and its sidecar files) to what the database holds of it. Conventions: `datago.cli.serve`."""

import hashlib
import io
import json
import math
import os
import re
import sys
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from datago._folder import IMAGES
from datago.server.partition import partition_of

VERSION = 2  # one more when records or tables change, so that all is made anew
LATENTS = frozenset("npy npz bin dat raw pt pth safetensors pkl zst".split())
HEADER_BYTES = 2**16  # enough for nearly every image's header; more of the file is tried after that
LARGEST = 2**24  # bytes of a text or json, and of an image's header
DEEPEST = 100  # lists and objects within each other
LONGEST = 300  # characters of a tag or of an attribute's name


def describe(entry, root, source, report):
    """The record of an image: the columns of `tables.images` but the fingerprint, structured ones as Python values; and its "files".

    Args:
        entry: a `walk.Entry`.
        source: for an image whose json names none.
        report: a `walk.Report`; told of files that do not say what they should.
    """
    own, attributes, latents = {}, {}, {}
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
            attributes[name or {"txt": "caption"}.get(suffix, suffix)] = _text(part, root, suffix, report)
        elif suffix in IMAGES or suffix in LATENTS:
            kind, is_mask = _latent_type(name, suffix)
            latents[kind] = (part, {"latent_type": kind, "is_mask": is_mask, "reference": part.reference})
        else:
            report.add("unknown suffix beside an image", part.path)
    width, height = _dimensions(entry.image, root, report)
    identity = own.get("id") or default_id(entry.key)
    ratio = width and Fraction(width, height).limit_denominator(10)
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
        "short_edge": width and min(width, height),
        "pixel_count": width and width * height,
        "aspect_ratio": width and width / height,
        "aspect_ratio_fraction": width and f"{ratio.numerator}:{ratio.denominator}",
        "duplicate_state": own.get("duplicate_state"),
        "coca_embedding": own.get("coca_embedding"),
        "date": _date(entry.image.stamp),
        "tags": own.get("tags", []),
        "datasets": own.get("datasets", []),
        "attributes": attributes,
        "latents": [latent for _, latent in latents.values()],
        "files": [entry.image, *(part for part, _ in latents.values())],
    }


def _date(stamp):
    """The UTC date and time of `stamp` (ns); the first or last that has one, if it has none itself."""
    seconds = min(max(stamp // 10**9, -62135596800), 253402300799)
    moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=seconds, microseconds=stamp % 10**9 // 1000)
    return moment.isoformat(timespec="microseconds")


def default_id(key):
    """An id (letters, digits, "-", "_", at most 512) that tells paths apart: the path itself where that will do."""
    if re.fullmatch(r"[A-Za-z0-9_-]{1,512}", key):
        return key
    digest = hashlib.sha256(os.fsencode(key)).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9_-]+', '_', key)[-200:]}-{digest[:16]}"


def clean(value, depth=0):
    """`value` as every database and client takes it: text without NUL and lone surrogates, no NaN, no infinities.

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


def _json(part, root, report):
    try:
        return clean(json.loads(_read(part, root)))
    except (OSError, ValueError, RecursionError) as error:
        report.add(f"json cannot be read ({type(error).__name__})", part.path)
        return None


def _text(part, root, suffix, report):
    try:
        text = _read(part, root).decode("utf-8", "replace").removesuffix("\n")
    except ValueError as error:
        report.add(f"text cannot be read ({error})", part.path)
        return None
    if suffix == "cls" and re.fullmatch(r"\s*-?[0-9]{1,15}\s*", text):
        return int(text)
    return clean(text)


def _read(part, root):
    if part.size > LARGEST:
        raise ValueError(f"more than {LARGEST} bytes")
    return part.read(root, LARGEST)


# key in the json: whether a value is right
OWN = {
    "id": lambda value: isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,512}", value),
    "source": lambda value: isinstance(value, str) and value != "",
    "tags": lambda value: isinstance(value, list) and all(isinstance(tag, str) and len(tag) <= LONGEST for tag in value),
    "datasets": lambda value: isinstance(value, list) and all(map(_is_dataset, value)),
    "duplicate_state": lambda value: value is None or type(value) is int and value in (1, 2),
    "coca_embedding": lambda value: value is None or isinstance(value, list) and all(map(_is_number, value)),
}


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_dataset(value):
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,100}/[0-9]{1,9}", value)


def _take_own(value, part, report):
    """Takes what is the image's own out of its attributes."""
    own = {}
    for key, is_right in OWN.items():
        if key in value:
            given = value.pop(key)
            if isinstance(given, dict) and key == "coca_embedding":
                given = given.get("vector")
            if is_right(given):
                own[key] = list(dict.fromkeys(given)) if key in ("tags", "datasets") else given
            else:
                report.add(f"{key} is not what it should be, ignored", part.path)
    return own


def _latent_type(name, suffix):
    """Type and is_mask of a file beside an image; to clients, "image" without "latent_" in it means an image."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", name) or suffix
    if suffix in LATENTS:
        return (f"latent_{name}" if "image" in name and "latent_" not in name else name), False
    if "latent_" in name or "image" in name:
        return name, False
    if "mask" in name or "seg" in name:
        return name, True
    return f"{name}_image", False


def _dimensions(part, root, report):
    """Width and height as stored, or None twice."""
    from PIL import Image

    for most in (HEADER_BYTES, LARGEST):
        try:
            with Image.open(io.BytesIO(part.read(root, most))) as image:
                return image.size if all(0 < side < 2**31 for side in image.size) else (None, None)
        except Exception as error:  # a plugin may raise anything over a broken file
            reason = f"image header cannot be read ({type(error).__name__})"
        if part.size <= HEADER_BYTES:
            break
    report.add(reason, part.path)
    return None, None
