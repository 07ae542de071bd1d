"""Looks up the class of a sample as soon as the source has named it. A sample without a class then becomes a failure before it is decoded
and before it takes a place in a batch."""

import json
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from functools import partial
from operator import index
from typing import Any

from datago.engine._sample import Entry, Failure
from datago.settings import Label

INTEGER = re.compile(r"\s*[+-]?[0-9]{1,30}\s*", re.ASCII)


def numbered(given: object) -> dict[str, int]:
    """A dict of class name to class number.

    Args:
        given: a dict of name to number; or a list of names, whose numbers are their places in it; or the path of a file that has one of
            these as JSON, or one name a line.

    Raises:
        ValueError: `given` is none of these, has a name twice, or cannot be read.
    """
    if isinstance(given, str | os.PathLike):
        try:
            given = _read(pathlib.Path(given).read_bytes().decode("utf-8", "surrogateescape"))
        except (OSError, ValueError, RecursionError) as error:
            raise ValueError(f"the file of classes cannot be read: {error}") from None
    names = list(given) if isinstance(given, dict | list | tuple) else []
    numbers = list(given.values()) if isinstance(given, dict) else range(len(names))
    for name, number in zip(names, numbers, strict=True):
        if not isinstance(name, str) or isinstance(number, bool) or not isinstance(number, int) or not -(2**63) <= number < 2**63:
            raise ValueError(f"{name!r:.80}: {number!r:.80}: wanted a class name and an integer of 64 bits")
    if not names or len(set(names)) < len(names):
        raise ValueError("no classes" if not names else f"class {max(names, key=names.count)!r:.80} is listed more than once")
    return dict(zip(names, numbers, strict=True))


def names_a_file(classes: object) -> bool:
    """Whether `classes`, of a source that has folders, is the path of a file of classes; other text is the name of an attribute. A path
    has a slash or the suffix .txt or .json, or a file is there."""
    if not isinstance(classes, str):
        return isinstance(classes, os.PathLike)
    return not classes or "/" in classes or classes.endswith((".txt", ".json")) or os.path.isfile(classes)


def _read(text: str) -> object:
    if text.lstrip()[:1] in ("{", "["):
        return json.loads(text)
    return [line.strip() for line in text.splitlines() if line.strip()]


def of_folder(classes: Mapping[str, int]) -> Label:
    """A label function that returns the number, in `classes`, of the first folder below the root."""
    return partial(_of_folder, classes)


def of_attribute(name: str) -> Label:
    """A label function that returns the sample's attribute `name`, which must be an integer or a string of one."""
    return partial(_of_attribute, name)


def labelled(
    entries: Sequence[tuple[bytes, int] | Entry | Failure], label: Label, base: int
) -> tuple[list[tuple[bytes, int] | Entry | Failure], list[int]]:
    """Looks up the classes of entries, and replaces each entry that has none by a Failure.

    Args:
        entries: what a source yields, see sources/protocol.py.
        label: a function of an entry and `base` that returns an integer of 64 bits, or raises ValueError.
        base: the `base` of the source.

    Returns:
        The entries, and a list of their classes; the class of a Failure has no meaning.
    """
    found: list[tuple[bytes, int] | Entry | Failure] = []
    numbers = []
    for entry in entries:
        number = 0
        if not isinstance(entry, Failure):
            try:
                number = label(entry, base)
            except (ValueError, RecursionError) as error:
                entry = _failed(entry, str(error))
        found.append(entry)
        numbers.append(number)
    return found, numbers


def _failed(entry: tuple[bytes, int] | Entry, text: str) -> Failure:
    name, position = (os.fsdecode(entry[0]), entry[1]) if isinstance(entry, tuple) else (entry.name, entry.position)
    failure = Failure(name, "sample", text)
    failure.position = position
    return failure


def _of_folder(classes: Mapping[str, int], entry: tuple[bytes, int] | Entry, base: int) -> int:
    path = entry[0] if isinstance(entry, tuple) else os.fsencode(entry.path or "")
    folder, below, _ = os.fsdecode(path[base:]).partition("/")
    if not below or folder not in classes:
        raise ValueError("not inside a class folder below root_path")
    return classes[folder]


def _of_attribute(name: str, entry: tuple[bytes, int] | Entry, base: int) -> int:
    value: Any = None if isinstance(entry, tuple) else json.loads(entry.attributes).get(name)
    try:
        number = int(value) if isinstance(value, str) and INTEGER.fullmatch(value) else index(value)
    except TypeError:
        raise ValueError(f"attribute {name!r} is {value!r:.80}, wanted an integer as the class") from None
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"attribute {name!r} is {value!r:.80}, wanted an integer of 64 bits as the class")
    return number
