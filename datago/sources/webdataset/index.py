"""How many samples each shard has, read from a JSON file in one of the two forms that are in use:

* the wids index, `{"wids_version": 1, "shardlist": [{"url": "…/000000.tar", "nsamples": 1000, …}, …]}`, as `widsindex` writes it
  (webdataset/webdataset, wids/wids_index.py and wids_specs.py);
* the older sizes.json, `{"000000.tar": 1000, …}`, as open_clip reads it (mlfoundations/open_clip, data.py, get_dataset_size).
"""

import os
from typing import Any

from datago.errors import SourceValueError
from datago.net.json_text import parse_json
from datago.net.stream import read_whole
from datago.net.url import Url, redact, scheme_of

MAX_INDEX_BYTES = 1 << 28  # An index of a million shards takes about 100 MB.


def sample_counts(index: str | os.PathLike[str], shards: list[str], options: dict[str, Any]) -> list[int]:
    """The number of samples of each of `shards`, as a list.

    A shard is looked up in the index by its url without query, then by the end of that url (`b/000000.tar`), then by its base name
    alone, which is enough if all entries with that base name have the same count.

    Args:
        index: the path or url of the index.
        options: the options of open_stream. The token is sent only if the index is on the same host as a shard.

    Raises:
        SourceValueError: the file is no index, lacks a shard, or has a value that is no count.
        SourceOSError: the index cannot be read.
    """
    index = os.fspath(index)
    host = _host(index)
    if options["token"] and not any(_host(shard) == host for shard in shards):
        options = {**options, "token": ""}
    try:
        known = _by_name(parse_json(read_whole(index, MAX_INDEX_BYTES, **options)))
    except ValueError as error:
        if isinstance(error, SourceValueError):
            raise
        raise SourceValueError(f"shard_index {redact(index)}: not JSON: {error}") from None
    if known is None:
        raise SourceValueError(f'shard_index {redact(index)}: wanted {{"shardlist": [{{"url": …, "nsamples": …}}]}} or {{name: count}}')
    return [_count(known, shard, redact(index)) for shard in shards]


def _by_name(data: Any) -> dict[str, dict[str, Any]] | None:
    """A dict of base name -> {path: count}, or None if `data` is no index."""
    if isinstance(data, dict) and "shardlist" in data:
        data = data["shardlist"]
        if not isinstance(data, list) or not all(isinstance(shard, dict) and isinstance(shard.get("url"), str) for shard in data):
            return None
        pairs = [(shard["url"], shard.get("nsamples")) for shard in data]
    elif isinstance(data, dict):
        pairs = [*data.items()]
    else:
        return None
    known: dict[str, dict[str, Any]] = {}
    for url, count in pairs:
        path = _path(url)
        known.setdefault(path.rpartition("/")[2], {})[path] = count
    return known


def _count(known: dict[str, dict[str, Any]], shard: str, index: str) -> int:
    path = _path(shard)
    found = known.get(path.rpartition("/")[2], {})
    if path in found:
        found = {path: found[path]}
    else:
        found = {end: count for end, count in found.items() if path.endswith("/" + end.removeprefix("./"))} or found
    counts = list(found.values())
    if not counts:
        raise SourceValueError(f"shard_index {index}: shard {redact(shard)} is missing from the index")
    for count in counts:
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 1 << 40:
            raise SourceValueError(f"shard_index {index}: shard {redact(shard)}: got {count!r:.40}, wanted a number of samples")
        if count != counts[0]:
            raise SourceValueError(f"shard_index {index}: shard {redact(shard)} is ambiguous: {', '.join(map(redact, sorted(found)[:3]))}")
    return int(counts[0])


def _path(url: str) -> str:
    return url.partition("#")[0].partition("?")[0] if scheme_of(url) not in ("", "file") else url


def _host(url: str) -> tuple[str, str, int | None] | None:
    """The (scheme, host, port) that a token may be sent to, or None if the url is not http or https."""
    if scheme_of(url) not in ("http", "https"):
        return None
    parsed = Url.parse(url)
    return parsed.scheme, parsed.host, parsed.port
