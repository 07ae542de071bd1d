"""Which shards, and which of their samples, are one stream's, and in which order it reads them."""

import zlib
from functools import cached_property
from typing import Any

from datago.engine._sample import Entry, Failure
from datago.errors import SourceValueError
from datago.net.url import redact
from datago.order import plan
from datago.sources.settings import PassSettings
from datago.sources.webdataset.settings import WebDatasetSettings


class Part:
    """What one stream reads of all shards.

    Where there are as many shards as streams, or more, stream s of n takes shards s, s + n, s + 2n … of their order, which a seed
    that all streams have in common shuffles; without one, each shuffles its own. Else every stream reads every shard, and takes
    of all samples numbers s, s + n, s + 2n …, if an index says where each shard's begin to count, or those whose key falls to it
    by a hash.

    Args:
        config: what the source is made of.
        shards: the urls of all shards.
        counts: how many samples each has (see shard_index.py), or None.

    Attributes:
        shards: the urls of those it reads, in order.
        counts: how many samples each of these has in all, or None.
        by_sample: whether the streams share the samples of each shard.
        count: how many samples the stream has; None: not known.
        target: how many it promises (see sources/protocol.py).
        rounds: how often it may read its shards for that: twice as often as would do if nothing failed.

    Raises:
        SourceValueError: "drop" or "pad", and the stream has no sample.
    """

    def __init__(self, config: PassSettings[WebDatasetSettings], shards: list[str], counts: list[int] | None) -> None:
        import numpy

        self._config, self._all = config, shards
        self.by_sample = len(shards) < config.streams
        key = plan.key(config.seed, config.epoch)
        together = config.source.random_sampling and not config.seed_is_random
        order = plan.permutation(len(shards), key) if together else numpy.arange(len(shards))
        own = order if self.by_sample else order[plan.share(len(shards), config.stream, config.streams)]
        if config.source.random_sampling and not together:
            own = own[plan.permutation(len(own), key)]
        self.shards = [shards[number] for number in own]
        self._folders = [redact(shard).rfind("/") + 1 for shard in self.shards]  # where they lie is not the same on every machine
        self.counts: list[int] | None = None
        self.count: int | None = None
        self.target: int | None = None
        self.rounds = 1
        self._all_counts = counts
        if counts is None:
            return
        sizes = numpy.array(counts, numpy.int64)
        self.counts = sizes[own].tolist()
        self._before = (sizes.cumsum() - sizes)[own].tolist()  # samples of all shards before each, as they are listed
        streams = [self._size(sizes[order], stream) for stream in range(config.streams)]
        self.count = count = streams[config.stream]
        if config.uneven != "keep":
            self._promise(min(streams) if config.uneven == "drop" else max(streams), count)

    def _size(self, counts: Any, stream: int) -> int:
        if self.by_sample:
            return (int(counts.sum()) - stream - 1) // self._config.streams + 1
        return int(counts[stream :: self._config.streams].sum())

    def _promise(self, target: int, count: int) -> None:
        config = self._config
        if target == 0 or count == 0:
            raise SourceValueError(
                f"uneven {config.uneven!r} leaves rank {config.rank} of world_size {config.world_size} no sample: there are "
                f"{sum(self._all_counts or ())} in {len(self._all)} shards"
                + (f", and {config.streams // config.world_size} workers on each rank" if config.streams > config.world_size else "")
            )
        self.target = target
        self.rounds = 2 * -(-target // count)

    @cached_property
    def listing(self) -> tuple[int, int]:
        """How many shards there are in all, and a checksum of what makes the same positions mean the same samples."""
        crc = zlib.crc32("\0".join(map(redact, self._all)).encode("utf-8", "surrogateescape"))
        if self.by_sample:
            crc = zlib.crc32(repr(self._all_counts).encode(), crc)
        return len(self._all), crc

    def has(self, entry: Entry | Failure, place: int, number: int) -> bool:
        """Whether an entry is this stream's: number `number` of the shard at `place` in `shards`."""
        if not self.by_sample:
            return True
        if self.counts is not None:
            return bool((self._before[place] + number) % self._config.streams == self._config.stream)
        name = entry.name if isinstance(entry, Failure) else f"{entry.source}:{entry.id}"
        name = name[self._folders[place] :]
        return zlib.crc32(name.encode("utf-8", "surrogateescape")) % self._config.streams == self._config.stream
