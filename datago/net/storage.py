"""Objects that are not read over our own HTTP: local files, and what fsspec reaches (s3, gs, hf, az and more)."""

import os
import stat
from collections.abc import Callable
from typing import Any, TypeVar

from datago.errors import SourceValueError
from datago.net.cancel import CHANGED, StopCheck, Stopped, TransferError, run_in_thread

Result = TypeVar("Result")

READ_AHEAD = 4 << 20  # bytes that fsspec asks for at once
PATIENCE = 4  # time-outs that one such call, of which nothing is seen on its way, may take
# Exceptions of fsspec's file systems that come again the next time, whatever the network does
FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, ValueError, TypeError, NotImplementedError)


class FileObject:
    """A ByteSource: a local file. An OSError passes through."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: Any = None
        self.position, self.checked = 0, True
        self.size: int | None = None

    def open(self) -> None:
        self.disconnect()
        self._file = open(self._path, "rb", buffering=0)
        state = os.fstat(self._file.fileno())
        # A pipe has no size, and cannot be sought.
        if stat.S_ISREG(state.st_mode):
            self.size = state.st_size
            self._file.seek(self.position)

    def readinto(self, view: memoryview, patience: float | None = None) -> int:
        count: int = self._file.readinto(view)
        self.position += count
        return count

    def skip(self, size: int) -> int:
        """Skips `size` bytes, but none past the end, since a cut shard must be seen as such. Returns how many."""
        if self.size is None:
            return 0
        size = min(size, self.size - self.position)
        self._file.seek(size, os.SEEK_CUR)
        self.position += size
        return size

    def disconnect(self) -> None:
        if self._file:
            self._file.close()
        self._file = None

    close = disconnect


class FsspecObject:
    """A ByteSource: one object of an fsspec file system.

    Every call runs in a thread of its own, since none of them can be interrupted or has a time-out that holds everywhere.
    """

    def __init__(self, url: str, stop: StopCheck, timeout: float) -> None:
        self._url, self._stop, self._timeout = url, stop, timeout * PATIENCE
        self._file: Any = None
        self._state: list[Any] | None = None
        self.position, self.checked = 0, True
        self.size: int | None = None

    def open(self) -> None:
        self._file, state = self._run_in_thread(self._open)
        if self._state and state != self._state:
            raise TransferError(CHANGED, retry=False)
        size = getattr(self._file, "size", None)  # not every file system's files have one
        self._state, self.size = state, size if isinstance(size, int) and size >= 0 else None

    def _open(self) -> tuple[Any, list[Any]]:
        file_system, path = find_file_system(self._url)
        if self._state:
            file_system.invalidate_cache()
        info = file_system.info(path)
        file = file_system.open(path, "rb", block_size=READ_AHEAD)
        file.seek(self.position)
        return file, [info.get(key) for key in ("size", "ETag", "etag", "LastModified", "mtime", "updated")]

    def readinto(self, view: memoryview, patience: float | None = None) -> int:  # a call of fsspec shows nothing before it is over
        file = self._file
        data = self._run_in_thread(lambda: bytes(file.read(len(view))))
        if len(data) > len(view):
            raise TransferError("storage returned more bytes than requested")
        view[: len(data)] = data
        self.position += len(data)
        return len(data)

    def disconnect(self) -> None:
        # Nothing is closed: it is a reader's buffer, and the thread of a call given up may still use it.
        self._file = None

    close = disconnect

    def _run_in_thread(self, call: Callable[[], Result]) -> Result:
        return _ask(call, self._stop, self._timeout)


def find_objects(pattern: str, stop: StopCheck, timeout: float) -> list[str]:
    """The urls of what matches a pattern with asterisks, sorted.

    Raises:
        TransferError: the storage cannot be asked.
    """

    def find() -> list[str]:
        file_system, path = find_file_system(pattern)
        found = file_system.glob(path, detail=True)
        names = sorted(name for name, info in found.items() if info.get("type") != "directory")
        return [file_system.unstrip_protocol(name) for name in names]

    return _ask(find, stop, timeout)


def _ask(call: Callable[[], Result], stop: StopCheck, timeout: float) -> Result:
    """`call()`, in a thread of its own; its exceptions become TransferErrors."""
    try:
        return run_in_thread(call, stop, timeout, "storage request")
    except (TransferError, Stopped, SourceValueError):
        raise
    except Exception as error:
        name = type(error).__name__
        if name == "FileExpired":
            raise TransferError(CHANGED, retry=False) from None
        raise TransferError(f"{name}: {error}", retry=not isinstance(error, FINAL) and "Credential" not in name) from None


def find_file_system(url: str) -> tuple[Any, str]:
    """The fsspec file system of `url`, and the path in it.

    Raises:
        SourceValueError: fsspec, or what it needs for this scheme, is not installed; or it does not know the scheme.
    """
    scheme = url.partition(":")[0]
    try:
        from fsspec.core import url_to_fs

        file_system, path = url_to_fs(url)
        return file_system, path
    except ImportError as error:
        raise SourceValueError(f"{scheme}:// urls need more packages (pip install 'datago[remote]'): {error}") from None
    except ValueError as error:
        raise SourceValueError(f"{scheme}:// urls: {error}") from None
