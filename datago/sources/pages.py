"""The pages of the database: asked for in a thread of their own, one ahead, and checked."""

import hashlib
import queue
import time
import zlib
from urllib.parse import urljoin, urlsplit

from datago._fetch import redacted
from datago.errors import SourceError, SourceOSError, SourceValueError
from datago.sources.records import BadRecord, identity
from datago.sources.window import BEGINNING
from datago.threads import Bell, start_thread

BARREN = 8  # random draws in a row that bring nothing new, after which there is taken to be no more
HOSTED_SHARE = 100 / 16**5  # of all images, that the hosted service finds in a draw


class Pages:
    """Walks over the pages.

    Args:
        api: an Api.
        config: a checked source_config.
        params: the query of the first request.
        patience: seconds after which a page that does not come is an error, whatever goes on in the thread.

    `get` gives lists of records with the page's url, until `ended`; then `error` says whether well.
    """

    def __init__(self, api, config, params, patience):
        self._api, self._config, self._params, self._patience = api, config, params, patience
        self._arrived, self._used = queue.SimpleQueue(), Bell()
        self._waited = None
        self.ended, self.error = False, None

    def start(self):
        # It may be inside a request that takes its time when everything else is over: nobody waits for it.
        start_thread(self._run, "datago pages")

    def get(self, timeout):
        """(records, url) of the next page, or None if there is none yet, or no more (then `ended` is set)."""
        if self.ended:
            return None
        self._waited = self._waited or time.monotonic()
        try:
            found = self._arrived.get(timeout=timeout) if timeout else self._arrived.get_nowait()
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

    def stop(self):
        self._api.stop()
        self._used.ring()
        self._arrived.put(None)  # wakes who waits

    def _run(self):
        error = None
        try:
            for page in self._random() if self._config.random_sampling else self._rest():
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
        self._api.close()
        self._arrived.put(error)

    # ---- in order ----

    def _rest(self):
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

    def _walk(self, cursor):
        """All pages behind an id; None: from the first."""
        url, number = f"{self._api.base}images/", 0
        params = [*self._params, ("cursor", cursor)] if cursor is not None else self._params
        visited, fingerprints = set(), set()
        while True:
            number += 1
            answer = self._ask(url, params, number)
            if answer is None or not answer[0]:
                return  # stopped, or the end: only an empty page is one
            records, following, page_url = answer
            fingerprint = hash(tuple(repr(r.get("id", r) if isinstance(r, dict) else r) for r in records))
            if fingerprint in fingerprints:
                raise SourceValueError(f"page {number} is the same as one before; from {redacted(url)}")
            fingerprints.add(fingerprint)
            yield records, page_url
            if following is None:
                return
            visited.add(_digest(url))
            url, params = self._follow(following, page_url, number), None
            if _digest(url) in visited:
                raise SourceValueError(f"page {number} leads back to one before: {redacted(url)}")

    def _follow(self, following, page_url, number):
        """Where `next` leads. Within the same scheme and host only, as the key goes along."""
        try:
            url = urljoin(page_url, following)
            same = _origin(url) == _origin(page_url)
        except ValueError:
            same = False
        if not same:
            raise SourceValueError(
                f"page {number} leads to another host: {redacted(following)}, from {redacted(page_url)}"
            )
        return url

    def _ask(self, url, params, number):
        answer = self._api.get(url, params, f"page {number}")
        if answer is None:
            return None
        content, page_url = answer
        records = content.get("results") if isinstance(content, dict) else None
        if not isinstance(records, list) or "next" not in content or not isinstance(content["next"], str | None):
            raise SourceValueError(
                f"page {number}: wanted an object with results (a list) and next (a url or null); "
                f"from {redacted(page_url)}"
            )
        return records, content["next"], page_url

    # ---- at random ----

    def _random(self):
        """Draws again and again until that brings nothing new.

        A draw finds the images whose hashes begin with one of some random prefixes, and cuts what is found at
        page_size, in the order of ids. So too few prefixes find nothing, and with too many only the first ids come.
        """
        known, share, barren, number = set(), None, 0, 0
        while barren < BARREN:
            number += 1
            answer = self._ask(f"{self._api.base}images/random/", [*self._params, *_prefixes(share)], number)
            if answer is None:
                return
            fresh = []
            for record in answer[0]:
                name = _identity(record)
                if name not in known:
                    known.add(name)
                    fresh.append((name, record))
            # The server draws for each stream alike: whose an image is, its id says.
            mine = [
                record
                for name, record in fresh
                if zlib.crc32(name.encode()) % self._config.streams == self._config.stream
            ]
            if mine:
                yield mine, answer[2]
            barren = 0 if fresh else barren + 1
            if not fresh:
                fill = len(answer[0]) / self._config.page_size
                change = 1 / 2 if fill >= 1 else 2 if fill > 1 / 16 else 16
                share = min(1, change * (share or (1 if fill >= 1 else HOSTED_SHARE)))


def _digest(url):
    """What is remembered of a url: a walk may have millions of them, each as long as its filters."""
    return hashlib.blake2b(url.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _prefixes(share):
    """The parameters for a draw that finds about that share of all images; None: what the server thinks best."""
    if share is None:
        return []
    length = 1
    while share < 1 and share * 16**length < 16:
        length += 1
    return [
        ("prefix_length", length),
        ("num_prefixes", max(1, min(300, round(share * 16**length))) if share < 1 else 300),
    ]


def _identity(record):
    try:
        return identity(record)
    except BadRecord:
        return ""  # the first of them is reported, the others are not told from it


def _origin(url):
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
