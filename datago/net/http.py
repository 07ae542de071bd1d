"""One object behind an http(s) url: redirects, statuses, and going on where an earlier connection broke off."""

import logging
import random
import re
import time
from urllib.parse import urljoin

from datago.errors import SourceValueError, printable
from datago.net import policy
from datago.net.cancel import CHANGED, StopCheck, TransferError, pause
from datago.net.connection import exchange
from datago.net.keep_alive import IdleConnections
from datago.net.response import Response
from datago.net.url import Url, bare
from datago.threads import OwnLock

REDIRECTS = frozenset((301, 302, 303, 307, 308))
HOPS = 10
TAIL = 64  # last bytes kept, to see that skipped ones are those that were read

log = logging.getLogger(__name__)
_not_before: dict[str, float] = {}  # host:port -> when its Retry-After is over; for all streams of the process
_lock = OwnLock()


class HttpObject:
    """A ByteSource: one object, from its first byte to its last, over as many connections as it takes.

    Args:
        token: sent as `Authorization: Bearer`, or as another `kind`, to the url's own host and to no other.
        idle: connections that the first attempt may use, and where it leaves its own; None: each request has a connection of its own.
        hosts: those that other requests found unreachable; None: this request stands alone.
    """

    def __init__(
        self,
        url: str,
        token: str,
        user_agent: str,
        stop: StopCheck,
        timeout: float,
        kind: str = "Bearer",
        idle: IdleConnections | None = None,
        hosts: policy.Hosts | None = None,
    ) -> None:
        self._url, self._stop, self._timeout, self._idle = Url.parse(url), stop, timeout, idle
        self._hosts = hosts or policy.unreachable_hosts()
        self._token = {"Authorization": f"{kind} {token}"} if token else {}
        self._headers = {"User-Agent": user_agent, "Accept": "*/*", "Accept-Encoding": "identity"}
        self._response: Response | None = None
        self._etag: str | None = None
        self._modified: str | None = None
        self._ranges, self._tail = True, b""
        self.position, self.checked = 0, False
        self.size: int | None = None

    def open(self) -> None:
        """Connects, and asks for what follows `position`.

        Raises:
            TransferError: no answer, or one that is not the wanted bytes.
        """
        self.disconnect()
        try:
            url, response = self.follow(self._resume_headers())
        finally:
            self._idle = None  # the next attempt is a retry
        self._response = response
        if self.position == 0 and response.status == 200:
            self._etag, self._modified = response.headers.get("etag"), response.headers.get("last-modified")
            self.size, self.checked = response.length, response.checked
        elif self.position and response.status == 206:
            self._check_range(response)
        elif self.position and response.status == 200:
            self._check_unchanged(response, response.length)
            self._skip(response)
        elif self.position and response.status == 416:
            self._check_over(response)
        else:
            response.finish()
            raise self._refused(url, response)

    def readinto(self, view: memoryview, patience: float | None = None) -> int:
        """See ByteSource."""
        if self._response is None:
            return 0
        count = self._response.readinto(view, patience)
        if not count:
            self._response.finish()
        self._tail = _tail(self._tail, view, count)
        self.position += count
        return count

    def disconnect(self) -> None:
        """Ends the attempt; `open` may follow."""
        if self._response:
            self._response.close()
        self._response = None

    close = disconnect

    def _resume_headers(self) -> dict[str, str]:
        if not self.position or not self._ranges:
            return {}
        strong = self._etag if self._etag and not self._etag.startswith("W/") else self._modified
        strong = strong if strong and re.fullmatch(r"[ -~\x80-\xff]*", strong) else None  # it goes into our own head
        return {"Range": f"bytes={self.position}-", **({"If-Range": strong} if strong else {})}

    def follow(self, headers: dict[str, str]) -> tuple[Url, Response]:
        """The answer after all redirects, and the url that gave it."""
        url, secret = self._url, self._token
        seen: set[Url] = set()
        while True:
            _wait_for(url, self._stop)
            response = exchange(url, {**self._headers, **headers, **secret}, self._stop, self._timeout, self._idle, self._hosts)
            if response.status not in REDIRECTS:
                return url, response
            response.finish()
            response.close()
            seen.add(url)
            target = _redirected(url, response.headers.get("location"))
            log.debug("%s: %d to %s", url, response.status, target)
            if same_place(url, target):
                target = target._replace(user=target.user or url.user)
            else:
                secret = {}
            if target in seen or len(seen) > HOPS:
                raise TransferError("redirect loop" if target in seen else f"more than {HOPS} redirects", retry=False)
            url = target

    def _check_range(self, response: Response) -> None:
        found = re.fullmatch(r"bytes (\d{1,18})-\d+/(\d{1,18}|\*)", response.headers.get("content-range", ""))
        if not found or int(found[1]) != self.position:
            self._ranges = False
            raise TransferError(f"server returned the wrong range for bytes={self.position}-")
        self._check_unchanged(response, None if found[2] == "*" else int(found[2]))

    def _check_unchanged(self, response: Response, size: int | None) -> None:
        etag, modified = response.headers.get("etag"), response.headers.get("last-modified")
        if self._etag and etag:
            same = self._etag == etag
        else:
            same = not self._modified or not modified or self._modified == modified
        if not same or None not in (size, self.size) and size != self.size:
            raise TransferError(CHANGED, retry=False)
        self.size = size if self.size is None else self.size
        self.checked = self.checked or response.checked

    def _skip(self, response: Response) -> None:
        """Passes over what was read already, of a server that knows no ranges."""
        scratch, left, tail = memoryview(bytearray(min(self.position, 1 << 18))), self.position, b""
        while left:
            view = scratch[:left]
            count = response.readinto(view)
            if not count:
                raise TransferError(f"incomplete download: {self.position - left} bytes, {self.position} had come before")
            tail = _tail(tail, view, count)
            left -= count
        if tail != self._tail:
            raise TransferError("object changed during the download (its bytes)", retry=False)

    def _check_over(self, response: Response) -> None:
        """416: nothing follows what was read. That is the end if the object is no longer than that."""
        found = re.fullmatch(r"bytes \*/(\d{1,18})", response.headers.get("content-range", ""))
        if not found or int(found[1]) != self.position or self.size not in (None, self.position):
            self._ranges = False
            raise TransferError(f"server returned 416 for bytes={self.position}-, and no size that explains it")
        self.size, self.checked = self.position, True
        self.disconnect()

    def _refused(self, url: Url, response: Response) -> TransferError:
        status = response.status
        retry = policy.is_retried(status)
        text = f"{status} {printable(response.reason[:60])}".strip()
        if url != self._url:
            text = f"redirected to {url}: {text}"
        if status in (401, 403) and "?" in self._url.target:
            text += " (if the url is signed, it may have expired)"
        wait = policy.retry_after(response.headers.get("retry-after", "")) if retry else None
        if wait is not None and wait > policy.MAX_RETRY_AFTER:
            return TransferError(f"{text}; asks to come again in {wait:.0f} s", retry=False, status=status)
        if wait is not None:
            with _lock():
                _not_before[url.place] = max(_not_before.get(url.place, 0), time.monotonic() + wait)
        return TransferError(text, retry=retry, status=status)


def _tail(tail: bytes, view: memoryview, count: int) -> bytes:
    return (tail + bytes(view[max(0, count - TAIL) : count]))[-TAIL:]


def _wait_for(url: Url, stop: StopCheck) -> None:
    """Waits until the Retry-After of this host is over, and a little more, so that not all come at once."""
    while (left := _not_before.get(url.place, 0) - time.monotonic()) > 0:
        pause(left + random.uniform(0, 0.05 + min(1, left / 10)), stop)


def _redirected(url: Url, location: str | None) -> Url:
    """The Url that a Location header means."""
    if not location:
        raise TransferError("redirect without a Location", retry=False)
    text = location.encode("latin-1").decode("utf-8", "surrogateescape")  # its bytes as they came
    base = f"{url.scheme}://{url.place}"
    try:
        if text.startswith("//"):
            text = f"{url.scheme}:{text}"
        elif text.startswith("/"):
            text = base + text
        elif not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", text):
            text = urljoin(base + url.target, text)
        target = Url.parse(text)
    except SourceValueError as error:
        raise TransferError(f"redirect to an invalid url: {error}", retry=False) from None
    except ValueError:  # urljoin
        raise TransferError(f"redirect to an invalid url: not an http url: {bare(text)}", retry=False) from None
    if url.scheme == "https" and target.scheme == "http":
        raise TransferError("redirect from https to http refused", retry=False)
    return target


def same_place(a: Url, b: Url) -> bool:
    """Whether what is secret at `a` may be told at `b`: the same host and port, or the same host's https instead of http."""
    ends = (a.scheme, a.port, b.scheme, b.port)
    return a.host == b.host and (ends[:2] == ends[2:] or ends == ("http", 80, "https", 443))
