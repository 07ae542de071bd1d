"""Requests to the database's API, with the key, retries, and the server's reasons for a refusal. Urls and errors never show the key."""

import json
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlencode

from datago.errors import SourceOSError, SourceValueError, printable
from datago.net import policy
from datago.net.cancel import Stopped, TransferError
from datago.net.http import HttpObject, same_place
from datago.net.json_text import parse_json
from datago.net.keep_alive import IdleConnections
from datago.net.url import Url, bare, redact_text
from datago.threads import Flag

BLOCK = 1 << 14  # bytes that are received, or inflated, at a time
MAX_REFUSAL_BYTES = 1 << 16  # of the body of an error response
LONG_LINE = 4000  # bytes of a request line that every server accepts; common limits are 4094 (gunicorn) and 8192


class TooLong(Exception):
    """A body is longer than its limit."""


class Answer(NamedTuple):
    """A response after all redirects; `url` is the last one."""

    status: int
    headers: dict[str, str]
    body: bytearray
    url: str


class Api:
    """
    Args:
        base: the API's url, with or without a slash at the end.
        key: the API key, sent as `Authorization: Token <key>` to the host of `base` only.
        timeout: seconds without data after which a request is given up.
        attempts: how often a page is requested at most, if the network fails or the status is 408, 429 or 5xx.
        max_bytes: the size limit of a response body after decompression.

    Raises:
        SourceValueError: the url, the key or the user agent cannot be used.
    """

    def __init__(self, base: str, key: str, user_agent: str, timeout: float, attempts: int, max_bytes: int) -> None:
        key = key.strip()
        try:
            self._place = Url.parse(base)
            usable = not re.search("[?#]", base)
        except ValueError:
            usable = False
        if not usable:
            raise SourceValueError(f"api_url (or DATAROOM_API_URL): got {bare(base)!r}, wanted a http or https url without query")
        if not re.fullmatch(r"[!-~]+", key):
            raise SourceValueError("api_key (or DATAROOM_API_KEY): wanted printable ASCII characters without spaces")
        if not re.fullmatch(r"[ -~]*", user_agent):
            raise SourceValueError("user_agent: wanted printable ASCII characters only")
        self.base = base if base.endswith("/") else base + "/"
        self.where = bare(self.base)
        self._key, self._user_agent, self._timeout, self._attempts, self._max_bytes = key, user_agent, timeout, attempts, max_bytes
        self._stopped = Flag()
        self._idle = IdleConnections()

    def __repr__(self) -> str:
        return f"<Api {self.where}>"

    def stop(self) -> None:
        """Ends all requests, within a tenth of a second. Any thread may call it."""
        self._stopped.set()
        self._idle.close()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def is_ours(self, url: str) -> bool:
        """Whether `url` is on the API's host, so that the key may be sent to it. Raises ValueError if it is no url."""
        return bool(same_place(self._place, Url.parse(url)))

    def get(self, url: str, params: list[tuple[str, Any]] | None, what: str, attempts: int | None = None) -> tuple[Any, str] | None:
        """Requests `url` with GET. `what` names the request in errors.

        Returns:
            The parsed JSON and the url of the response after redirects, or None once stopped.

        Raises:
            SourceOSError: no response after all attempts, or an error status.
            SourceValueError: the request itself was refused (400, 414, 431), or the response is too long or not JSON.
        """
        url = f"{url}?{urlencode(params)}" if params else url
        attempts = attempts or self._attempts
        for attempt in range(1, attempts + 1):
            least, problem = 0.0, ""
            fatal: type[SourceOSError] | type[SourceValueError] | None = None
            try:
                answer = self._ask(url, what, self._idle if attempt == 1 < attempts else None)
            except Stopped:
                return None
            except TransferError as fault:
                problem, fatal = f"{self._shown(str(fault))}{_length(url)}", None if fault.retry else SourceOSError
            else:
                if answer.status == 200:
                    try:
                        return self._content(answer, url, what)
                    except SourceValueError:
                        # A response without a length may have been cut off, so it is requested again.
                        if attempt == attempts or {"content-length", "transfer-encoding"} & set(answer.headers):
                            raise
                said = self._detail(answer)
                problem, least = f"HTTP {answer.status}{said}", policy.retry_after(answer.headers.get("retry-after", "")) or 0
                if answer.status in (414, 431) or answer.status == 400 and not said:
                    problem += _length(url)
                passing = answer.status == 200 or policy.is_retried(answer.status)
                if passing and least > policy.MAX_RETRY_AFTER:
                    problem += f"; asks to come again in {least:.0f} s"
                if not passing or least > policy.MAX_RETRY_AFTER:
                    fatal = SourceValueError if answer.status in (400, 414, 431) else SourceOSError
            if fatal:
                raise fatal(f"{what}: {problem}; from {bare(url)}")
            if attempt < attempts and not self.stopped:
                self._stopped.wait(max(policy.backoff(attempt), least))
            if self.stopped:
                return None
        raise SourceOSError(f"{what}: {problem} (attempt {attempt} of {attempts}); from {bare(url)}")

    def _ask(self, url: str, what: str, idle: IdleConnections | None) -> Answer:
        """One attempt. Raises TransferError, Stopped, SourceValueError."""
        try:
            request = HttpObject(url, self._key, self._user_agent, self._stopped.is_set, self._timeout, "Token", idle)
        except ValueError as error:
            raise SourceValueError(f"{what}: {self._shown(str(error))}") from None
        place, response = request.follow({"Accept-Encoding": "gzip, deflate"})
        user = f"{place.user}@" if place.user else ""
        try:
            body, limit = bytearray(), self._max_bytes if response.status == 200 else MAX_REFUSAL_BYTES
            for block in _limited(_inflated(_limited(_blocks(response), limit), response), limit):
                body += block
            response.finish()
        except TooLong:
            if response.status == 200:
                raise SourceValueError(f"{what}: the response has more than {limit} bytes; from {bare(url)}") from None
        except TransferError:
            if response.status == 200:
                raise  # The body of an error response may be incomplete.
        finally:
            response.close()
        return Answer(response.status, response.headers, body, f"{place.scheme}://{user}{place.place}{place.target}")

    def _content(self, answer: Answer, url: str, what: str) -> tuple[Any, str]:
        try:
            return parse_json(answer.body), answer.url
        except ValueError as error:
            kind = self._shown(answer.headers.get("content-type", "no content type")[:100])
            moved = f", redirected to {bare(answer.url)}" if bare(answer.url) != str(Url.parse(url)) else ""
            raise SourceValueError(
                f"{what}: the answer is not JSON but {len(answer.body)} bytes ({kind}){moved}: is api_url right? "
                f"{self._shown(str(error)[:100])}; from {bare(url)}"
            ) from None

    def _detail(self, answer: Answer) -> str:
        """The server's reason for a refusal, on one line: {"detail": text}, a list of texts, or an object of parameter -> such a list."""
        try:
            said = parse_json(answer.body)
        except ValueError:
            return ""
        said = said["detail"] if isinstance(said, dict) and "detail" in said else said
        texts = [said] if isinstance(said, str) else said.values() if isinstance(said, dict) else said
        texts = [one for text in texts for one in (text if isinstance(text, list) else [text])] if isinstance(texts, Iterable) else [None]
        if not all(isinstance(text, str) for text in texts):
            return ""
        return ": " + self._shown(json.dumps(said, ensure_ascii=False)[:200])

    def _shown(self, text: str) -> str:
        """Text from a server or library without the key, and without the users and queries of urls in it."""
        return str(redact_text(text, self._key))


def _blocks(response: Any) -> Iterator[bytes]:
    """Yields the body in blocks as it arrives. Raises TransferError if it is cut off."""
    block = memoryview(bytearray(BLOCK))
    while count := response.readinto(block):
        yield bytes(block[:count])


def _limited(blocks: Iterable[bytes], limit: int) -> Iterator[bytes]:
    for block in blocks:
        limit -= len(block)
        if limit < 0:
            raise TooLong
        yield block


def _inflated(blocks: Iterable[bytes], response: Any) -> Iterator[bytes]:
    """Decompresses the blocks by the response's Content-Encoding, into blocks of BLOCK bytes at most. Raises TransferError if they are
    damaged or end early."""
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding in ("", "identity"):
        yield from blocks
        return
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise TransferError(f"content coding {printable(coding[:40])!r}, wanted gzip or deflate", retry=False)
    inflater = None
    for block in blocks:
        while block and (inflater is None or not inflater.eof or block[:1] == b"\x1f"):  # Padding may follow the end.
            if inflater is None or inflater.eof:
                # By the standard deflate is a zlib stream, but some servers send it without header and checksum.
                inflater = zlib.decompressobj(31 if "gzip" in coding else 15 if block[0] & 15 == 8 else -15)
            try:
                yield inflater.decompress(block, BLOCK)
            except zlib.error:
                raise TransferError(f"damaged {coding} body") from None
            block = inflater.unconsumed_tail or inflater.unused_data
    if inflater is not None and not inflater.eof:
        yield inflater.flush()  # output that the last call held back because of BLOCK
    if inflater is not None and not inflater.eof:
        raise TransferError(f"the {coding} body ended early")


def _length(url: str) -> str:
    """For errors: the length of a request line that some servers may refuse, and its longest parameter; otherwise empty."""
    if len(url) < LONG_LINE:
        return ""
    part = max(url.partition("?")[2].split("&"), key=len)
    name = printable(part.partition("=")[0][:40])
    return f" (the request line has {len(url)} bytes, {len(part)} of them for {name}: the server may have a lower limit)"
