"""Which sample, in which order, on which rank: pure functions, the same on every machine."""


def permutation(count, seed):
    """A shuffled order of `count` things: an array of int64 of shape (count,), every index once.

    Each index draws 64 bits of Philox-4x64 keyed by `seed` (an int of at most 128 bits), and the indices are sorted by what
    they drew. The bits of numpy's bit generators are fixed for good, which its `permutation` is not. Source: Salmon et al.,
    "Parallel random numbers: as easy as 1, 2, 3", 2011.
    """
    import numpy

    return numpy.argsort(numpy.random.Philox(key=seed).random_raw(count), kind="stable")


def of_rank(order, rank, world_size):
    """What `rank` of `world_size` takes of a sequence: entries rank, rank + world_size, rank + 2 * world_size …"""
    return order[rank::world_size]
