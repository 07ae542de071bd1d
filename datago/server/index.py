"""From an Entry (an image and its sidecar files) to what the database holds of it. Conventions: `datago.cli.serve`."""

import hashlib
import io
import json
import math
import os
import re
from datetime import UTC, datetime
from fractions import Fraction

from datago._folder import IMAGES
from datago.server.partition import partition_of

VERSION = 1  # one more when records change, so that every image is described anew
LATENTS = frozenset("npy npz bin dat raw pt pth safetensors pkl zst".split())
HEADER_BYTES = 2**16  # enough for nearly every image's header; the whole file is tried after that


def describe(entry, root, source, report):
    """The record of an image: the columns of `store.images` but the fingerprint; structured ones as Python values.

    Args:
        entry: a `walk.Entry`.
        source: for an image whose json names none.
        report: a `walk.Report`; told of files that do not say what they should.
    """
    own, attributes, latents = {}, {}, []
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
            attributes[name or {"txt": "caption"}.get(suffix, suffix)] = _text(part, root, suffix)
        elif suffix in IMAGES or suffix in LATENTS:
            kind, is_mask = _latent_type(name, suffix)
            latents.append({"latent_type": kind, "is_mask": is_mask, "reference": part.reference})
        else:
            report.add("unknown suffix beside an image", part.path)
    width, height = _dimensions(entry.image, root, report)
    identity = own.get("id") or default_id(entry.key)
    ratio = width and Fraction(width, height).limit_denominator(10)
    changed = datetime.fromtimestamp(entry.image.stamp / 1e9, UTC).isoformat(timespec="microseconds")
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
        "date": changed,
        "tags": own.get("tags", []),
        "attributes": {clean(name): clean(value) for name, value in attributes.items()},
        "latents": list({latent["latent_type"]: latent for latent in latents}.values()),
    }


def default_id(key):
    """An id (letters, digits, "-", "_", at most 512) that tells paths apart: the path itself where that will do."""
    if re.fullmatch(r"[A-Za-z0-9_-]{1,512}", key):
        return key
    digest = hashlib.sha256(os.fsencode(key)).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9_-]+', '_', key)[-200:]}-{digest[:16]}"


def clean(value):
    """`value` as every database and client takes it: text without NUL and lone surrogates, no NaN, no infinities."""
    if isinstance(value, str):
        return value.replace("\0", "").encode("utf-8", "replace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean(name): clean(item) for name, item in value.items()}
    return value


def _json(part, root, report):
    try:
        return clean(json.loads(part.read(root)))
    except (OSError, ValueError, RecursionError) as error:
        report.add(f"json cannot be read ({type(error).__name__})", part.path)
        return None


def _text(part, root, suffix):
    text = part.read(root).decode("utf-8", "replace").removesuffix("\n")
    if suffix == "cls" and re.fullmatch(r"\s*-?[0-9]{1,15}\s*", text):
        return int(text)
    return text


# key in the json: whether a value is right
OWN = {
    "id": lambda value: isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,512}", value),
    "source": lambda value: isinstance(value, str) and value != "",
    "tags": lambda value: isinstance(value, list) and all(isinstance(tag, str) for tag in value),
    "duplicate_state": lambda value: value is None or type(value) is int and value in (1, 2),
    "coca_embedding": lambda value: value is None or isinstance(value, list) and all(map(_is_number, value)),
}


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _take_own(value, part, report):
    """Takes what is the image's own out of its attributes."""
    own = {}
    for key, is_right in OWN.items():
        if key in value:
            given = value.pop(key)
            if isinstance(given, dict) and key == "coca_embedding":
                given = given.get("vector")
            if is_right(given):
                own[key] = list(dict.fromkeys(given)) if key == "tags" else given
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

    for most in (HEADER_BYTES, None):
        try:
            with Image.open(io.BytesIO(part.read(root, most))) as image:
                return image.size if all(image.size) else (None, None)
        except Exception as error:  # a plugin may raise anything over a broken file
            reason = f"image header cannot be read ({type(error).__name__})"
        if part.size <= HEADER_BYTES:
            break
    report.add(reason, part.path)
    return None, None
