"""Sizes of the pictures of a listing, kept in one file from run to run.

    folder/<key>.sizes               MAGIC, 32 bytes of SHA-256 over the key and what follows, then n pairs of int32, little-endian:
                                     width and height in pixels, in the order of the listing; 0, 0 where none was found
    folder/<key>.<random>.sizes.part one being written; it gets its name when it is whole
    folder/<key>.sizes.lock          is there while one process reads the pictures: others wait, and take what it has found

Nothing else in the folder is touched. The key is a checksum of the listing: another listing has another file. A file is written once, or
replaced whole, so that all processes may share a folder. What is not such a file, or not whole, counts as not there. What goes wrong with
the disk is logged, and sizes are read from the pictures.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from datago.engine._sizes import read_sizes

if TYPE_CHECKING:
    from numpy import int32
    from numpy.typing import NDArray

    from datago.engine._sample import Failure

    Found = tuple[NDArray[int32], list[tuple[int, Failure]]]

MAGIC = b"datago sizes 1\n\0"
DEAD_S = 3600  # a file that was begun that long ago, and is not whole, has no writer any more
POLL_S = 0.1  # between two looks whether another process has read the sizes

log = logging.getLogger(__name__)


class Flag(Protocol):
    """What tells that somebody does not want the answer any more."""

    def is_set(self) -> bool: ...


def sizes_of(
    paths: Sequence[bytes], threads: int, folder: "str | os.PathLike[str] | None" = None, *, max_file_bytes: int = 2**30,
    orient: bool = True, progress: Callable[[int], Any] | None = None, stop: Flag | None = None,
) -> "Found | None":  # fmt: skip
    """What `read_sizes` gives, with its arguments; what is kept in `folder` is not read again.

    A picture whose size was not found is asked again each time, so that failures are those of today. Sizes that were read are kept.
    """
    if folder is None:
        return read_sizes(paths, threads, max_file_bytes, orient, progress, stop)
    import numpy

    key = listing_key(paths, orient)
    sizes = load(folder, key, len(paths))
    if sizes is None:
        with _alone(folder, key, stop):
            sizes = load(folder, key, len(paths))
            if sizes is None:
                found = read_sizes(paths, threads, max_file_bytes, orient, progress, stop)
                if found is not None:
                    save(folder, key, found[0])
                return found
    unknown = numpy.flatnonzero(sizes[:, 0] == 0)
    found = read_sizes([paths[number] for number in unknown.tolist()], threads, max_file_bytes, orient, progress, stop)
    if found is None:
        return None
    sizes[unknown] = found[0]
    if found[0].any():
        save(folder, key, sizes)
    return sizes, [(int(unknown[number]), failure) for number, failure in found[1]]


def listing_key(paths: Sequence[bytes], orient: bool = True) -> str:
    """A checksum, in hexadecimal, of paths (bytes), and of each file's length and time of change: some 2 us a file on a local disk."""
    checksum = hashlib.sha256(b"oriented" if orient else b"stored")
    for path in paths:
        try:
            state = os.stat(path)
            facts = b"%d %d" % (state.st_size, state.st_mtime_ns)
        except OSError:
            facts = b""
        checksum.update(b"%s\0%s\0" % (path, facts))
    return checksum.hexdigest()


def load(folder: "str | os.PathLike[str]", key: str, count: int) -> "NDArray[int32] | None":
    """The sizes of `count` pictures, int32 of shape (count, 2), or None where there are none for that key."""
    import numpy

    try:
        with open(_path(folder, key), "rb") as file:
            head = file.read(len(MAGIC) + 32)
            if not head.startswith(MAGIC) or os.fstat(file.fileno()).st_size != len(MAGIC) + 32 + 8 * count:
                raise ValueError("its head or length is wrong")
            data = file.read()
        if head[len(MAGIC) :] != _digest(key, data):
            raise ValueError("its checksum is wrong")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.warning("sizes of pictures in %s are not used: %s; they are read again", _path(folder, key), error)
        return None
    return numpy.frombuffer(data, "<i4").astype(numpy.int32).reshape(count, 2)


def save(folder: "str | os.PathLike[str]", key: str, sizes: "NDArray[int32]") -> None:
    """Keeps sizes, int32 of shape (n, 2). Whoever writes the same at the same time does no harm."""
    data = sizes.astype("<i4").tobytes()
    part = _path(folder, f"{key}.{secrets.token_hex(8)}") + ".part"
    try:
        os.makedirs(folder, exist_ok=True)
        try:
            with open(part, "xb") as file:
                file.write(MAGIC + _digest(key, data) + data)
                file.flush()
                os.fsync(file.fileno())  # else a crash could leave the name without the bytes
            os.replace(part, _path(folder, key))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise
        _remove_dead(folder)
    except OSError as error:
        log.warning("sizes of pictures cannot be kept in %s: %s", folder, error.strerror or error)


def _remove_dead(folder: "str | os.PathLike[str]") -> None:
    for entry in os.scandir(folder):
        if re.fullmatch(r"[0-9a-f]{64}\.[0-9a-f]{16}\.sizes\.part", entry.name):
            with contextlib.suppress(OSError):  # another process may be as quick
                if entry.stat(follow_symlinks=False).st_mtime < time.time() - DEAD_S:
                    os.unlink(entry.path)


def _path(folder: "str | os.PathLike[str]", name: str) -> str:
    return os.path.join(folder, f"{name}.sizes")


@contextlib.contextmanager
def _alone(folder: "str | os.PathLike[str]", key: str, stop: Flag | None) -> Iterator[None]:
    """Waits until no other process has the lock, or `stop`. The system lets go of it when its owner ends. Where there are no locks
    on files nobody waits."""
    path = _path(folder, key) + ".lock"
    try:
        os.makedirs(folder, exist_ok=True)
        file = open(path, "ab")
    except OSError:  # `save` says so
        yield
        return
    with file:
        while not (stop is not None and stop.is_set()):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(POLL_S)
            except OSError:
                break
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)  # a forked child has the file open too


def _digest(key: str, data: bytes) -> bytes:
    return hashlib.sha256(key.encode() + data).digest()
