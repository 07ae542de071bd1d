"""Requests to the database's API: the key, retries, and what a refusal says. Its urls and errors never show the key."""

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

BLOCK = 1 << 14  # bytes that are received, and that they are inflated to, at a time
LONGEST_REFUSAL = 1 << 16  # bytes of an answer that is none
LONG_LINE = 4000  # bytes of a request line that every server takes; common limits are 4094 (gunicorn) and 8192


class TooLong(Exception):
    """More came than may."""


class Answer(NamedTuple):
    """What came, wherever redirects led to."""

    status: int
    headers: dict[str, str]
    body: bytearray
    url: str


class Api:
    """
    Args:
        base: the API's url, with or without a slash at the end.
        key: sent as `Authorization: Token <key>`, to this host alone.
        timeout: seconds of silence after which a request is given up.
        attempts: how often a page is asked for in all, if the network fails or the answer is 408, 429 or 5xx.
        most: bytes that an answer may have, inflated.

    Raises:
        SourceValueError: the url, the key or the user agent cannot be used.
    """

    def __init__(self, base: str, key: str, user_agent: str, timeout: float, attempts: int, most: int) -> None:
        key = key.strip()
        try:
            self._place = Url.parse(base)
            usable = not re.search("[?#]", base)
        except ValueError:
            usable = False
        if not usable:
            raise SourceValueError(f"api_url (or DATAROOM_API_URL): got {bare(base)!r}, wanted a http or https url without query")
        if not re.fullmatch(r"[!-~]+", key):
            raise SourceValueError("api_key (or DATAROOM_API_KEY): wanted one word of ASCII letters and signs")
        if not re.fullmatch(r"[ -~]*", user_agent):
            raise SourceValueError("user_agent: control characters, or others than ASCII")
        self.base = base if base.endswith("/") else base + "/"
        self.where = bare(self.base)
        self._key, self._user_agent, self._timeout, self._attempts, self._most = key, user_agent, timeout, attempts, most
        self._stopped = Flag()
        self._idle = IdleConnections()

    def __repr__(self) -> str:
        return f"<Api {self.where}>"

    def stop(self) -> None:
        """From any thread. A request that is under way ends within a tenth of a second."""
        self._stopped.set()
        self._idle.close()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def is_ours(self, url: str) -> bool:
        """Whether the key may be sent there. Raises ValueError for what is no url."""
        return bool(same_place(self._place, Url.parse(url)))

    def get(self, url: str, params: list[tuple[str, Any]] | None, what: str, attempts: int | None = None) -> tuple[Any, str] | None:
        """The JSON that a GET gives, and the url it came from; None once stopped.

        Raises:
            SourceOSError: no answer after all attempts, or a refusal.
            SourceValueError: a refusal because of what was asked for (400), an answer that is too long, or no JSON.
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
                        # Without a length, an answer that was cut looks like this.
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
            body, most = bytearray(), self._most if response.status == 200 else LONGEST_REFUSAL
            for block in _limited(_inflated(_limited(_blocks(response), most), response), most):
                body += block
            response.finish()
        except TooLong:
            if response.status == 200:
                raise SourceValueError(f"{what}: more than {most} bytes, too many for what was asked; from {bare(url)}") from None
        except TransferError:
            if response.status == 200:
                raise  # of a refusal what came is enough
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
        """What the server says about a refusal, on one line: {"detail": text}, a list of texts, or such lists of parameters."""
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
        """What others say, without the key, and without users and queries of urls that it may name."""
        return str(redact_text(text, self._key))


def _blocks(response: Any) -> Iterator[bytes]:
    """The body as it comes. Raises TransferError where it is cut."""
    block = memoryview(bytearray(BLOCK))
    while count := response.readinto(block):
        yield bytes(block[:count])


def _limited(blocks: Iterable[bytes], most: int) -> Iterator[bytes]:
    for block in blocks:
        most -= len(block)
        if most < 0:
            raise TooLong
        yield block


def _inflated(blocks: Iterable[bytes], response: Any) -> Iterator[bytes]:
    """The blocks without their content coding, none longer than BLOCK. Raises TransferError where they are damaged or end early."""
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding in ("", "identity"):
        yield from blocks
        return
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise TransferError(f"content coding {printable(coding[:40])!r}, asked for was gzip or deflate", retry=False)
    machine = None
    for block in blocks:
        while block and (machine is None or not machine.eof or block[:1] == b"\x1f"):  # else it is padding behind the end
            if machine is None or machine.eof:
                # deflate is a zlib stream by the standard, without head and tail by some servers
                machine = zlib.decompressobj(31 if "gzip" in coding else 15 if block[0] & 15 == 8 else -15)
            try:
                yield machine.decompress(block, BLOCK)
            except zlib.error:
                raise TransferError(f"damaged {coding} body") from None
            block = machine.unconsumed_tail or machine.unused_data
    if machine is not None and not machine.eof:
        yield machine.flush()  # what a call held back for its length; there is no input left
    if machine is not None and not machine.eof:
        raise TransferError(f"the {coding} body ended early")


def _length(url: str) -> str:
    """The length of a request line that some servers would not take, and what makes it long."""
    if len(url) < LONG_LINE:
        return ""
    part = max(url.partition("?")[2].split("&"), key=len)
    name = printable(part.partition("=")[0][:40])
    return f" (the request line has {len(url)} bytes, {len(part)} of them for {name}: the server may not take as many)"
