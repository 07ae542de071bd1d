"""One HTTP/1.1 exchange over a socket that can be told to stop: proxy, connection, TLS, request, answer.

No client library is used since none gives all three: a stalled read that ends within a tenth of a second when told to, the
url sent byte for byte (signatures cover it), and the body received straight into the caller's block.
"""

import contextlib
import errno
import io
import select
import socket
import time
from base64 import b64encode
from functools import cache
from urllib.parse import unquote_to_bytes

from datago.errors import SourceValueError
from datago.net import policy
from datago.net.cancel import POLL_INTERVAL_S, ReadIdle, TransferError, check, run_in_thread
from datago.net.response import BUFFER, Response
from datago.net.url import Url

CONNECT_TIMEOUT = 10.0  # for each address of a host, and for finding them


class Wire(io.RawIOBase):
    """A connected socket as a raw reader: it looks at `stop` every POLL_INTERVAL_S, and gives up after `timeout` seconds of silence."""

    def __init__(self, sock, stop, timeout):
        self._sock, self._stop, self._timeout = sock, stop, timeout
        self._line_end = None
        self.patience = None  # seconds after which silence raises ReadIdle instead; only where a read has nothing to lose
        sock.settimeout(POLL_INTERVAL_S)

    def readable(self):
        return True

    def begin_head(self):
        """What follows are lines, which have to come within three time-outs, however often a byte of them comes."""
        self._line_end = time.monotonic() + 3 * self._timeout

    def end_head(self):
        self._line_end = None

    def readinto(self, view):
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
                raise _fault(error) from None

    def settle(self):
        """Lets the server close first, as it was asked to, for a moment: it then counts no connection more than we hold."""
        with contextlib.suppress(OSError):
            end = time.monotonic() + POLL_INTERVAL_S
            while self._sock.recv(BUFFER) and time.monotonic() < end:
                pass

    def close(self):
        self._sock.close()
        super().close()


def exchange(url, headers, stop, timeout):
    """Sends one GET and reads the head of the answer. One connection each: a shard is long, and a retry wants a fresh one.

    Raises:
        TransferError: no connection, no answer, not HTTP.
        Stopped: `stop` was seen.
    """
    proxy = _proxy(url)
    sock = None
    try:
        sock = _connect(proxy or url, stop, min(timeout, CONNECT_TIMEOUT))
        if proxy and url.scheme == "https":
            _send(sock, f"CONNECT {url.host}:{url.port} HTTP/1.1", {"Host": f"{url.host}:{url.port}", **_login(proxy, "Proxy-")})
            response = Response(Wire(_Borrowed(sock), stop, timeout))
            if response.status != 200:
                raise TransferError(f"the proxy {proxy.place} answered {response.status}", retry=policy.is_retried(response.status))
        if url.scheme == "https":
            sock = _secure(sock, url.host, stop, timeout)
        plain_proxy = proxy and url.scheme == "http"
        target = f"http://{url.place}{url.target}" if plain_proxy else url.target
        login = {**_login(url), **(_login(proxy, "Proxy-") if plain_proxy else {})}
        _send(sock, f"GET {target} HTTP/1.1", {"Host": url.place, **login, **headers})
        return Response(Wire(sock, stop, timeout))
    except BaseException as error:
        if sock:
            sock.close()
        if isinstance(error, OSError):
            raise _fault(error, proxy) from None
        raise


class _Borrowed:
    """A socket that a Wire may not close."""

    def __init__(self, sock):
        self.recv_into, self.settimeout = sock.recv_into, sock.settimeout

    def close(self):
        pass


def _fault(error, proxy=None):
    import ssl

    text = getattr(error, "verify_message", "") or error.strerror or str(error) or type(error).__name__
    if proxy:
        text += f" (through the proxy {proxy.place})"
    return TransferError(text, retry=not isinstance(error, ssl.SSLCertVerificationError))


def _send(sock, line, headers):
    lines = [line, *(f"{name}: {value}" for name, value in headers.items())]
    sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))


def _login(url, prefix=""):
    user = unquote_to_bytes(url.user.encode("utf-8", "surrogateescape"))
    return {f"{prefix}Authorization": "Basic " + b64encode(user).decode()} if user else {}


def _connect(url, stop, timeout):
    def resolve():
        return socket.getaddrinfo(url.host.encode(), url.port, type=socket.SOCK_STREAM)  # of a str it would raise UnicodeError

    last = None
    for family, kind, protocol, _, address in run_in_thread(resolve, stop, timeout, "DNS lookup"):
        sock = None
        try:
            sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)
            status = sock.connect_ex(address)
            if status == errno.EINPROGRESS:
                _wait_connected(sock, stop, timeout)
                status = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if status:
                raise OSError(status, f"connect failed: {errno.errorcode.get(status, status)}")
            sock.settimeout(timeout)
            return sock
        except BaseException as error:
            if sock:
                sock.close()
            if not isinstance(error, OSError):
                raise
            last = error
    raise last or OSError(errno.EHOSTUNREACH, f"DNS returned no address for {url.host}")


def _wait_connected(sock, stop, timeout):
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    start = time.monotonic()
    while not poll.poll(POLL_INTERVAL_S * 1000):
        check(stop)
        if time.monotonic() - start >= timeout:
            raise OSError(errno.ETIMEDOUT, f"connect timed out after {timeout:g} s")


@cache
def _tls(file, folder):
    import ssl

    try:
        context = ssl.create_default_context(cafile=file or None, capath=folder or None)
    except OSError as error:
        raise TransferError(f"certificates {file or folder}: {error.strerror or error}", retry=False) from None
    # As libcurl has it in every version of it; Python's defaults are not the same before and after 3.13.
    context.verify_flags = (context.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN) & ~ssl.VERIFY_X509_STRICT
    return context


def _secure(sock, host, stop, timeout):
    """The socket, with TLS on it. The handshake goes on where a slice of waiting broke it off."""
    sock.settimeout(POLL_INTERVAL_S)
    try:
        secure = _tls(*policy.trust()).wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    except ValueError as error:  # an SSLError is one too
        raise error if isinstance(error, OSError) else OSError(errno.EINVAL, f"not a valid host name for TLS: {host}") from None
    start = time.monotonic()
    try:
        while True:
            check(stop)
            try:
                secure.do_handshake()
                return secure
            except TimeoutError:
                if time.monotonic() - start >= timeout:
                    raise OSError(errno.ETIMEDOUT, f"TLS handshake timed out after {timeout:g} s") from None
    except BaseException:
        secure.close()
        raise


def _proxy(url):
    """The Url of the proxy to ask for `url`, or None."""
    proxy = policy.proxy_for(url)
    if not proxy:
        return None
    proxy = Url.parse(proxy if "://" in proxy else f"http://{proxy}")
    if proxy.scheme != "http":
        raise SourceValueError(f"proxy {proxy}: only http proxies are supported")
    return proxy
