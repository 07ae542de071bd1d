"""Python threads where the system may refuse another one, and what they wait for: no finalizer, signal handler or fork upsets it."""

import errno
import os
import threading

from datago.errors import SourceOSError


class Bell:
    """Wakes one thread. `ring` waits for nothing: unlike an Event's `set`, a finalizer or a signal handler may call it, though its
    own thread may be just inside `wait`."""

    def __init__(self):
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self):
        try:
            self._lock.release()
        except RuntimeError:  # it rings already
            pass

    def wait(self, timeout):
        """Waits until it rings, and is quiet again; False after `timeout` seconds."""
        return self._lock.acquire(timeout=timeout)


class Flag:
    """What is set once and for all. As `Bell.ring`, `set` waits for nothing."""

    def __init__(self):
        self._set, self._bell = False, Bell()

    def is_set(self):
        return self._set

    def set(self):
        self._set = True
        self._bell.ring()

    def wait(self, timeout):
        """Waits until it is set; False after `timeout` seconds."""
        if not self._set and self._bell.wait(timeout):
            self._bell.ring()  # for the next who waits
        return self._set


class OwnLock:
    """`with lock():` holds an RLock that is this process's own: in a forked child one that its parent's threads held would be held
    for ever."""

    def __init__(self):
        self._locks = {}

    def __call__(self):
        pid = os.getpid()
        return self._locks.get(pid) or self._locks.setdefault(pid, threading.RLock())


def start_thread(run, name, *arguments):
    """A daemon thread that runs `run(*arguments)`.

    Raises:
        SourceOSError: the system refuses another thread (EAGAIN).
    """
    thread = threading.Thread(target=run, args=arguments, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:  # all that Python says of it
        raise SourceOSError(errno.EAGAIN, f"no thread could be started: {os.strerror(errno.EAGAIN)}") from None
    return thread


def start_threads(count, run, name, *arguments):
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
