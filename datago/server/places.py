"""Opens files of the served folder without following symlinks.

A place is a path without symlinks. It is relative to the folder, or absolute if --follow-links lets a symlink lead out of the folder.
The place is resolved when the folder is indexed. It is opened one path component at a time, so that a symlink, FIFO or device that
replaced a component after indexing is refused.
"""

import errno
import os
import stat

FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # opening a FIFO would block without O_NONBLOCK


def place_of(root: str, path: str) -> str:
    """The place of `path`, which is relative to the folder `root` and may be a symlink."""
    base, real = os.path.realpath(root), os.path.realpath(os.path.join(root, path))
    inside = os.path.join(base, "")
    return real[len(inside) :] if real.startswith(inside) else real


def open_place(root: str, place: str) -> tuple[int, os.stat_result]:
    """A descriptor of the file at `place`, and its stat result.

    Raises:
        OSError: the file does not exist or is not a regular file, or a component of its path is a symlink.
    """
    top, pieces = "/" if os.path.isabs(place) else root, place.lstrip("/").split("/")
    if any(piece in ("", ".", "..") or "\0" in piece for piece in pieces):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    folder = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for piece in pieces[:-1]:
            below = os.open(piece, FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
        if not stat.S_ISREG(os.stat(pieces[-1], dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.EINVAL, "not a file")
        file = os.open(pieces[-1], FILE, dir_fd=folder)
    finally:
        os.close(folder)
    state = os.fstat(file)
    if not stat.S_ISREG(state.st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "not a file")
    return file, state
