"""Checks of a config's values: pairs of a predicate, and the words for what it wants."""

import os
import sys

MAX_INT = 2**63 - 1
REQUIRED = object()  # the default of a key that must be given


def integer(least, most=MAX_INT):
    def check(value):
        return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most

    return check, f"an integer of at least {least}" if most == MAX_INT else f"an integer from {least} to {most}"


def number(above, most=sys.float_info.max):
    def check(value):
        return isinstance(value, int | float) and not isinstance(value, bool) and above < value <= most

    return check, f"a number above {above}" + (f", at most {most}" if most < sys.float_info.max else "")


def choice(*names):
    return (lambda value: value in names), "one of " + ", ".join(map(repr, names))


class _OneOf:
    def __init__(self, names):
        self._names = names

    def __str__(self):
        return "one of " + ", ".join(map(repr, self._names()))


def one_of(names):
    """A choice among what the function `names` gives when it is asked."""
    return (lambda value: value in names()), _OneOf(names)


BOOL = (lambda value: isinstance(value, bool)), "true or false"
TEXT = (lambda value: isinstance(value, str)), "a string"
PATH = (lambda value: isinstance(value, str | os.PathLike) and os.fsencode(value) != b"" and b"\0" not in os.fsencode(value)), "a path"
PROBABILITY = (lambda value: number(-1)[0](value) and 0 <= value <= 1), "a number from 0 to 1"
COLOUR = (lambda value: _is_colour(value)), "a grey level from 0 to 255, or three of them: [red, green, blue]"
TEXTS = (lambda value: isinstance(value, list | tuple) and all(map(TEXT[0], value))), "a list of strings"
URLS = (lambda value: PATH[0](value) or bool(value) and TEXTS[0](value) and all(value)), "a url, a path or a list of them"
OBJECT = (lambda value: isinstance(value, dict)), "an object"
YES_OR_NO = (lambda value: isinstance(value, bool) or value in ("", "true", "false")), "true or false"
RANK = (lambda value: value == "auto" or integer(0)[0](value)), 'an integer of at least 0, or "auto"'
WORLD_SIZE = (lambda value: value == "auto" or integer(1)[0](value)), 'an integer of at least 1, or "auto"'
POLICY = (lambda value: value in ("skip", "raise") or callable(value)), "one of 'skip', 'raise', or a function of the failure"
FAILURES = (
    (lambda value: integer(0)[0](value) or isinstance(value, float) and 0 <= value <= 1),
    "an integer of at least 0, or a fraction from 0.0 to 1.0",
)
SECONDS = number(0, 10**6)
PERIOD = (lambda value: value == 0 or SECONDS[0](value)), "0, or " + SECONDS[1]
UNEVEN = choice("keep", "drop", "pad")
NATURAL = integer(0)
CRC = integer(0, 2**32 - 1)
UNIQUENESS = (lambda value: value == "none" or integer(-1, 2)[0](value)), 'an integer from -1 to 2, or "none"'


def _is_colour(value):
    level = integer(0, 255)[0]
    return level(value) or isinstance(value, list | tuple) and len(value) == 3 and all(map(level, value))


def is_pair(value, check):
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(check, value))


def is_range(value):
    return is_pair(value, number(0)[0]) and value[0] <= value[1]


def ranges(most):
    """A set of numbers below `most`, as Progress.ranges gives it."""

    def check(value):
        ends = [0]
        for pair in value if isinstance(value, list) else [None]:
            if not isinstance(pair, list) or len(pair) != 2 or not all(map(integer(0, most)[0], pair)):
                return False
            ends += pair
        return ends == sorted(ends) and all(begin < end for begin, end in value)

    return check, "a list of [begin, end], in order"


def list_of(length, *checks):
    def check(value):
        return isinstance(value, list) and len(value) == length and all(one[0](item) for one, item in zip(checks, value, strict=True))

    return check, "[" + ", ".join(wanted for _, wanted in checks) + "]"


def or_none(check):
    return (lambda value: value is None or check[0](value)), f"{check[1]}, or null"


def require(good, where, value, wanted):
    """Raises ValueError where what stands at `where` is not good."""
    if not good:
        raise ValueError(f"{where}: got {value!r:.80}, wanted {wanted}")
