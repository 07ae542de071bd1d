"""Which sample, in which order, on which rank: pure functions, the same on every machine.

A *stream* is what one process reads. Where every rank has several of them (the workers of a DataLoader), worker k on rank r of w
is stream r + w * k. A *position* counts what a stream is to read, from 0.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray


def key(seed: int, epoch: int) -> int:
    """What `permutation` is keyed by: 64 bits of `seed`, 64 of `epoch`."""
    return seed | epoch << 64


def permutation(count: int, key: int) -> "NDArray[int64]":
    """A shuffled order of `count` things: an array of int64 of shape (count,), every index once.

    Each index draws 64 bits of Philox-4x64 under `key` (an int of at most 128 bits), and the indices are sorted by what they drew.
    The bits of numpy's bit generators are fixed for good, which its `permutation` is not. Source: Salmon et al., "Parallel
    random numbers: as easy as 1, 2, 3", 2011.
    """
    import numpy

    return numpy.argsort(numpy.random.Philox(key=key).random_raw(count), kind="stable")


def total(count: int, world_size: int, uneven: str = "keep") -> int:
    """How many of `count` samples all ranks read together. "keep": every one, once; "drop": `count` less what would make
    the ranks unequal; "pad": some again, so that they are equal."""
    rest = count % world_size
    if uneven == "drop":
        return count - rest
    if uneven == "pad" and rest:
        return count + world_size - rest
    return count


def share(count: int, stream: int, streams: int, world_size: int = 1, uneven: str = "keep") -> "NDArray[int64]":
    """What one of `streams` streams reads of `count` things in their order: numbers stream, stream + streams, … up to `total`,
    an array of int64. "pad" begins again with number 0.

    The streams' lengths differ by one at most; with "drop" and "pad" all of the `world_size` ranks have as many.
    """
    import numpy

    numbers = numpy.arange(stream, total(count, world_size, uneven), streams, dtype=numpy.int64)
    return numbers % count if count else numbers


def portion(limit: int, worker: int, workers: int) -> int:
    """How many of a rank's `limit` samples one of its workers delivers."""
    return limit // workers + (worker < limit % workers)


def remaining(order: "NDArray[int64]", phases: Sequence[Mapping[str, Any]]) -> "NDArray[int64]":
    """What of `order` (an array) no stream has handed out yet, in that order.

    Each phase was read by another number of streams, from what the one before had left: a dict of `world_size`, `uneven` and
    `done`, for each stream a list of [begin, end] positions in its share.
    """
    import numpy

    for phase in phases:
        left = numpy.ones(len(order), bool)
        for stream, done in enumerate(phase["done"]):
            own = share(len(order), stream, len(phase["done"]), phase["world_size"], phase["uneven"])
            for begin, end in done:
                left[own[begin:end]] = False
        order = order[left]
    return order


def gaps(ranges: Iterable[Sequence[int]], end: int) -> Iterator[tuple[int, int]]:
    """The (begin, end) pairs between sorted, disjoint [begin, end] `ranges`, from 0 up to `end`."""
    begin = 0
    for first, behind in ranges:
        if begin < min(first, end):
            yield begin, min(first, end)
        begin = behind
    if begin < end:
        yield begin, end
