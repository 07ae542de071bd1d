"""A folder with all that is below it, in the order of the paths' bytes; and its paths kept in one block."""

import errno
import os
import stat
import zlib
from array import array
from bisect import bisect
from collections.abc import Iterator, Sequence
from itertools import accumulate

from datago.engine._sample import Failure
from datago.errors import SourceValueError, printable, source_os_error
from datago.sources._folder import Folder
from datago.sources.names import IMAGES, LITTER

BATCH = 512  # paths that a walk gives at once


class Tree:
    """The images below `root` (a folder or one file, bytes).

    Images are regular files, or symlinks to such, whose name ends in a dot and one of IMAGES (see _folder), in any case. Names that begin
    with a dot and folders of LITTER are passed over, and symlinks to folders are not followed; all are counted in `skipped`.
    Whoever lists a folder does it by this class, so that all agree on what is in it.

    Attributes:
        unread: the Failures of folders that could not be listed, as far as `walk` has come.
        sidecars: what Folder.sidecars said of each folder that has any, by its path relative to `base`, with a slash at the end; also as
            far as `walk` has come, which lists a folder before it yields what is in it.

    Raises:
        SourceError: `root` is not there, or cannot be listed; `walk` and `folders` raise it too. The text has the system's reason.
    """

    def __init__(self, root: bytes, skipped: dict[str, int]) -> None:
        self.stopped = False
        self._root, self._skipped = root, skipped
        self.unread: list[Failure] = []
        self.sidecars: dict[bytes, tuple[bytes, ...]] = {}
        try:
            is_folder = stat.S_ISDIR(os.stat(root).st_mode)
        except OSError as error:
            raise source_os_error(error, "root_path", os.fsdecode(root)) from None
        if is_folder:
            self.base = root if root.endswith(b"/") else root + b"/"  # what stands before the paths of `walk`
            self._only: bytes | None = None
        else:
            name = os.path.basename(root)
            self.base, self._only = root[: len(root) - len(name)], name

    def folders(self) -> list[str]:
        """The names (str) of the folders right below the root that `walk` enters, sorted as torchvision's ImageFolder sorts classes."""
        return [] if self._only is not None else sorted(os.fsdecode(name[:-1]) for name in self._list(b"")[1])

    def nothing(self) -> SourceValueError:
        """The error to raise where `walk` found no image: it says what was met instead."""
        text = f"root_path: no images below {os.fsdecode(self._root)!r} (looked for {' '.join(sorted(IMAGES))})"
        if self.unread:
            first = self.unread[0]
            text += f"; {len(self.unread)} folders cannot be listed, the first: {printable(first.name)}: {first.text}"
        passed_over = ", ".join(f"{count} ({reason})" for reason, count in self._skipped.items())
        return SourceValueError(text + (f"; passed over: {passed_over}" if passed_over else ""))

    def walk(self) -> Iterator[list[bytes] | Failure]:
        """Yields lists of at most BATCH paths, relative to `base`, and a Failure for each folder that cannot be read."""
        self.unread = []
        if self._only is not None:
            self.sidecars[b""] = (b".txt", b".json")  # its folder is not listed: they may be there
            yield [self._only]
            return
        levels = [self._folder(b"")]
        while levels and not self.stopped:
            step = next(levels[-1], None)
            if step is None:
                levels.pop()
            elif isinstance(step, bytes):
                levels.append(self._folder(step))
            else:
                yield step

    def _folder(self, prefix: bytes) -> Iterator[list[bytes] | bytes | Failure]:
        """One folder, in order: lists of its images' paths, the paths of its subfolders, and the Failure to read it or its rest.

        Subfolders are sorted with the slash, so that the order within a folder is that of whole paths: "a.jpg" before "a/".
        """
        names, folders, failure = self._list(prefix)
        names.sort()
        begin = 0
        for folder in [*sorted(folders), None]:
            end = len(names) if folder is None else bisect(names, folder)
            for first in range(begin, end, BATCH):
                yield [prefix + name for name in names[first : min(first + BATCH, end)]]
            if folder is not None:
                yield prefix + folder
            begin = end
        if failure is not None:
            self.unread.append(failure)
            yield failure

    def _list(self, prefix: bytes) -> tuple[list[bytes], list[bytes], Failure | None]:
        """(images' names, subfolders' names with a slash, the Failure to read the folder or its rest)."""
        names: list[bytes] = []
        folders: list[bytes] = []
        path, failure, folder = self.base + prefix, None, None
        try:
            folder = Folder(path)
            while not self.stopped and (chunk := folder.read()) is not None:
                names += chunk[0]
                folders += [name + b"/" for name in chunk[1] if name not in LITTER]
                self._skip("litter", sum(name in LITTER for name in chunk[1]))
        except OSError as error:
            if not prefix:
                raise source_os_error(error, "root_path", os.fsdecode(self._root)) from None
            reason = "not_found" if error.errno in (errno.ENOENT, errno.ENOTDIR) else "io"
            failure = Failure(os.fsdecode(path[:-1]), reason, f"folder cannot be listed: {os.strerror(error.errno or 0)}")
        if folder is not None:
            if sidecars := folder.sidecars:
                self.sidecars[prefix] = sidecars
            self._skip("hidden", folder.hidden)
            self._skip("symlink to a folder", folder.links)
        return names, folders, failure

    def _skip(self, reason: str, count: int) -> None:
        if count:
            self._skipped[reason] = self._skipped.get(reason, 0) + count


class Listing:
    """All paths of a tree, in one block of bytes: a million of them cost 8 bytes each besides."""

    def __init__(self) -> None:
        self._block, self._ends = bytearray(), array("Q")

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, paths: Sequence[bytes]) -> None:
        lengths = [len(path) + 1 for path in paths]
        self._ends.extend(accumulate(lengths, initial=len(self._block) + lengths.pop(0)))
        self._block += joined(paths)

    def path(self, number: int) -> bytes:
        return bytes(self._block[self._ends[number - 1] if number else 0 : self._ends[number] - 1])

    def checksum(self, count: int) -> int:
        """What `checksum` makes of the first `count` paths."""
        with memoryview(self._block) as block:
            return zlib.crc32(block[: self._ends[count - 1] if count else 0])


def joined(paths: Sequence[bytes]) -> bytes:
    return b"\0".join(paths) + b"\0"


def checksum(paths: Sequence[bytes], before: int = 0) -> int:
    """CRC-32 of paths, each with a zero behind it; `before` is that of the paths before them."""
    return zlib.crc32(joined(paths), before)
