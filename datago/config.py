"""The configuration: JSON text or a dict in, checked values out. Also what the environment has to say.

A wrong value raises ValueError at once, naming the key, what it got and what it wants; an unknown key warns.
"""

import json
import math
import os
import warnings
from types import SimpleNamespace

from datago._buckets import aspect_buckets

REQUIRED = object()
MOST = 2**63 - 1


def integer(least, most=MOST):
    def check(value):
        return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most

    return check, f"an integer of at least {least}" if most == MOST else f"an integer from {least} to {most}"


def number(above):
    def check(value):
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > above

    return check, f"a number above {above}"


def choice(*names):
    return (lambda value: value in names), "one of " + ", ".join(map(repr, names))


BOOL = (lambda value: isinstance(value, bool)), "true or false"
TEXT = (lambda value: isinstance(value, str)), "a string"
PATH = (lambda value: isinstance(value, str | os.PathLike) and os.fspath(value) != ""), "a path"
COLOUR = (lambda value: _is_colour(value)), "a grey level from 0 to 255, or three of them: [red, green, blue]"
TEXTS = (lambda value: isinstance(value, list | tuple) and all(map(TEXT[0], value))), "a list of strings"
URLS = (lambda value: PATH[0](value) or bool(value) and TEXTS[0](value) and all(value)), "a url, a path or a list of them"
OBJECT = (lambda value: isinstance(value, dict)), "an object"
YES_OR_NO = (lambda value: isinstance(value, bool) or value in ("", "true", "false")), "true or false"
UNIQUENESS = (lambda value: value == "none" or integer(-1, 2)[0](value)), 'an integer from -1 to 2, or "none"'


class Secret(str):
    """A string that no repr shows."""

    __slots__ = ()

    def __repr__(self):
        return "'…'" if self else "''"


def _is_colour(value):
    level = integer(0, 255)[0]
    return level(value) or isinstance(value, list | tuple) and len(value) == 3 and all(map(level, value))


# section: {key: (check and what it wants, default)}
TOP = {
    "source_type": (choice("db", "file", "webdataset"), "db"),
    "source_config": (OBJECT, REQUIRED),
    "image_config": (OBJECT, None),
    "limit": (integer(1), MOST),
    "samples_buffer_size": (integer(1, 2**20), 64),
    "on_error": (choice("skip", "raise"), "skip"),
    "max_file_bytes": (integer(1), 2**30),
}
RANKS = {"rank": (integer(0), 0), "world_size": (integer(1), 1)}
TEXT_FILTERS = """sources_ne tags tags_all tags_ne tags_ne_all has_attributes lacks_attributes has_masks lacks_masks
has_latents lacks_latents return_latents attributes""".split()
SIZE_FILTERS = "min_short_edge max_short_edge min_pixel_count max_pixel_count".split()
SOURCES = {
    "db": {
        "sources": (TEXT, REQUIRED),
        "page_size": (integer(1), REQUIRED),
        **dict.fromkeys(TEXT_FILTERS, (TEXT, "")),
        **dict.fromkeys(SIZE_FILTERS, (integer(0, 2**31 - 1), 0)),
        "tags_empty": (YES_OR_NO, ""),
        "duplicate_state": (UNIQUENESS, 0),
        **dict.fromkeys(("require_images", "require_embeddings", "random_sampling"), (BOOL, False)),
        **dict.fromkeys(("api_url", "api_key"), (TEXT, "")),
        "max_connections": (integer(1, 2**12), 64),
        "read_timeout": (number(0), 20), "page_timeout": (number(0), 120), "user_agent": (TEXT, "datago"), **RANKS,
    },
    "file": {"root_path": (PATH, REQUIRED), "random_sampling": (BOOL, False), **RANKS},
    "webdataset": {
        "url": (URLS, REQUIRED),
        "reference_image_type": (TEXT, "jpg"),
        "mask_suffixes": (TEXTS, ["mask", "seg"]),
        "random_sampling": (BOOL, False),
        "shuffle": (BOOL, False),
        "shuffle_buffer": (integer(0, 2**24), 0),
        "concurrent_downloads": (integer(0, 1024), 0),
        "auth_token": (TEXT, ""),
        "timeout": (number(0), 30.0),
        "cache_dir": (PATH, None),
        "cache_size": (integer(1), 2**37),
        **RANKS,
    },
}
SECRETS = {"api_key"}
IMAGE = {
    "crop_and_resize": (BOOL, False),
    "default_image_size": (integer(0, 2**16), 0),
    "downsampling_ratio": (integer(0, 2**16), 0),
    "min_aspect_ratio": (number(0), 0),
    "max_aspect_ratio": (number(0), 0),
    "resize_mode": (choice("fast", "exact"), "fast"),
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
    "config": {"prefetch_buffer_size", "num_threads", "max_connections", "rank", "world_size", "image_transform"},
    "source_config": {"shuffle", "return_latents", "return_duplicate_state"},
    "image_config": set(),
}


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
        except ValueError as error:
            raise ValueError(f"config: not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f"config: got {type(config).__name__}, wanted a dict or the JSON text of an object")
    top = _section("config", config, TOP)
    top.source_config = _section("source_config", top.source_config, SOURCES[top.source_type])
    top.image_config = _section("image_config", top.image_config or {}, IMAGE)
    _check_image(top.image_config)
    ranks = top.source_config
    if ranks.rank >= ranks.world_size:
        raise ValueError(f"source_config.rank: got {ranks.rank}, wanted less than world_size, which is {ranks.world_size}")
    return top


def _check_image(image):
    if isinstance(image.background, int):
        image.background = [image.background] * 3
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


def _section(section, given, keys):
    prefix = "" if section == "config" else f"{section}."
    values = {}
    for key, ((check, wanted), default) in keys.items():
        value = given.get(key, default)
        if value is REQUIRED:
            raise ValueError(f"{prefix}{key}: missing, wanted {wanted}")
        # null stands for "not given" where not given is allowed
        if value is None and default is not REQUIRED:
            value = default
        elif value is not default and not check(value) or value is default and key in given and not check(value):
            shown = "something else" if key in SECRETS else repr(value)
            raise ValueError(f"{prefix}{key}: got {shown}, wanted {wanted}")
        values[key] = Secret(value) if key in SECRETS else value
    for key in given:
        if key not in keys and key not in DEAD[section]:
            _warn_unknown(prefix, key, keys)
    return SimpleNamespace(**values)


def _warn_unknown(prefix, key, keys):
    import difflib

    near = difflib.get_close_matches(str(key), keys, n=1, cutoff=0)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    warnings.warn(f"{prefix}{key}: unknown key, ignored{hint}", UserWarning, stacklevel=5)


def worker_count(limit):
    """Worker threads: DATAGO_MAX_TASKS if that is a number (0: one), else the CPUs this process may use; at most `limit`."""
    try:
        count = max(1, int(os.environ["DATAGO_MAX_TASKS"]))
    except (KeyError, ValueError):
        count = usable_cpus()
    return min(count, limit, 1024)


def attempts():
    """How often a url is asked for in all: DATAGO_MAX_RETRIES if that is a number (0: once), else 5."""
    try:
        return max(1, min(int(os.environ["DATAGO_MAX_RETRIES"]), 255))
    except (KeyError, ValueError):
        return 5


def usable_cpus():
    """CPUs this process may use, by its affinity and its control groups' quota; at least 1."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([affinity, *(math.ceil(quota) for quota in _cgroup_quotas())]))


def _cgroup_quotas(root="/sys/fs/cgroup", membership="/proc/self/cgroup"):
    """CPUs that each control group above this process allows; see cgroups(7), cpu.max and cpu.cfs_quota_us."""
    try:
        with open(membership, encoding="utf-8", errors="replace") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return
    for _, controllers, path in (line for line in lines if len(line) == 3):
        base = root if controllers == "" else f"{root}/cpu" if "cpu" in controllers.split(",") else None
        steps = [step for step in path.split("/") if step]
        for depth in range(len(steps) + 1) if base else ():
            folder = "/".join([base, *steps[:depth]])
            quota, period = _read_quota(folder, controllers == "")
            if quota > 0 and period > 0:
                yield quota / period


def _read_quota(folder, unified):
    try:
        if unified:
            with open(f"{folder}/cpu.max", encoding="ascii") as file:
                quota, period = file.read().split()
        else:
            with open(f"{folder}/cpu.cfs_quota_us", encoding="ascii") as file:
                quota = file.read()
            with open(f"{folder}/cpu.cfs_period_us", encoding="ascii") as file:
                period = file.read()
        return int(quota), int(period)
    except (OSError, ValueError):  # no such group here, or "max": no limit
        return 0, 0
