"""Connections that stay open between two requests: the next one to the same server needs no lookup, no handshake and no slow start."""

import os
import select
import socket
import time
from collections import deque
from collections.abc import Hashable

MAX_IDLE = 16  # connections, of all servers together
MAX_IDLE_S = 20.0  # some routers forget connections that are silent for a minute, and tell neither end


class IdleConnections:
    """The idle connections of one source, for all of its threads. No lock is needed, as each step on a deque is atomic: so finalizers
    and signal handlers may call `close`."""

    def __init__(self) -> None:
        self._idle: deque[tuple[Hashable, socket.socket, float, int]] = deque()
        self._closed = False

    def take(self, key: Hashable) -> socket.socket | None:
        """An idle connection to the server that `key` means, which is no longer in here then; None if there is none."""
        for _ in range(len(self._idle)):
            try:
                entry = self._idle.popleft()
            except IndexError:  # another thread took it
                break
            _, connection, since, pid = entry
            if pid != os.getpid() or time.monotonic() - since > MAX_IDLE_S or entry[0] == key and _is_readable(connection):
                connection.close()
            elif entry[0] == key:
                return connection
            else:
                self._idle.append(entry)
        return None

    def give(self, key: Hashable, connection: socket.socket) -> None:
        """Keeps a connection on which nothing is under way, or closes it once `close` was called."""
        self._idle.append((key, connection, time.monotonic(), os.getpid()))
        if self._closed or len(self._idle) > MAX_IDLE:
            self._close_down_to(0 if self._closed else MAX_IDLE)

    def close(self) -> None:
        """Closes all of them, and those that are given later. From any thread."""
        self._closed = True
        self._close_down_to(0)

    def _close_down_to(self, count: int) -> None:
        while len(self._idle) > count:
            try:
                self._idle.popleft()[1].close()
            except IndexError:
                return


def _is_readable(connection: socket.socket) -> bool:
    """An idle connection has nothing to say: what comes is its end, or an answer to no request."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))
