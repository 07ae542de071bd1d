"""What somebody may have meant whose config is wrong: ends of sentences that begin elsewhere, empty where there is nothing to say."""

import os
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from datago.sources import recognise


def of_source_type(value: Any, names: Mapping[str, frozenset[str]]) -> str:
    """For a value that is no source_type; `names`: each of these, and other words for it."""
    if not isinstance(value, str):
        return ""
    word = value.strip().lower().replace("-", "_")
    found = [kind for kind, words in names.items() if word == kind or word in words]
    return _meant(found or _near(word, names))


def of_no_config(given: Any) -> str:
    """For text or a path that is no JSON."""
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
    """For a `key` that the object `given` lacks, the source_config or the whole config, `top`.

    Args:
        source_type: that of the config, or its default.
        sources: source_type to the keys that its source_config may have.
    """
    if given is top:
        found = [name for keys in sources.values() for name in keys if name in top]
        return f"; {found[0]} belongs into it" if found else ""
    if key in top:
        return f"; it stands at the top level, and belongs into source_config: {{{key!r}: …}}"
    default = "" if "source_type" in top else f"; source_type is not given, and is {source_type!r} then"
    others = [(name, kind) for kind, keys in sources.items() for name in keys if name in given and name not in sources[source_type]]
    if others:
        return f"{default}; {others[0][0]} is a key of source_type {others[0][1]!r}"
    of_this_kind = [name for name in given if name in sources[source_type] and not all(name in keys for keys in sources.values())]
    if default and not of_this_kind:
        return default + _meant([name for name in sources if name != source_type], "'source_type': ")
    near = _near(key, [str(name) for name in given if name not in sources[source_type]])
    return f"; is that what {near[0]!r} means?" if near else ""


def of_unknown(section: str, key: str, keys: Mapping[str, Any], places: Iterable[tuple[str, str | None, Mapping[str, Any]]]) -> str:
    """For a key that means nothing in `section`, whose own are `keys`; `places`: (a section, the source_type that it is for, its keys)."""
    for place, source_type, others in places:
        if key in others and place == section:
            return f"; it is a key of source_type {source_type!r}"
        if key in others:
            return f"; did you mean {f'{key} at the top level' if place == 'config' else f'{place}.{key}'}?"
    return _meant(_near(str(key), keys, cutoff=0))


def _near(word: str, words: Iterable[str], cutoff: float = 0.6) -> list[str]:
    from difflib import get_close_matches  # `import datago` does without

    return get_close_matches(word, words, n=1, cutoff=cutoff)


def _meant(words: Sequence[str], before: str = "") -> str:
    return f"; did you mean {' or '.join(before + repr(word) for word in words)}?" if words else ""


def warn(text: str) -> None:
    """A warning that names the first line outside this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "datago":
        frame, level = frame.f_back, level + 1
    warnings.warn(text, UserWarning, stacklevel=level)
