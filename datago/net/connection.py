"""One HTTP/1.1 exchange over a socket that can be told to stop: proxy, connection, TLS, request, answer.

libcurl, which has the downloads of _transfers.pyx, was tried for this too (7.88, a multi handle driven by the reading thread, which copies
from libcurl's buffer into the caller's block and pauses the transfer when that is full). A 200 MB body from loopback in blocks of 1 MB, on
two cores of x86-64, medians of paired rounds:

|  | here | libcurl, buffer of 128 KB | of 512 KB |
|---|---|---|---|
| http | 1232 MB/s, 0.097 s of CPU | 1064 MB/s, 0.150 s | 1173 MB/s, 0.121 s |
| https | 693 MB/s, 0.221 s of CPU | 834 MB/s, 0.162 s | 905 MB/s, 0.150 s |

It met: a stop during a stall (1 ms), urls byte for byte (CURLOPT_REQUEST_TARGET), ranges, pausing, reuse of connections. It did not meet:
* Plain http costs a quarter to a half more CPU, as each byte is copied once more. (Over TLS Python's read of one record of 16 KB at a time
  costs more than that copy.)
* Answers that are read here are refused: with a header line that has no colon (error 8), or without an empty line behind the last
  chunk (error 18).
* Wrong ones are accepted: `Content-Length: 5x`, two different lengths, a chunk extension without end. Our own checks would have to stay.
* Before 7.87 a transfer that is given up during a name lookup waits for it; so the lookup in a thread of its own would have to stay.
"""

import contextlib
import io
import socket
import time
from base64 import b64encode
from functools import partial
from typing import Any
from urllib.parse import unquote_to_bytes

from datago.net import policy
from datago.net.cancel import POLL_INTERVAL_S, ReadIdle, StopCheck, TransferError, check
from datago.net.keep_alive import IdleConnections
from datago.net.reach import fault_of, proxy_of, reach, secure
from datago.net.response import BUFFER, Response
from datago.net.url import Url


class Wire(io.RawIOBase):
    """A connected socket as a raw reader: it looks at `stop` every POLL_INTERVAL_S, and gives up after `timeout` seconds of silence."""

    def __init__(self, sock: socket.socket, stop: StopCheck, timeout: float, owned: bool = True) -> None:
        self._sock: socket.socket | None = sock
        self._owned, self._stop, self._timeout = owned, stop, timeout
        self._line_end: float | None = None
        self.patience: float | None = None  # seconds after which silence raises ReadIdle instead; only where a read has nothing to lose
        sock.settimeout(POLL_INTERVAL_S)

    def readable(self) -> bool:
        return True

    def begin_head(self) -> None:
        """What follows are lines, which have to come within three time-outs, however often a byte of them comes."""
        self._line_end = time.monotonic() + 3 * self._timeout

    def end_head(self) -> None:
        self._line_end = None

    def readinto(self, view: Any) -> int:
        if self._sock is None:
            return 0
        start = time.monotonic()
        while True:
            check(self._stop)
            if self._line_end is not None and time.monotonic() > self._line_end:
                raise TransferError(f"read timed out: headers or chunk line not complete after {3 * self._timeout:g} s")
            try:
                return self._sock.recv_into(view)
            except TimeoutError:
                if self.patience is not None and time.monotonic() - start >= self.patience:
                    raise ReadIdle from None
                if time.monotonic() - start >= self._timeout:
                    raise TransferError(f"read timed out: no data for {self._timeout:g} s") from None
            except OSError as error:
                raise fault_of(error) from None

    def wait_for_close(self) -> None:
        """Lets the server close first, as it was asked to, for a moment: it then counts no connection more than we hold."""
        end = time.monotonic() + POLL_INTERVAL_S
        with contextlib.suppress(OSError):
            while self._sock and self._sock.recv(BUFFER) and time.monotonic() < end:
                pass

    def detach(self) -> socket.socket:
        """The socket, which `close` leaves open then; there is nothing more to read."""
        assert self._sock is not None
        sock, self._sock = self._sock, None
        return sock

    def close(self) -> None:
        if self._sock and self._owned:
            self._sock.close()
        self._sock = None
        super().close()


def exchange(
    url: Url, headers: dict[str, str], stop: StopCheck, timeout: float, idle: IdleConnections | None, hosts: policy.Hosts
) -> Response:
    """Sends one GET and reads the head of the answer.

    Args:
        idle: connections of which one is used and where it is left for the next request. None: the request has a connection of its own,
            as a retry should: a server may have closed an idle one by the time it is used.
        hosts: those that cannot be reached, which are asked no more for a while.

    Raises:
        TransferError: no connection, no answer, not HTTP.
        Stopped: `stop` was seen.
    """
    proxy = proxy_of(url)
    key = (url.scheme, url.host, url.port, proxy, policy.trust() if url.scheme == "https" else None)
    sock = idle.take(key) if idle else None
    try:
        if sock is None:
            sock = reach(url, proxy, stop, timeout, hosts)
            if proxy and url.scheme == "https":
                _send(sock, f"CONNECT {url.host}:{url.port} HTTP/1.1", {"Host": f"{url.host}:{url.port}", **_login(proxy, "Proxy-")})
                response = Response(Wire(sock, stop, timeout, owned=False))
                if response.status != 200:
                    raise TransferError(f"the proxy {proxy.place} answered {response.status}", retry=policy.is_retried(response.status))
                sock = secure(sock, url.host, stop, timeout)
        plain_proxy = proxy if url.scheme == "http" else None
        target = f"http://{url.place}{url.target}" if plain_proxy else url.target
        login = {**_login(url), **(_login(plain_proxy, "Proxy-") if plain_proxy else {})}
        _send(sock, f"GET {target} HTTP/1.1", {"Host": url.place, **login, **headers, **({} if idle else {"Connection": "close"})})
        return Response(Wire(sock, stop, timeout), partial(idle.give, key) if idle else None)
    except BaseException as error:
        if sock:
            sock.close()
        if isinstance(error, OSError):
            raise fault_of(error, proxy) from None
        raise


def _send(sock: socket.socket, line: str, headers: dict[str, str]) -> None:
    lines = [line, *(f"{name}: {value}" for name, value in headers.items())]
    sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))


def _login(url: Url, prefix: str = "") -> dict[str, str]:
    user = unquote_to_bytes(url.user.encode("utf-8", "surrogateescape"))
    return {f"{prefix}Authorization": "Basic " + b64encode(user).decode()} if user else {}
