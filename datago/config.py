"""The configuration: JSON text or a dict in, checked values out.

A wrong value raises ValueError at once, naming the key, what it got and what it wants; an unknown key warns.
"""

import json
from types import SimpleNamespace

from datago import filters, hints
from datago._buckets import aspect_buckets
from datago.checks import (
    BOOL,
    COLOUR,
    MOST,
    OBJECT,
    PATH,
    PERIOD,
    POLICY,
    PROBABILITY,
    RANK,
    SECONDS,
    TEXT,
    TEXTS,
    URLS,
    WORLD_SIZE,
    choice,
    integer,
    is_pair,
    is_range,
    number,
)
from datago.hidden import hidden, shown

REQUIRED = object()

# section: {key: (check and what it wants, default)}
TOP = {
    "source_type": (choice("db", "file", "webdataset"), "db"),
    "source_config": (OBJECT, REQUIRED),
    "image_config": (OBJECT, None),
    "limit": (integer(1), MOST),
    "samples_buffer_size": (integer(1, 2**20), 64),
    "on_error": (POLICY, "skip"),
    "max_file_bytes": (integer(1), 2**30),
    "memory_limit": (integer(1), None),
    "log_period": (PERIOD, 0),
    "seed": (integer(0, 2**64 - 1), None),
    "epoch": (integer(0), 0),
    "ordered": (BOOL, False),
    "uneven": (choice("keep", "drop", "pad"), "keep"),
}
RANKS = {"rank": (RANK, None), "world_size": (WORLD_SIZE, None)}
SOURCES = {
    "db": {
        "sources": (filters.NAMES, REQUIRED),
        "page_size": (integer(1), REQUIRED),
        **filters.KEYS,
        **dict.fromkeys(("require_images", "require_embeddings", "random_sampling"), (BOOL, False)),
        "return_latents": (filters.NAMES, ""), "api_url": (TEXT, ""), "api_key": (TEXT, ""),
        "max_connections": (integer(1, 2**12), 64),
        "read_timeout": (SECONDS, 20), "page_timeout": (SECONDS, 120), "user_agent": (TEXT, "datago"), **RANKS,
    },
    "file": {"root_path": (PATH, REQUIRED), "random_sampling": (BOOL, None), **RANKS},
    "webdataset": {
        "url": (URLS, REQUIRED),
        "reference_image_type": (TEXT, "jpg"),
        "mask_suffixes": (TEXTS, ["mask", "seg"]),
        "random_sampling": (BOOL, None),
        "shuffle": (BOOL, None),
        "shuffle_buffer": (integer(0, 2**24), 0),
        "concurrent_downloads": (integer(0, 1024), 0),
        "auth_token": (TEXT, ""),
        "timeout": (SECONDS, 30.0),
        "shard_index": (PATH, None),
        "cache_dir": (PATH, None),
        "cache_size": (integer(1), 2**37),
        **RANKS,
    },
}
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
DEAD = {
    "config": {"prefetch_buffer_size", "num_threads", "max_connections", "image_transform"},
    "source_config": {"shuffle", "return_latents", "return_duplicate_state"},
    "image_config": set(),
    "image_config.random_resized_crop": set(),
}


RANKS_ALONE = {"rank": 0, "world_size": 1}
# Where a key that is at the wrong place may have been meant to be: the section, for which source_type, and its keys.
PLACES = [
    ("image_config", None, IMAGE), ("config", None, TOP), *(("source_config", kind, keys) for kind, keys in SOURCES.items()),
    ("image_config.random_resized_crop", None, RESIZED),
]  # fmt: skip


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
    top.source_config = _section("source_config", top.source_config, SOURCES[top.source_type], config)
    top.image_config = _section("image_config", top.image_config or {}, IMAGE)
    _check_image(top.image_config)
    if top.source_type == "db":
        filters.settle(top.source_config)
    _settle_ranks(top.source_config)
    _settle_order(top)
    top.batch = None  # see batches.py
    return top


def _settle_ranks(source):
    """One of them alone is "auto": so is the other."""
    default = ("auto", "auto") if "auto" in (source.rank, source.world_size) else (0, 1)
    source.rank = default[0] if source.rank is None else source.rank
    source.world_size = default[1] if source.world_size is None else source.world_size
    if "auto" not in (source.rank, source.world_size) and source.rank >= source.world_size:
        raise ValueError(f"source_config.rank: got {source.rank}, wanted less than world_size, which is {source.world_size}")


def _settle_order(top):
    """A seed asks for a shuffled order where nothing is said of it."""
    source, kind = top.source_config, top.source_type
    if kind == "db":
        if top.seed is not None and source.random_sampling:
            raise ValueError(f"seed: got {top.seed}, wanted none with random_sampling: the server draws, and takes no seed")
        if top.ordered and source.random_sampling:
            raise ValueError("ordered: got True, wanted false with random_sampling: the server draws, and there is no order")
        if top.uneven != "keep":
            raise ValueError(f"uneven: got {top.uneven!r}, wanted 'keep': how many samples a rank has, the server does not say")
        return
    wishes = [wish for wish in (source.random_sampling, getattr(source, "shuffle", None)) if wish is not None]
    source.random_sampling = any(wishes) if wishes else top.seed is not None
    if kind == "webdataset" and top.uneven != "keep" and not source.shard_index:
        raise ValueError(
            f"uneven: got {top.uneven!r}, wanted 'keep' without source_config.shard_index: how many samples a rank has is not known"
        )


def _check_image(image):
    if isinstance(image.background, int):
        image.background = [image.background] * 3
    if image.random_resized_crop is not None:
        given = image.random_resized_crop
        resized = _section("image_config.random_resized_crop", given if isinstance(given, dict) else {"size": given}, RESIZED)
        resized.size = [resized.size] * 2 if isinstance(resized.size, int) else list(resized.size)
        image.random_resized_crop = resized
        if image.crop_and_resize:
            raise ValueError("image_config.random_resized_crop: wanted either that or crop_and_resize, got both")
    if not image.crop_and_resize:
        return
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
            hint = "" if whole is None else hints.of_missing(key, given, whole, whole.get("source_type") or "db", SOURCES)
            raise ValueError(f"{prefix}{key}: missing, wanted {wanted}{hint}")
        # null stands for "not given" where not given is allowed
        if value is None and default is not REQUIRED:
            value = default
        elif (value is not default or key in given) and not _passes(check, value):
            hint = hints.of_source_type(value) if key == "source_type" else ""
            raise ValueError(f"{prefix}{key}: got {shown(key, value)}, wanted {wanted}{hint}")
        values[key] = hidden(key, value)
    for key in given:
        if key not in keys and not _is_dead(section, key, given):
            hints.warn(f"{prefix}{key}: unknown key, ignored{hints.of_unknown(section, key, keys, PLACES)}")
    return SimpleNamespace(**values)


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
    return key in DEAD[section]
