"""The parameters of a request: conditions on images, and numbers with limits, by the protocol's rules.

What the protocol answers with status 400 raises Invalid, with the body: a list of texts about filters, an object about
numbers.
"""

import math
import operator
from datetime import UTC, datetime

import sqlalchemy as sql

from datago.server.partition import SHARDS
from datago.server.store import attributes, images, latents, tags, words

COMPARE = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}
ALWAYS, NEVER = sql.true(), sql.false()


class Invalid(Exception):
    """A request to be answered with status 400.

    Attributes:
        body: its JSON.
    """

    def __init__(self, body):
        self.body = [body] if isinstance(body, str) else body


def integer(params, name, least, most, default):
    """The whole number in a parameter; `default` where there is none."""
    if name not in params:
        return default
    try:
        value = int(params[name])
    except ValueError:
        raise Invalid({name: ["A valid integer is required."]}) from None
    if value > most:
        raise Invalid({name: [f"Ensure this value is less than or equal to {most}."]})
    if value < least:
        raise Invalid({name: [f"Ensure this value is greater than or equal to {least}."]})
    return value


def conditions(params, store):
    """The conditions that the filters among `params` (a mapping of text) put on images."""
    found = []
    for name, make in FILTERS.items():
        value = params.get(name, "")
        # an attribute's value may have spaces around it
        value = value if name == "attributes" else value.strip()
        if value:
            found += make(name, value, store)
    return found


def partition(params):
    """The condition of `partitions_count` and `partition`, as a list of one or none."""
    count, number = params.get("partitions_count"), params.get("partition")
    if (count is None) != (number is None):
        raise Invalid('Both "partitions_count" and "partition" parameters must be provided')
    if not count or not number:
        return []
    count, number = (_natural(name, value) for name, value in (("partitions_count", count), ("partition", number)))
    if not 2 <= count <= SHARDS:
        raise Invalid(f'"partitions_count" should be between 2 and {SHARDS}')
    if number >= count:
        raise Invalid(f'"partition" should be between 0 and {count - 1}')
    return [images.c.partition % count == number]


def _natural(name, value):
    try:
        number = int(value)
    except ValueError:
        number = -1
    if number < 0:
        raise Invalid(f'Invalid "{name}" parameter')
    return number


def _has(table, column, value):
    """Whether an image has `value` in `column` of a table beside it."""
    return sql.exists().where(table.c.image_id == images.c.id, table.c[column] == value)


def _sources(name, value, store):
    listed = images.c.source.in_(value.split(","))
    return [~listed if name.endswith("__ne") else listed]


def _number(name, value, store):
    column, _, comparator = name.partition("__")
    try:
        number = _finite(value)
    except ValueError:
        raise Invalid({name: ["Enter a number."]}) from None
    return [COMPARE.get(comparator, operator.eq)(images.c[column], number)]


def _finite(text):
    number = float(text)
    if not math.isfinite(number):
        raise ValueError
    return number


def _date(name, value, store):
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise Invalid({name: ["Enter a valid date/time."]}) from None
    moment = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    return [COMPARE[name.rpartition("__")[2]](images.c.date, moment.isoformat(timespec="microseconds"))]


def _boolean(when_true, when_false):
    # what is neither is ignored
    return lambda name, value, store: {"true": [when_true], "false": [when_false]}.get(value.lower(), [])


def _tags(name, value, store):
    wanted = value.split(",")
    if missing := [tag for tag in dict.fromkeys(wanted) if tag not in store.tags]:
        raise Invalid(f"One or more tags do not exist: {_quoted(missing)}")
    each = [_has(tags, "tag", tag) for tag in wanted]
    combined = sql.and_(*each) if name.endswith("all") else sql.or_(*each)
    return [~combined if "__ne" in name else combined]


def _presence(table, column, known, unknown):
    """A has_… or lacks_… filter; `known` gives the names in use, `unknown` the complaint about another."""

    def make(name, value, store):
        for wanted in value.split(","):
            if wanted not in known(store):
                raise Invalid(unknown.format(wanted))
        each = [_has(table, column, wanted) for wanted in value.split(",")]
        return each if name.startswith("has_") else [~one for one in each]

    return make


def _duplicate_state(name, value, store):
    if value == "None":
        return [images.c.duplicate_state.is_(None)]
    if value not in ("1", "2"):
        raise Invalid(f"Invalid value for duplicate_state: {value}")
    return [images.c.duplicate_state == int(value)]


def _datasets(name, value, store):
    raise Invalid(f"One or more datasets do not exist: {_quoted(value.split(','))}")


def _quoted(names):
    return ",".join(f"'{name}'" for name in names)


NO_FIELD = 'Field "{}" not found in schema'
TEXT_COMPARATORS = ("match", "match_phrase", "prefix", "not_match", "not_match_phrase", "not_prefix")


def _attributes(name, value, store):
    return [_attribute(pair, store) for pair in value.split(",")]


def _attribute(pair, store):
    name, colon, value = pair.partition(":")
    if not colon or ":" in value:
        raise Invalid("Invalid filter value for attributes")
    stem, separator, comparator = name.rpartition("__")
    if not separator:
        stem = name
    if not separator or comparator not in ("eq", "ne", *COMPARE, *TEXT_COMPARATORS):
        comparator = "eq"
    kind = store.attribute_types.get(stem)
    if kind is None:
        raise Invalid(NO_FIELD.format(stem))
    allowed = {"boolean": (), "text": TEXT_COMPARATORS}.get(kind, tuple(COMPARE))
    if comparator not in ("eq", "ne", *allowed):
        raise Invalid(f"Invalid comparator '{comparator}' for attribute '{stem}' of type '{kind}'")
    test = comparator.removeprefix("not_")
    meets = _text_test(test, value) if kind == "text" else _number_test(test, value, stem, kind)
    exists = sql.exists().where(attributes.c.image_id == images.c.id, attributes.c.name == stem, meets)
    return ~exists if comparator == "ne" or comparator.startswith("not_") else exists


def _number_test(test, value, name, kind):
    try:
        number = {"true": 1.0, "false": 0.0}[value.strip().lower()] if kind == "boolean" else _finite(value)
    except (KeyError, ValueError):
        raise Invalid(f"Invalid filter value '{value}' for attribute '{name}'") from None
    return COMPARE.get(test, operator.eq)(attributes.c.number, number)


def _text_test(test, value):
    if test == "prefix":
        return sql.func.substr(attributes.c.text, 1, len(value)) == value
    if test == "match_phrase":
        return attributes.c.words.contains(words(value), autoescape=True)
    if test == "match":
        each = [attributes.c.words.contains(f" {word} ", autoescape=True) for word in words(value).split()]
        return sql.or_(NEVER, *each)
    return attributes.c.text == value


_tagged = sql.exists().where(tags.c.image_id == images.c.id)
_latents = _presence(latents, "latent_type", lambda store: store.latent_types, "Latent type '{}' does not exist")
_named = _presence(attributes, "name", lambda store: store.attribute_types, NO_FIELD)
_embedded = images.c.coca_embedding != "null"
_proportioned = images.c.aspect_ratio_fraction.is_not(None)

FILTERS = {
    **dict.fromkeys(("sources", "sources__ne", "source"), _sources),
    "source__empty": _boolean(images.c.source == "", images.c.source != ""),
    **{
        f"{column}{test}": _number
        for column in ("short_edge", "pixel_count", "aspect_ratio")
        for test in ("", *(f"__{name}" for name in COMPARE))
    },
    "aspect_ratio_fraction": lambda name, value, store: [images.c.aspect_ratio_fraction == value],
    "aspect_ratio_fraction__empty": _boolean(~_proportioned, _proportioned),
    **dict.fromkeys(("tags", "tags__all", "tags__ne", "tags__ne_all"), _tags),
    "tags__empty": _boolean(~_tagged, _tagged),
    **dict.fromkeys(("has_attributes", "lacks_attributes"), _named),
    **dict.fromkeys(("has_latents", "lacks_latents", "has_masks", "lacks_masks"), _latents),
    "attributes": _attributes,
    "duplicate_state": _duplicate_state,
    "coca_embedding__empty": _boolean(~_embedded, _embedded),
    **{f"date_{which}__{test}": _date for which in ("created", "updated") for test in COMPARE},
    **dict.fromkeys(("datasets", "datasets__ne", "datasets__all", "datasets__ne_all"), _datasets),
    "datasets__empty": _boolean(ALWAYS, NEVER),
}
