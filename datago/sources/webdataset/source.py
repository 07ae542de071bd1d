"""The WebDataset source: samples from tar shards, on disk or behind a network, several shards at once."""

import logging
import random
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

from datago.engine._sample import Entry, Failure
from datago.environment import attempts
from datago.errors import SourceOSError, SourceValueError
from datago.net import policy
from datago.net.cache import Cache
from datago.net.keep_alive import IdleConnections
from datago.net.reach import places
from datago.net.stream import open_stream
from datago.net.url import redact, scheme_of
from datago.order import plan
from datago.sources.settings import PassSettings
from datago.sources.webdataset import urls
from datago.sources.webdataset.index import sample_counts
from datago.sources.webdataset.ledger import BITS, Ledger
from datago.sources.webdataset.partition import Partition
from datago.sources.webdataset.settings import WebDatasetSettings
from datago.sources.webdataset.shard_reader import ShardReader
from datago.sources.webdataset.shard_readers import Batch, ShardReaders
from datago.threads import Flag, new_lock

log = logging.getLogger("datago.webdataset")

LOCAL_READERS = 2  # what `concurrent_downloads: 0` means on disk: one shard is read while the next one is opened
REMOTE_READERS = 8  # what `concurrent_downloads: 0` means over a network


class WebDatasetSource:
    """Reads the stream's Partition of the shards, `concurrent_downloads` shards at a time (see shard_readers.py).

    Samples leave as they arrive. With `ordered` or a seed they leave in an order that only the contents and the configuration
    decide: of k readers, reader j reads shards j, j + k, j + 2k …, and each reader gives one sample in turn. A damaged shard gives
    one failure, after the complete samples before the damage. On resume, shards of which everything was handed out are not opened;
    other shards are read from their beginning, and samples that were handed out are skipped.
    """

    work_ahead = 32  # Few, because each entry holds the bytes of its images.

    def __init__(self, config: PassSettings[WebDatasetSettings]) -> None:
        self._config = config
        self._stop = Flag()
        self._idle, self._hosts = IdleConnections(), policy.unreachable_hosts()
        self._places = frozenset[str]()  # the hosts that all shards of this stream lie on, where it has no other shards
        of_source = config.source
        self._options: dict[str, Any] = {
            "token": of_source.auth_token,
            "timeout": of_source.timeout,
            "attempts": attempts(),
            "stop": self._stop,
            "idle": self._idle,
            "hosts": self._hosts,
        }
        self._lock = new_lock()  # guards `_found`, `_own` and `skipped`
        self._found = self._own = 0  # entries in the shards that were read, of all streams and of this stream
        self.skipped: dict[str, int] = {}
        self._ledger = Ledger(config.progress, config.resume)
        self._cache = Cache(of_source.cache_dir, of_source.cache_size) if of_source.cache_dir else None
        self._readers: ShardReaders | None = None
        self.target: int | None = None
        self.base = 0

    def open(self) -> None:
        """Lists the shards. Raises SourceError if the url names no shard, or if shard_index cannot be used."""
        config = self._config
        shards = urls.shard_urls(config.source.url, **self._options)
        counts = sample_counts(config.source.shard_index, shards, self._options) if config.source.shard_index else None
        self._part = part = Partition(config, shards, counts)
        self.target = part.target
        self._remote = any(scheme_of(shard) not in ("", "file") for shard in shards)
        self._places = places(part.shards)
        self._check_unchanged(len(shards))
        workers = config.streams // config.world_size
        if part.by_sample:
            log.warning(
                "%d shards for %d ranks%s: every rank reads every shard and takes its part of the samples",
                len(shards),
                config.world_size,
                f" of {workers} workers" if workers > 1 else "",
            )
        log.info(
            "rank %d of %d%s reads %d of %d shards, %s samples%s",
            config.rank,
            config.world_size,
            f", worker {config.stream // config.world_size} of {workers}," if workers > 1 else "",
            len(part.shards),
            len(shards),
            "an unknown number of" if part.count is None else part.count,
            "" if part.target is None else f", and gives {part.target}",
        )

    def count(self) -> int | None:
        """How many samples this stream has if none fails, or None without an index."""
        return self._part.count if self.target is None else self.target

    def stop(self) -> None:
        self._stop.set()
        readers = self._readers
        if readers is not None:
            readers.wake()
        self._idle.close()

    def state(self) -> dict[str, Any]:
        """The position of this stream: `shards`, how many shards there are; `listing`, their checksum; and the keys of Ledger.state."""
        shards, listing = self._part.listing
        return {"shards": shards, "listing": listing, **self._ledger.state()}

    def batches(self) -> Iterator[Batch]:
        config, ledger, count = self._config, self._ledger, len(self._part.shards)
        rng = random.Random(plan.key(config.seed, config.epoch) << 64 | config.stream)
        for begin in range(0, self._part.rounds * count, count):
            pending = [ordinal for ordinal in range(begin, begin + count) if not ledger.is_done(ordinal)]
            with closing(self._arriving(pending, begin)) as arriving:
                for batch in self._shuffled(arriving, rng):
                    if config.ordered:
                        ledger.follow(batch)
                    yield batch
            if self._stop.is_set():
                return
            self._check_not_empty()

    def _arriving(self, pending: list[int], begin: int) -> Generator[Batch, None, None]:
        """Batches of the shards with the ordinals `pending`. `begin` is the ordinal of the first shard in this round over all shards."""
        config, last = self._config, self._ledger.last - begin
        limit = config.source.concurrent_downloads or (REMOTE_READERS if self._remote else LOCAL_READERS)
        count, first = min(limit, len(self._part.shards)), None
        if config.ordered or not config.seed_is_random:
            readers: list[deque[int]] = [deque() for _ in range(count)]
            for ordinal in pending:
                readers[(ordinal - begin) % count].append(ordinal)
            first = (last + 1) % count if last >= 0 else 0
        else:
            readers = [deque(pending)] * min(count, len(pending))
        self._readers = ShardReaders(readers, self._read, self._stop)
        return self._readers.batches(first)

    def _shuffled(self, batches: Iterator[Batch], rng: random.Random) -> Iterator[Batch]:
        """Shuffles samples in a buffer of `shuffle_buffer` samples. Each sample in it has a copy of its bytes, since it would otherwise
        keep the whole block alive that it was read from."""
        size = self._config.source.shuffle_buffer
        if size < 2:
            yield from batches
            return
        buffer: list[Entry] = []
        for batch in batches:
            out = Batch()
            for entry in batch:
                if not isinstance(entry, Entry):
                    out.append(entry)
                    continue
                entry.own()
                buffer.append(entry)
                if len(buffer) > size:
                    out.append(_pop_random(buffer, rng))
            if out:
                yield out
        if buffer:
            yield [_pop_random(buffer, rng) for _ in range(len(buffer))]

    def _check_reachable(self) -> None:
        """Raises SourceOSError where no host of this stream's shards can be reached: each shard would fail at once, and be lost to a pass
        that resumes from the state."""
        found = [self._hosts.why_out(place) for place in self._places]
        if found and all(found):
            raise SourceOSError(f"none of the {len(self._part.shards)} shards can be read now: {'; '.join(found)}")

    def _check_unchanged(self, now: int) -> None:
        then = self._config.resume
        if then and (then["shards"], then["listing"]) != self._part.listing:
            raise SourceValueError(
                f"url: the shards, or their counts in shard_index, have changed since the state was taken ({then['shards']} shards "
                f"then, {now} now): the pass cannot be resumed"
            )

    def _check_not_empty(self) -> None:
        config, shards = self._config, self._part.shards
        if self._own or not self._ledger.was_new:
            return
        if self._found:
            text = f"rank {config.rank} of world_size {config.world_size} has no sample: {self._found} in {len(shards)} shards"
        else:
            text = f"no samples in {len(shards)} shards: {', '.join(map(redact, shards[:3]))}"
        if config.streams == config.world_size or not self._found and self._part.by_sample:
            raise SourceValueError(text)
        log.warning("worker %d: %s", config.stream // config.world_size, text)  # The rank's other workers may have samples.

    def _read(self, ordinal: int) -> Generator[Batch, None, None]:
        """Yields lists of the entries of one shard that were not handed out before. A reader's thread runs this."""
        config, part, ledger = self._config, self._part, self._ledger
        self._check_reachable()
        place, begun = ordinal % len(part.shards), ledger.was_begun(ordinal)
        shard, position = part.shards[place], ordinal << BITS
        reader = ShardReader(redact(shard), config.source.reference_image_type, config.source.mask_suffixes, config.max_file_bytes)
        blocks = open_stream(shard, cache=self._cache, **self._options)
        found = own = 0
        try:
            for batch in reader.read(blocks):
                out = Batch()
                for entry in batch:
                    if isinstance(entry, Failure) and entry.reason == "shard":
                        entry.position = position
                    else:
                        found += 1
                        if not part.has(entry, place, found - 1):
                            continue
                        own += 1
                        entry.position = position + own
                    if not (begun and ledger.was_handed_out(entry.position)):
                        out.append(entry)
                if out:
                    yield out
        finally:
            blocks.close()
            if reader.damaged and self._cache:
                self._cache.discard(shard)  # It may be an HTML page with status 200, so the next pass downloads it again.
            with self._lock:
                self._found += found + reader.damaged
                self._own += own + reader.damaged
                for reason, count in reader.skipped.items():
                    self.skipped[reason] = self.skipped.get(reason, 0) + count
        ledger.ended(ordinal, own, reader.damaged)
        if part.counts is not None and not reader.damaged and found != part.counts[place]:
            log.info("%s has %d samples, but shard_index says %d", redact(shard), found, part.counts[place])


def _pop_random(buffer: list[Entry], rng: random.Random) -> Entry:
    """Takes a random entry out of `buffer`. Of the methods of Random only `random` gives the same in every version of Python."""
    place = int(rng.random() * len(buffer))
    buffer[place], buffer[-1] = buffer[-1], buffer[place]
    return buffer.pop()
