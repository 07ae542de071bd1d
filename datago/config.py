"""The configuration: JSON text or a dict in, checked values out.

A wrong value raises ValueError at once, naming the key, what it got and what it wants; an unknown key warns.
"""

import json
from types import SimpleNamespace

from datago import hints, sources
from datago.checks import (
    BOOL,
    COLOUR,
    FAILURES,
    MAX_INT,
    OBJECT,
    PERIOD,
    POLICY,
    PROBABILITY,
    RANK,
    REQUIRED,
    UNEVEN,
    WORLD_SIZE,
    choice,
    integer,
    is_pair,
    is_range,
    number,
    one_of,
)
from datago.engine._buckets import aspect_buckets
from datago.redaction import hidden, shown

# section: {key: (check and what it wants, default)}
TOP = {
    "source_type": (one_of(sources.registered), sources.DEFAULT),
    "source_config": (OBJECT, REQUIRED),
    "image_config": (OBJECT, None),
    "limit": (integer(1), MAX_INT),
    "samples_buffer_size": (integer(1, 2**20), 64),
    "on_error": (POLICY, "skip"),
    "max_failures": (FAILURES, None),
    "max_file_bytes": (integer(1), 2**30),
    "memory_limit": (integer(1), None),
    "log_period": (PERIOD, 0),
    "seed": (integer(0, 2**64 - 1), None),
    "epoch": (integer(0), 0),
    "ordered": (BOOL, False),
    "uneven": (UNEVEN, "keep"),
}
RANKS = {"rank": (RANK, None), "world_size": (WORLD_SIZE, None)}
SIDE = integer(1, 2**16)
RESIZED = {
    "size": (((lambda value: SIDE[0](value) or is_pair(value, SIDE[0])), "pixels, or [width, height]"), REQUIRED),
    "scale": (((lambda value: is_range(value) and value[1] <= 1), "[least, most] share of the area, above 0, at most 1"), [0.08, 1.0]),
    "ratio": (((lambda value: is_range(value)), "[least, most] width / height, above 0"), [3 / 4, 4 / 3]),
}
IMAGE = {
    "crop_and_resize": (BOOL, False),
    "default_image_size": (integer(0, 2**16), 0),
    "downsampling_ratio": (integer(0, 2**16), 0),
    "min_aspect_ratio": (number(0), 0),
    "max_aspect_ratio": (number(0), 0),
    "resize_mode": (choice("fast", "exact"), "fast"),
    "random_crop": (BOOL, False),
    "random_resized_crop": (((lambda value: isinstance(value, dict) or SIDE[0](value)), "a side in pixels, or an object"), None),
    "horizontal_flip": (PROBABILITY, 0),
    "mask_resample": (choice("lanczos", "nearest"), "lanczos"),
    "image_to_rgb8": (BOOL, False),
    "background": (COLOUR, 128),
    "pre_encode_images": (BOOL, False),
    "encode_format": (choice("png", "jpeg"), "png"),
    "jpeg_quality": (integer(0, 255), 92),
    "jpeg_chroma": (choice("444", "422", "420"), "444"),
    "apply_exif_orientation": (BOOL, True),
    "on_truncated": (choice("error", "accept"), "error"),
    "on_damaged": (choice("error", "accept"), "accept"),
    "max_pixels": (integer(1), 2**28),
}
# Keys that older examples carry and nothing ever read: known, and silent.
IGNORED_KEYS = {
    "config": {"prefetch_buffer_size", "num_threads", "max_connections", "image_transform"},
    "source_config": {"shuffle", "return_latents", "return_duplicate_state"},
    "image_config": set(),
    "image_config.random_resized_crop": set(),
}


RANKS_ALONE = {"rank": 0, "world_size": 1}


def source_keys():
    """The keys that a source_config may have, for each source_type: {key: (check and what it wants, default)}."""
    return {name: _keys_of(sources.source_type(name)) for name in sources.registered()}


def _keys_of(kind):
    return {**kind.keys, **RANKS}


def parse(config):
    """The checked configuration.

    Args:
        config: a dict, or JSON text of an object.

    Returns:
        A namespace with TOP's keys as attributes; `source_config` and `image_config` are namespaces too.

    Raises:
        ValueError: not JSON, not an object, a key that is missing, of the wrong type or out of range.
    """
    if isinstance(config, str | bytes | bytearray):
        try:
            config = json.loads(config)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"config: not JSON: {error}{hints.of_no_config(config)}") from None
    if not isinstance(config, dict):
        hint = hints.of_no_config(config)
        raise ValueError(f"config: got {type(config).__name__}, wanted a dict or the JSON text of an object{hint}")
    top = _section("config", config, TOP, config)
    kind = sources.source_type(top.source_type)
    top.source_config = _section("source_config", top.source_config, _keys_of(kind), config)
    top.image_config = parse_image(top.image_config or {})
    _settle_ranks(top.source_config)
    kind.check(top)
    top.batch = None  # see batches.py
    return top


def _settle_ranks(source):
    """One of them alone is "auto": so is the other."""
    default = ("auto", "auto") if "auto" in (source.rank, source.world_size) else (0, 1)
    source.rank = default[0] if source.rank is None else source.rank
    source.world_size = default[1] if source.world_size is None else source.world_size
    if "auto" not in (source.rank, source.world_size) and source.rank >= source.world_size:
        raise ValueError(f"source_config.rank: got {source.rank}, wanted less than world_size, which is {source.world_size}")


def parse_image(given):
    """The checked image_config, a namespace. Raises ValueError."""
    image = _section("image_config", given, IMAGE)
    if isinstance(image.background, int):
        image.background = [image.background] * 3
    if image.random_resized_crop is not None:
        given = image.random_resized_crop
        resized = _section("image_config.random_resized_crop", given if isinstance(given, dict) else {"size": given}, RESIZED)
        resized.size = [resized.size] * 2 if isinstance(resized.size, int) else list(resized.size)
        image.random_resized_crop = resized
        if image.crop_and_resize:
            raise ValueError("image_config.random_resized_crop: wanted either that or crop_and_resize, got both")
    if image.crop_and_resize:
        _check_buckets(image)
    return image


def _check_buckets(image):
    for key in ("default_image_size", "downsampling_ratio", "min_aspect_ratio", "max_aspect_ratio"):
        if not getattr(image, key):
            raise ValueError(f"image_config.{key}: missing or 0, wanted a number above 0 with crop_and_resize")
    if image.max_aspect_ratio < image.min_aspect_ratio:
        raise ValueError(
            f"image_config.max_aspect_ratio: got {image.max_aspect_ratio}, wanted at least min_aspect_ratio, which is "
            f"{image.min_aspect_ratio}"
        )
    if image.default_image_size < image.downsampling_ratio:
        raise ValueError(
            f"image_config.default_image_size: got {image.default_image_size}, wanted at least downsampling_ratio, which is "
            f"{image.downsampling_ratio}"
        )
    if not aspect_buckets(image.default_image_size, image.downsampling_ratio, image.min_aspect_ratio, image.max_aspect_ratio):
        raise ValueError(
            f"image_config.max_aspect_ratio: got {image.max_aspect_ratio}, wanted more above min_aspect_ratio "
            f"({image.min_aspect_ratio}): no size with sides that are multiples of {image.downsampling_ratio} lies between them"
        )


def _section(section, given, keys, whole=None):
    prefix = "" if section == "config" else f"{section}."
    values = {}
    for key, ((check, wanted), default) in keys.items():
        value = given.get(key, default)
        if value is REQUIRED:
            hint = "" if whole is None else hints.of_missing(key, given, whole, whole.get("source_type") or sources.DEFAULT, source_keys())
            raise ValueError(f"{prefix}{key}: missing, wanted {wanted}{hint}")
        # null stands for "not given" where not given is allowed
        if value is None and default is not REQUIRED:
            value = default
        elif (value is not default or key in given) and not _passes(check, value):
            hint = hints.of_source_type(value, _source_words()) if key == "source_type" else ""
            raise ValueError(f"{prefix}{key}: got {shown(key, value)}, wanted {wanted}{hint}")
        values[key] = hidden(key, value)
    for key in given:
        if key not in keys and not _is_dead(section, key, given):
            hints.warn(f"{prefix}{key}: unknown key, ignored{hints.of_unknown(section, key, keys, _places())}")
    return SimpleNamespace(**values)


def _places():
    """Where a key that is at the wrong place may have been meant to be: the section, for which source_type, and its keys."""
    of_sources = [("source_config", name, keys) for name, keys in source_keys().items()]
    return [("image_config", None, IMAGE), ("config", None, TOP), *of_sources, ("image_config.random_resized_crop", None, RESIZED)]


def _source_words():
    return {name: sources.source_type(name).other_words for name in sources.registered()}


def _passes(check, value):
    try:
        return bool(check(value))
    except (TypeError, ValueError):  # a numpy array is neither true nor false, a lone surrogate is in no path
        return False


def _is_dead(section, key, given):
    """Whether a key may be there without a word. A rank at the top level is dead only where reading as rank 0 of 1 is what it asks for,
    or source_config has its own: else every rank would read everything."""
    if section == "config" and key in RANKS:
        return given[key] in (None, 0, RANKS_ALONE[key]) or given["source_config"].get(key) is not None
    return key in IGNORED_KEYS[section]
