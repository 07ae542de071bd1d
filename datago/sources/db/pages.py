"""The pages of the database: asked for in a thread of their own, one ahead, and checked."""

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

# There is taken to be no more when so many draws in a row bring nothing new, and so many records of them, or nothing at all by chance.
MAX_EMPTY_DRAWS, KNOWN, EMPTY = 8, 64, 64
LACKING_MOST = 0.1  # share of the records that the server counts, that may be missing at the end: others come and go during a walk
Params = list[tuple[str, Any]]  # of a query
Page = tuple[list[Any], str]  # records, and the page's url
NOT_FILTERS = ("fields", "page_size", "return_latents")

log = logging.getLogger("datago.source")


def ask_count(api: Api, params: Params, attempts: int | None = None) -> int | None:
    """How many records the server counts for the query of a walk; None once stopped. Raises SourceError."""
    answer = api.get(f"{api.base}images/count/", [(name, value) for name, value in params if name not in NOT_FILTERS], "count", attempts)
    if answer is None:
        return None
    count = answer[0].get("count") if isinstance(answer[0], dict) else None
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < 2**63:
        raise SourceValueError(f"count: {api.where} gave no number")
    return count


class Pages:
    """Walks over the pages.

    Args:
        api: an Api.
        config: what the source is made of.
        params: the query of the first request.
        patience: seconds after which a page that does not come is an error, whatever goes on in the thread.

    `get` gives lists of records with the page's url, until `ended`; then `error` says whether well.
    """

    def __init__(self, api: Api, config: PassSettings[DbSettings], params: Params, patience: float) -> None:
        self._api, self._config, self._params, self._patience = api, config, params, patience
        self._arrived: queue.SimpleQueue[Page | BaseException | None] = queue.SimpleQueue()
        self._used, self.ended = Bell(), False
        self._waited: float | None = None
        self.error: BaseException | None = None

    def start(self) -> None:
        # Nobody waits for it: when everything else is over, it may still have to see that it was stopped.
        start_thread(self._run, "datago pages")

    def get(self, timeout: float) -> Page | None:
        """(records, url) of the next page, or None if there is none yet, or no more (then `ended` is set)."""
        if self.ended:
            return None
        self._waited = self._waited or time.monotonic()
        try:
            found: Page | BaseException | None = self._arrived.get(timeout=timeout) if timeout else self._arrived.get_nowait()
        except queue.Empty:
            if time.monotonic() - self._waited < self._patience:
                return None
            found = SourceOSError(f"no page came within {self._patience:.0f} s from {self._api.where}")
        self._waited = None
        if found is None or isinstance(found, BaseException):
            self.ended, self.error = True, found
            return None
        self._used.ring()
        return found

    def stop(self) -> None:
        self._api.stop()
        self._used.ring()
        self._arrived.put(None)  # wakes who waits

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            for page in self._random() if self._config.source.random_sampling else self._rest():
                if not self._api.stopped:  # else it may be one that is not the next
                    self._arrived.put(page)
                    self._used.wait(-1)  # one page is fetched while the one before is used, not more
                if self._api.stopped:
                    break
        except SourceError as problem:
            problem.__context__ = None  # this and the traceback would keep an answer alive, and its connection open
            error = problem.with_traceback(None)
        except BaseException as problem:
            error = problem
        self._arrived.put(error)

    # ---- in order ----

    def _rest(self) -> Iterator[Page]:
        """What was not handed out: of the records before the id `last` those that were missing, then all behind it.

        Where the second walk begins, the first one ends: records that were deleted, `last` among them, are not waited for.
        """
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
        """All pages behind an id; None: from the first."""
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
                # Only an empty page is the end; but a search that ran out of time gives one too, so it is asked for once more.
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
        """How many records the server counts beyond those that came; 0 where it does not say, and on the rest of an epoch."""
        counted = self._counted() if self._config.resume is None else None
        return 0 if counted is None else max(0, counted - walked)

    def _counted(self) -> int | None:
        try:
            return ask_count(self._api, self._params, attempts=1)
        except SourceError as error:
            log.debug("the number of records is not known: %s", error)
            return None

    def _conclude(self, walked: int, lacking: int) -> None:
        """A walk ends early without a word where the server's searches run out of time; it also lacks what was added meanwhile."""
        if not lacking:
            return
        text = f"the pages ended after {walked} of the {walked + lacking} records that the server counts; from {self._api.where}"
        if lacking > (walked + lacking) * LACKING_MOST:
            raise SourceOSError(text)
        log.warning("%s", text)

    def _follow(self, following: str, page_url: str, number: int) -> str:
        """Where `next` leads: always to where the key may go.

        A server behind a proxy names itself as it was asked, which may be by another host, scheme, port or folder. So of such a url
        the query alone counts, which is what says where the walk goes on; the rest is that of this page.
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
        """Draws again and again until that brings nothing new."""
        known, barren, repeated, empty, number = set[str](), 0, 0, 0, 0
        draws, rng_state = Draws(self._config.source.page_size, self._counted()), random.Random()
        while (barren < MAX_EMPTY_DRAWS or repeated < KNOWN) and empty < EMPTY:
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
            # The server draws for each stream alike: whose an image is, its id says.
            mine = [record for name, record in fresh.items() if zlib.crc32(name.encode()) % self._config.streams == self._config.stream]
            rng_state.shuffle(mine)  # they came in the order of ids, and a limit may cut them off
            if mine:
                yield mine, answer[2]
            empty = 0 if answer[0] or whole else empty + 1
            barren = 0 if fresh else barren + (not empty)
            repeated = 0 if fresh else repeated + max(len(answer[0]), KNOWN // MAX_EMPTY_DRAWS if whole else 0)


def _cursor(url: str) -> str:
    """The id that a page begins behind, "" where the url does not say it."""
    return "".join(parse_qs(url.partition("?")[2]).get("cursor", [])[:1])


def _digest(place: str) -> bytes:
    """What is remembered of a cursor or url: a walk may have millions of them."""
    return hashlib.blake2b(place.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _identity(record: Any) -> str:
    try:
        return identity(record)
    except BadRecord:
        return ""  # the first of them is reported, the others are not told from it
