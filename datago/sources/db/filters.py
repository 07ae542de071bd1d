"""The filters of a database query: for each parameter of the protocol, a key of the config.

Keys that the Rust package has too keep their names, in which a bound is min_… or max_…. Every other key is the name of its parameter with
single underscores in place of double ones.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from datago.checks import REQUIRED, TEXT, UNIQUENESS, YES_OR_NO, Check, integer, number, text
from datago.keys import key, keys_of
from datago.sources.settings import SourceSettings


def is_sendable(value: Any) -> bool:
    """Whether a value is a string that can be sent in a url: without zero bytes and unpaired surrogates."""
    return TEXT.test(value) and "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)


def names(value: str) -> str:
    """A comma-separated list without spaces around its items and without empty items: "a, b," becomes "a,b"."""
    return ",".join(filter(None, map(str.strip, value.split(","))))


def pairs(value: str) -> str:
    """A comma-separated list of name:value pairs, normalized like `names`, except that spaces around a value belong to the value."""
    found = (pair.partition(":") for pair in value.split(",") if pair.strip())
    return ",".join(f"{name.strip()}{colon}{text}" for name, colon, text in found)


def is_list(value: Any) -> bool:
    return is_sendable(value) and (value == "" or names(value) != "")


def is_date(value: Any) -> bool:
    try:
        return is_sendable(value) and (value == "" or bool(datetime.fromisoformat(value.strip())))
    except ValueError:
        return False


def is_fraction(value: Any) -> bool:
    parts = value.split(":") if is_sendable(value) else []
    return value == "" or len(parts) == 2 and all(part.isascii() and part.isdigit() and int(part[:9]) for part in parts)


WORD = text(lambda value: is_sendable(value) and value.strip() != "" or value == "", "one name", r"^$|\S")
NAMES = text(is_list, "comma-separated names", r"^$|[^\s,]")
PAIRS = text(is_list, "comma-separated name:value pairs", r"^$|[^\s,]")
DATE = text(is_date, "an ISO 8601 date, or date and time", "^$|[0-9]{4}")
FRACTION = text(is_fraction, 'width:height in whole numbers, such as "3:4"', "^$|^[0-9]*[1-9][0-9]*:[0-9]*[1-9][0-9]*$")


def _names(doc: str) -> Any:
    return key(NAMES, "", doc)


def _bound(doc: str) -> Any:
    return key(integer(0, 2**31 - 1), 0, f"{doc}; 0: no bound.")


def _side(doc: str) -> Any:
    return key(integer(0), None, doc)


def _ratio(doc: str) -> Any:
    return key(number(0), None, f"Width / height of the stored image {doc}.")


def _missing(doc: str) -> Any:
    return key(YES_OR_NO, "", f"True: records that have no {doc}; false: those that have.")


def _date(doc: str) -> Any:
    return key(DATE, "", f"An ISO 8601 date, or date and time: the record was {doc}.")


@dataclass(frozen=True, kw_only=True)
class Filters(SourceSettings):
    """The filters, in the order in which they are sent."""

    sources: str = key(NAMES, doc='Comma-separated names of sources; `""`: all.')
    sources_ne: str = _names("Sources that are not wanted.")
    tags: str = _names("Tags of which a record has at least one.")
    tags_all: str = _names("Tags of which a record has all.")
    tags_ne: str = _names("Tags of which a record has none.")
    tags_ne_all: str = _names("Tags of which a record does not have all.")
    has_attributes: str = _names("Attributes that a record has.")
    lacks_attributes: str = _names("Attributes that a record lacks.")
    has_masks: str = _names("Masks that a record has; they are downloaded too.")
    lacks_masks: str = _names("Masks that a record lacks.")
    has_latents: str = _names("Latents that a record has; they are downloaded unless `return_latents` is set.")
    lacks_latents: str = _names("Latents that a record lacks.")
    attributes: str = key(PAIRS, "", 'Comma-separated conditions on attributes, such as `"aes__gte:0.5"`.')
    min_short_edge: int = _bound("Pixels that the shorter side has at least")
    max_short_edge: int = _bound("Pixels that the shorter side has at most")
    min_pixel_count: int = _bound("Pixels that an image has at least")
    max_pixel_count: int = _bound("Pixels that an image has at most")
    tags_empty: bool | Literal[""] = _missing("tags")
    duplicate_state: int | Literal["none"] = key(
        UNIQUENESS, 0, '0: all; 1: originals; 2: duplicates; `"none"`: unprocessed; -1: all, and the field is not asked for.'
    )
    source: str = key(WORD, "", "One source.")
    source_empty: bool | Literal[""] = _missing("source")
    short_edge: int | None = _side("Pixels that the shorter side has, exactly.")
    pixel_count: int | None = _side("Pixels that an image has, exactly.")
    aspect_ratio: float | None = _ratio("that is exactly this")
    short_edge_gt: int | None = _side("The shorter side has more pixels.")
    short_edge_lt: int | None = _side("The shorter side has fewer pixels.")
    pixel_count_gt: int | None = _side("An image has more pixels.")
    pixel_count_lt: int | None = _side("An image has fewer pixels.")
    aspect_ratio_gt: float | None = _ratio("that is above this")
    aspect_ratio_gte: float | None = _ratio("that is at least this")
    aspect_ratio_lt: float | None = _ratio("that is below this")
    aspect_ratio_lte: float | None = _ratio("that is at most this")
    aspect_ratio_fraction: str = key(FRACTION, "", 'Width:height as the server has it, in whole numbers up to 10: `"3:4"`.')
    aspect_ratio_fraction_empty: bool | Literal[""] = _missing("aspect ratio as a fraction")
    coca_embedding_empty: bool | Literal[""] = _missing("embedding")
    date_created_gt: str = _date("created after it")
    date_created_gte: str = _date("created at it, or after")
    date_created_lt: str = _date("created before it")
    date_created_lte: str = _date("created at it, or before")
    date_updated_gt: str = _date("changed after it")
    date_updated_gte: str = _date("changed at it, or after")
    date_updated_lt: str = _date("changed before it")
    date_updated_lte: str = _date("changed at it, or before")
    datasets: str = _names("Data sets, each as `slug/version`, one of which a record is in.")
    datasets_ne: str = _names("Data sets that a record is in none of.")
    datasets_all: str = _names("Data sets that a record is in all of.")
    datasets_ne_all: str = _names("Data sets that a record is not in all of.")
    datasets_empty: bool | Literal[""] = _missing("data set")


FILTERS = {name: found for name, found in keys_of(Filters).items() if name not in keys_of(SourceSettings)}


def parameter(name: str) -> str:
    """The protocol's parameter for a key."""
    bound, _, side = name.partition("_")
    if bound in ("min", "max"):
        return f"{side}__{'gte' if bound == 'min' else 'lte'}"
    return re.sub(r"_(ne_all|ne|all|empty|gte?|lte?)$", r"__\1", name)


def settled(source: Filters) -> dict[str, Any]:
    """The filters of a checked source_config in a normal form, so that filters with the same meaning are equal."""
    return {name: _settled(found.check, getattr(source, name)) for name, found in FILTERS.items()}


def _settled(check: Check, value: Any) -> Any:
    if check is NAMES:
        return names(value)
    if check is PAIRS:
        return pairs(value)
    if check in (DATE, WORD):
        return value.strip()
    return value in (True, "true") if check is YES_OR_NO and value != "" else value


def chosen(source: Filters) -> dict[str, Any]:
    """A dict of the filters that are set. `sources` is always in it, with "" for all sources."""
    values = {name: getattr(source, name) for name in FILTERS}
    return {name: value for name, value in values.items() if FILTERS[name].default is REQUIRED or value != FILTERS[name].default}


def parameters(source: Filters) -> list[tuple[str, Any]]:
    """The filters as (name, value) pairs of the query."""
    found = chosen(source)
    state = {"none": "None", -1: ""}  # -1 only leaves out a field of each record, and filters nothing.
    found = {key: state.get(value, value) if key == "duplicate_state" else value for key, value in found.items()}
    found = {key: str(value).lower() if isinstance(value, bool) else value for key, value in found.items()}
    return [(parameter(name), value) for name, value in found.items() if value != ""]
