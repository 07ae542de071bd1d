"""Checks of a config's values: pairs of a predicate, and the words for what it wants."""

import os
import sys

MOST = 2**63 - 1


def integer(least, most=MOST):
    def check(value):
        return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most

    return check, f"an integer of at least {least}" if most == MOST else f"an integer from {least} to {most}"


def number(above, most=sys.float_info.max):
    def check(value):
        return isinstance(value, int | float) and not isinstance(value, bool) and above < value <= most

    return check, f"a number above {above}" + (f", at most {most}" if most < sys.float_info.max else "")


def choice(*names):
    return (lambda value: value in names), "one of " + ", ".join(map(repr, names))


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
SECONDS = number(0, 10**6)
PERIOD = (lambda value: value == 0 or SECONDS[0](value)), "0, or " + SECONDS[1]
UNIQUENESS = (lambda value: value == "none" or integer(-1, 2)[0](value)), 'an integer from -1 to 2, or "none"'


def _is_colour(value):
    level = integer(0, 255)[0]
    return level(value) or isinstance(value, list | tuple) and len(value) == 3 and all(map(level, value))


def is_pair(value, check):
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(check, value))


def is_range(value):
    return is_pair(value, number(0)[0]) and value[0] <= value[1]
