"""The file source: images below a folder, in an order that does not depend on the file system."""

import errno
import os
import stat
from array import array

from datago import plan
from datago._sample import Failure
from datago.errors import SourceValueError, source_os_error

SUFFIXES = frozenset(b"jpg jpeg jpe jfif png webp gif bmp tif tiff avif".split())
BATCH = 512  # paths handed over at once; the first batches are smaller, so that the first sample leaves early


class FileSource:
    """Walks `root_path` (a folder or one file) and yields the paths of images, as bytes.

    Images are regular files, or symlinks to such, whose name ends in a dot and one of SUFFIXES, in any case. Names that begin with a dot
    are passed over, and symlinks to folders are not followed; both are counted. The order is that of the paths' raw bytes
    over the whole tree, or a shuffled one with `random_sampling`; rank r of w takes entries r, r + w, r + 2w … of it.
    """

    work_ahead = 1024  # what two cores get through while the feeder waits for its turn with the GIL; a path is small

    def __init__(self, config):
        self._root = os.fsencode(config.root_path)
        self._random = config.random_sampling
        self._rank, self._world_size = config.rank, config.world_size
        self._stopped = False
        self.skipped = {}

    def open(self):
        try:
            self._is_file = not stat.S_ISDIR(os.stat(self._root).st_mode)
        except OSError as error:
            raise source_os_error(error, "root_path", os.fsdecode(self._root)) from None

    def stop(self):
        self._stopped = True

    def batches(self):
        batch, size, found, mine = [], 8, 0, 0
        for entry in self._shuffled() if self._random else self._walk():
            if isinstance(entry, bytes):
                found += 1
                if not self._random and (found - 1) % self._world_size != self._rank:
                    continue
                mine += 1
            batch.append(entry)
            if len(batch) >= size:
                yield batch
                batch, size = [], min(size * 4, BATCH)
            if self._stopped:
                return
        if batch:
            yield batch
        self._check_not_empty(found, mine)

    def _check_not_empty(self, found, mine):
        root = os.fsdecode(self._root)
        if found == 0:
            suffixes = " ".join(sorted(suffix.decode() for suffix in SUFFIXES))
            raise SourceValueError(f"root_path: no images below {root!r} (looked for {suffixes})")
        if mine == 0:
            raise SourceValueError(f"rank {self._rank} of world_size {self._world_size} has no image: {found} below {root!r}")

    def _shuffled(self):
        """All of the tree, shuffled. Paths are kept in one block of bytes: a million of them cost 8 bytes each besides."""
        block, ends = bytearray(), array("Q")
        for entry in self._walk():
            if self._stopped:
                return
            if isinstance(entry, Failure):
                yield entry
            else:
                block += entry
                ends.append(len(block))
        # Nobody gave a seed, so ranks cannot agree on one order: each shuffles its own part.
        own = plan.of_rank(range(len(ends)), self._rank, self._world_size)
        self._check_not_empty(len(ends), len(own))
        for index in plan.permutation(len(own), int.from_bytes(os.urandom(16))):
            number = own[index]
            yield bytes(block[ends[number - 1] if number else 0 : ends[number]])

    def _walk(self):
        if self._is_file:
            yield self._root
            return
        # One level of the walk is a folder with the sorted rest of its entries, popped from the end.
        levels = [self._list(self._root)]
        while levels and not self._stopped:
            prefix, entries = levels[-1]
            if not entries:
                levels.pop()
                continue
            entry = entries.pop()
            if isinstance(entry, Failure):
                yield entry
            elif entry.endswith(b"/"):
                levels.append(self._list(prefix + entry[:-1]))
            else:
                yield prefix + entry

    def _list(self, folder):
        """One folder: its path with a slash, and its entries, last first: images' names, subfolders' names with a slash, and
        the Failure to read it or the rest of it.

        The slash makes the order within a folder that of the whole paths: "a.jpg" comes before what is in "a/".
        """
        entries, failures = [], []
        try:
            with os.scandir(folder) as listing:
                for entry in listing:
                    name = entry.name
                    if name.startswith(b"."):
                        self._skip("hidden")
                    elif entry.is_dir(follow_symlinks=False):
                        entries.append(name + b"/")
                    elif name.rpartition(b".")[2].lower() in SUFFIXES and b"." in name:
                        entries.append(name)
                    elif entry.is_symlink() and entry.is_dir():
                        self._skip("symlink to a folder")
                    if self._stopped:
                        break
        except OSError as error:
            reason = "not_found" if error.errno in (errno.ENOENT, errno.ENOTDIR) else "io"
            failures = [Failure(os.fsdecode(folder), reason, f"folder cannot be listed: {os.strerror(error.errno)}")]
        entries.sort(reverse=True)
        return folder if folder.endswith(b"/") else folder + b"/", failures + entries

    def _skip(self, reason):
        self.skipped[reason] = self.skipped.get(reason, 0) + 1
