"""The checker of configs: JSON text, a dict or the path of a file in, frozen settings out (see settings.py).

A wrong value raises ValueError at once, naming the key, what it got and what it wants; an unknown key warns, or raises with `strict`.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from datago import config_file, geometry, hints, sources
from datago.checks import REQUIRED, passes
from datago.engine._buckets import aspect_buckets
from datago.keys import Key, keys_of
from datago.redaction import hidden, shown
from datago.settings import IGNORED_KEYS, ImageSettings, Pad, ResizedCrop, Settings
from datago.sources.protocol import S

RANKS_ALONE = {"rank": 0, "world_size": 1}


def source_keys() -> dict[str, Mapping[str, Key]]:
    """The keys that a source_config may have, for each source_type."""
    return {name: keys_of(sources.source_type(name).settings) for name in sources.registered()}


def parse(config: Any) -> Settings[Any]:
    """The checked configuration.

    Args:
        config: a dict, JSON text of an object, or the path of a file (see config_file). It is not changed.

    Raises:
        ValueError: not JSON, not an object, a key that is missing, of the wrong type or out of range; with `strict`, an unknown one.
        SourceError: it is the path of a file that cannot be read.
    """
    if config_file.is_path(config):
        config = config_file.read(config)
    elif isinstance(config, str | bytes | bytearray):
        try:
            config = json.loads(config)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"config: not JSON: {error}{hints.of_no_config(config)}") from None
    if not isinstance(config, dict):
        hint = hints.of_no_config(config)
        raise ValueError(f"config: got {type(config).__name__}, wanted a dict, the JSON text of an object, or a file with one{hint}")
    top = _section("config", config, Settings, config)
    kind = sources.source_type(top["source_type"])
    source = kind.settings(**_section("source_config", top["source_config"], kind.settings, config, top["strict"]))
    image = parse_image(top["image_config"] or {}, top["strict"])
    found = Settings(**{**top, "source_config": _with_ranks(source), "image_config": image})
    return replace(found, source_config=kind.check(found))


def _with_ranks(source: S) -> S:
    """One of them alone is "auto": so is the other."""
    default = ("auto", "auto") if "auto" in (source.rank, source.world_size) else (0, 1)
    # null, which the types do not have, stands for "not given" in here
    rank = default[0] if source.rank is None else source.rank
    world_size = default[1] if source.world_size is None else source.world_size
    if isinstance(rank, int) and isinstance(world_size, int) and rank >= world_size:
        raise ValueError(f"source_config.rank: got {rank}, wanted less than world_size, which is {world_size}")
    return replace(source, rank=rank, world_size=world_size)


def parse_image(given: dict[str, Any], strict: bool = False) -> ImageSettings:
    """The checked image_config. Raises ValueError."""
    values = _section("image_config", given, ImageSettings, strict=strict)
    values["background"] = _repeated(values["background"], 3)
    values["random_resized_crop"] = _sized(values["random_resized_crop"], "random_resized_crop", ResizedCrop, strict)
    values["pad"] = _sized(values["pad"], "pad", Pad, strict)
    if values["center_crop"] is not None:
        values["center_crop"] = _repeated(values["center_crop"], 2)
    image = ImageSettings(**values)
    geometry.check(image)
    if image.crop_and_resize:
        _check_buckets(image)
    return image


def _repeated(value: int | tuple[int, ...], count: int) -> tuple[int, ...]:
    """One number for each of `count`, where one is given for all."""
    return (value,) * count if isinstance(value, int) else value


def _sized(given: Any, key: str, settings: type, strict: bool) -> Any:
    """The section of image_config that is called `key`: its size alone may be given in place of it."""
    if given is None:
        return None
    values = _section(f"image_config.{key}", given if isinstance(given, dict) else {"size": given}, settings, strict=strict)
    values["size"] = _repeated(values["size"], 2)
    if "fill" in values:
        values["fill"] = _repeated(values["fill"], 3)
    return settings(**values)


def _check_buckets(image: ImageSettings) -> None:
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


def _section(
    section: str, given: dict[str, Any], settings: type, whole: dict[str, Any] | None = None, strict: bool = False
) -> dict[str, Any]:
    """The value of each key that the dataclass `settings` has, for one section of the config `whole`. The top section has `strict`
    itself."""
    prefix, keys = "" if section == "config" else f"{section}.", keys_of(settings)
    values = {}
    for key, (check, default, *_) in keys.items():
        value = given.get(key, default)
        if value is REQUIRED:
            hint = "" if whole is None else hints.of_missing(key, given, whole, whole.get("source_type") or sources.DEFAULT, source_keys())
            raise ValueError(f"{prefix}{key}: missing, wanted {check.wanted}{hint}")
        # null stands for "not given" where not given is allowed
        if value is None and default is not REQUIRED:
            value = default
        elif (value is not default or key in given) and not passes(check, value):
            hint = hints.of_source_type(value, _source_words()) if key == "source_type" else ""
            raise ValueError(f"{prefix}{key}: got {shown(key, value)}, wanted {check.wanted}{hint}")
        elif value is not default:
            value = check.settle(value)
        value = hidden(key, value)
        values[key] = tuple(value) if isinstance(value, list) else value
    for key in given:
        if key not in keys and not _is_ignored(section, key, given):
            hint = hints.of_unknown(section, key, keys, _places())
            if values.get("strict", strict):
                raise ValueError(f"{prefix}{key}: unknown key{hint}")
            hints.warn(f"{prefix}{key}: unknown key, ignored{hint}")
    return values


def _places() -> list[tuple[str, str | None, Mapping[str, Key]]]:
    """Where a key that is at the wrong place may have been meant to be: the section, for which source_type, and its keys."""
    of_sources = [("source_config", name, keys) for name, keys in source_keys().items()]
    return [
        ("image_config", None, keys_of(ImageSettings)),
        ("config", None, keys_of(Settings)),
        *of_sources,
        ("image_config.random_resized_crop", None, keys_of(ResizedCrop)),
        ("image_config.pad", None, keys_of(Pad)),
    ]


def _source_words() -> dict[str, frozenset[str]]:
    return {name: sources.source_type(name).other_words for name in sources.registered()}


def _is_ignored(section: str, key: str, given: dict[str, Any]) -> bool:
    """Whether a key may be there without a word. A rank at the top level is dead only where reading as rank 0 of 1 is what it asks for,
    or source_config has its own: else every rank would read everything."""
    if section == "config" and key in RANKS_ALONE:
        return given[key] in (None, 0, RANKS_ALONE[key]) or given["source_config"].get(key) is not None
    return key in IGNORED_KEYS[section]
