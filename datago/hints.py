"""Hints for errors about a config: what the user may have meant. Each hint is the end of an error message, or empty if there is no hint."""

import os
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from datago.sources import recognise


def of_source_type(value: Any, names: Mapping[str, frozenset[str]]) -> str:
    """The hint for an unknown source_type. `names` has for each source_type the other words that users may write for it."""
    if not isinstance(value, str):
        return ""
    word = value.strip().lower().replace("-", "_")
    found = [kind for kind, words in names.items() if word == kind or word in words]
    return _meant(found or _near(word, names))


def of_no_config(given: Any) -> str:
    """The hint for text or a path that was given as a config and is not JSON."""
    try:
        path = os.fsdecode(given).strip()
    except (TypeError, UnicodeDecodeError):
        return ""
    found = recognise(path) if os.path.isdir(path) else None
    if found:
        return f'; it names a folder: wanted {{"source_type": "{found[0]}", "source_config": {{"{next(iter(found[1]))}": …}}}}'
    if os.path.exists(path):
        return "; it names a file: wanted what is in it, as json.load gives it, or a name that ends in .json, .toml or .yaml"
    return ""


def of_missing(
    key: str, given: Mapping[str, Any], top: Mapping[str, Any], source_type: str, sources: Mapping[str, Mapping[str, Any]]
) -> str:
    """The hint for a missing `key`.

    Args:
        given: the object that lacks the key: the source_config, or the whole config.
        top: the whole config.
        source_type: the config's source_type, or the default.
        sources: for each source_type the keys of its source_config.
    """
    if given is top:
        found = [name for keys in sources.values() for name in keys if name in top]
        return f"; {found[0]} belongs into source_config" if found else ""
    if key in top:
        return f"; it is at the top level, but belongs into source_config: {{{key!r}: …}}"
    default = "" if "source_type" in top else f"; source_type is not given, and defaults to {source_type!r}"
    others = [(name, kind) for kind, keys in sources.items() for name in keys if name in given and name not in sources[source_type]]
    if others:
        return f"{default}; {others[0][0]} is a key of source_type {others[0][1]!r}"
    of_this_kind = [name for name in given if name in sources[source_type] and not all(name in keys for keys in sources.values())]
    if default and not of_this_kind:
        return default + _meant([name for name in sources if name != source_type], "'source_type': ")
    near = _near(key, [str(name) for name in given if name not in sources[source_type]])
    return f"; {near[0]!r} is not a key: did you mean {key!r}?" if near else ""


def of_unknown(section: str, key: str, keys: Mapping[str, Any], places: Iterable[tuple[str, str | None, Mapping[str, Any]]]) -> str:
    """The hint for an unknown key in `section`, whose known keys are `keys`. `places` has tuples of a section, the source_type that the
    section is for, and the section's keys."""
    for place, source_type, others in places:
        if key in others and place == section:
            return f"; it is a key of source_type {source_type!r}"
        if key in others:
            return f"; did you mean {f'{key} at the top level' if place == 'config' else f'{place}.{key}'}?"
    return _meant(_near(str(key), keys, cutoff=0))


def _near(word: str, words: Iterable[str], cutoff: float = 0.6) -> list[str]:
    from difflib import get_close_matches  # imported here to keep `import datago` fast

    return get_close_matches(word, words, n=1, cutoff=cutoff)


def _meant(words: Sequence[str], before: str = "") -> str:
    return f"; did you mean {' or '.join(before + repr(word) for word in words)}?" if words else ""


def warn(text: str) -> None:
    """Warns with the location of the first caller outside this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "datago":
        frame, level = frame.f_back, level + 1
    warnings.warn(text, UserWarning, stacklevel=level)
