"""Checks of values that users give, in a config or a state dict."""

import math
import os
import sys
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any, NamedTuple

MAX_INT = 2**63 - 1
REQUIRED = object()  # the default of a key that must be given


class Check(NamedTuple):
    """A check of one value.

    Attributes:
        test: a predicate.
        wanted: the words for what it wants; an object whose `str` these are.
        schema: the JSON schema of the values that it allows, as far as a schema can say it: a value that the schema refuses, `test`
            refuses too.
        settle: makes of a value that `test` allows the one that settings have.
    """

    test: Callable[[Any], Any]
    wanted: object
    schema: dict[str, Any] = {}  # noqa: RUF012
    settle: Callable[[Any], Any] = lambda value: value


def integer(least: int, most: int = MAX_INT) -> Check:
    def check(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most

    wanted = f"an integer of at least {least}" if most == MAX_INT else f"an integer from {least} to {most}"
    return Check(check, wanted, {"type": "integer", "minimum": least, "maximum": most})


def number(above: float, most: float = sys.float_info.max) -> Check:
    def check(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and above < value <= most

    limit = {"maximum": most} if most < sys.float_info.max else {}
    wanted = f"a number above {above}" + (f", at most {most}" if limit else "")
    return Check(check, wanted, {"type": "number", "exclusiveMinimum": above, **limit})


def choice(*names: str) -> Check:
    return Check(lambda value: value in names, "one of " + ", ".join(map(repr, names)), {"enum": list(names)})


class _OneOf:
    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self._names = names

    def __str__(self) -> str:
        return "one of " + ", ".join(map(repr, self._names()))


def one_of(names: Callable[[], Iterable[str]]) -> Check:
    """A check for one of the names that the function `names` returns at the time of the check."""
    return Check(lambda value: value in names(), _OneOf(names), {"type": "string"})


def text(test: Callable[[Any], Any], wanted: str, pattern: str) -> Check:
    """A check for a string. `pattern` is a regular expression that matches somewhere in every allowed string, in the syntax that Python
    and ECMA 262 share."""
    return Check(test, wanted, {"type": "string", "pattern": pattern})


def either(wanted: object, *checks: Check) -> Check:
    """A check that allows every value that one of `checks` allows."""
    return Check(lambda value: any(check.test(value) for check in checks), wanted, {"anyOf": [check.schema for check in checks]})


def pair(check: Check, wanted: str) -> Check:
    return _several(2, check, wanted)


def is_range(most: float = sys.float_info.max) -> Callable[[Any], bool]:
    """A test for a pair [least, most] of numbers above 0."""
    ends = pair(number(0, most), "").test
    return lambda value: ends(value) and value[0] <= value[1]


def _several(count: int, check: Check, wanted: str) -> Check:
    def test(value: Any) -> bool:
        return isinstance(value, list | tuple) and len(value) == count and all(map(check.test, value))

    return Check(test, wanted, {"type": "array", "items": check.schema, "minItems": count, "maxItems": count})


def _expand(value: Any) -> Any:
    """A path, or a list of them: a ~ or ~user that one begins with becomes that home folder. No url begins with a ~."""
    if isinstance(value, list | tuple):
        return [_expand(one) for one in value]
    return os.path.expanduser(value) if os.fsencode(value).startswith(b"~") else value


BOOL = Check(lambda value: isinstance(value, bool), "true or false", {"type": "boolean"})
TEXT = Check(lambda value: isinstance(value, str), "a string", {"type": "string"})
PATH = text(
    lambda value: isinstance(value, str | os.PathLike) and os.fsencode(value) != b"" and b"\0" not in os.fsencode(value),
    "a path",
    "^[^\\u0000]+$",
)._replace(settle=_expand)
PROBABILITY = Check(
    lambda value: number(-1).test(value) and 0 <= value <= 1, "a number from 0 to 1", {"type": "number", "minimum": 0, "maximum": 1}
)
LEVEL = integer(0, 255)
COLOUR = either("a grey level from 0 to 255, or three of them: [red, green, blue]", LEVEL, _several(3, LEVEL, ""))
TEXTS = Check(
    lambda value: isinstance(value, list | tuple) and all(map(TEXT.test, value)),
    "a list of strings",
    {"type": "array", "items": {"type": "string"}},
)
_SOME_TEXTS = Check(
    lambda value: bool(value) and TEXTS.test(value) and all(value),
    "",
    {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
)
URLS = either("a url, a path or a list of them", PATH, _SOME_TEXTS)._replace(settle=_expand)
OBJECT = Check(lambda value: isinstance(value, dict), "an object", {"type": "object"})
YES_OR_NO = Check(
    lambda value: isinstance(value, bool) or value in ("", "true", "false"), "true or false", {"enum": [True, False, "", "true", "false"]}
)
AUTO = choice("auto")
RANK = either('an integer of at least 0, or "auto"', AUTO, integer(0))
WORLD_SIZE = either('an integer of at least 1, or "auto"', AUTO, integer(1))
POLICY = Check(
    lambda value: value in ("skip", "raise") or callable(value),
    "one of 'skip', 'raise', or a function of the failure",
    {"enum": ["skip", "raise"]},  # JSON has no functions
)
FAILURES = either(
    "an integer of at least 0, or a fraction from 0.0 to 1.0",
    integer(0),
    Check(lambda value: isinstance(value, float) and 0 <= value <= 1, "", {"type": "number", "minimum": 0, "maximum": 1}),
)
SECONDS = number(0, 10**6)
PERIOD = Check(
    lambda value: value == 0 or SECONDS.test(value), f"0, or {SECONDS.wanted}", {"type": "number", "minimum": 0, "maximum": 10**6}
)
UNEVEN = choice("keep", "drop", "pad")
NATURAL = integer(0)
CRC = integer(0, 2**32 - 1)
UNIQUENESS = either('an integer from -1 to 2, or "none"', choice("none"), integer(-1, 2))


def ranges(most: int) -> Check:
    """A check for a set of integers below `most`, as the ranges that Progress.ranges returns."""

    def check(value: Any) -> bool:
        ends = [0]
        for pair in value if isinstance(value, list) else [None]:
            if not isinstance(pair, list) or len(pair) != 2 or not all(map(integer(0, most).test, pair)):
                return False
            ends += pair
        return ends == sorted(ends) and all(begin < end for begin, end in value)

    return Check(check, "a list of [begin, end], in order")


def list_of(length: int, *checks: Check) -> Check:
    def check(value: Any) -> bool:
        return isinstance(value, list) and len(value) == length and all(one.test(item) for one, item in zip(checks, value, strict=True))

    return Check(check, "[" + ", ".join(str(one.wanted) for one in checks) + "]")


def or_none(check: Check) -> Check:
    return Check(lambda value: value is None or check.test(value), f"{check.wanted}, or null")


def passes(check: Check, value: Any) -> bool:
    """Whether a check allows a value. A value for which the test raises TypeError or ValueError is not allowed."""
    try:
        return bool(check.test(value))
    except (TypeError, ValueError):  # from the truth value of a numpy array, or an unpaired surrogate in a path
        return False


def require(good: Any, where: str, value: Any, wanted: object) -> None:
    """Raises ValueError unless `good`. `where` is the place of `value` in what the user gave, and `wanted` says what is allowed there."""
    if not good:
        raise ValueError(f"{where}: got {value!r:.80}, wanted {wanted}")


def seconds(timeout: Any) -> float:
    """A timeout as a float. Raises ValueError if it is not a number."""
    try:
        found = float(timeout) if isinstance(timeout, Real) and not isinstance(timeout, bool) else math.nan
    except OverflowError:
        found = math.nan
    if math.isnan(found):
        raise ValueError(f"timeout: got {timeout!r:.80}, wanted a number of seconds, or None")
    return found
