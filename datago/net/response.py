"""The answer to an HTTP request: head and body, told apart from a cut one wherever HTTP lets us."""

import io
import re

from datago.net.cancel import TransferError

BUFFER = 32 << 10  # of the reader: heads and small chunks pass through it, larger reads go past it
LONGEST_LINE = LONGEST_HEAD = 64 << 10  # bytes; of a head with those before it (1xx) and of trailers too
MOST_LINES = 256  # of a head
LONGEST_CHUNK_LINE = 4 << 10


class Response:
    """Status, headers (names in lower case) and the body, to be read once.

    Attributes:
        length: bytes of the body, None where the server did not say.
        checked: True if the end of the body can be told from a cut.
    """

    def __init__(self, wire):
        self._wire, self._reader = wire, io.BufferedReader(wire, BUFFER)
        self._room = LONGEST_HEAD
        wire.begin_head()
        while True:
            self.status, self.reason = self._status_line()
            self.headers = self._headers()
            if self.status >= 200:
                break
        wire.end_head()
        coding = self.headers.get("transfer-encoding", "identity").strip().lower()
        if coding not in ("chunked", "identity"):
            raise TransferError(f"transfer encoding {coding!r} is not supported", retry=False)
        self._chunked = coding == "chunked"
        self.length = None if self._chunked else self._content_length()
        self.checked = self._chunked or self.length is not None
        self._left = 0 if self._chunked else self.length  # of the chunk, or of the body
        self._ended = False

    def _line(self, most=LONGEST_LINE):
        line = self._reader.readline(most)
        if not line.endswith(b"\n"):
            raise TransferError(
                "connection closed mid-response (headers or chunk line)" if len(line) < most else "header or chunk line too long"
            )
        return line.decode("latin-1").rstrip("\r\n")

    def _head_line(self):
        line = self._line()
        self._room -= len(line) + 2
        if self._room < 0:
            raise TransferError("headers too long")
        return line

    def _status_line(self):
        if not self._reader.peek(1):
            raise TransferError("connection closed without a response")
        line = self._head_line()
        found = re.fullmatch(r"HTTP/\d(?:\.\d)? +(\d\d\d)(?: (.*))?", line.rstrip(), re.I | re.A)
        if not found:
            raise TransferError(f"not an HTTP response: {line[:40]!a}")
        return int(found[1]), (found[2] or "").strip()

    def _headers(self):
        headers, count, name = {}, 0, None
        while line := self._head_line():
            count += 1
            if count > MOST_LINES:
                raise TransferError(f"headers too long: more than {MOST_LINES} lines")
            if line[0] in " \t" and name:  # an old way to break a long value
                headers[name] += " " + line.strip()
                continue
            name, colon, value = line.partition(":")
            name = name.strip().lower() if colon else None
            if name:
                headers[name] = f"{headers[name]}, {value.strip()}" if name in headers else value.strip()
        return headers

    def _content_length(self):
        values = {value.strip() for value in self.headers.get("content-length", "").split(",")}
        if values == {""}:
            return None
        if len(values) != 1 or not re.fullmatch(r"[0-9]{1,18}", text := values.pop()):
            raise TransferError("invalid Content-Length")
        return int(text)

    def readinto(self, view, patience=None):
        """Fills the front of `view` with what has come, at least one byte; 0 at the end of the body.

        Raises:
            TransferError: the body was cut, or nothing came in time.
            ReadIdle: nothing came for `patience` seconds.
        """
        if self._chunked and self._left == 0:
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
                else f"incomplete response: {self.length - self._left} of {self.length} bytes"
            )
        self._left -= count
        if self._chunked and self._left == 0 and self._line():
            raise TransferError("malformed chunk: longer than its size")
        return count

    def _patiently(self, patience, read, argument):
        self._wire.patience = patience
        try:
            return read(argument)
        finally:
            self._wire.patience = None

    def _next_chunk(self):
        """Reads the head of the next chunk; after the last one `_left` stays 0."""
        if self._ended:
            return
        self._wire.begin_head()
        line = self._line(LONGEST_CHUNK_LINE)
        found = re.fullmatch(r"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(;.*)?", line)
        if not found:
            raise TransferError("malformed chunk: its size is not a number")  # what stands there may be of a body with secrets
        self._left = int(found[1], 16)
        self._ended = self._left == 0
        while self._ended and (line := self._reader.readline(LONGEST_LINE)).strip():  # trailers say nothing to us
            self._room -= len(line)
            if self._room < 0:
                raise TransferError("trailers too long")
        self._wire.end_head()

    def settle(self):
        """To be called before `close` where nothing more is wanted; see Wire."""
        self._wire.settle()

    def close(self):
        self._reader.close()
