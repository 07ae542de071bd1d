"""What a peer may ask of a connection before it has shown that it may ask anything: uvicorn's protocol over httptools, with limits.

Without these a head of any size is kept, as is a connection on which nothing ever comes, and so on; uvicorn has limits for its other
parser alone. What goes beyond one is answered where that is possible, and ends the connection.
"""

import contextlib
import resource

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

CONNECTIONS = 1000  # at most, on each port; fewer where the system gives fewer descriptors
LINE = 2**16 - 1  # bytes of a request's url: no url parser takes more
HEAD = 2**14  # bytes of all its headers, names and values
HEADERS = 100
BODY = 2**16  # bytes; nobody reads them
AHEAD = 16  # requests that wait on one connection for the answer before theirs
ARRIVAL = 10  # seconds from its first byte to the last one of a request
IDLE = 75  # seconds between two requests; clients hold connections while they wait for their trainer
STALL = 60  # seconds in which a peer takes nothing of its answer
LINGER = 2  # seconds for a peer that is refused to stop sending; closed at once, it might never see the answer


def connections():
    """How many each port takes; raises the limit of descriptors as far as that may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * CONNECTIONS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    # an answer of the files' port has a file open too
    return CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, min(CONNECTIONS, (soft - 100) // 3))


class Limited(HttpToolsProtocol):
    """One connection. uvicorn calls the methods; its own do what HTTP wants."""

    most = CONNECTIONS  # of a server, see `connections`

    def connection_made(self, transport):
        super().connection_made(transport)
        self._status, self._refused, self._watch = 400, False, None
        self._begun, self._in_head, self._unfinished, self._size, self._headers, self._body = 0, False, 0, 0, 0, 0
        self._waiting = self._moved = self.loop.time()  # since when for the end of a request, and for the peer to take something
        self._buffered, self._cycles = 0, []
        if len(self.connections) > self.most:
            self._status = 503
            self.send_400_response("Too many connections.")
            self.transport.close()
        self._look()

    def connection_lost(self, exc):
        self._watch.cancel()
        for cycle in self._cycles:  # uvicorn knows the last request alone, and lets the answer to one before it go on
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def _look(self):
        """Once in a second: does the peer still do its part?"""
        now, buffered = self.loop.time(), self.transport.get_write_buffer_size()
        if buffered == 0 or buffered < self._buffered:
            self._moved = now
        self._buffered = buffered
        if self.flow.read_paused:  # it has sent what it may, and waits for us
            self._waiting = self._waiting and now
        if now - self._moved > STALL:
            self.transport.abort()
        elif self._waiting is not None and now - self._waiting > ARRIVAL and not self._refused:
            self._status = 408
            self.send_400_response("The request took too long to arrive.")
        self._watch = self.loop.call_later(1, self._look)

    def resume_writing(self):
        self._moved = self.loop.time()
        super().resume_writing()

    def data_received(self, data):
        if self._refused:
            return
        if self._waiting is None:
            self._waiting = self.loop.time()
        begun = self._begun
        super().data_received(data)
        if begun == self._begun and self._waiting is not None and not self._refused:  # a part of one request, perhaps of one header
            self._unfinished += len(data)
            if self._unfinished > LINE + HEAD + (0 if self._in_head else BODY):
                self._status = 431 if self._in_head else 413
                self.send_400_response("The request is too large.")

    def on_message_begin(self):
        super().on_message_begin()
        self._begun += 1
        self._in_head, self._unfinished, self._size, self._headers, self._body = True, 0, 0, 0, 0
        self._waiting = self._waiting or self.loop.time()
        self._check(len(self.pipeline) < AHEAD, 429, "requests that wait for an answer")

    def on_url(self, url):
        super().on_url(url)
        self._check(len(self.url) <= LINE, 414, "bytes of a url")

    def on_header(self, name, value):
        super().on_header(name, value)
        self._size += len(name) + len(value)
        self._headers += 1
        self._check(self._size <= HEAD and self._headers <= HEADERS, 431, "headers")

    def on_headers_complete(self):
        self._in_head = False
        super().on_headers_complete()
        self._cycles = [*(cycle for cycle in self._cycles if not cycle.response_complete), self.cycle]

    def on_body(self, body):
        self._body += len(body)
        self._check(self._body <= BODY, 413, "bytes of a body")
        super().on_body(body)

    def on_message_complete(self):
        self._waiting = None
        super().on_message_complete()

    def _check(self, is_right, status, what):
        if not is_right:
            self._status = status
            raise ValueError(f"too many {what}")  # httptools stops, and uvicorn sends a response of 400: see below

    def send_400_response(self, msg):
        """Answers with the status that a limit has set, if no other answer is under way, and ends the connection."""
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
