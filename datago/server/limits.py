"""Limits on what a client may use before its token is checked, added to uvicorn's protocol over httptools.

uvicorn has limits only for its other parser, h11. Without limits it would keep a request head of any size, or a connection on which no
request ever arrives. A request that exceeds a limit is answered with an error if that is possible, and its connection is closed.
"""

import contextlib
import resource
from asyncio import TimerHandle, Transport
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

CONNECTIONS = 1000  # at most, on each port; fewer if the system allows fewer descriptors
LINE = 2**16 - 1  # bytes of a request's url, the most that the url parser takes
HEAD = 2**14  # bytes of a request's headers, names and values
HEADERS = 100
BODY = 2**16  # bytes of a request's body, which is ignored
AHEAD = 16  # pipelined requests that wait on one connection
ARRIVAL = 10  # seconds from the first to the last byte of a request
IDLE = 75  # seconds between two requests; clients keep connections open while the training loop is busy
STALL = 60  # seconds in which a client receives nothing of its answer
LINGER = 2  # seconds until a refused connection is closed; if it were closed at once, the client might not see the answer


def connections() -> int:
    """The most connections on each port. Raises the process's limit of open descriptors as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * CONNECTIONS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    # a connection of the media port also has a file open
    return CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, min(CONNECTIONS, (soft - 100) // 3))


class Limited(HttpToolsProtocol):
    """One connection with limits. uvicorn calls the methods, and its own methods implement HTTP."""

    most = CONNECTIONS  # of each server; set from `connections` when the server starts

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as in uvicorn itself
        super().connection_made(transport)
        self._status, self._refused = 400, False
        self._watch: TimerHandle | None = None
        self._begun, self._in_head, self._unfinished, self._size, self._headers, self._body = 0, False, 0, 0, 0, 0
        self._moved = self.loop.time()  # when the client last received something
        self._waiting: float | None = self._moved  # since when the end of a request is awaited
        self._buffered = 0
        self._cycles: list[Any] = []
        if len(self.connections) > self.most:
            self._status = 503
            self.send_400_response("Too many connections.")
            self.transport.close()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        for cycle in self._cycles:  # uvicorn only ends the answer to the last request
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def _look(self) -> None:
        """Ends the connection if the client is too slow. It is called once a second."""
        now, buffered = self.loop.time(), self.transport.get_write_buffer_size()
        if buffered == 0 or buffered < self._buffered:
            self._moved = now
        self._buffered = buffered
        if self.flow.read_paused:  # the client waits for the server
            self._waiting = self._waiting and now
        if now - self._moved > STALL:
            self.transport.abort()
        elif self._waiting is not None and now - self._waiting > ARRIVAL and not self._refused:
            self._status = 408
            self.send_400_response("The request took too long to arrive.")
        self._watch = self.loop.call_later(1, self._look)

    def resume_writing(self) -> None:
        self._moved = self.loop.time()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self._waiting is None:
            self._waiting = self.loop.time()
        begun = self._begun
        super().data_received(data)
        if begun == self._begun and self._waiting is not None and not self._refused:  # a part of one request
            self._unfinished += len(data)
            if self._unfinished > LINE + HEAD + (0 if self._in_head else BODY):
                self._status = 431 if self._in_head else 413
                self.send_400_response("The request is too large.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begun += 1
        self._in_head, self._unfinished, self._size, self._headers, self._body = True, 0, 0, 0, 0
        self._waiting = self._waiting or self.loop.time()
        self._check(len(self.pipeline) < AHEAD, 429, "requests that wait for an answer")

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._check(len(self.url) <= LINE, 414, "bytes of a url")

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._size += len(name) + len(value)
        self._headers += 1
        self._check(self._size <= HEAD and self._headers <= HEADERS, 431, "headers")

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()
        self._cycles = [*(cycle for cycle in self._cycles if not cycle.response_complete), self.cycle]

    def on_body(self, body: bytes) -> None:
        self._body += len(body)
        self._check(self._body <= BODY, 413, "bytes of a body")
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._waiting = None
        super().on_message_complete()

    def _check(self, is_right: bool, status: int, what: str) -> None:
        if not is_right:
            self._status = status
            raise ValueError(f"too many {what}")  # httptools stops, and uvicorn calls send_400_response

    def send_400_response(self, msg: str) -> None:
        """Answers with the status that a limit has set, unless another answer has begun, and closes the connection."""
        self._refused = True
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()
            return
        head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(msg)
        self.transport.write(STATUS_LINE[self._status] + head + msg.encode())
        self.transport.write_eof()
        self.loop.call_later(LINGER, self.transport.abort)
