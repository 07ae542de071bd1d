"""Python threads, for systems that may refuse to start one, and primitives to wait with that are safe in finalizers, signal handlers and
forked children."""

import errno
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from datago.errors import SourceOSError


def new_lock(make: Callable[[], Any] = threading.RLock) -> Any:
    """A lock. Raises MemoryError if there is no memory for one; Python itself raises a RuntimeError then."""
    try:
        return make()
    except RuntimeError:
        raise MemoryError("no memory for a lock") from None


class Bell:
    """Wakes one thread. `ring` never blocks: unlike `threading.Event.set` it may be called by a finalizer or a signal handler that
    interrupts a thread inside `wait`."""

    def __init__(self) -> None:
        self._lock = new_lock(threading.Lock)
        self._lock.acquire()

    def ring(self) -> None:
        try:
            self._lock.release()
        except RuntimeError:  # It was rung before, and nobody has waited since.
            pass

    def wait(self, timeout: float) -> bool:
        """Waits until the bell is rung, and resets it. Returns False if that does not happen within `timeout` seconds."""
        return bool(self._lock.acquire(timeout=timeout))


class Flag:
    """A flag that is set once and stays set. Like `Bell.ring`, `set` never blocks."""

    def __init__(self) -> None:
        self._set, self._bell = False, Bell()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._bell.ring()

    def wait(self, timeout: float = -1) -> bool:
        """Waits until the flag is set; returns False after `timeout` seconds. Each waiting thread wakes the next one. Since a
        KeyboardInterrupt may keep a thread from doing that, every thread also checks the flag once a second."""
        end = timeout if timeout < 0 else time.monotonic() + timeout  # Without a timeout nothing here allocates memory.
        while not self._set:
            left = 1 if timeout < 0 else min(1, end - time.monotonic())
            if left <= 0:
                break
            if self._bell.wait(left):
                self._bell.ring()  # wakes the next waiting thread
        return self._set

    def _at_fork_reinit(self) -> None:  # Thread calls it on its `_started`, which is a Flag in _Thread and an Event otherwise.
        pass


class OwnLock:
    """`with lock():` holds an RLock that belongs to this process alone. A forked child needs a new one, since a lock that a thread of
    the parent held during the fork would never be released in the child."""

    def __init__(self) -> None:
        self._locks: dict[int, Any] = {}

    def __call__(self) -> Any:
        pid = os.getpid()
        return self._locks.get(pid) or self._locks.setdefault(pid, new_lock())


class _Thread(threading.Thread):
    """A thread whose `start` does not hang when memory is short.

    A thread of Python's own class may then end before it reaches `run`, and its `start` waits for ever. This class notes whether `run`
    was reached, and allocates nothing before that. It also takes itself out of the weak set that `threading` keeps of all threads:
    the callback of that set would run wherever the last reference is dropped, and lose a KeyboardInterrupt that is raised there."""

    def __init__(self, run: Callable[..., object], name: str, arguments: tuple[Any, ...]) -> None:
        super().__init__(name=name, daemon=True)
        getattr(threading, "_dangling", set()).discard(self)
        self._call, self.begun, self.settled, self._started = partial(run, *arguments), False, Bell(), Flag()
        self.over = Flag()  # replaces `join`, whose locks the thread that a finalizer interrupts may hold

    def run(self) -> None:
        self.begun = True
        self.settled.ring()
        self._call()

    def _bootstrap(self) -> None:
        try:
            super()._bootstrap()  # type: ignore[misc]  # Python's stubs leave this method out.
        except BaseException:
            if self.begun:
                raise
        finally:
            self._started.set()
            self.settled.ring()
            self.over.set()


def start_thread(run: Callable[..., object], name: str, *arguments: Any) -> _Thread:
    """Starts a daemon thread that runs `run(*arguments)`.

    Raises:
        SourceOSError: the system refuses another thread (EAGAIN).
        MemoryError: there is no memory for one.
    """
    try:
        thread = _Thread(run, name, arguments)
        thread.start()
    except RuntimeError as error:  # Only the text says which of the two errors it is.
        if "lock" in str(error):
            raise MemoryError("no memory for a lock") from None
        raise SourceOSError(errno.EAGAIN, f"no thread could be started: {os.strerror(errno.EAGAIN)}") from None
    thread.settled.wait(-1)
    if not thread.begun:
        raise MemoryError("no memory for another thread")
    return thread


def start_threads(count: int, run: Callable[..., object], name: str, *arguments: Any) -> list[_Thread]:
    """Starts as many threads of start_thread as the system allows, at most `count`, and returns them as a list.

    Raises:
        SourceOSError: the system allows none.
    """
    threads = [start_thread(run, name, *arguments)]
    try:
        while len(threads) < count:
            threads.append(start_thread(run, name, *arguments))
    except SourceOSError:
        pass
    return threads
