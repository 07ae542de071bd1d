"""The database source: pages of records over HTTP, and many small downloads at once."""

import logging
import os
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from datago import environment
from datago.engine._sample import Entry, Failure
from datago.errors import SourceValueError, raise_kept
from datago.net._fetch import Fetcher
from datago.sources.db import filters
from datago.sources.db.api import Api
from datago.sources.db.pages import Pages, ask_count
from datago.sources.db.records import BadRecord, Record, identity
from datago.sources.db.settings import DbSettings
from datago.sources.db.window import Window
from datago.sources.settings import PassSettings

log = logging.getLogger("datago.source")

PAGE_MARGIN_S = 30  # seconds beyond its timeout that each attempt at a page may take before the page is given up
PAGE_CHECK_S = 0.01  # seconds between two checks for a page that has not arrived, while downloads are under way
NO_ORDER = "random_sampling: the server draws at random; such a pass has no order that can be resumed"

MAX_PAGE_BYTES, MAX_RECORD_BYTES = 1 << 26, 1 << 16  # A page may have so many bytes, inflated, and so many more for each of its records.


def parameters(config: PassSettings[DbSettings]) -> list[tuple[str, Any]]:
    """The query of a walk, as a list of (name, value) pairs of the dataroom API."""
    source = config.source
    # Masks that has_masks names are always downloaded.
    names = [*(source.return_latents or source.has_latents).split(","), *source.has_masks.split(",")]
    latents = ",".join(dict.fromkeys(filter(None, names)))
    fields = ["id", "source", "attributes", "tags"]
    fields += ["image_direct_url"] if source.require_images else []
    fields += ["latents"] if latents else []
    fields += ["coca_embedding"] if source.require_embeddings else []
    fields += ["duplicate_state"] if source.duplicate_state != -1 else []
    params = [("fields", ",".join(fields)), ("page_size", source.page_size), *filters.parameters(source)]
    params += [("return_latents", latents)] if latents else []
    if config.streams > 1 and not source.random_sampling:  # The server has no partitions for random draws.
        params += [("partitions_count", config.streams), ("partition", config.stream)]
    return params


def open_api(source: DbSettings) -> Api:
    """The Api with the url and key of the source_config, or else of the environment. Raises SourceValueError if one is missing or
    invalid."""
    url = source.api_url or os.environ.get("DATAROOM_API_URL", "")
    key = source.api_key or os.environ.get("DATAROOM_API_KEY", "")
    for name, value in (("api_url", url), ("api_key", key)):
        if not value.strip():
            raise SourceValueError(f"{name} missing: set source_config.{name} or DATAROOM_{name.upper()}")
    max_bytes = MAX_PAGE_BYTES + MAX_RECORD_BYTES * source.page_size
    return Api(url.strip(), key, source.user_agent, source.page_timeout, environment.attempts(), max_bytes)


def count(config: PassSettings[DbSettings]) -> int | None:
    """How many records the server counts for a stream's query, including records without images."""
    api = open_api(config.source)
    try:
        return ask_count(api, parameters(config))
    finally:
        api.stop()


class DbSource:
    """Yields the samples of a dataroom server, in the order in which their downloads are complete, or in the server's order if `ordered`.

    An invalid record, or a sample with a download that failed for good, becomes one Failure. A page that cannot be read or is invalid
    ends the source with a SourceError, after the samples of the pages before it; so does a walk that ends with far fewer records than
    the server counts. A record whose id was already on this page or the page before is skipped and counted. Stream s of n reads the
    server's partition s of n; if the server does not offer that many partitions, its error says how many it does. With
    `random_sampling` ids decide which stream takes an image, and there is no order that could be resumed.
    """

    work_ahead = 64  # Entries hold encoded images: these are as many as two cores decode while the feeder is descheduled.

    def __init__(self, config: PassSettings[DbSettings]) -> None:
        self._config, self._window = config, Window(config.progress, config.resume)
        self._fetcher: Fetcher | None = None
        self._pages: Pages | None = None
        self._stopped = False
        self._capacity = 4 * config.source.max_connections  # urls in the fetcher, enough to keep all its connections busy
        self._records: deque[tuple[int, Any]] = deque()  # the records of this page that were not parsed yet, with their numbers
        self._jobs: deque[tuple[Any, str]] = deque()  # urls for which the fetcher had no room yet
        self._page_url, self._page_number = "", 0
        self._downloading = 0  # urls in the fetcher
        self._inside, self._max_inside = 0, min(self._capacity, config.limit)  # samples that were admitted and have not left yet
        self._held: dict[int, Entry | Failure] = {}  # by position: entries that are complete before those in front of them
        self._next_position = 0  # of the entry that leaves next, if `ordered`
        self._ids, self._last_ids = set[str](), set[str]()  # the ids on this page and on the page before
        self.target: int | None = None
        self.base = 0
        self.skipped: dict[str, int] = {}

    def state(self) -> dict[str, Any] | None:
        """See Window.state. Raises SourceValueError with `random_sampling`."""
        if self._config.source.random_sampling:
            raise SourceValueError(NO_ORDER)
        return self._window.state()

    def count(self) -> int | None:
        return None

    def open(self) -> None:
        config = self._config
        if config.source.random_sampling and config.resume:
            raise SourceValueError(NO_ORDER)
        api = open_api(config.source)
        timeout = environment.attempts() * (config.source.page_timeout + PAGE_MARGIN_S)
        self._pages = Pages(api, config, parameters(config), timeout)

    def stop(self) -> None:
        self._stopped = True
        if self._pages is not None:
            self._pages.stop()
        fetcher = self._fetcher
        if fetcher is not None:
            fetcher.close()

    @property
    def _opened(self) -> Pages:
        assert self._pages is not None  # `open` was called before.
        return self._pages

    @property
    def _fetching(self) -> Fetcher:
        """The fetcher, while `batches` runs. It is not kept in a local variable, because an error's traceback would keep it alive."""
        assert self._fetcher is not None
        return self._fetcher

    def batches(self) -> Iterator[Sequence[Entry | Failure]]:
        config, pages = self._config, self._opened
        self._fetcher = Fetcher(
            config.source.max_connections, config.source.read_timeout, environment.attempts(), config.source.user_agent,
            config.max_file_bytes,
            self._capacity,
        )  # fmt: skip
        try:
            if not self._stopped:
                pages.start()
                yield from self._samples(pages)
        finally:
            pages.stop()
            self._fetching.close()
            self._fetcher = None  # The traceback of an error may keep this source alive, and the fetcher with it.

    def _samples(self, pages: Pages) -> Iterator[Sequence[Entry | Failure]]:
        while not self._stopped:
            done = self._admit()
            if self._downloading:
                arrived = self._fetching.take(0 if done else PAGE_CHECK_S if self._wants_page() else 3600)
                if arrived is None:
                    return  # closed by stop()
                done += self._arrived(arrived)
            if done:
                yield done
            elif not self._downloading and pages.ended:
                break
            elif not self._downloading:
                self._next_page(0.1)
        if pages.error is not None:
            pages.error = self._add_context(pages.error)
        raise_kept(pages, "error")
        if self._page_number == 0 and not self._stopped and not self._config.resume:
            log.warning("no image in the database matches the config's filters")

    def _add_context(self, error: BaseException) -> BaseException:
        world_size, streams = self._config.world_size, self._config.streams
        if streams > 1 and isinstance(error, SourceValueError) and "partition" in str(error):
            workers = f" with {streams // world_size} workers each" if streams > world_size else ""
            return SourceValueError(f"world_size {world_size}{workers}: the server does not offer {streams} partitions: {error}")
        return error

    def _wants_page(self) -> bool:
        return not self._records and not self._opened.ended

    def _admit(self) -> list[Entry | Failure]:
        """Admits samples as long as there is room, and starts their downloads. Returns entries that need no download."""
        done: list[Entry | Failure] = []
        while self._downloading + len(self._jobs) < self._capacity and self._inside < self._max_inside:
            if not self._records and not self._next_page(0):
                break
            found = self._parse_record(*self._records.popleft())
            if found is None:
                continue
            self._inside += 1
            if isinstance(found, Failure):
                done.append(found)
            elif not found.parts:
                done.append(found.finish())
            else:
                self._jobs.extend(((found, index), url) for index, (_, _, url) in enumerate(found.parts))
        count = min(len(self._jobs), self._capacity - self._downloading)
        if count and self._fetching.submit([self._jobs.popleft() for _ in range(count)]):
            self._downloading += count
        return self._leaving(done)

    def _leaving(self, done: list[Entry | Failure]) -> list[Entry | Failure]:
        """The entries that may leave now that `done` are complete. If `ordered`, an entry waits for those in front of it."""
        if self._config.ordered:
            self._held.update((entry.position, entry) for entry in done)
            done = []
            while self._next_position in self._held:
                done.append(self._held.pop(self._next_position))
                self._next_position += 1
        self._inside -= len(done)
        return done

    def _next_page(self, timeout: float) -> bool:
        """Takes the next page if it arrives within `timeout` seconds. Returns whether it has records."""
        page = self._opened.get(timeout)
        if page is None:
            return False
        records, self._page_url = page
        self._page_number += 1
        self._records.extend(enumerate(records, 1))
        self._ids, self._last_ids = set(), self._ids
        return bool(records)

    def _parse_record(self, number: int, record: Any) -> Record | Failure | None:
        """The Record, a Failure if it is invalid, or None if it is skipped."""
        name: str | None = None
        found: Record | Failure
        try:
            name = identity(record)
            if name in self._ids or name in self._last_ids or name == self._window.known:
                self.skipped["repeated id"] = self.skipped.get("repeated id", 0) + 1
                return None
            self._ids.add(name)
            found = Record(record, self._page_url, self._config.source.require_images)
        except (BadRecord, RecursionError) as error:
            found = Failure(name or f"page {self._page_number}, record {number}", "record", str(error))
        found.position = self._window.add(name)
        return found

    def _arrived(self, results: list[Any]) -> list[Entry | Failure]:
        """The samples that are complete with these downloads."""
        self._downloading -= len(results)
        return self._leaving([record.finish() for (record, index), _, body, error in results if record.put(index, body, error)])
