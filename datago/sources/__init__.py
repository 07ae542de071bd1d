"""Sources: where samples come from. protocol.py says what one is; each of ours is a package in here, which nothing outside knows by name
but the table below."""

from importlib import import_module
from types import SimpleNamespace
from typing import Any

from datago.sources.protocol import Source, SourceType, Survey

__all__ = ["DEFAULT", "Source", "SourceType", "Survey", "open_source", "recognise", "register", "registered", "section", "source_type"]

DEFAULT = "db"
# source_type: its SourceType, or the module that has it as SOURCE_TYPE, which is imported where it is asked for
SOURCES: dict[str, str | SourceType] = {
    "db": "datago.sources.db.source_type",
    "file": "datago.sources.file.source_type",
    "webdataset": "datago.sources.webdataset.source_type",
}


def register(name: str, kind: SourceType) -> None:
    """Makes a source of your own known: a config whose `source_type` is `name` reads from it. To be called in every process that makes
    a client (where workers are started by "spawn", in a module that they import).

    Raises:
        ValueError: the name is taken.
    """
    if name in SOURCES and SOURCES[name] is not kind:
        raise ValueError(f"source_type: {name!r} is taken")
    SOURCES[name] = kind


def registered() -> list[str]:
    """The names that a config's `source_type` may be."""
    return list(SOURCES)


def source_type(name: str) -> SourceType:
    """The SourceType that is registered under a name."""
    found = SOURCES[name]
    return import_module(found).SOURCE_TYPE if isinstance(found, str) else found


def recognise(given: str) -> tuple[str, dict[str, Any]] | None:
    """The source_type and source_config for a folder, path, glob or url; None: no source reads such a thing."""
    for name in registered():
        if (found := source_type(name).recognise(given)) is not None:
            return name, found
    return None


def section(config, run, progress):
    """The settings that a source is made of: of a checked configuration (see config.parse), for a Run (see checkpoint/resume.py)."""
    known = {"limit": config.limit, "max_file_bytes": config.max_file_bytes, "ordered": config.ordered, "uneven": config.uneven}
    return SimpleNamespace(**{**vars(config.source_config), **known, **run.of_source(), "progress": progress})


def open_source(config, run, progress):
    """The source that a checked configuration names, for a Run."""
    return source_type(config.source_type).make(section(config, run, progress))
