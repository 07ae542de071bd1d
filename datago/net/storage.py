"""Objects that are not read over our own HTTP: local files, and what fsspec reaches (s3, gs, hf, az and more)."""

import os
import re
import stat

from datago.errors import SourceValueError
from datago.net.cancel import CHANGED, Stopped, TransferError, run_in_thread

READ_AHEAD = 4 << 20  # bytes that fsspec asks for at once
PATIENCE = 4  # time-outs that one such call, of which nothing is seen on its way, may take
# Exceptions of fsspec's file systems that come again the next time, whatever the network does
FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, ValueError, TypeError, NotImplementedError)


class FileObject:
    """Bytes of a local file; see HttpObject for the attributes. An OSError passes through."""

    def __init__(self, path):
        self._path, self._file = path, None
        self.position, self.size, self.checked = 0, None, True

    def open(self):
        self.disconnect()
        self._file = open(self._path, "rb", buffering=0)
        state = os.fstat(self._file.fileno())
        # A pipe has no size, and cannot be sought.
        if stat.S_ISREG(state.st_mode):
            self.size = state.st_size
            self._file.seek(self.position)

    def readinto(self, view, patience=None):
        count = self._file.readinto(view)
        self.position += count
        return count

    def skip(self, size):
        """Passes over `size` bytes, or to the end, never past it: a cut shard must be seen as such. Returns how many."""
        if self.size is None:
            return 0
        size = min(size, self.size - self.position)
        self._file.seek(size, os.SEEK_CUR)
        self.position += size
        return size

    def disconnect(self):
        if self._file:
            self._file.close()
        self._file = None

    close = disconnect


class FsspecObject:
    """Bytes of one object of an fsspec file system; see HttpObject for the attributes.

    Every call runs in a thread of its own, since none of them can be broken off or has a time-out that holds everywhere.
    """

    def __init__(self, url, stop, timeout):
        self._url, self._stop, self._timeout = url, stop, timeout * PATIENCE
        self._file = self._state = None
        self.position, self.size, self.checked = 0, None, True

    def open(self):
        self._file, state = self._run_in_thread(self._open)
        if self._state and state != self._state:
            raise TransferError(CHANGED, retry=False)
        size = getattr(self._file, "size", None)  # not every file system's files have one
        self._state, self.size = state, size if isinstance(size, int) and size >= 0 else None

    def _open(self):
        file_system, path = find_file_system(self._url)
        if self._state:
            file_system.invalidate_cache()
        info = file_system.info(path)
        file = file_system.open(path, "rb", block_size=READ_AHEAD)
        file.seek(self.position)
        return file, [info.get(key) for key in ("size", "ETag", "etag", "LastModified", "mtime", "updated")]

    def readinto(self, view, patience=None):  # a call of fsspec shows nothing before it is over
        file = self._file
        data = self._run_in_thread(lambda: bytes(file.read(len(view))))
        if len(data) > len(view):
            raise TransferError("storage returned more bytes than requested")
        view[: len(data)] = data
        self.position += len(data)
        return len(data)

    def disconnect(self):
        # Nothing is closed: it is a reader's buffer, and the thread of a call given up may still use it.
        self._file = None

    close = disconnect

    def _run_in_thread(self, call):
        return _ask(call, self._stop, self._timeout)


def find_objects(pattern, stop, timeout):
    """The urls of what matches a pattern with asterisks, sorted.

    Raises:
        TransferError: the storage cannot be asked.
    """

    def find():
        file_system, path = find_file_system(pattern)
        found = file_system.glob(path, detail=True)
        names = sorted(name for name, info in found.items() if info.get("type") != "directory")
        return [file_system.unstrip_protocol(name) for name in names]

    return _ask(find, stop, timeout)


def _ask(call, stop, timeout):
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


def find_file_system(url):
    """The fsspec file system of `url`, and the path in it.

    Raises:
        SourceValueError: fsspec, or what it needs for this scheme, is not installed; or it does not know the scheme.
    """
    scheme = re.match(r"[^:]*", url)[0]
    try:
        from fsspec.core import url_to_fs

        return url_to_fs(url)
    except ImportError as error:
        raise SourceValueError(f"{scheme}:// urls need more packages (pip install 'datago[remote]'): {error}") from None
    except ValueError as error:
        raise SourceValueError(f"{scheme}:// urls: {error}") from None
