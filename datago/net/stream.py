"""Bytes over a network: one object as a stream of blocks, from its first byte to its last, whatever happens in between.

    open_stream ──► Stream: blocks, attempts, backoff ──► HttpObject | FsspecObject | FileObject: one attempt's bytes

A stream is used by one thread, and holds one connection at a time. What it raises, logs and shows has no query, user name,
password or token in it.
"""

import logging
import re
import time
from typing import TYPE_CHECKING, Any

from datago.errors import RemoteError, SourceValueError, source_os_error
from datago.net import policy
from datago.net.byte_source import ByteSource, SourceReader
from datago.net.cancel import HostOut, ReadIdle, StopCheck, Stopped, TransferError, check, pause, watcher
from datago.net.http import HttpObject
from datago.net.keep_alive import IdleConnections
from datago.net.storage import FileObject, FsspecObject
from datago.net.url import local_path, redact, redact_text, scheme_of
from datago.versions import own

if TYPE_CHECKING:
    from datago.net.cache import Cache

__all__ = ["Stopped", "Stream", "open_stream", "read_whole"]

LONGEST_TEXT = 1000  # of what is said of a fault; libraries and servers may say much
LINGER = 0.5  # seconds after which a block leaves though it is not full: a slow shard's samples need not wait

log = logging.getLogger(__name__)


def open_stream(
    url: str,
    *,
    token: str = "",
    timeout: float = 30.0,
    attempts: int = 5,
    stop: Any = None,
    block_size: int = 1 << 20,
    cache: "Cache | None" = None,
    user_agent: str = "",
    idle: IdleConnections | None = None,
    hosts: policy.Hosts | None = None,
) -> "Stream":
    """The bytes of one object, in blocks. Nothing is opened before the first block is asked for.

    Args:
        url: http(s)://, file://, a local path, or a scheme that fsspec knows (s3://, gs://, hf://, az:// …). Sent as given:
            only blanks, control characters and bytes beyond ASCII are escaped.
        token: sent as `Authorization: Bearer`, to the url's own host only.
        timeout: seconds without a byte after which an attempt is given up. The whole has no limit.
        attempts: attempts in a row that bring no new byte, before the object is given up.
        stop: an Event, or a callable that returns true; seen within 0.2 s.
        block_size: bytes of a block; the last one, and those of a slow network, are shorter.
        cache: a Cache: the object is read from it, or kept in it once read to a certain end. Local files are not.
        user_agent: "datago/<version>" if empty.
        idle: connections of which the first of several attempts may use one, and where it is left at the end.
        hosts: those that cannot be reached, shared with others: http streams fail at once where one of them found that out.

    Returns:
        A Stream.

    Raises:
        SourceValueError: the url, token or user_agent cannot be sent.
    """
    watched, hosts = watcher(stop), hosts or policy.unreachable_hosts()
    source: ByteSource
    for name, text in (("auth_token", token), ("user_agent", user_agent)):
        if not re.fullmatch(r"[ -~]*", text.strip()):
            raise SourceValueError(f"{name}: control characters, or others than ASCII")
    scheme = scheme_of(url)
    if scheme in ("", "file"):
        path = local_path(url)
        return Stream(FileObject(path), path, "", watched, 1, block_size, hosts)
    if scheme in ("http", "https"):
        kept = idle if attempts > 1 else None  # the server may have closed it, so that a retry is needed
        agent = user_agent.strip() or f"datago/{own()}"
        source = HttpObject(url, token.strip(), agent, watched, timeout, idle=kept, hosts=hosts)
    else:
        source = FsspecObject(url, watched, timeout)
    if cache:
        source = cache.through(url, source)
    return Stream(source, url, token.strip(), watched, attempts, block_size, hosts)


class Stream(SourceReader):
    """An iterator of the blocks of one object: bytes or bytearrays, at least one byte each.

    Iterating raises RemoteError (SourceOSError for a local file) when the object cannot be had whole, and Stopped when told
    to stop; the blocks before are good, and none comes twice. After either the stream is over.

    Attributes:
        position: bytes handed out.
        size: bytes of the whole, None while unknown.
        checked: whether the end was told from a cut; false for HTTP without length, whose end only the reader of the bytes can
            judge (see `resume`).
        retries: attempts after the first.
    """

    def __init__(
        self, source: ByteSource, url: str, token: str, stop: StopCheck, attempts: int, block_size: int, hosts: policy.Hosts
    ) -> None:
        self._source, self._url, self._token, self._stop = source, url, token, stop
        self._attempts, self._block_size, self._hosts = attempts, block_size, hosts
        self._failures = 0  # attempts without progress
        self._unreached = 0  # attempts in a row that did not reach the server
        self._fault: TransferError | None = None  # it is raised after the shortened block before it
        self._state = "new"
        self.position = self.retries = 0

    def __repr__(self) -> str:
        return f"<Stream of {redact(self._url)}, {self.position} bytes read, {self._state}>"

    def __iter__(self) -> "Stream":
        return self

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> bytes | bytearray:
        if self._state in ("ended", "closed"):
            raise StopIteration
        try:
            block = self._next_block()
        except BaseException:
            self.close()
            raise
        if block:
            self.position += len(block)
            return block
        self._source.disconnect()
        self._state = "ended"
        raise StopIteration

    def skip(self, size: int) -> int:
        """Skips some of the next `size` bytes without reading them, in a local file only. Returns how many."""
        if self._state != "open" or self._fault or not isinstance(self._source, FileObject):
            return 0
        skipped = self._source.skip(size)
        self.position += skipped
        return skipped

    def close(self) -> None:
        self._source.close()
        self._state = "closed"

    def resume(self, reason: str) -> None:
        """Reports that the object cannot have ended there, by what its bytes say. The stream goes on from there, as after any fault."""
        if self._state == "ended" and not self.checked:
            self._state, self._fault = "open", TransferError(reason)
        else:
            raise self._error(TransferError(reason))

    def _next_block(self) -> bytes | bytearray:
        while True:
            try:
                check(self._stop)
                if self._fault:
                    fault, self._fault = self._fault, None
                    raise fault
                if self._state == "new":
                    self._source.open()
                    self._state = "open"
                block = self._read_block()
                if block:
                    self._failures = 0
                elif self.size is not None and self.position != self.size:
                    raise TransferError(f"incomplete download: {self.position} of {self.size} bytes")
                return block
            except TransferError as fault:
                self._back_off(fault)
            except OSError as error:
                if isinstance(self._source, FileObject):
                    raise source_os_error(error, "shard", self._url) from None
                self._back_off(TransferError(error.strerror or type(error).__name__))

    def _read_block(self) -> bytes | bytearray:
        """Up to a block of bytes, none at the end; a fault after the first byte is raised by the next call."""
        size = self._block_size if self.size is None else max(1, min(self._block_size, self.size - self.position))
        block, filled, start = bytearray(size), 0, time.monotonic()
        view = memoryview(block)
        try:
            while filled < size:
                count = self._source.readinto(view[filled:], LINGER if filled else None)
                if not count:
                    break
                filled += count
                if time.monotonic() - start > LINGER:
                    break
        except ReadIdle:
            pass
        except TransferError as fault:
            if not filled:
                raise
            self._fault = fault
        return block if filled == size else bytes(view[:filled])

    def _back_off(self, fault: TransferError) -> None:
        """Waits before the next attempt; raises if there is none."""
        self._source.disconnect()
        self._state = "new"
        self._failures += not isinstance(fault, HostOut)
        self._unreached = self._unreached + 1 if fault.place else 0
        if not fault.retry or self._failures >= self._attempts:
            if fault.place:
                self._hosts.ended(fault.place, str(fault), self._unreached, self._attempts, not fault.retry)
            raise self._error(fault) from None
        self.retries += 1
        log.info("%s: %s; attempt %d follows", redact(self._url), self._clean(fault), self._failures + 1)
        pause(policy.backoff(self._failures), self._stop)  # and HttpObject.open waits for what is left of a Retry-After

    def _error(self, fault: TransferError) -> RemoteError:
        times = f" ({self._failures} attempts)" if self._failures > 1 else ""
        url = redact(self._url)
        return RemoteError(f"{url}: {self._clean(fault)}{times}", url, self._failures, fault.status)

    def _clean(self, fault: TransferError) -> str:
        """The fault's text, without secrets of ours that a server or a library may have repeated."""
        text = str(fault).replace(self._url, redact(self._url))
        return redact_text(text[:LONGEST_TEXT], self._token, self._url.partition("?")[2])


def read_whole(url: str, most: int, **options: Any) -> bytes:
    """All bytes of one object that should not be longer than `most`; `options` as for open_stream."""
    data = bytearray()
    with open_stream(url, **options) as stream:
        for block in stream:
            data += block
            if len(data) > most:
                raise SourceValueError(f"{redact(url)}: longer than {most} bytes")
    return bytes(data)
