"""The database rows of attribute values, and the conditions that the parameter `attributes` puts on them.

The hosted service has a schema. This server has none, and takes the type that all values of an attribute have in common.
"""

import json
import math
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, DecimalException
from typing import TYPE_CHECKING, Any

import sqlalchemy as sql

from datago.server.forms import COMPARE, Invalid
from datago.server.tables import attributes, images

if TYPE_CHECKING:
    from datago.server.store import Store

Clause = sql.ColumnElement[bool]

# An attribute with integers and other numbers is a double; any other mixture is text. "null" has no value in any image.
TYPES = ("boolean", "long", "double", "text", "object", "null")
BOOLEAN, LONG, DOUBLE, TEXT, OBJECT, NULL = range(len(TYPES))
LONGS = range(-(2**63), 2**63)
KEYWORD = 256  # UTF-16 code units: the hosted service compares a longer text only word by word
CLAUSES = 1024  # the most that its search engine accepts in one query
TEXT_COMPARATORS = ("match", "match_phrase", "prefix", "not_match", "not_match_phrase", "not_prefix")
NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")

# Words, approximately by Unicode's word boundaries (UAX 29): each ideograph is a word, and characters may join letters ("don't") or
# digits ("3.14").
_ideograph = "\u3040-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_run = rf"[^\W{_ideograph}]+"
WORD = re.compile(rf"[{_ideograph}]|{_run}(?:(?:(?<=[^\W\d_])['.:\u2019\u00b7](?=[^\W\d_])|(?<=\d)[.,;'](?=\d)){_run})*")


def attribute_rows(value: Any) -> Iterator[dict[str, Any]]:
    """One row for a value, or one for each element of a list. An attribute without a value has a row of type NULL, which keeps its name."""
    items = [item for item in (value if isinstance(value, list) else [value]) if item is not None]
    if not items:
        yield {"element": 0, "type": NULL, "whole": None, "number": None, "text": None, "words": None}
    for element, item in enumerate(items):
        kind, whole, number = _kind(item)
        text = item if isinstance(item, str) else json.dumps(item)
        exact = text if len(text.encode("utf-16-le")) <= 2 * KEYWORD else None
        yield {"element": element, "type": kind, "whole": whole, "number": number, "text": exact, "words": spaced(text)}


def _kind(item: Any) -> tuple[int, int | None, float | None]:
    """The type of a value, and the value as an int64 and as a double. None: the value cannot be represented as one."""
    if isinstance(item, bool):
        return BOOLEAN, None, float(item)
    if isinstance(item, int) and item in LONGS:
        return LONG, item, float(item)
    if isinstance(item, int | float):
        return DOUBLE, None, float(item) if abs(item) < 2**1023 or isinstance(item, float) else None
    return OBJECT if isinstance(item, dict) else TEXT, None, None


def type_of(least: int | None, most: int | None) -> str:
    """The type of an attribute, from the smallest and largest type number of its values. Both are None if it has no values."""
    if least is None or most is None:
        return TYPES[TEXT]
    return TYPES[most if least == most or (least, most) == (LONG, DOUBLE) else TEXT]


def words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def spaced(text: str) -> str:
    """The words of `text`, with one space before and after each word."""
    return " ".join(["", *words(text), ""])


def type_named(name: str, store: "Store") -> str:
    """The type of the attribute with this name. Raises Invalid if no image has it."""
    kind = store.attribute_types.get(name)
    if kind is None:
        raise Invalid(f'Field "{name}" not found in schema')
    return kind


def conditions(value: str, store: "Store") -> list[Clause]:
    """The conditions of the parameter `attributes`, a list of NAME:VALUE or NAME__COMPARATOR:VALUE."""
    names: dict[str, bool] = {}
    tests: list[Clause] = []
    cost = 0
    for pair in dict.fromkeys(value.split(",")):
        name, meets, wanted, clauses = _pair(pair, store)
        cost += clauses
        if cost > CLAUSES:
            raise Invalid(f"Too many conditions on attributes: at most {CLAUSES} are taken")
        names[name] = True
        row_meets = sql.case((sql.and_(attributes.c.name == name, meets), 1), else_=0)
        tests.append(sql.func.coalesce(sql.func.max(row_meets), 0) == wanted)
    # One subquery has the conditions of all pairs, because PostgreSQL takes minutes to plan a thousand subqueries.
    mine = (attributes.c.image_id == images.c.id, attributes.c.name.in_(list(names)))
    return [sql.select(sql.case((joined(sql.and_, tests), 1), else_=0)).where(*mine).scalar_subquery() == 1]


def _pair(pair: str, store: "Store") -> tuple[str, Clause, int, int]:
    """Parses one pair.

    Returns:
        The attribute's name, a condition on its rows, whether a row must meet the condition (1) or none may (0), and the number of
        clauses in the condition.
    """
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
    allowed: tuple[str, ...] = {"boolean": (), "text": TEXT_COMPARATORS}.get(kind, tuple(COMPARE))
    if comparator not in ("eq", "ne", *allowed):
        raise Invalid(f"Invalid comparator '{comparator}' for attribute '{name}' of type '{kind}'")
    test = comparator.removeprefix("not_")
    try:
        meets = {"boolean": _boolean, "long": _long, "double": _double, "text": _text}[kind](test, value)
    except (ValueError, KeyError):
        raise Invalid(f"Invalid filter value '{value}' for attribute '{name}'") from None
    wanted = 0 if comparator == "ne" or comparator.startswith("not_") else 1
    return name, meets, wanted, len(words(value)) if test == "match" else 1


def _boolean(test: str, value: str) -> Clause:
    return attributes.c.number == {"true": 1.0, "false": 0.0}[value.lower()]


def _double(test: str, value: str) -> Clause:
    number = float(value) if NUMBER.fullmatch(value) else math.inf
    if not math.isfinite(number):
        raise ValueError(value)
    return compared(test, attributes.c.number, number)


def compared(comparator: str, column: sql.ColumnElement[Any], number: float) -> Clause:
    """`column` compared with `number`; equality if `comparator` is not one of COMPARE."""
    compare: Callable[[Any, Any], Clause] = COMPARE.get(comparator, operator.eq)
    return compare(column, number)


def _long(test: str, value: str) -> Clause:
    """Compares integers exactly, which doubles could not. A fraction equals no integer."""
    try:
        number = Decimal(value) if NUMBER.fullmatch(value) else None
    except DecimalException:
        number = None
    if number is None:
        raise ValueError(value)
    if not LONGS.start <= number < LONGS.stop:
        return compared(test, attributes.c.number, math.copysign(math.inf, number))
    least, most = math.floor(number), math.ceil(number)
    if test in COMPARE:
        return compared(test, attributes.c.whole, least if test in ("gt", "lte") else most)
    return attributes.c.whole == least if least == most else sql.false()


def _text(test: str, value: str) -> Clause:
    if test == "prefix":
        return sql.func.substr(attributes.c.text, 1, len(value)) == value
    if test == "match_phrase":
        return _holds(spaced(value))
    if test == "match":
        return joined(sql.or_, [sql.false(), *(_holds(f" {word} ") for word in words(value))])
    return attributes.c.text == value


def _holds(phrase: str) -> Clause:
    """Whether a text contains the words `phrase`. An empty phrase is in no text. LIKE limits the length of its patterns."""
    return sql.func.replace(attributes.c.words, phrase, "") != attributes.c.words if phrase.strip() else sql.false()


def joined(join: Callable[..., Clause], conditions: Sequence[Clause], most: int = 32) -> Clause:
    """`join` (`sql.and_` or `sql.or_`) of any number of conditions, as a tree: SQLite limits the depth of an expression to 1000, and counts
    a plain chain of n conditions as n deep."""
    while len(conditions) > most:
        groups = (conditions[start : start + most] for start in range(0, len(conditions), most))
        conditions = [sql.case((join(*group), 1), else_=0) == 1 for group in groups]
    return join(*conditions)
