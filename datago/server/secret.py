"""The secret that signs urls if the index is in memory. It is kept in a file, so that urls stay valid when the server restarts."""

import fcntl
import hmac
import os
import secrets
import stat
import tempfile
from collections.abc import Callable

BYTES = 32


def kept_secret(root: str) -> bytes:
    """A secret for the folder `root`. It is derived from a secret in the temporary folder, which only its owner can read.

    Raises:
        OSError: the file in the temporary folder cannot be written, or other users may access it.
    """
    folder = os.path.join(tempfile.gettempdir(), f"datago-{os.geteuid()}")
    os.makedirs(folder, 0o700, exist_ok=True)
    _must_be_private(folder, os.lstat(folder), stat.S_ISDIR)
    path = os.path.join(folder, "serve.secret")
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600), "r+b") as file:
        _must_be_private(path, os.fstat(file.fileno()), stat.S_ISREG)
        fcntl.flock(file, fcntl.LOCK_EX)  # another server may be writing it
        found = file.read(BYTES)
        if len(found) < BYTES:
            found = secrets.token_bytes(BYTES)
            file.seek(0)
            file.write(found)
    return hmac.digest(found, os.fsencode(root), "sha256")


def _must_be_private(path: str, state: os.stat_result, is_kind: Callable[[int], bool]) -> None:
    if not is_kind(state.st_mode) or state.st_uid != os.geteuid() or state.st_mode & 0o077:
        raise PermissionError(f"{path} belongs to another user, or other users may access it")
