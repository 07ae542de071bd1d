"""Waiting that can be broken off, and what ends a wait."""

import queue
import time

from datago.errors import SourceOSError
from datago.threads import start_thread

POLL_INTERVAL_S = 0.1  # seconds between two looks at `stop`
CHANGED = "object changed during the download (ETag, date or size)"


class Stopped(Exception):
    """`stop` was seen: the stream ends where it is, and nobody is to blame."""


class ReadIdle(Exception):
    """Nothing came within the caller's patience: no fault, and nothing is lost by asking again."""


class TransferError(Exception):
    """What went wrong in one attempt.

    Attributes:
        retry: whether another attempt may go better.
        status: the HTTP status that was the reason, or None.
    """

    def __init__(self, text, retry=True, status=None):
        super().__init__(text)
        self.retry, self.status = retry, status


def watcher(stop):
    """`stop` as a callable: an Event, a callable, or None for never."""
    return stop.is_set if hasattr(stop, "is_set") else stop or (lambda: False)


def check(stop):
    """Raises Stopped if `stop()` says so."""
    if stop():
        raise Stopped


def pause(seconds, stop):
    """Sleeps, unless told to stop."""
    end = time.monotonic() + seconds
    while True:
        check(stop)
        left = end - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(left, POLL_INTERVAL_S))


def run_in_thread(call, stop, timeout, what):
    """`call()`, in a thread of its own that is left to itself if `stop` or the time-out comes first.

    For what cannot be broken off: name lookups, and libraries that do their own networking.

    Raises:
        Stopped: told to stop.
        TransferError: no result within `timeout` seconds. What `call` raises is raised here too.
    """
    results = queue.SimpleQueue()

    def run():
        try:
            results.put((call(), None))
        except Exception as error:
            results.put((None, error))
        except BaseException as error:  # a library's own way to end a task is nothing to end ours by
            results.put((None, TransferError(f"{type(error).__name__}: {error}")))

    try:
        start_thread(run, "datago apart")
    except SourceOSError as error:
        raise TransferError(error.strerror) from None
    end = time.monotonic() + timeout
    while True:
        check(stop)
        try:
            value, raised = results.get(timeout=POLL_INTERVAL_S)
        except queue.Empty:
            if time.monotonic() >= end:
                raise TransferError(f"{what} timed out after {timeout:g} s") from None
            continue
        if raised:
            raise raised
        return value
