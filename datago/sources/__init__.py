"""Sources: where samples come from. protocol.py says what one is; each of ours is a package in here, which nothing outside knows by name
but the table below."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from datago.sources.protocol import Source, SourceType, Survey
from datago.sources.settings import PassSettings, SourceSettings

if TYPE_CHECKING:
    from datago.checkpoint.resume import Run
    from datago.engine._progress import Progress
    from datago.settings import Settings

__all__ = [
    "DEFAULT",
    "PassSettings",
    "Source",
    "SourceSettings",
    "SourceType",
    "Survey",
    "open_source",
    "pass_settings",
    "recognise",
    "register",
    "registered",
    "source_type",
]

DEFAULT = "db"
# source_type: its SourceType, or the module that has it as SOURCE_TYPE, which is imported where it is asked for
SOURCES: dict[str, str | SourceType[Any]] = {
    "db": "datago.sources.db.source_type",
    "file": "datago.sources.file.source_type",
    "webdataset": "datago.sources.webdataset.source_type",
}


def register(name: str, kind: SourceType[Any]) -> None:
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


def source_type(name: str) -> SourceType[Any]:
    """The SourceType that is registered under a name."""
    found = SOURCES[name]
    if isinstance(found, str):
        kind: SourceType[Any] = import_module(found).SOURCE_TYPE
        return kind
    return found


def recognise(given: str) -> tuple[str, dict[str, Any]] | None:
    """The source_type and source_config for a folder, path, glob or url; None: no source reads such a thing."""
    for name in registered():
        if (found := source_type(name).recognise(given)) is not None:
            return name, found
    return None


def pass_settings(config: "Settings[Any]", run: "Run", progress: "Progress") -> PassSettings[Any]:
    """What a source is made of: of a checked configuration, for a Run (see checkpoint/resume.py) whose seed was drawn."""
    known = {name: getattr(config, name) for name in ("limit", "max_file_bytes", "ordered", "uneven")}
    planning = config.batch.planning if config.batch else None
    return PassSettings(source=config.source_config, progress=progress, planning=planning, **known, **run.of_source())


def open_source(config: "Settings[Any]", run: "Run", progress: "Progress") -> Source:
    """The source that a checked configuration names, for a Run."""
    return source_type(config.source_type).make(pass_settings(config, run, progress))
