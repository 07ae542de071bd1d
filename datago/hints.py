"""What somebody may have meant whose config is wrong: ends of sentences that begin elsewhere, empty where there is nothing to say."""

import os
import sys
import warnings

# other words for a source_type
SOURCE_TYPES = {
    "file": {"files", "folder", "folders", "dir", "directory", "imagefolder", "image_folder", "filesystem", "local", "disk", "path"},
    "webdataset": {"wds", "web_dataset", "webdatasets", "tar", "tars", "shard", "shards"},
    "db": {"database", "dataroom", "http", "api"},
}


def of_source_type(value):
    """For a value that is no source_type."""
    if not isinstance(value, str):
        return ""
    word = value.strip().lower().replace("-", "_")
    found = [kind for kind, words in SOURCE_TYPES.items() if word == kind or word in words]
    return _meant(found or _near(word, SOURCE_TYPES))


def of_no_config(given):
    """For text or a path that is no JSON."""
    try:
        path = os.fsdecode(given).strip()
    except (TypeError, UnicodeDecodeError):
        return ""
    if os.path.isdir(path):
        return '; it names a folder: wanted {"source_type": "file", "source_config": {"root_path": …}}'
    if os.path.exists(path) or path.endswith(".json"):
        return "; it names a file: wanted what is in it, as json.load gives it"
    return ""


def of_missing(key, given, top, source_type, sources):
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
        return default + _meant(["file", "webdataset"], "'source_type': ")
    near = _near(key, [str(name) for name in given if name not in sources[source_type]])
    return f"; is that what {near[0]!r} means?" if near else ""


def of_unknown(section, key, keys, places):
    """For a key that means nothing in `section`, whose own are `keys`; `places`: (a section, the source_type that it is for, its keys)."""
    for place, source_type, others in places:
        if key in others and place == section:
            return f"; it is a key of source_type {source_type!r}"
        if key in others:
            return f"; did you mean {f'{key} at the top level' if place == 'config' else f'{place}.{key}'}?"
    return _meant(_near(str(key), keys, cutoff=0))


def _near(word, words, cutoff=0.6):
    from difflib import get_close_matches  # `import datago` does without

    return get_close_matches(word, words, n=1, cutoff=cutoff)


def _meant(words, before=""):
    return f"; did you mean {' or '.join(before + repr(word) for word in words)}?" if words else ""


def warn(text):
    """A warning that names the first line outside this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "datago":
        frame, level = frame.f_back, level + 1
    warnings.warn(text, UserWarning, stacklevel=level)
