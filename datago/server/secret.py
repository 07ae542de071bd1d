"""The secret that urls are signed with, for an index that is in memory: else each restart would end the urls that clients have."""

import fcntl
import hmac
import os
import secrets
import stat
import tempfile

BYTES = 32


def kept_secret(root):
    """A secret for the folder `root`, made of one that lies in the folder for temporary files, for its owner alone to read.

    Raises:
        OSError: that cannot be written, or is not this user's alone.
    """
    folder = os.path.join(tempfile.gettempdir(), f"datago-{os.geteuid()}")
    os.makedirs(folder, 0o700, exist_ok=True)
    _must_be_private(folder, os.lstat(folder), stat.S_ISDIR)
    path = os.path.join(folder, "serve.secret")
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600), "r+b") as file:
        _must_be_private(path, os.fstat(file.fileno()), stat.S_ISREG)
        fcntl.flock(file, fcntl.LOCK_EX)  # another server may be about to write it
        found = file.read(BYTES)
        if len(found) < BYTES:
            found = secrets.token_bytes(BYTES)
            file.seek(0)
            file.write(found)
    return hmac.digest(found, os.fsencode(root), "sha256")


def _must_be_private(path, state, is_kind):
    if not is_kind(state.st_mode) or state.st_uid != os.geteuid() or state.st_mode & 0o077:
        raise PermissionError(f"{path} is not this user's alone")
