"""Which batch each rank trains on at each step, where every step has one bucket on all ranks: a pure function of buckets and seed.

A *step* is what all ranks take together: world_size batches of one bucket. Ranks that took samples of several buckets on their own
would take different numbers of batches, and a trainer that synchronises its ranks would wait for ever for the shorter ones.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from datago.order import plan

if TYPE_CHECKING:
    import numpy
    from numpy import int64
    from numpy.typing import ArrayLike, NDArray

STEPS = 1 << 127  # tells the key of the order of steps from that of samples: an epoch has 63 bits


class Phase(NamedTuple):
    """What was done of an epoch with another number of ranks, or another batch size.

    Attributes:
        world_size, batch_size: as the plan had them that was followed then.
        steps: how many of its steps are done, from its beginning.
        taken: numbers of samples that were handed out besides, in place of some that failed (see StepPlan.spares).
    """

    world_size: int
    batch_size: int
    steps: int
    taken: Sequence[int] = ()


class StepPlan:
    """The steps of one epoch. Every rank makes the same plan from the same arguments.

    Args:
        buckets: for each sample, in the fixed order of the listing, the number of its bucket; negative: it cannot be used. Integers of
            shape (n,).
        world_size: the number of ranks.
        batch_size: samples in a batch of one rank.
        seed, epoch: what the order depends on; see `plan.key`.
        shuffle: False leaves the samples of a bucket in the order of the listing, and sorts steps by their first sample.
        remainder: what becomes of the r samples of a bucket that are left when no more step of world_size * batch_size is full. "drop":
            they are left out, and become spares. "keep": one short step.
        uneven: what that short step is. "keep": the batches of ranks differ by one sample at most; a rank that would have none repeats
            one. "pad": all are equally large, by repeating some. "drop": all have r // world_size samples; the rest is left out.
        history: the Phases of this epoch that were done before, in their order. What they used is out, and what is left is planned
            anew. An epoch that goes on with the same world_size and batch_size needs none: it goes on at the next step of the same plan.

    `len()` is the number of steps. Planning takes about 40 bytes a sample at its peak, of which 8 are kept.

    Every sample is valid in one batch at most; with remainder "keep" and uneven "keep" or "pad", all usable ones are in exactly one.

    Raises:
        ValueError: an argument makes no sense, or a phase has more steps than there were.
    """

    def __init__(
        self, buckets: "ArrayLike", world_size: int, batch_size: int, *, seed: int = 0, epoch: int = 0, shuffle: bool = True,
        remainder: str = "keep", uneven: str = "keep", history: Sequence[Phase | tuple[int, int, int]] = (),
    ) -> None:  # fmt: skip
        import numpy

        buckets = numpy.asarray(buckets)
        if buckets.ndim != 1 or (buckets.dtype.kind not in "iu" and len(buckets)):
            raise ValueError(f"buckets: got an array of {buckets.dtype} of shape {buckets.shape}, wanted integers of shape (n,)")
        if remainder not in ("keep", "drop"):
            raise ValueError(f"remainder: got {remainder!r}, wanted 'keep' or 'drop'")
        if uneven not in ("keep", "drop", "pad"):
            raise ValueError(f"uneven: got {uneven!r}, wanted 'keep', 'drop' or 'pad'")
        self._uneven, self._keep = uneven, remainder == "keep"
        key = plan.key(seed, epoch)
        order = plan.permutation(len(buckets), key) if shuffle else numpy.arange(len(buckets))
        order = order[buckets[order] >= 0]
        steps_key = key | STEPS if shuffle else None
        for number, phase in enumerate(history):
            phase = Phase(*phase)
            self._lay(order, buckets, phase.world_size, phase.batch_size, steps_key)
            if not 0 <= phase.steps <= len(self):
                raise ValueError(f"history[{number}]: {phase.steps} steps are done, the plan had {len(self)}")
            order = self._left(order, len(buckets), phase)
        self._lay(order, buckets, world_size, batch_size, steps_key)

    def _lay(
        self, order: "NDArray[int64]", buckets: "NDArray[Any]", world_size: int, batch_size: int, steps_key: int | None
    ) -> None:  # fmt: skip
        """Cuts the samples of `order` into steps.

        `_samples` has the samples bucket by bucket, each in its order; step s is the `_size[s]` of them from `_begin[s]` on. Bucket number
        `_names[i]` has those from `_bounds[i]` to `_bounds[i + 1]`, and those from `_spares[i]` on are left out.
        """
        import numpy

        for name, value in (("world_size", world_size), ("batch_size", batch_size)):
            if value < 1:
                raise ValueError(f"{name}: got {value}, wanted at least 1")
        self.world_size, self.batch_size = world_size, batch_size
        whole = world_size * batch_size
        of = buckets[order]
        by_bucket = numpy.argsort(of, kind="stable")
        self._samples, of = order[by_bucket], of[by_bucket]
        begins = numpy.flatnonzero(numpy.concatenate(([len(of) > 0], of[1:] != of[:-1]))) if len(of) else numpy.zeros(0, numpy.int64)
        self._names = of[begins]
        self._bounds = numpy.append(begins, len(of))
        counts = numpy.diff(self._bounds)
        full, short = counts // whole, counts % whole
        if not self._keep:
            short[:] = 0
        elif self._uneven == "drop":
            short -= short % world_size
        self._spares = begins + full * whole + short

        steps = full + (short > 0)
        bucket = numpy.repeat(numpy.arange(len(steps)), steps)
        within = numpy.arange(len(bucket)) - numpy.repeat(numpy.cumsum(steps) - steps, steps)
        begin = begins[bucket] + within * whole
        size = numpy.where(within < full[bucket], whole, short[bucket])
        if steps_key is None:
            turn = numpy.argsort(self._samples[begin], kind="stable")
        else:
            turn = plan.permutation(len(bucket), steps_key)
        self._bucket, self._begin, self._size = bucket[turn], begin[turn], size[turn]

    def _left(self, order: "NDArray[int64]", count: int, phase: Phase) -> "NDArray[int64]":
        """What of `order` the done steps of a phase have not used."""
        import numpy

        done = slice(0, phase.steps)
        edges = numpy.zeros(len(self._samples) + 1, numpy.int8)
        edges[self._begin[done]] += 1  # steps do not overlap, so each begins and ends at a place of its own
        edges[self._begin[done] + self._size[done]] -= 1
        left = numpy.ones(count, bool)
        left[self._samples[numpy.cumsum(edges[:-1], dtype=numpy.int8) > 0]] = False
        left[numpy.asarray(phase.taken, numpy.int64)] = False
        return order[left[order]]

    def __len__(self) -> int:
        return len(self._bucket)

    def bucket(self, step: int) -> int:
        """The number of the bucket that all ranks have at a step, 0 to len() - 1. Raises IndexError."""
        return int(self._names[self._bucket[self._checked(step)]])

    def counts(self, rank: int) -> "NDArray[int64]":
        """How many samples a rank has at each step, repetitions included: int64 of shape (len(),). Raises IndexError."""
        import numpy

        rank = self._checked_rank(rank)
        least = self._size if self._uneven != "pad" else self._size + rank  # with "pad" all have as many as rank 0
        counts: NDArray[int64] = numpy.maximum(1, -(-(least - rank) // self.world_size))
        return counts

    def batch(self, step: int, rank: int) -> "tuple[NDArray[int64], NDArray[numpy.bool_]]":
        """(samples, valid): the numbers of a rank's samples at a step, int64 of shape (m,), and bool of shape (m,): False where the
        sample repeats one that another rank has at this step, and is not to be counted. m is 1 to batch_size. Raises IndexError."""
        import numpy

        step, rank = self._checked(step), self._checked_rank(rank)
        size, ranks = int(self._size[step]), self.world_size
        count = max(1, -(-(size if self._uneven == "pad" else size - rank) // ranks))
        places = rank + ranks * numpy.arange(count)
        return self._samples[self._begin[step] + places % size], places < size

    def spares(self, bucket: int, rank: int) -> "tuple[NDArray[int64], NDArray[numpy.bool_]]":
        """(samples, valid): what a rank takes in place of samples of a bucket that failed, in this order.

        First its part of what the plan leaves out, which nobody else takes, so that it counts (valid). Then all that the plan has of the
        bucket, to be repeated (not valid). Both are empty where the bucket has no step. Raises IndexError.
        """
        import numpy

        rank = self._checked_rank(rank)
        found = numpy.flatnonzero(self._names == bucket)
        begin, spares, end = (int(edges[found[0]]) for edges in (self._bounds, self._spares, self._bounds[1:])) if len(found) else (0, 0, 0)
        left_out = self._samples[spares + rank : end : self.world_size] if spares > begin else self._samples[:0]
        again = numpy.roll(self._samples[begin:spares], -rank)
        return numpy.concatenate((left_out, again)), numpy.arange(len(left_out) + len(again)) < len(left_out)

    def _checked(self, step: int) -> int:
        if not 0 <= step < len(self):
            raise IndexError(f"step {step}: the plan has {len(self)}")
        return step

    def _checked_rank(self, rank: int) -> int:
        if not 0 <= rank < self.world_size:
            raise IndexError(f"rank {rank}: world_size is {self.world_size}")
        return rank
