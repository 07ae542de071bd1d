"""Checks that the shards of a config exist: all shards on disk, and a sample of those behind urls, so that it takes seconds at most."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from datago.errors import SourceError, SourceValueError, printable
from datago.net.stream import open_stream
from datago.net.url import local_path, scheme_of

MAX_REQUESTS = 64  # urls that are requested, evenly spread over all urls
THREADS = 8
MAX_NAMED = 3  # unreadable shards that the error names


def check_shards(shards: list[str], options: dict[str, Any]) -> int:
    """How many of `shards` were checked; `options` are those of open_stream.

    Raises:
        SourceValueError: some shards cannot be read. The text says how many, and what is wrong with the first of them.
    """
    local = [shard for shard in shards if scheme_of(shard) in ("", "file")]
    remote = [shard for shard in shards if scheme_of(shard) not in ("", "file")]
    step = max(1, (len(remote) - 1) / (MAX_REQUESTS - 1))
    remote = [remote[round(number * step)] for number in range(min(MAX_REQUESTS, len(remote)))]
    with ThreadPoolExecutor(THREADS) as threads:
        answers = [*map(_on_disk, local), *threads.map(lambda url: _behind_url(url, options), remote)]
    looked_at, faults = len(answers), [fault for fault in answers if fault]
    if faults:
        more = f"; and {len(faults) - MAX_NAMED} more" if len(faults) > MAX_NAMED else ""
        raise SourceValueError(f"url: {len(faults)} of {looked_at} shards cannot be read: {'; '.join(faults[:MAX_NAMED])}{more}")
    return looked_at


def _on_disk(shard: str) -> str | None:
    """What is wrong with a file, or None. A named pipe is not opened, because its writer would take this process for its reader."""
    path = local_path(shard)
    try:
        if stat.S_ISREG(os.stat(path).st_mode):
            os.close(os.open(path, os.O_RDONLY))
    except OSError as error:
        return f"{printable(path)}: {error.strerror}"
    return f"{printable(path)}: a folder" if os.path.isdir(path) else None


def _behind_url(url: str, options: dict[str, Any]) -> str | None:
    """What is wrong with an object, or None. Its first byte is requested."""
    try:
        with open_stream(url, block_size=1, **options) as stream:
            next(stream, None)
    except SourceError as error:
        return str(error)
    return None
