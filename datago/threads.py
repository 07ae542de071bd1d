"""Python threads where the system may refuse another one."""

import errno
import os
import threading

from datago.errors import SourceOSError


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
