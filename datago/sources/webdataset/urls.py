"""Turns the `url` of a configuration into a list of shards.

| given | means |
|---|---|
| a list | all that its entries mean, in order |
| a path that exists | that file, whatever braces or asterisks are in its name |
| a path, file:// | with braces: one for each string; with `*`, `?`, `[`: the files that match, sorted |
| http(s):// | with braces: one for each string, else a listing (see listing.py) or one shard; sent as given |
| s3:// gs:// hf:// az:// … | through fsspec; braces, and `*` sorted |
| pipe: | refused, because a configuration must not run commands |
"""

import os
import re
from typing import Any

from datago.errors import RemoteError, SourceValueError, source_os_error
from datago.net.cancel import TransferError, watcher
from datago.net.storage import find_objects
from datago.net.url import Url, local_path, redact, scheme_of
from datago.sources.names import LITTER
from datago.sources.webdataset.braces import MAX_SHARDS, check, expand
from datago.sources.webdataset.listing import is_listing, list_objects

LISTING_TIMEOUT_S = 600.0  # for a storage to list the objects that match; it takes long for a bucket of millions


def check_urls(value: Any) -> list[str]:
    """The entries of `value`, checked as far as that is possible without the network.

    Raises:
        SourceValueError: there is no entry, or one is of a wrong type, begins with `pipe:`, has a `*` in an http url or unbalanced
            braces, or expands to more than a million shards.
    """
    entries = value if isinstance(value, list | tuple) else [value]
    if not entries:
        raise SourceValueError("url: an empty list, wanted at least one shard")
    for entry in entries:
        if not isinstance(entry, str | os.PathLike) or not isinstance(os.fspath(entry), str) or not os.fspath(entry):
            raise SourceValueError(f"url: got {entry!r}, wanted a url or path, or a list of them")
        _check(os.fspath(entry))
    return [os.fspath(entry) for entry in entries]


def shard_urls(value: Any, *, token: str = "", stop: Any = None, **options: Any) -> list[str]:
    """The urls and paths of all shards, at least one; `token`, `stop` and `options` are those of open_stream.

    Raises:
        SourceValueError: check_urls refuses `value`, nothing matches an entry, or a listing is empty or no listing.
        SourceOSError: a folder in which a pattern is to be matched cannot be listed.
        RemoteError: a listing cannot be read.
    """
    options["stop"] = stop
    found = []
    for entry in check_urls(value):
        shards = _shards(entry, token, options)
        if not shards:
            raise SourceValueError(f"url {redact(entry)}: no shards found")
        found += shards
        if len(found) > MAX_SHARDS:
            raise SourceValueError(f"url: more than {MAX_SHARDS} shards")
    return found


def _check(entry: str) -> None:
    scheme = scheme_of(entry)
    if entry.startswith("pipe:"):
        raise SourceValueError("url: pipe: is not supported, datago runs no commands; name a file or a url")
    if "\0" in entry or re.search("[\ud800-\udc7f\udd00-\udfff]", entry):
        raise SourceValueError(f"url {redact(entry)}: zero byte or unpaired surrogate")
    if scheme in ("http", "https"):
        Url.parse(entry)
        if "*" in entry.partition("?")[0]:
            raise SourceValueError(f"url {redact(entry)}: '*' cannot be expanded over http; use braces, as in {{000..099}}")
    if scheme not in ("", "file") or not os.path.exists(local_path(entry)):
        check(entry)


def _shards(entry: str, token: str, options: dict[str, Any]) -> list[str]:
    scheme = scheme_of(entry)
    if scheme in ("", "file"):
        return _local(entry)
    if scheme in ("http", "https"):
        return list_objects(entry, token, **options) if "{" not in entry and is_listing(entry) else expand(entry)
    return [url for pattern in expand(entry) for url in (_stored(pattern, options) if "*" in pattern else [pattern])]


def _local(entry: str) -> list[str]:
    path = local_path(entry)
    if os.path.isdir(path):
        raise SourceValueError(f"url {path!r}: a folder; name its shards, as in {os.path.join(path, '*.tar')!r}")
    if os.path.exists(path):
        return [path]
    return [name for pattern in expand(entry) for name in _matching(pattern)]


def _matching(pattern: str) -> list[str]:
    import glob

    path = local_path(pattern)
    if os.path.exists(path) or not glob.has_magic(pattern):
        return [path]
    _check_listable(path)
    return sorted((name for name in glob.iglob(path, recursive=True) if not os.path.isdir(name)), key=os.fsencode)


def _check_listable(pattern: str) -> None:
    """Raises SourceOSError if a folder in which `pattern` is matched cannot be listed. glob silently skips such folders."""
    import glob

    parent, name = os.path.split(pattern)
    if parent not in ("", pattern):
        _check_listable(parent)
    if not glob.has_magic(name) and os.path.basename(parent) != "**":
        return
    for folder in glob.iglob(parent, recursive=True) if glob.has_magic(parent) else [parent or "."]:
        try:
            os.scandir(folder).close()
        except (FileNotFoundError, NotADirectoryError):
            pass  # Nothing can match there.
        except OSError as error:
            if os.fsencode(os.path.basename(folder)) not in LITTER:
                raise source_os_error(error, "url", folder) from None


def _stored(pattern: str, options: dict[str, Any]) -> list[str]:
    try:
        return [*find_objects(pattern, watcher(options["stop"]), LISTING_TIMEOUT_S)]
    except TransferError as fault:
        url = redact(pattern)
        raise RemoteError(f"{url}: {fault}", url) from None
