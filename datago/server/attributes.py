"""Attributes: the rows that the database has of their values, and the conditions that the parameter `attributes` puts on these.

The hosted service has a schema. Here an attribute's type is what all its values have in common.
"""

import json
import math
import operator
import re
from decimal import Decimal, DecimalException

import sqlalchemy as sql

from datago.server.forms import COMPARE, Invalid
from datago.server.tables import attributes, images

# Numbers that are not all whole are doubles; other mixtures are text. "null" is what has no value in any image.
TYPES = ("boolean", "long", "double", "text", "object", "null")
BOOLEAN, LONG, DOUBLE, TEXT, OBJECT, NULL = range(len(TYPES))
LONGS = range(-(2**63), 2**63)
KEYWORD = 256  # UTF-16 units: the hosted service compares no longer text as a whole, only its words
CLAUSES = 1024  # its search engine takes no more in one query
TEXT_COMPARATORS = ("match", "match_phrase", "prefix", "not_match", "not_match_phrase", "not_prefix")
NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")

# The words of Unicode's word boundaries (UAX 29), nearly: ideographs one by one, and what joins letters ("don't") or digits ("3.14").
_ideograph = "\u3040-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_run = rf"[^\W{_ideograph}]+"
WORD = re.compile(rf"[{_ideograph}]|{_run}(?:(?:(?<=[^\W\d_])['.:\u2019\u00b7](?=[^\W\d_])|(?<=\d)[.,;'](?=\d)){_run})*")


def attribute_rows(value):
    """One row for a value, one for each element of a list; one of type NULL for what has no value, so that its name is known."""
    items = [item for item in (value if isinstance(value, list) else [value]) if item is not None]
    if not items:
        yield {"element": 0, "type": NULL, "whole": None, "number": None, "text": None, "words": None}
    for element, item in enumerate(items):
        kind, whole, number = _kind(item)
        text = item if isinstance(item, str) else json.dumps(item)
        exact = text if len(text.encode("utf-16-le")) <= 2 * KEYWORD else None
        yield {"element": element, "type": kind, "whole": whole, "number": number, "text": exact, "words": spaced(text)}


def _kind(item):
    """Type, int64 and double of a value."""
    if isinstance(item, bool):
        return BOOLEAN, None, float(item)
    if isinstance(item, int) and item in LONGS:
        return LONG, item, float(item)
    if isinstance(item, int | float):
        return DOUBLE, None, float(item) if abs(item) < 2**1023 or isinstance(item, float) else None
    return OBJECT if isinstance(item, dict) else TEXT, None, None


def type_of(least, most):
    """The type of an attribute from the least and the largest number of its values' types; None twice: it has no values."""
    if least is None:
        return TYPES[TEXT]
    return TYPES[most if least == most or (least, most) == (LONG, DOUBLE) else TEXT]


def words(text):
    return WORD.findall(text.lower())


def spaced(text):
    """The words of `text` with one space before and after each."""
    return " ".join(["", *words(text), ""])


def type_named(name, store):
    kind = store.attribute_types.get(name)
    if kind is None:
        raise Invalid(f'Field "{name}" not found in schema')
    return kind


def conditions(value, store):
    """The conditions of the parameter `attributes`: pairs of a name, perhaps with a comparator, and a value."""
    names, tests, cost = {}, [], 0
    for pair in dict.fromkeys(value.split(",")):
        name, meets, wanted, clauses = _pair(pair, store)
        cost += clauses
        if cost > CLAUSES:
            raise Invalid(f"Too many conditions on attributes: at most {CLAUSES} are taken")
        names[name] = True
        row_meets = sql.case((sql.and_(attributes.c.name == name, meets), 1), else_=0)
        tests.append(sql.func.coalesce(sql.func.max(row_meets), 0) == wanted)
    # One look at an image's rows for all pairs: with a subquery for each, PostgreSQL plans a thousand of them for minutes.
    mine = (attributes.c.image_id == images.c.id, attributes.c.name.in_(list(names)))
    return [sql.select(sql.case((joined(sql.and_, tests), 1), else_=0)).where(*mine).scalar_subquery() == 1]


def _pair(pair, store):
    """The name in a pair, a condition on this attribute's rows, whether one (1) or none (0) shall meet it, and of how many it is made."""
    stem, colon, value = pair.partition(":")
    if not colon or ":" in value:
        raise Invalid("Invalid filter value for attributes")
    name, separator, comparator = stem.rpartition("__")
    if not separator:
        name = stem
    if not separator or comparator not in ("eq", "ne", *COMPARE, *TEXT_COMPARATORS):
        comparator = "eq"
    kind = type_named(name, store)
    if kind == "object":
        raise Invalid(f"Attribute '{name}' is not indexed and can therefore not be used for filtering.")
    allowed = {"boolean": (), "text": TEXT_COMPARATORS}.get(kind, tuple(COMPARE))
    if comparator not in ("eq", "ne", *allowed):
        raise Invalid(f"Invalid comparator '{comparator}' for attribute '{name}' of type '{kind}'")
    test = comparator.removeprefix("not_")
    try:
        meets = {"boolean": _boolean, "long": _long, "double": _double, "text": _text}[kind](test, value)
    except (ValueError, KeyError):
        raise Invalid(f"Invalid filter value '{value}' for attribute '{name}'") from None
    wanted = 0 if comparator == "ne" or comparator.startswith("not_") else 1
    return name, meets, wanted, len(words(value)) if test == "match" else 1


def _boolean(test, value):
    return attributes.c.number == {"true": 1.0, "false": 0.0}[value.lower()]


def _double(test, value):
    number = float(value) if NUMBER.fullmatch(value) else math.inf
    if not math.isfinite(number):
        raise ValueError(value)
    return COMPARE.get(test, operator.eq)(attributes.c.number, number)


def _long(test, value):
    """Exact, where doubles are not. What lies between whole numbers is equal to none."""
    try:
        number = Decimal(value) if NUMBER.fullmatch(value) else None
    except DecimalException:
        number = None
    if number is None:
        raise ValueError(value)
    if not LONGS.start <= number < LONGS.stop:
        number = math.copysign(math.inf, number)
        return COMPARE.get(test, operator.eq)(attributes.c.number, number)
    least, most = math.floor(number), math.ceil(number)
    if test in COMPARE:
        return COMPARE[test](attributes.c.whole, least if test in ("gt", "lte") else most)
    return attributes.c.whole == least if least == most else sql.false()


def _text(test, value):
    if test == "prefix":
        return sql.func.substr(attributes.c.text, 1, len(value)) == value
    if test == "match_phrase":
        return _holds(spaced(value))
    if test == "match":
        return joined(sql.or_, [sql.false(), *(_holds(f" {word} ") for word in words(value))])
    return attributes.c.text == value


def _holds(phrase):
    """Whether the words of a text have `phrase` in them; LIKE has limits that a request may exceed. No phrase is in no text."""
    return sql.func.replace(attributes.c.words, phrase, "") != attributes.c.words if phrase.strip() else sql.false()


def joined(join, conditions, most=32):
    """`join` (`sql.and_` or `sql.or_`) of any number of conditions: SQLite takes expressions that are 1000 deep, and counts each as one."""
    while len(conditions) > most:
        groups = (conditions[start : start + most] for start in range(0, len(conditions), most))
        conditions = [sql.case((join(*group), 1), else_=0) == 1 for group in groups]
    return join(*conditions)
