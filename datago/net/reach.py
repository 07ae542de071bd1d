"""A connected socket to a server: which one to ask, by which proxy, and whether it can be reached at all."""

import errno
import re
import select
import socket
import time
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from datago.errors import SourceValueError
from datago.net import policy
from datago.net.cancel import POLL_INTERVAL_S, StopCheck, TimedOut, TransferError, check, run_in_thread
from datago.net.url import Url

if TYPE_CHECKING:
    import ssl

CONNECT_TIMEOUT = 10.0  # for each address of a host, and for finding them


def reach(url: Url, proxy: Url | None, stop: StopCheck, timeout: float, hosts: policy.Hosts) -> socket.socket:
    """A connection to the proxy, or else to the host of `url`, with TLS if that is a https url. Raises as `exchange` does."""
    peer, sock = proxy or url, None
    single = hosts.let_through(peer.place)
    try:
        sock = _connect(peer, stop, min(timeout, CONNECT_TIMEOUT))
        if url.scheme == "https" and not proxy:
            sock = secure(sock, url.host, stop, timeout)
    except BaseException as error:
        unconnected = sock is None
        if sock:
            sock.close()
        if not isinstance(error, OSError | TimedOut):
            raise
        fault = error if isinstance(error, TimedOut) else fault_of(error, proxy)
        if isinstance(error, TimedOut | TimeoutError) or unconnected and not policy.is_own_want(error.errno or 0):
            fault.place, fault.retry = peer.place, not single
        raise fault from None
    hosts.reached(peer.place)
    return sock


def _connect(url: Url, stop: StopCheck, timeout: float) -> socket.socket:
    def resolve() -> list[Any]:
        return socket.getaddrinfo(url.host.encode(), url.port, type=socket.SOCK_STREAM)  # of a str it would raise UnicodeError

    last: OSError | None = None
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


def _wait_connected(sock: socket.socket, stop: StopCheck, timeout: float) -> None:
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    start = time.monotonic()
    while not poll.poll(POLL_INTERVAL_S * 1000):
        check(stop)
        if time.monotonic() - start >= timeout:
            raise OSError(errno.ETIMEDOUT, f"connect timed out after {timeout:g} s")


@cache
def _tls(file: str, folder: str) -> "ssl.SSLContext":
    import ssl

    try:
        context = ssl.create_default_context(cafile=file or None, capath=folder or None)
    except OSError as error:
        raise TransferError(f"certificates {file or folder}: {error.strerror or error}", retry=False) from None
    # As libcurl has it in every version of it; Python's defaults are not the same before and after 3.13.
    context.verify_flags = (context.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN) & ~ssl.VERIFY_X509_STRICT
    return context


def secure(sock: socket.socket, host: str, stop: StopCheck, timeout: float) -> "ssl.SSLSocket":
    """The socket, with TLS on it. The handshake goes on where a slice of waiting broke it off."""
    sock.settimeout(POLL_INTERVAL_S)
    try:
        wrapped = _tls(*policy.trust()).wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    except ValueError as error:  # an SSLError is one too
        raise error if isinstance(error, OSError) else OSError(errno.EINVAL, f"not a valid host name for TLS: {host}") from None
    start = time.monotonic()
    try:
        while True:
            check(stop)
            try:
                wrapped.do_handshake()
                return wrapped
            except TimeoutError:
                if time.monotonic() - start >= timeout:
                    raise OSError(errno.ETIMEDOUT, f"TLS handshake timed out after {timeout:g} s") from None
    except BaseException:
        wrapped.close()
        raise


def fault_of(error: OSError, proxy: Url | None = None) -> TransferError:
    import ssl

    text = getattr(error, "verify_message", "") or error.strerror or str(error) or type(error).__name__
    if proxy:
        text += f" (through the proxy {proxy.place})"
    return TransferError(text, retry=not isinstance(error, ssl.SSLCertVerificationError))


def proxy_of(url: Url) -> Url | None:
    """The Url of the proxy to ask for `url`, or None."""
    given = policy.proxy_for(url)
    if not given:
        return None
    proxy = Url.parse(given if "://" in given else f"http://{given}")
    if proxy.scheme != "http":
        raise SourceValueError(f"proxy {proxy}: only http proxies are supported")
    return proxy


def places(urls: Iterable[str]) -> frozenset[str]:
    """Host and port of each server that has to be connected to for these http(s) urls; empty if there are others among them."""
    servers = {found[0] if (found := re.match("https?://[^/?#]*", url, re.I)) else "" for url in urls}
    return frozenset((proxy_of(url) or url).place for url in map(Url.parse, servers)) if "" not in servers else frozenset()
