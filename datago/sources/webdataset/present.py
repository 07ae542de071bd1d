"""Whether the shards of a config are there: all that are on disk are looked at, of those behind urls a number that takes a moment."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from datago.errors import SourceError, SourceValueError, printable
from datago.net.stream import open_stream
from datago.net.url import local_path, scheme_of

ASKED = 64  # urls at most, spread over all of them
AT_ONCE = 8
NAMED = 3  # of those that are missing


def look(shards: list[str], options: dict[str, Any]) -> int:
    """How many of `shards` were looked at; `options` are those of open_stream.

    Raises:
        SourceValueError: some cannot be read. It says how many, and of the first what is wrong with them.
    """
    local = [shard for shard in shards if scheme_of(shard) in ("", "file")]
    remote = [shard for shard in shards if scheme_of(shard) not in ("", "file")]
    step = max(1, (len(remote) - 1) / (ASKED - 1))
    remote = [remote[round(number * step)] for number in range(min(ASKED, len(remote)))]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        answers = [*map(_on_disk, local), *threads.map(lambda url: _behind_url(url, options), remote)]
    looked_at, faults = len(answers), [fault for fault in answers if fault]
    if faults:
        more = f"; and {len(faults) - NAMED} more" if len(faults) > NAMED else ""
        raise SourceValueError(f"url: {len(faults)} of {looked_at} shards cannot be read: {'; '.join(faults[:NAMED])}{more}")
    return looked_at


def _on_disk(shard: str) -> str | None:
    """What is wrong with a file, or None. A pipe is not opened: whoever writes into it would take that for its reader."""
    path = local_path(shard)
    try:
        if stat.S_ISREG(os.stat(path).st_mode):
            os.close(os.open(path, os.O_RDONLY))
    except OSError as error:
        return f"{printable(path)}: {error.strerror}"
    return f"{printable(path)}: a folder" if os.path.isdir(path) else None


def _behind_url(url: str, options: dict[str, Any]) -> str | None:
    """What is wrong with an object, or None: its first byte is asked for."""
    try:
        with open_stream(url, block_size=1, **options) as stream:
            next(stream, None)
    except SourceError as error:
        return str(error)
    return None
