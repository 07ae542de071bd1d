"""The WebDataset source: samples out of tar shards, from disk or over a network, several shards at once."""

import logging
import os
import threading
import zlib
from collections import deque

from datago import plan
from datago.environment import attempts
from datago._sample import Entry, Failure
from datago.errors import SourceValueError
from datago.sources import urls
from datago.sources.addresses import redact, scheme_of
from datago.sources.cache import Cache
from datago.sources.remote import Stopped, open_stream
from datago.sources.shards import ShardReader
from datago.threads import start_threads

log = logging.getLogger("datago.webdataset")

LOCAL_READERS = 2    # shards read from disk at once: one is decoded from while the next is opened
REMOTE_READERS = 8   # what `concurrent_downloads: 0` means
BATCHES_AHEAD = 2    # finished batches of each reader that wait for the workers; a batch is what one block held


class WebDatasetSource:
    """Reads shards, `concurrent_downloads` at a time, and yields their samples in the order in which they arrive.

    Shards are split over the ranks where there are enough of them; else every rank reads all, and takes the samples whose key
    falls to it by a hash. A shard that fails is one failure, after the complete samples before the damage.
    """

    work_ahead = 32  # entries hold the bytes of their images

    def __init__(self, config):
        self._config = config
        self._stop = threading.Event()
        self._options = {"token": config.auth_token, "timeout": config.timeout, "attempts": attempts(), "stop": self._stop}
        self._changed = threading.Condition()
        self._batches = deque()
        self._readers = 0
        self._error = None
        self.target = None
        self.skipped = {}

    def state(self):
        return None

    def open(self):
        """Raises SourceError where the url names no shard at all."""
        self._shards = urls.shard_urls(self._config.url, **self._options)
        self._by_sample = len(self._shards) < self._config.world_size
        if self._by_sample:
            log.warning("%d shards for %d ranks: every rank reads every shard and takes its part of the samples",
                        len(self._shards), self._config.world_size)
        else:
            self._shards = [self._shards[i] for i in plan.share(len(self._shards), self._config.rank, self._config.world_size)]
        self._remote = any(scheme_of(shard) not in ("", "file") for shard in self._shards)

    def stop(self):
        self._stop.set()
        with self._changed:
            self._changed.notify_all()

    def batches(self):
        order = range(len(self._shards))
        if self._config.random_sampling or self._config.shuffle:
            order = plan.permutation(len(self._shards), int.from_bytes(os.urandom(16)))
        waiting = deque(self._shards[index] for index in order)
        self._cache = Cache(self._config.cache_dir, self._config.cache_size) if self._config.cache_dir else None
        self._readers = wanted = min(self._reader_count(), len(waiting))
        self._most = BATCHES_AHEAD * self._readers
        threads = start_threads(wanted, self._read, "datago shards", waiting)
        with self._changed:
            self._readers -= wanted - len(threads)
        try:
            yield from self._shuffled(self._arriving())
        finally:
            for thread in threads:  # they end by themselves, or soon after stop()
                thread.join()
        if self._error is not None:
            raise self._error

    def _reader_count(self):
        if self._config.concurrent_downloads:
            return self._config.concurrent_downloads
        return REMOTE_READERS if self._remote else LOCAL_READERS

    def _arriving(self):
        found = False
        while True:
            with self._changed:
                while not self._batches and self._readers and not self._stop.is_set():
                    self._changed.wait(1)
                if self._stop.is_set() or not self._batches:
                    break
                batch = self._batches.popleft()
                self._changed.notify_all()
            found = True
            mine = [entry for entry in batch if self._is_mine(entry)] if self._by_sample else batch
            if mine:
                yield mine
        if not found and not self._stop.is_set() and self._error is None:
            raise SourceValueError(f"no samples in {len(self._shards)} shards: {', '.join(map(redact, self._shards[:3]))}")

    def _is_mine(self, entry):
        if isinstance(entry, Failure):
            return True  # what is lost is lost for every rank
        return zlib.crc32(f"{entry.source}:{entry.id}".encode("utf-8", "surrogateescape")) % self._config.world_size == self._config.rank

    def _shuffled(self, batches):
        """Samples in random order, out of a buffer of `shuffle_buffer`; the buffer keeps bytes of its own, not blocks."""
        size = self._config.shuffle_buffer
        if size < 2:
            yield from batches
            return
        import random

        rng, buffer = random.Random(), []
        for batch in batches:
            out = []
            for entry in batch:
                if not isinstance(entry, Entry):
                    out.append(entry)
                    continue
                entry.own()
                buffer.append(entry)
                if len(buffer) > size:
                    place = rng.randrange(len(buffer))
                    buffer[place], buffer[-1] = buffer[-1], buffer[place]
                    out.append(buffer.pop())
            if out:
                yield out
        rng.shuffle(buffer)
        if buffer:
            yield buffer

    # ---- reader threads ----

    def _read(self, waiting):
        try:
            while not self._stop.is_set():
                try:
                    shard = waiting.popleft()
                except IndexError:
                    break
                self._read_shard(shard)
        except Stopped:
            pass
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    def _read_shard(self, shard):
        reader = ShardReader(redact(shard), self._config.reference_image_type, self._config.mask_suffixes)
        blocks = open_stream(shard, cache=self._cache, **self._options)
        try:
            for batch in reader.read(blocks):
                if not self._hand_over(batch):
                    return
        finally:
            blocks.close()
            if reader.damaged and self._cache:
                self._cache.discard(shard)  # a page of HTML with status 200, say: the next pass asks again
            with self._changed:
                for reason, count in reader.skipped.items():
                    self.skipped[reason] = self.skipped.get(reason, 0) + count

    def _hand_over(self, batch):
        """Waits for room; False once told to stop."""
        with self._changed:
            while len(self._batches) >= self._most and not self._stop.is_set():
                self._changed.wait(1)
            if not self._stop.is_set():
                self._batches.append(batch)
                self._changed.notify_all()
        return not self._stop.is_set()
