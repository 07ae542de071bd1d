"""Requests the pages of the database in a thread of their own, one page ahead, and checks them."""

import hashlib
import logging
import queue
import random
import time
import zlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urljoin

from datago.errors import SourceError, SourceOSError, SourceValueError
from datago.net.url import bare
from datago.sources.db.api import Api
from datago.sources.db.draws import Draws
from datago.sources.db.records import BadRecord, identity
from datago.sources.db.settings import DbSettings
from datago.sources.db.window import BEGINNING
from datago.sources.settings import PassSettings
from datago.threads import Bell, start_thread

# A random pass ends after MAX_EMPTY_DRAWS draws in a row without a new image that returned MIN_KNOWN images, or MAX_NO_RESULT without any.
MAX_EMPTY_DRAWS, MIN_KNOWN, MAX_NO_RESULT = 8, 64, 64
MAX_LACKING = 0.1  # the share of the counted records that a walk may lack at its end, since records are added and deleted meanwhile
Params = list[tuple[str, Any]]  # of a query
Page = tuple[list[Any], str]  # records, and the page's url
NOT_FILTERS = ("fields", "page_size", "return_latents")

log = logging.getLogger("datago.source")


def ask_count(api: Api, params: Params, attempts: int | None = None) -> int | None:
    """How many records the server counts for the query of a walk, or None once stopped. Raises SourceError."""
    answer = api.get(f"{api.base}images/count/", [(name, value) for name, value in params if name not in NOT_FILTERS], "count", attempts)
    if answer is None:
        return None
    count = answer[0].get("count") if isinstance(answer[0], dict) else None
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 2**63:
        raise SourceValueError(f"count: {api.where} returned no number")
    return count


class Pages:
    """Walks over the pages.

    Args:
        api: an Api.
        config: the settings of the pass.
        params: the query of the first request.
        timeout: seconds after which a page that has not arrived is an error, even if the thread hangs.

    `get` returns pages until `ended` is set. Then `error` is the exception that ended the walk, or None.
    """

    def __init__(self, api: Api, config: PassSettings[DbSettings], params: Params, timeout: float) -> None:
        self._api, self._config, self._params, self._timeout = api, config, params, timeout
        self._arrived: queue.SimpleQueue[Page | BaseException | None] = queue.SimpleQueue()
        self._used, self.ended = Bell(), False
        self._waited: float | None = None
        self.error: BaseException | None = None

    def start(self) -> None:
        # The thread is never joined: it may still need a moment to notice that it was stopped when everything else has ended.
        start_thread(self._run, "datago pages")

    def get(self, timeout: float) -> Page | None:
        """(records, url) of the next page, or None if it has not arrived within `timeout` seconds or if `ended` is set now."""
        if self.ended:
            return None
        self._waited = self._waited or time.monotonic()
        try:
            found: Page | BaseException | None = self._arrived.get(timeout=timeout) if timeout else self._arrived.get_nowait()
        except queue.Empty:
            if time.monotonic() - self._waited < self._timeout:
                return None
            found = SourceOSError(f"read timed out: no page for {self._timeout:.0f} s from {self._api.where}")
        self._waited = None
        if found is None or isinstance(found, BaseException):
            self.ended, self.error = True, found
            return None
        self._used.ring()
        return found

    def stop(self) -> None:
        self._api.stop()
        self._used.ring()
        self._arrived.put(None)  # wakes a thread in `get`

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            for page in self._random() if self._config.source.random_sampling else self._rest():
                if not self._api.stopped:  # After a stop, pages before this one may be missing.
                    self._arrived.put(page)
                    self._used.wait(-1)  # No more than one page is requested ahead of the page in use.
                if self._api.stopped:
                    break
        except SourceError as problem:
            problem.__context__ = None  # The context and the traceback would keep a response alive, and its connection open.
            error = problem.with_traceback(None)
        except BaseException as problem:
            error = problem
        self._arrived.put(error)

    # ---- in order ----

    def _rest(self) -> Iterator[Page]:
        """The pages of all records that were not handed out: first the missing ones up to the id `last`, then all records after it. The
        walk for the missing records ends where the other one begins, so that it does not look for records that were deleted."""
        resume = self._config.resume or BEGINNING
        behind, missing = self._walk(resume["last"]), set(resume["missing"])
        if missing:
            page = next(behind, ([], ""))
            end = {_identity(record) for record in page[0]} - {""}
            for records, page_url in self._walk(resume["after"]):
                named = {_identity(record): record for record in records}
                yield [named[name] for name in named if name in missing], page_url
                missing -= named.keys()
                if not missing or not end.isdisjoint(named):
                    break
            yield page
        yield from behind

    def _walk(self, cursor: str | None) -> Iterator[Page]:
        """All pages after the id `cursor`, or from the first page on if it is None."""
        url, number = f"{self._api.base}images/", 0
        params: Params | None = [*self._params, ("cursor", cursor)] if cursor is not None else self._params
        visited, fingerprints = {_digest(cursor or url)}, set()
        walked, again = 0, False
        while True:
            number += 1
            answer = self._ask(url, params, number)
            if answer is None:
                return  # stopped
            records, following, page_url = answer
            if records:
                walked, again = walked + len(records), False
                fingerprint = hash(tuple(map(_identity, records)))
                if fingerprint in fingerprints and any(map(_identity, records)):
                    raise SourceValueError(f"page {number} is the same as one before; from {bare(url)}")
                fingerprints.add(fingerprint)
                yield records, page_url
            if not records or following is None:
                # The server also returns an empty page if its search times out, so one that comes too early is requested once more.
                lacking = self._lacking(walked)
                if records or again or not lacking:
                    return self._conclude(walked, lacking)
                again = True
                continue
            url, params = self._follow(following, page_url, number), None
            place = _digest(_cursor(url) or url)
            if place in visited:
                raise SourceValueError(f"page {number} leads back to one before: {bare(url)}")
            visited.add(place)

    def _lacking(self, walked: int) -> int:
        """How many of the records that the server counts have not come; 0 if the server does not count, or if the walk was resumed."""
        counted = self._counted() if self._config.resume is None else None
        return 0 if counted is None else max(0, counted - walked)

    def _counted(self) -> int | None:
        try:
            return ask_count(self._api, self._params, attempts=1)
        except SourceError as error:
            log.debug("the number of records is not known: %s", error)
            return None

    def _conclude(self, walked: int, lacking: int) -> None:
        """Raises or warns if records are lacking at the end. A walk ends early without an error if the server's searches time out, and
        it also lacks records that were added meanwhile."""
        if not lacking:
            return
        text = f"the pages ended after {walked} of the {walked + lacking} records that the server counts; from {self._api.where}"
        if lacking > (walked + lacking) * MAX_LACKING:
            raise SourceOSError(text)
        log.warning("%s", text)

    def _follow(self, following: str, page_url: str, number: int) -> str:
        """The url of the next page, always on the host to which the key may be sent.

        A server behind a proxy may see another host, scheme, port or path than this client uses, and so name a `next` that this client
        cannot reach. Only the query of such a url is used, which says where the walk goes on; the rest is taken from this page's url.
        """
        try:
            url = urljoin(page_url, following)
            path, _, query = url.partition("#")[0].partition("?")
            if not self._api.is_ours(url) or path.endswith("/images/"):
                here = page_url if self._api.is_ours(page_url) else f"{self._api.base}images/"
                url = here.partition("?")[0] + (f"?{query}" if query else "")
                url.encode()
        except ValueError:
            raise SourceValueError(f"page {number} has an invalid next url: {bare(following[:200])}; from {bare(page_url)}") from None
        return url

    def _ask(self, url: str, params: Params | None, number: int) -> tuple[list[Any], str | None, str] | None:
        answer = self._api.get(url, params, f"page {number}")
        if answer is None:
            return None
        content, page_url = answer
        records = content.get("results") if isinstance(content, dict) else None
        if not isinstance(records, list) or "next" not in content or not isinstance(content["next"], str | None):
            raise SourceValueError(f"page {number}: wanted an object with results (a list) and next (a url or null); from {bare(page_url)}")
        return records, content["next"], page_url

    # ---- at random ----

    def _random(self) -> Iterator[Page]:
        """Draws again and again until draws bring no new images."""
        known, barren, repeated, empty, number = set[str](), 0, 0, 0, 0
        draws, rng_state = Draws(self._config.source.page_size, self._counted()), random.Random()
        while (barren < MAX_EMPTY_DRAWS or repeated < MIN_KNOWN) and empty < MAX_NO_RESULT:
            number += 1
            answer = self._ask(f"{self._api.base}images/random/", [*self._params, *draws.parameters()], number)
            if answer is None:
                return
            whole = draws.whole
            if not draws.note(len(answer[0])):
                continue
            fresh = {}
            for record in answer[0]:
                if (name := _identity(record)) not in known:
                    fresh[name] = record
            known |= fresh.keys()
            # The server draws from all images for every stream, so a hash of the id decides which stream takes an image.
            mine = [record for name, record in fresh.items() if zlib.crc32(name.encode()) % self._config.streams == self._config.stream]
            rng_state.shuffle(mine)  # They are in the order of ids, and the config's limit may cut them off.
            if mine:
                yield mine, answer[2]
            empty = 0 if answer[0] or whole else empty + 1
            barren = 0 if fresh else barren + (not empty)
            repeated = 0 if fresh else repeated + max(len(answer[0]), MIN_KNOWN // MAX_EMPTY_DRAWS if whole else 0)


def _cursor(url: str) -> str:
    """The id after which a page begins, or "" if the url has no cursor."""
    return "".join(parse_qs(url.partition("?")[2]).get("cursor", [])[:1])


def _digest(place: str) -> bytes:
    """A short hash of a cursor or url, since a walk may have to remember millions of them."""
    return hashlib.blake2b(place.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _identity(record: Any) -> str:
    try:
        return identity(record)
    except BadRecord:
        return ""  # All records without a valid id look the same; the first one is reported.
