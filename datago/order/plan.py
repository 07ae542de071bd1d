"""Which samples a rank reads, and in which order: pure functions with the same results on every machine.

A *stream* is the sequence of samples that one process reads. If every rank has several processes (the workers of a DataLoader), worker k
on rank r of w is stream r + w * k. A *position* is the index of a sample in its stream, from 0.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray


def key(seed: int, epoch: int) -> int:
    """The key for `permutation`: `seed` in the lower 64 bits, `epoch` in the upper 64 bits."""
    return seed | epoch << 64


def permutation(count: int, key: int) -> "NDArray[int64]":
    """A shuffled order of `count` things: an array of int64 of shape (count,) with every index once.

    Each index gets 64 random bits of Philox-4x64 under `key` (an int of at most 128 bits), and the indices are sorted by these bits.
    numpy's `permutation` is not used, because numpy guarantees that the bits of its bit generators stay the same in all versions, but
    not the results of `permutation`. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
    """
    import numpy

    return numpy.argsort(numpy.random.Philox(key=key).random_raw(count), kind="stable")


def total(count: int, world_size: int, uneven: str = "keep") -> int:
    """How many samples all ranks read together. With "keep" this is `count`. With "drop" it is `count` rounded down to a multiple of
    `world_size`, so that all ranks have equally many; with "pad" it is rounded up, and some samples are read twice."""
    rest = count % world_size
    if uneven == "drop":
        return count - rest
    if uneven == "pad" and rest:
        return count + world_size - rest
    return count


def share(count: int, stream: int, streams: int, world_size: int = 1, uneven: str = "keep") -> "NDArray[int64]":
    """The numbers that one of `streams` streams reads out of `count` things: stream, stream + streams, … up to `total`, as an array of
    int64. With "pad" the numbers from `count` on stand for 0, 1, 2 ….

    The streams' lengths differ by one at most; with "drop" and "pad" all of the `world_size` ranks have equally many samples.
    """
    import numpy

    numbers = numpy.arange(stream, total(count, world_size, uneven), streams, dtype=numpy.int64)
    return numbers % count if count else numbers


def portion(limit: int, worker: int, workers: int) -> int:
    """How many of a rank's `limit` samples one of its workers delivers."""
    return limit // workers + (worker < limit % workers)


def remaining(order: "NDArray[int64]", phases: Sequence[Mapping[str, Any]]) -> "NDArray[int64]":
    """The part of the array `order` that no stream has handed out yet, in the same order.

    An epoch that was resumed with another number of streams has several phases; the streams of each phase shared what the phase before
    had left. A phase is a dict with `world_size`, `uneven`, and `done`: for each stream a list of [begin, end] positions in its share.
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
