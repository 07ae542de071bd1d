"""Files of the served folder, opened so that no link can take their place.

A place is a path without links: below the folder, or an absolute one (where --follow-links lets a link lead out). It is found when the
folder is indexed, and opened piece by piece, so that a link, a FIFO or a device that has come there since is refused, not followed.
"""

import errno
import os
import stat

FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # not to hang at a FIFO


def place_of(root, path):
    """The place of `path`, which is below the folder `root` and may be a link: relative where it is in the folder."""
    base, real = os.path.realpath(root), os.path.realpath(os.path.join(root, path))
    inside = os.path.join(base, "")
    return real[len(inside) :] if real.startswith(inside) else real


def open_place(root, place):
    """A descriptor of the file at `place`, and its state.

    Raises:
        OSError: it is not there, or no regular file, or a link is on the way to it.
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
