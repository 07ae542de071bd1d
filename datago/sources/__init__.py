"""Sources: where samples come from. They know neither client nor pool; they yield entries, and are told to stop.

A Source is an object with

    open()      looks at what can be looked at at once (does the root exist?); raises SourceError. Called before the first read,
                in the reader's thread.
    batches()   a generator of lists of entries, run in a thread of its own. It raises SourceError when it can give no more.
    stop()      from any thread: `batches` shall end soon.
    skipped     dict of reason -> count: what was passed over on purpose.

    work_ahead  how many entries may wait for a worker.

An entry is a path (bytes) of an image file, an Entry (a sample's fields and the bytes of its images), or a Failure for what the
source itself could not read.
"""

from importlib import import_module
from types import SimpleNamespace

# source_type: module and class. Only the one that is used is imported: those of the network load much.
SOURCES = {"db": ("db", "DbSource"), "file": ("files", "FileSource"), "webdataset": ("webdataset", "WebDatasetSource")}


def open_source(config):
    """The source that a checked configuration (see config.parse) names."""
    module, name = SOURCES[config.source_type]
    section = SimpleNamespace(**vars(config.source_config), limit=config.limit, max_file_bytes=config.max_file_bytes)
    return getattr(import_module(f"datago.sources.{module}"), name)(section)
