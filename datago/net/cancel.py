"""Waiting that can be broken off, and what ends a wait."""

import queue
import time
from collections.abc import Callable
from typing import Any, TypeVar

from datago.errors import SourceOSError
from datago.threads import start_thread

StopCheck = Callable[[], bool]
Result = TypeVar("Result")

POLL_INTERVAL_S = 0.1  # seconds between two looks at `stop`
CHANGED = "object changed during the download (ETag, date or size)"


class Stopped(Exception):
    """`stop` was seen: the stream ends where it is. This is no failure."""


class ReadIdle(Exception):
    """No data within the time that the caller set: this is no failure, and no byte is lost by reading again."""


class TransferError(Exception):
    """What went wrong in one attempt.

    Attributes:
        retry: whether another attempt may go better.
        status: the HTTP status that was the reason, or None.
        place: host and port of the server that could not be reached, where that was the reason; else empty.
    """

    def __init__(self, text: str, retry: bool = True, status: int | None = None, place: str = "") -> None:
        super().__init__(text)
        self.retry, self.status, self.place = retry, status, place


class HostOut(TransferError):
    """No attempt was made: other requests have found that the host cannot be reached. See _hosts.pyx."""

    def __init__(self, text: str) -> None:
        super().__init__(text, retry=False)


class TimedOut(TransferError):
    """A call in a thread of its own gave no result in time."""


def watcher(stop: Any) -> StopCheck:
    """`stop` as a callable: an Event, a callable, or None for never."""
    watched: StopCheck = stop.is_set if hasattr(stop, "is_set") else stop or (lambda: False)
    return watched


def check(stop: StopCheck) -> None:
    """Raises Stopped if `stop()` says so."""
    if stop():
        raise Stopped


def pause(seconds: float, stop: StopCheck) -> None:
    """Sleeps, unless told to stop."""
    end = time.monotonic() + seconds
    while True:
        check(stop)
        left = end - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(left, POLL_INTERVAL_S))


def run_in_thread(call: Callable[[], Result], stop: StopCheck, timeout: float, what: str) -> Result:
    """`call()`, in a thread of its own that is left to itself if `stop` or the time-out comes first.

    This is for calls that cannot be interrupted: name lookups, and libraries that do their own networking.

    Raises:
        Stopped: told to stop.
        TimedOut: no result within `timeout` seconds. What `call` raises is raised here too.
        TransferError: there is no thread to be had.
    """
    results: Any = queue.SimpleQueue()

    def run() -> None:
        try:
            results.put((call(), None))
        except Exception as error:
            results.put((None, error))
        except BaseException as error:  # what ends a library's task (CancelledError, SystemExit) must not end the reader's thread
            results.put((None, TransferError(f"{type(error).__name__}: {error}")))

    try:
        start_thread(run, "datago apart")
    except SourceOSError as error:
        raise TransferError(str(error.strerror)) from None
    end = time.monotonic() + timeout
    while True:
        check(stop)
        try:
            value, raised = results.get(timeout=POLL_INTERVAL_S)
        except queue.Empty:
            if time.monotonic() >= end:
                raise TimedOut(f"{what} timed out after {timeout:g} s") from None
            continue
        if raised:
            raise raised
        found: Result = value
        return found
