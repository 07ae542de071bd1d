"""Objects kept on local disk, whole or not at all, shared by all processes that name the same folder.

    folder/<sha256 of the url>.shard    a whole object; its time of change says when it was last used
    folder/<sha256>.<random>.part       one being written; its writer holds a lock on it, so one without is a dead writer's
    folder/.lock                        held while files are made, counted, renamed or removed

Nothing else in the folder is touched. A url is taken to mean the same bytes for ever; a signed url is another url each time.
What goes wrong with the disk is counted and logged, and the stream goes on without the cache.
"""

import contextlib
import hashlib
import logging
import os
import re
import secrets
import sys
import time
from collections.abc import Iterator
from typing import Any

from datago.net.byte_source import ByteSource, SourceReader
from datago.net.storage import FileObject
from datago.threads import new_lock

LOCK_PATIENCE = 5.0  # seconds; whoever holds the lock does so for milliseconds

log = logging.getLogger(__name__)


class Cache:
    """A folder of at most `size` bytes, those being written included; the longest unused go first.

    Attributes:
        hits, misses: objects that were, and were not, there.
        failures: times that the disk refused.
    """

    def __init__(self, folder: str | os.PathLike[str], size: int) -> None:
        self._folder, self.size = os.path.abspath(folder), size
        self._counting = new_lock()
        self.hits = self.misses = self.failures = 0

    def through(self, url: str, source: ByteSource) -> "CachedObject":
        """`source`, or the kept copy of what it would give."""
        return CachedObject(self, _key(url), source)

    def discard(self, url: str) -> None:
        """Removes an object whose bytes turned out to be damaged."""
        with contextlib.suppress(OSError):
            os.unlink(self._path(_key(url) + ".shard"))

    def find(self, key: str) -> FileObject | None:
        """An open FileObject, or None."""
        path = self._path(key + ".shard")
        found: FileObject | None = None
        try:
            found = FileObject(path)
            found.open()
        except FileNotFoundError:
            found = None
        except OSError as error:
            found = None
            self.failed(error)
        with self._counting:
            self.hits += found is not None
            self.misses += found is None
        if found:
            with contextlib.suppress(OSError):  # a cache that may only be read is one all the same
                os.utime(path)
        return found

    def keep(self, key: str) -> "Writer | None":
        """A Writer, or None if the disk refuses."""
        try:
            os.makedirs(self._folder, exist_ok=True)
            with self._locked():
                return Writer(self, self._path(f"{key}.{secrets.token_hex(8)}.part"), self._path(key + ".shard"))
        except OSError as error:
            self.failed(error)
        return None

    def publish(self, part: str, path: str) -> None:
        """Gives a written file its name, after making room for it."""
        with self._locked():
            total, kept = 0, []
            for entry in os.scandir(self._folder):
                found = re.fullmatch(r"[0-9a-f]{64}\.(shard|[0-9a-f]{16}\.part)", entry.name)
                if not found or found[1] != "shard" and entry.path != part and _remove_if_dead(entry.path):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    state = entry.stat(follow_symlinks=False)
                    # What is about to be replaced needs no room.
                    if entry.path != path:
                        total += state.st_size
                        kept += [(state.st_mtime_ns, state.st_size, entry.path)] if found[1] == "shard" else []
            for _, size, oldest in sorted(kept):
                if total <= self.size:
                    break
                os.unlink(oldest)
                total -= size
            os.rename(part, path)

    def failed(self, error: OSError) -> None:
        with self._counting:
            self.failures += 1
            level = logging.WARNING if self.failures == 1 else logging.DEBUG
        log.log(level, "cache_dir %s: %s; going on without it", self._folder, error.strerror or error)

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        file = os.open(self._path(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            end = time.monotonic() + LOCK_PATIENCE
            while not _lock(file):
                if time.monotonic() > end:
                    raise TimeoutError(None, "another process does not let go of its lock")
                time.sleep(0.005)
            yield
        finally:
            os.close(file)


class Writer:
    """A file being written; in the end `commit` or `abort`. After a failure it ignores what is written."""

    def __init__(self, cache: Cache, part: str, path: str) -> None:
        self._cache, self._part, self._path, self._size = cache, part, path, 0
        self._file: int | None = None
        self._pid = os.getpid()
        self._file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        _lock(self._file)

    def write(self, view: memoryview) -> None:
        if self._file is None:
            return
        self._size += len(view)
        if self._size > self._cache.size:
            log.debug("cache_dir: %s is larger than cache_size", self._part)
            return self.abort()
        try:
            while len(view):
                view = view[os.write(self._file, view) :]
        except OSError as error:
            self._fail(error)

    def commit(self) -> None:
        if self._file is None:
            return
        try:
            os.fsync(self._file)  # else a crash could leave the name without the bytes
            self._cache.publish(self._part, self._path)
            os.close(self._file)
            self._file = None
        except OSError as error:
            self._fail(error)

    def abort(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._part)
            os.close(self._file)
            self._file = None

    def _fail(self, error: OSError) -> None:
        self._cache.failed(error)
        self.abort()

    def __del__(
        self, finalizing: Any = sys.is_finalizing, getpid: Any = os.getpid
    ) -> None:  # kept here: at the interpreter's end the modules are emptied
        if not finalizing() and self._pid == getpid():  # a forked child's copy is not its to abort
            self.abort()


class CachedObject(SourceReader):
    """A ByteSource over another: it is read from the cache, or else copied to it while it is read."""

    def __init__(self, cache: Cache, key: str, source: ByteSource) -> None:
        self._cache, self._key, self._source = cache, key, source
        self._writer: Writer | None = None
        self._new = True

    @property
    def position(self) -> int:
        return self._source.position

    def open(self) -> None:
        if self._new:
            self._new = False
            if found := self._cache.find(self._key):
                self._source = found
                return
            self._writer = self._cache.keep(self._key)
        self._source.open()

    def readinto(self, view: memoryview, patience: float | None = None) -> int:
        count = self._source.readinto(view, patience)
        if self._writer and count:
            self._writer.write(view[:count])
        elif self._writer and (self.checked if self.size is None else self.position == self.size):
            self._writer.commit()
        return count

    def disconnect(self) -> None:
        self._source.disconnect()

    def close(self) -> None:
        self._source.close()
        if self._writer:
            self._writer.abort()


def _key(url: str) -> str:
    return hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()


def _lock(file: int) -> bool:
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def _remove_if_dead(part: str) -> bool:
    """Removes a file that nobody writes any more; True if it is gone."""
    try:
        file = os.open(part, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        dead = _lock(file)
        if dead:
            os.unlink(part)
        return dead
    finally:
        os.close(file)
