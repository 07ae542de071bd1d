"""Python threads where the system may refuse another one, and what they wait for: no finalizer, signal handler or fork upsets it."""

import errno
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from datago.errors import SourceOSError


def new_lock(make: Callable[[], Any] = threading.RLock) -> Any:
    """A lock. Raises MemoryError, which Python calls a RuntimeError here."""
    try:
        return make()
    except RuntimeError:
        raise MemoryError("no memory for a lock") from None


class Bell:
    """Wakes one thread. `ring` waits for nothing: unlike an Event's `set`, a finalizer or a signal handler may call it, though its
    own thread may be just inside `wait`."""

    def __init__(self) -> None:
        self._lock = new_lock(threading.Lock)
        self._lock.acquire()

    def ring(self) -> None:
        try:
            self._lock.release()
        except RuntimeError:  # it rings already
            pass

    def wait(self, timeout: float) -> bool:
        """Waits until it rings, and is quiet again; False after `timeout` seconds."""
        return bool(self._lock.acquire(timeout=timeout))


class Flag:
    """What is set once and for all. As `Bell.ring`, `set` waits for nothing."""

    def __init__(self) -> None:
        self._set, self._bell = False, Bell()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        self._bell.ring()

    def wait(self, timeout: float = -1) -> bool:
        """Waits until it is set; False after `timeout` seconds. It looks again once a second: whoever was to wake the next one may have
        been interrupted (KeyboardInterrupt) before."""
        end = timeout if timeout < 0 else time.monotonic() + timeout  # without a time-out nothing takes memory here
        while not self._set:
            left = 1 if timeout < 0 else min(1, end - time.monotonic())
            if left <= 0:
                break
            if self._bell.wait(left):
                self._bell.ring()  # for the next who waits
        return self._set

    def _at_fork_reinit(self) -> None:  # as an Event has it, for _Thread
        pass


class OwnLock:
    """`with lock():` holds an RLock that is this process's own: in a forked child one that its parent's threads held would be held
    for ever."""

    def __init__(self) -> None:
        self._locks: dict[int, Any] = {}

    def __call__(self) -> Any:
        pid = os.getpid()
        return self._locks.get(pid) or self._locks.setdefault(pid, new_lock())


class _Thread(threading.Thread):
    """Where memory is short Python's own may die before it comes to `run`, and its `start` waits for ever then. This one says whether it
    came there, and from there on calls nothing that takes memory before `run` has begun. And it is not in the weak set of `threading`,
    whose callback would run where the last reference to it is dropped: the KeyboardInterrupt of a signal handler would be lost there."""

    def __init__(self, run: Callable[..., object], name: str, arguments: tuple[Any, ...]) -> None:
        super().__init__(name=name, daemon=True)
        getattr(threading, "_dangling", set()).discard(self)
        self._call, self.begun, self.settled, self._started = partial(run, *arguments), False, Bell(), Flag()
        self.over = Flag()  # `join` takes locks, and a finalizer may be at one

    def run(self) -> None:
        self.begun = True
        self.settled.ring()
        self._call()

    def _bootstrap(self) -> None:
        try:
            super()._bootstrap()  # type: ignore[misc]  # Python's own, which its stubs leave out
        except BaseException:
            if self.begun:
                raise
        finally:
            self._started.set()
            self.settled.ring()
            self.over.set()


def start_thread(run: Callable[..., object], name: str, *arguments: Any) -> _Thread:
    """A daemon thread that runs `run(*arguments)`.

    Raises:
        SourceOSError: the system refuses another thread (EAGAIN).
        MemoryError: there is no memory for one.
    """
    try:
        thread = _Thread(run, name, arguments)
        thread.start()
    except RuntimeError as error:  # all that Python says of it
        if "lock" in str(error):
            raise MemoryError("no memory for a lock") from None
        raise SourceOSError(errno.EAGAIN, f"no thread could be started: {os.strerror(errno.EAGAIN)}") from None
    thread.settled.wait(-1)
    if not thread.begun:
        raise MemoryError("no memory for another thread")
    return thread


def start_threads(count: int, run: Callable[..., object], name: str, *arguments: Any) -> list[_Thread]:
    """As many such threads as the system allows, `count` at most; a list.

    Raises:
        SourceOSError: it allows none.
    """
    threads = [start_thread(run, name, *arguments)]
    try:
        while len(threads) < count:
            threads.append(start_thread(run, name, *arguments))
    except SourceOSError:
        pass
    return threads
