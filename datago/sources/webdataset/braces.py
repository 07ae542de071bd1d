"""Brace patterns such as `{000..012}`, `{a..e..2}` and `{a,b}`, also several or nested ones.

The strings of a pattern are counted before it is expanded, so that a short pattern cannot fill memory.
"""

import re
from collections.abc import Iterator

from datago.errors import SourceValueError
from datago.net.url import redact

MAX_SHARDS = 1_000_000  # strings that one pattern may expand to
MAX_DEPTH = 50  # nested groups
NUMBERS = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.-?(\d+))?\n?")
LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.-?\d+)?\n?")


def expand(pattern: str) -> list[str]:
    """The strings that `pattern` stands for, in order. A group that is neither a range nor a list, as in `?sig={x}`, stays as it is.

    If the left bound of a range begins with a zero, all numbers of the range are padded to its width. Backslashes do not escape.
    Steps and descending ranges work as in bash.

    Raises:
        SourceValueError: `check` refuses the pattern.
    """
    check(pattern)
    if "{" not in pattern:
        return [pattern]
    from braceexpand import braceexpand

    return list(braceexpand(re.sub(r"\{([^{},]*)\}", _as_list, pattern), escape=False))


def check(pattern: str) -> None:
    """Raises SourceValueError if the braces of `pattern` are unbalanced, or if it expands to more than MAX_SHARDS strings."""
    depth = 0
    for sign in re.findall("[{}]", pattern):
        depth += 1 if sign == "{" else -1
        if not 0 <= depth <= MAX_DEPTH:
            break
    if depth:
        raise SourceValueError(f"{redact(pattern)}: unbalanced braces, or nested deeper than {MAX_DEPTH}")
    count = _count(pattern)
    if count > MAX_SHARDS:
        raise SourceValueError(f"{redact(pattern)}: expands to more than {MAX_SHARDS} urls")


def _count(pattern: str) -> int:
    """An upper bound of how many strings braceexpand would make: the product over all groups of the sum over a group's alternatives."""
    total, depth, start = 1, 0, 0
    for place, sign in enumerate(pattern):
        if sign == "{":
            start = start if depth else place + 1
            depth += 1
        elif sign == "}":
            depth -= 1
            if depth == 0:
                total = min(total * _count_group(pattern[start:place]), 2 * MAX_SHARDS)
    return total


def _count_group(group: str) -> int:
    if numbers := NUMBERS.fullmatch(group):
        if max(map(len, filter(None, numbers.groups()))) > 18:
            return 2 * MAX_SHARDS
        return len(_range(numbers))
    if letters := LETTERS.fullmatch(group):
        return abs(ord(letters[1]) - ord(letters[2])) + 1
    return sum(map(_count, _parts(group)))


def _parts(group: str) -> Iterator[str]:
    depth, start = 0, 0
    for place, sign in enumerate(group):
        depth += (sign == "{") - (sign == "}")
        if sign == "," and depth == 0:
            yield group[start:place]
            start = place + 1
    yield group[start:]


def _range(numbers: re.Match[str]) -> range:
    first, last, step = int(numbers[1]), int(numbers[2]), int(numbers[3] or 1) or 1
    return range(first, last + 1, step) if first <= last else range(first, last - 1, -step)


def _as_list(found: re.Match[str]) -> str:
    """The group as a list if it is a range with a zero-padded bound and bounds of different widths, since bash and braceexpand would
    pad all its numbers to the wider bound; otherwise the group unchanged."""
    numbers = NUMBERS.fullmatch(found[1])
    if not numbers or len(numbers[1]) == len(numbers[2]) or not re.search(r"(^|\.\.)-?0\d", found[1]):
        return found[0]
    width = len(numbers[1]) if re.match("-?0", numbers[1]) else 0
    texts = [f"{number:0{width}d}" for number in _range(numbers)]
    return texts[0] if len(texts) == 1 else "{" + ",".join(texts) + "}"
