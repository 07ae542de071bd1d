"""What one stream takes of a plan of steps: which steps, what else where a sample fails, and how far it has come. Pure but for that."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from datago.order.steps import Phase, StepPlan

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray


class Part(NamedTuple):
    """What one rank has of a step. A sample that is not valid repeats one that counts elsewhere."""

    bucket: int
    samples: list[int]
    valid: list[bool]


class Course:
    """The steps of one stream. Where a rank has several streams, that of lane k of `lanes` takes the steps k, k + lanes …: a reader that
    takes from the lanes in turn has the steps in the order of the plan. A group is such a step, by its number in the stream.

    Args:
        buckets, batch_size: see StepPlan; `order` are its other arguments but for `history`.
        rank, world_size, lane, lanes: which stream this is.
        limit: the most samples that a rank takes. The step that comes to it is cut short, on all ranks, and is the last.
        phases: what was done of the epoch with other numbers of streams. Each is a dict of `world_size`, `batch_size`, `done`, for each
            stream (number rank + world_size * lane) the [begin, end] groups that it has handed out, and `taken`, as for Phase.
        taken: spares that this stream has handed out in the groups that are done.

    Raises:
        ValueError: see StepPlan.
    """

    def __init__(
        self, buckets: "NDArray[Any]", *, rank: int, world_size: int, batch_size: int, lane: int = 0, lanes: int = 1,
        limit: int = 2**63 - 1, phases: Sequence[Mapping[str, Any]] = (), taken: Sequence[int] = (), **order: Any,
    ) -> None:  # fmt: skip
        self._rank, self._lane, self._lanes = rank, lane, lanes
        self.shares = []  # of each phase and of this course: which part of its steps is behind it, as (done, of all)
        history: list[Phase] = []
        for phase in phases:
            plan = StepPlan(buckets, phase["world_size"], phase["batch_size"], history=history, **order)
            history.append(_done(plan, phase))
            self.shares.append((history[-1].steps, len(plan)))
            limit -= int(plan.counts(0)[: history[-1].steps].sum())
        self._plan = StepPlan(buckets, world_size, batch_size, history=history, **order)
        before = self._plan.counts(0).cumsum() - self._plan.counts(0)  # rank 0 has the most at every step
        self.steps = int((before < limit).sum())
        self._last = limit - int(before[self.steps - 1]) if self.steps else 0  # samples of a rank at the last step, at most
        self._before_taken = list(taken)
        self._taken: dict[tuple[int, int], int] = {}  # (group, place): the spare there, which counts
        self._now: dict[tuple[int, int], int] = {}  # (group, place): what was tried there last, of groups that wait for spares
        self._failed: set[int] = set()
        self._spares: dict[int, tuple[list[int], NDArray[int64]]] = {}  # of a bucket: those left that count, the next one last; the others

    def __len__(self) -> int:
        """How many groups the stream has."""
        return len(range(self._lane, self.steps, self._lanes))

    def count(self) -> int:
        """How many samples they have."""
        counts = self._plan.counts(self._rank)[: self.steps]
        if self.steps:
            counts[-1] = min(counts[-1], self._last)
        return int(counts[self._lane :: self._lanes].sum())

    def step(self, group: int) -> int:
        """The number of a group's step in the plan."""
        return self._lane + self._lanes * group

    def part(self, group: int) -> Part:
        """What a group has."""
        step = self.step(group)
        samples, valid = self._plan.batch(step, self._rank)
        end = self._last if step == self.steps - 1 else len(samples)
        return Part(self._plan.bucket(step), samples[:end].tolist(), valid[:end].tolist())

    def others(self, group: int, places: Sequence[int]) -> Part | None:
        """What is to be tried in places of a group whose samples have failed; None where all that the bucket has have failed.

        What it gives follows from which samples fail, if it is asked in the order of the groups, and of a group for all places at once.
        """
        first = self.part(group)
        counting, again = self._of_bucket(first.bucket)
        found: list[int] = []
        valid: list[bool] = []
        for place in places:
            self._failed.add(self._now.get((group, place), first.samples[place]))
            self._taken.pop((group, place), None)
            if counting:
                sample = self._taken[group, place] = counting.pop()
                valid.append(True)
            else:
                begin = (self.step(group) + place) % max(1, len(again))
                turn = (int(again[(begin + i) % len(again)]) for i in range(len(again)))
                sample = next((other for other in turn if other not in self._failed), -1)
                if sample < 0:
                    return None
                valid.append(False)
            self._now[group, place] = sample
            found.append(sample)
        return Part(first.bucket, found, valid)

    def _of_bucket(self, bucket: int) -> "tuple[list[int], NDArray[int64]]":
        if bucket not in self._spares:
            samples, valid = self._plan.spares(bucket, self._rank)
            counting = samples[valid][self._lane :: self._lanes].tolist()
            behind = max((counting.index(sample) + 1 for sample in self._before_taken if sample in counting), default=0)
            self._spares[bucket] = counting[behind:][::-1], samples[~valid]
        return self._spares[bucket]

    def taken(self, groups: int) -> list[int]:
        """The numbers of the spares that count and were handed out, once so many groups were."""
        return [*self._before_taken, *(sample for (group, _), sample in self._taken.copy().items() if group < groups)]


def _done(plan: StepPlan, phase: Mapping[str, Any]) -> Phase:
    """What streams have done of a plan, each so many of its groups: all steps up to the first that one of them has not done, and the
    samples of those behind it that others have done."""
    ranks, lanes = plan.world_size, len(phase["done"]) // plan.world_size
    behind = [stream // ranks + lanes * (done[0][1] if done else 0) for stream, done in enumerate(phase["done"])]
    steps = min(*behind, len(plan))
    taken = list(phase["taken"])
    for stream, end in enumerate(behind):
        for step in range(stream // ranks, min(end, len(plan)), lanes):
            if step >= steps:
                samples, valid = plan.batch(step, stream % ranks)
                taken += samples[valid].tolist()
    return Phase(ranks, plan.batch_size, steps, taken)
