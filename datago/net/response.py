"""The answer to an HTTP request: head and body, told apart from a cut one wherever HTTP lets us."""

import io
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from datago.net.cancel import POLL_INTERVAL_S, ReadIdle, TransferError

if TYPE_CHECKING:
    from socket import socket

    from datago.net.connection import Wire

BUFFER = 32 << 10  # of the reader: heads and small chunks pass through it, larger reads go past it
LONGEST_LINE = LONGEST_HEAD = 64 << 10  # bytes; of a head with those before it (1xx) and of trailers too
MOST_LINES = 256  # of a head
LONGEST_CHUNK_LINE = 4 << 10
NO_BODY = (204, 304)  # statuses of answers that consist of a head

Argument = TypeVar("Argument")
Result = TypeVar("Result")


class Response:
    """Status, headers (names in lower case) and the body, to be read once.

    Args:
        wire: the connection; `close` closes it.
        keep: called by `finish` with the socket, where the answer came to its end and the server takes another request.

    Attributes:
        length: bytes of the body, None where the server did not say.
        checked: True if the end of the body can be told from a cut.
    """

    def __init__(self, wire: "Wire", keep: "Callable[[socket], None] | None" = None) -> None:
        self._keep = keep
        self._wire, self._reader = wire, io.BufferedReader(wire, BUFFER)
        self._room = LONGEST_HEAD
        wire.begin_head()
        while True:
            version, self.status, self.reason = self._status_line()
            self.headers = self._headers()
            if self.status >= 200:
                break
        wire.end_head()
        coding = self.headers.get("transfer-encoding", "identity").strip().lower()
        if coding not in ("chunked", "identity"):
            raise TransferError(f"transfer encoding {coding!r} is not supported", retry=False)
        self._chunked = coding == "chunked"
        self.length = None if self._chunked else 0 if self.status in NO_BODY else self._content_length()
        self.checked = self._chunked or self.length is not None
        self._left = 0 if self._chunked else self.length  # of the chunk, or of the body; None: up to the end of the connection
        self._ended = False  # the last chunk has come
        closes = "close" in re.split(r"[\s,]+", self.headers.get("connection", "").lower())
        if version != "1.1" or closes or not self.checked:
            self._keep = None

    def _line(self, most: int = LONGEST_LINE) -> str:
        line = self._reader.readline(most)
        if not line.endswith(b"\n"):
            raise TransferError(
                "connection closed mid-response (headers or chunk line)" if len(line) < most else "header or chunk line too long"
            )
        return line.decode("latin-1").rstrip("\r\n")

    def _head_line(self) -> str:
        line = self._line()
        self._room -= len(line) + 2
        if self._room < 0:
            raise TransferError("headers too long")
        return line

    def _status_line(self) -> tuple[str, int, str]:
        if not self._reader.peek(1):
            raise TransferError("connection closed without a response")
        line = self._head_line()
        found = re.fullmatch(r"HTTP/(\d(?:\.\d)?) +(\d\d\d)(?: (.*))?", line.rstrip(), re.I | re.A)
        if not found:
            raise TransferError(f"not an HTTP response: {line[:40]!a}")
        return found[1], int(found[2]), (found[3] or "").strip()

    def _headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        count, name = 0, ""
        while line := self._head_line():
            count += 1
            if count > MOST_LINES:
                raise TransferError(f"headers too long: more than {MOST_LINES} lines")
            if line[0] in " \t" and name:  # an old way to break a long value
                headers[name] += " " + line.strip()
                continue
            name, colon, value = line.partition(":")
            name = name.strip().lower() if colon else ""
            if name:
                headers[name] = f"{headers[name]}, {value.strip()}" if name in headers else value.strip()
        return headers

    def _content_length(self) -> int | None:
        values = {value.strip() for value in self.headers.get("content-length", "").split(",")}
        if values == {""}:
            return None
        if len(values) != 1 or not re.fullmatch(r"[0-9]{1,18}", text := values.pop()):
            raise TransferError("invalid Content-Length")
        return int(text)

    def readinto(self, view: memoryview, patience: float | None = None) -> int:
        """Fills the front of `view` with what has come, at least one byte; 0 at the end of the body.

        Raises:
            TransferError: the body is incomplete, or no data came in time.
            ReadIdle: no data for `patience` seconds.
        """
        if self._chunked and self._left == 0 and not self._ended:
            self._patiently(patience, self._reader.peek, 1)  # a line that was begun has to be read to its end
            self._next_chunk()
        if self._left == 0:
            return 0
        if self._left is None:
            return self._patiently(patience, self._reader.readinto1, view)
        count = self._patiently(patience, self._reader.readinto1, view[: self._left])
        if not count:
            raise TransferError(
                "connection closed mid-chunk"
                if self._chunked
                else f"incomplete response: {(self.length or 0) - self._left} of {self.length} bytes"
            )
        self._left -= count
        if self._chunked and self._left == 0 and self._line():
            raise TransferError("malformed chunk: longer than its size")
        return count

    def _patiently(self, patience: float | None, read: Callable[[Argument], Result], argument: Argument) -> Result:
        self._wire.patience = patience
        try:
            return read(argument)
        finally:
            self._wire.patience = None

    def _next_chunk(self) -> None:
        """Reads the head of the next chunk; after the last one `_left` stays 0."""
        self._wire.begin_head()
        line = self._line(LONGEST_CHUNK_LINE)
        found = re.fullmatch(r"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(;.*)?", line)
        if not found:
            raise TransferError("malformed chunk: its size is not a number")  # what stands there may be of a body with secrets
        self._left = int(found[1], 16)
        self._ended = self._left == 0
        while self._ended and (trailer := self._reader.readline(LONGEST_LINE)).strip():  # trailers say nothing to us
            self._room -= len(trailer)
            if self._room < 0:
                raise TransferError("trailers too long")
        self._wire.end_head()

    def finish(self) -> None:
        """Keeps the connection for the next request, or else lets the server close it first. To be called before `close`."""
        keep, self._keep = self._keep, None  # it may be called again
        if not keep or not self._is_read():
            return self._wire.wait_for_close()
        connection = self._wire.detach()
        if self._reader.peek(1):  # bytes behind the end of the answer: the next answer could be mistaken
            connection.close()
        else:
            keep(connection)

    def _is_read(self) -> bool:
        """Reads what is left of the body if it is short, as a redirect's page is. Whether that was all."""
        scratch, end, left = memoryview(bytearray(BUFFER)), time.monotonic() + POLL_INTERVAL_S, BUFFER
        try:
            while left > 0 and (count := self.readinto(scratch, POLL_INTERVAL_S)):
                left -= count if time.monotonic() < end else left
            return left > 0
        except (TransferError, ReadIdle):
            return False

    def close(self) -> None:
        self._reader.close()
