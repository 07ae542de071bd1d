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

PAGE_MARGIN_S = 30  # seconds, besides its time-out, that each attempt at a page may take before the page is given up
PAGE_CHECK = 0.01  # seconds between two looks for a page that is late, while downloads are on their way
NO_ORDER = "random_sampling: the server draws at random; such a pass has no order that can be resumed"

ANSWER, ANSWER_RECORD = 1 << 26, 1 << 16  # bytes that a page may have, inflated, and more for each of its records


def parameters(config: PassSettings[DbSettings]) -> list[tuple[str, Any]]:
    """The query of a walk: a list of (name, value), as dataroom's API has them."""
    source = config.source
    # What is asked for by has_masks comes along, whatever else is wanted.
    names = [*(source.return_latents or source.has_latents).split(","), *source.has_masks.split(",")]
    latents = ",".join(dict.fromkeys(filter(None, names)))
    fields = ["id", "source", "attributes", "tags"]
    fields += ["image_direct_url"] if source.require_images else []
    fields += ["latents"] if latents else []
    fields += ["coca_embedding"] if source.require_embeddings else []
    fields += ["duplicate_state"] if source.duplicate_state != -1 else []
    params = [("fields", ",".join(fields)), ("page_size", source.page_size), *filters.parameters(source)]
    params += [("return_latents", latents)] if latents else []
    if config.streams > 1 and not source.random_sampling:  # where images are drawn, the server has no partitions
        params += [("partitions_count", config.streams), ("partition", config.stream)]
    return params


def open_api(source: DbSettings) -> Api:
    """The Api that a source_config, or else the environment, names. Raises SourceValueError: neither does, or it cannot be used."""
    url = source.api_url or os.environ.get("DATAROOM_API_URL", "")
    key = source.api_key or os.environ.get("DATAROOM_API_KEY", "")
    for name, value in (("api_url", url), ("api_key", key)):
        if not value.strip():
            raise SourceValueError(f"{name} missing: set source_config.{name} or DATAROOM_{name.upper()}")
    most = ANSWER + ANSWER_RECORD * source.page_size
    return Api(url.strip(), key, source.user_agent, source.page_timeout, environment.attempts(), most)


def count(config: PassSettings[DbSettings]) -> int | None:
    """How many records the server counts for what a stream asks for, images of them or not."""
    api = open_api(config.source)
    try:
        return ask_count(api, parameters(config))
    finally:
        api.stop()


class DbSource:
    """Yields the samples of a dataroom server, in the order in which their downloads are done, or of their ids if `ordered`.

    A record that is not what it should be, and a sample one of whose downloads failed for good, is one Failure; a page
    that does not come, or is not what it should be, ends the source with a SourceError, behind the samples of the pages
    before; so does a walk that ends with far fewer records than the server counts. An id that this page or the one before had
    is passed over and counted. Stream s of n reads the server's partition s of n; how many it offers (48, say), it says itself when
    asked for more. With `random_sampling` ids decide about streams, and there is no order that could be resumed.
    """

    work_ahead = 64  # these hold encoded images: as many as two cores decode while the feeder waits for its turn

    def __init__(self, config: PassSettings[DbSettings]) -> None:
        self._config, self._window = config, Window(config.progress, config.resume)
        self._fetcher: Fetcher | None = None
        self._pages: Pages | None = None
        self._stopped = False
        self._capacity = 4 * config.source.max_connections  # urls in the fetcher: none of its connections waits for us
        self._records: deque[tuple[int, Any]] = deque()  # of this page
        self._jobs: deque[tuple[Any, str]] = deque()  # urls that had no room in the fetcher yet
        self._page_url, self._page_number = "", 0
        self._downloading = 0  # urls in the fetcher
        self._inside, self._most = 0, min(self._capacity, config.limit)  # samples let in that have not left; at most
        self._held: dict[int, Entry | Failure] = {}  # position -> what is done before its turn
        self._turn = 0  # the position whose turn it is
        self._ids, self._last_ids = set[str](), set[str]()  # of this page and of the one before
        self.target: int | None = None
        self.base = 0
        self.skipped: dict[str, int] = {}

    def state(self) -> dict[str, Any] | None:
        """Where this stream is, see Window.state. Raises SourceValueError with `random_sampling`."""
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
        patience = environment.attempts() * (config.source.page_timeout + PAGE_MARGIN_S)
        self._pages = Pages(api, config, parameters(config), patience)

    def stop(self) -> None:
        self._stopped = True
        if self._pages is not None:
            self._pages.stop()
        fetcher = self._fetcher
        if fetcher is not None:
            fetcher.close()

    @property
    def _opened(self) -> Pages:
        assert self._pages is not None  # `open` came before
        return self._pages

    @property
    def _fetching(self) -> Fetcher:
        """The fetcher while `batches` runs. No frame keeps it: an error's traceback would."""
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
            self._fetcher = None  # an error on its way keeps the rest of us alive

    def _samples(self, pages: Pages) -> Iterator[Sequence[Entry | Failure]]:
        while not self._stopped:
            done = self._admit()
            if self._downloading:
                arrived = self._fetching.take(0 if done else PAGE_CHECK if self._wants_page() else 3600)
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
            log.warning("no image in the database is what the config asks for")

    def _add_context(self, error: BaseException) -> BaseException:
        world_size, streams = self._config.world_size, self._config.streams
        if streams > 1 and isinstance(error, SourceValueError) and "partition" in str(error):
            workers = f" with {streams // world_size} workers each" if streams > world_size else ""
            return SourceValueError(f"world_size {world_size}{workers}: the server has no such number of partitions: {error}")
        return error

    def _wants_page(self) -> bool:
        return not self._records and not self._opened.ended

    def _admit(self) -> list[Entry | Failure]:
        """Lets samples in as there is room, and sends for what they need. Returns what is ready without that."""
        done: list[Entry | Failure] = []
        while self._downloading + len(self._jobs) < self._capacity and self._inside < self._most:
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
        """What may leave now that these are done: if `ordered`, nothing before its turn."""
        if self._config.ordered:
            self._held.update((entry.position, entry) for entry in done)
            done = []
            while self._turn in self._held:
                done.append(self._held.pop(self._turn))
                self._turn += 1
        self._inside -= len(done)
        return done

    def _next_page(self, timeout: float) -> bool:
        """Takes the next page if it is there within `timeout` seconds."""
        page = self._opened.get(timeout)
        if page is None:
            return False
        records, self._page_url = page
        self._page_number += 1
        self._records.extend(enumerate(records, 1))
        self._ids, self._last_ids = set(), self._ids
        return bool(records)

    def _parse_record(self, number: int, record: Any) -> Record | Failure | None:
        """The Record, a Failure, or None for one that is passed over."""
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
