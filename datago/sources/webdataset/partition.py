"""Decides which shards, and which samples in them, one stream reads, and in which order."""

import zlib
from functools import cached_property
from typing import Any

from datago.engine._sample import Entry, Failure
from datago.errors import SourceValueError
from datago.net.url import redact
from datago.order import plan
from datago.sources.settings import PassSettings
from datago.sources.webdataset.settings import WebDatasetSettings


class Partition:
    """The shards and samples that one stream reads.

    If there are at least as many shards as streams, stream s of n reads shards s, s + n, s + 2n …. A seed that all streams share
    shuffles the shards before they are divided; without such a seed each stream shuffles its own shards afterwards.

    If there are fewer shards than streams, every stream reads every shard and takes a part of the samples. With an index, which
    tells the number of each sample in the whole data set, stream s takes samples s, s + n, s + 2n …; without one, a hash of the
    sample's key decides which stream takes it.

    Args:
        config: the settings of the pass.
        shards: the urls of all shards.
        counts: how many samples each of `shards` has (see index.py), or None if that is not known.

    Attributes:
        shards: the urls of the shards that this stream reads, in order.
        counts: how many samples each of the stream's shards has for all streams together, or None.
        by_sample: whether the streams share the samples of each shard.
        count: how many samples the stream has, or None if that is not known.
        target: how many samples the stream promises (see Source.target in sources/protocol.py), or None.
        rounds: how often the stream may read its shards to reach `target`: twice as often as would be enough without failures.

    Raises:
        SourceValueError: `uneven` is "drop" or "pad", and the stream has no sample.
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
        self._folders = [redact(shard).rfind("/") + 1 for shard in self.shards]  # The folder may differ between machines.
        self.counts: list[int] | None = None
        self.count: int | None = None
        self.target: int | None = None
        self.rounds = 1
        self._all_counts = counts
        if counts is None:
            return
        sizes = numpy.array(counts, numpy.int64)
        self.counts = sizes[own].tolist()
        self._before = (sizes.cumsum() - sizes)[own].tolist()  # for each shard, the samples of all shards listed before it
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
        """(number of all shards, checksum). If the checksum is the same, the same positions mean the same samples."""
        crc = zlib.crc32("\0".join(map(redact, self._all)).encode("utf-8", "surrogateescape"))
        if self.by_sample:
            crc = zlib.crc32(repr(self._all_counts).encode(), crc)
        return len(self._all), crc

    def has(self, entry: Entry | Failure, place: int, number: int) -> bool:
        """Whether this stream takes `entry`, which is number `number` in the shard at `place` of `shards`."""
        if not self.by_sample:
            return True
        if self.counts is not None:
            return bool((self._before[place] + number) % self._config.streams == self._config.stream)
        name = entry.name if isinstance(entry, Failure) else f"{entry.source}:{entry.id}"
        name = name[self._folders[place] :]
        return zlib.crc32(name.encode("utf-8", "surrogateescape")) % self._config.streams == self._config.stream
