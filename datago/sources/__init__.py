"""Sources: where samples come from. They know neither client nor pool; they yield entries, and are told to stop.

A Source is made of a namespace with the checked `source_config` and what the client knows of this pass (see `open_source`). It has

    open()      looks at what can be looked at at once (does the root exist?); raises SourceError. Called before the first read,
                in the reader's thread.
    batches()   a generator of lists of entries, run in a thread of its own. It raises SourceError when it can give no more.
    stop()      from any thread: `batches` shall end soon.
    state()     from any thread: what has been handed out so far, as a dict that JSON can write; a pass that has it as
                `resume` gives the rest.
    skipped     dict of reason -> count: what was passed over on purpose.

    work_ahead  how many entries may wait for a worker.
    target      set by `open`: how many good samples this stream promised, so that ranks have equal counts; None: no such promise.
    base        set by `open`: how many leading bytes of a path say only where the folder lies; 0 where entries are no paths.
    count()     how many samples the stream has, if none fails; None where that is not known. After `open`.

An entry is a pair of the path (bytes) of an image file and its position, an Entry (a sample's fields and the bytes of its
images), or a Failure for what the source itself could not read. A position is the number of a sample in its stream, the same
in every pass with that seed and epoch (db: in this pass); `progress`, a Progress, has those that were handed out.
"""

from importlib import import_module
from types import SimpleNamespace

# source_type: module and class. Only the one that is used is imported: those of the network load much.
SOURCES = {"db": ("db.source", "DbSource"), "file": ("file.source", "FileSource"), "webdataset": ("webdataset.source", "WebDatasetSource")}


def section(config, run, progress):
    """The namespace that a source is made of: of a checked configuration (see config.parse), for a Run (see resume.py)."""
    known = {"limit": config.limit, "max_file_bytes": config.max_file_bytes, "ordered": config.ordered, "uneven": config.uneven}
    return SimpleNamespace(**{**vars(config.source_config), **known, **run.of_source(), "progress": progress})


def open_source(config, run, progress):
    """The source that a checked configuration names, for a Run."""
    module, name = SOURCES[config.source_type]
    return getattr(import_module(f"datago.sources.{module}"), name)(section(config, run, progress))
