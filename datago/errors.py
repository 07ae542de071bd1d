"""Exception classes, and the one table from native status codes to them.

Every class derives from DatagoError, and from the built-in class that says the same, so that `except OSError` works too.
"""

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datago.engine._sample import Failure


class DatagoError(Exception):
    """Base of all that datago raises on its own account (config errors apart, which are plain ValueErrors)."""


class SourceError(DatagoError):
    """The source can give no more: a missing root, no images at all, a listing that cannot be read."""


class SourceOSError(SourceError, OSError):
    """A SourceError that the operating system or the network reported; `errno` is set where there is one."""


class SourceNotFoundError(SourceOSError, FileNotFoundError):
    """A SourceError about a path that is not there."""


class RemoteError(SourceOSError):
    """A SourceError about one object on a network: it cannot be had, or not whole. Its text holds no secrets.

    Attributes:
        url: without query, user name and password.
        attempts: made in a row, without a new byte, before it was given up; 0 where its host was known to be out.
        status: the HTTP status that was the reason, or None.
    """

    def __init__(self, text: str, url: str = "", attempts: int = 1, status: int | None = None) -> None:
        super().__init__(text)
        self.url, self.attempts, self.status = url, attempts, status


class SourceValueError(SourceError, ValueError):
    """A SourceError about what was asked for or found."""


class SampleError(DatagoError):
    """One sample could not be made; raised where `on_error` is "raise".

    Attributes:
        name: path, url or member.
        reason: the key under which stats()["failures"] counts it.
        text: what is wrong; may be empty.
    """

    def __init__(self, name: str, reason: str, text: str) -> None:
        super().__init__(f"{shown_name(name)}: {reason}" + (f": {text}" if text else ""))
        self.name, self.reason, self.text = name, reason, text

    def __reduce__(self) -> tuple[type["SampleError"], tuple[str, str, str]]:
        return type(self), (self.name, self.reason, self.text)


class SampleOSError(SampleError, OSError):
    """A SampleError that the operating system or the network reported."""


class SampleValueError(SampleError, ValueError):
    """A SampleError about the bytes themselves."""


class SampleMemoryError(SampleError, MemoryError):
    """A SampleError for want of memory."""


# reason (src_c/status.c has the names) -> class; what is not here is about the bytes
SAMPLE_ERRORS = {
    "io": SampleOSError,
    "not_found": SampleOSError,
    "not_a_file": SampleOSError,
    "remote": SampleOSError,
    "no_memory": SampleMemoryError,
}


def source_os_error(error: OSError, what: str, path: str) -> SourceOSError:
    """The SourceError for an OSError met at `path`."""
    kind = SourceNotFoundError if isinstance(error, FileNotFoundError) else SourceOSError
    return kind(error.errno, f"{what}: {error if error.errno is None else os.strerror(error.errno)}", path)


def sample_error(failure: "Failure") -> SampleError:
    """The exception for a Failure."""
    return SAMPLE_ERRORS.get(failure.reason, SampleValueError)(failure.name, failure.reason, failure.text)


def raise_kept(owner: object, name: str) -> None:
    """Raises the exception that `owner` keeps as its attribute `name`, if there is one, and takes it from there. Its traceback holds the
    frames through which it is raised and all that is in them, a client perhaps: kept on, they would wait for a garbage collection."""
    error = getattr(owner, name)
    setattr(owner, name, None)
    try:
        if error is not None:
            raise error
    finally:
        del error


def printable(name: str) -> str:
    """`name` as text that any stream can print: undecodable bytes and control characters are escaped."""
    text = name if name.isprintable() else name.encode("unicode_escape", "surrogateescape").decode("ascii", "replace")
    return text.encode("utf-8", "backslashreplace").decode()


def without_credentials(text: str) -> str:
    """`text` without the user names, passwords and queries of the urls in it."""
    text = re.sub(r"(//)[^/\s\"'@]*@", r"\1", text)
    return re.sub(r"(/[^\s?\"']*\?)[^\s\"']+", r"\1…", text)


def shown_name(name: str) -> str:
    """The name of a sample as errors and logs show it. A database may use urls as ids, and these may carry credentials or a signature; the
    name of a file has none, and a question mark in it is only a character."""
    return printable(without_credentials(name) if "://" in name else name)
