"""The images of a folder in planned batches: their buckets are known before they are read, and every rank has as many batches."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from datago.engine._sample import Failure
from datago.errors import SourceValueError
from datago.net.cancel import Stopped
from datago.order.course import Course, Part
from datago.sources.file.settings import FileSettings
from datago.sources.file.tree import Listing
from datago.sources.planned import Group, Planning
from datago.sources.settings import PassSettings


class PlannedImages:
    """What one stream reads of a listing.

    Args:
        base: what stands before the paths of the listing.
        stopped: says whether the pass was stopped.

    Raises:
        SourceError: there is no batch for anybody, or the state that the pass goes on with does not fit.
        Stopped: the pass was stopped before all sizes were known.
    """

    def __init__(
        self, config: PassSettings[FileSettings], planning: Planning, listing: Listing, base: bytes, stopped: Callable[[], bool]
    ) -> None:  # fmt: skip
        self._config, self._planning, self._listing, self._base, self._stopped = config, planning, listing, base, stopped
        found = planning.buckets([base + listing.path(number) for number in range(len(listing))], len(base), stopped)
        if found is None:
            raise Stopped
        buckets, self._failures = found
        before: dict[str, Any] = config.resume["steps"] if config.resume else {"batch_size": None, "lane": None, "taken": []}
        if before["batch_size"] not in (None, planning.batch_size):
            raise SourceValueError(
                f"batch_size: {before['batch_size']} when the state was taken, {planning.batch_size} now: planned batches go on with the "
                "same size, where the number of ranks and workers is the same"
            )
        self._lane = config.stream // config.world_size if before["lane"] is None else before["lane"]
        self.course = Course(
            buckets, rank=config.rank, world_size=config.world_size, batch_size=planning.batch_size, lane=self._lane,
            lanes=config.streams // config.world_size, limit=config.limit, phases=config.resume["phases"] if config.resume else (),
            taken=before["taken"], seed=config.seed, epoch=config.epoch, shuffle=config.source.random_sampling,
            remainder=planning.remainder, uneven=config.uneven,
        )  # fmt: skip
        for done, steps in self.course.shares:
            self._failures = self._failures[len(self._failures) * done // max(1, steps) :]
        if not config.resume and not self.course.steps and len(self._failures) < len(listing):
            raise SourceValueError(
                f"no batch of {planning.batch_size} for each of {config.world_size} ranks: {len(listing)} images below "
                f"{os.fsdecode(config.source.root_path)!r}, remainder is {planning.remainder!r} and uneven {config.uneven!r}"
            )

    def groups(self) -> Iterator[Group | list[Failure]]:
        """What is left. Failures of pictures whose size cannot be read come with the steps, each on one rank: at the beginning they would
        seem to be more of all than they are."""
        if not self.course.steps and self._config.stream == 0:
            yield [failure for _, failure in self._failures]
        for number in range(self._config.progress.first_missing(), len(self.course)):
            if self._stopped():
                return
            if failures := self._failures_at(self.course.step(number)):
                yield failures
            yield self._group(number, self.course.part(number))

    def _failures_at(self, step: int) -> list[Failure]:
        count, steps = len(self._failures), self.course.steps
        at_step = self._failures[count * step // steps : count * (step + 1) // steps]
        return [failure for number, failure in at_step if number % self._config.world_size == self._config.rank]

    def others(self, group: int, places: Sequence[int]) -> Group:
        """See PlannedSource."""
        part = self.course.others(group, places)
        if part is None:
            width, height = self._planning.sizes[self.course.part(group).bucket]
            raise SourceValueError(f"no picture of the bucket {width} x {height} is good, and a planned batch of it has places left")
        return self._group(group, part)

    def _group(self, number: int, part: Part) -> Group:
        entries = [(self._base + self._listing.path(sample), number) for sample in part.samples]
        return Group(number, self._planning.sizes[part.bucket], entries, part.valid)

    def state(self) -> dict[str, Any]:
        """The part of `Source.state` that planned batches have."""
        done = self._config.progress.ranges()
        taken = self.course.taken(self._config.progress.first_missing())
        planning = self._planning
        steps = {"batch_size": planning.batch_size, "remainder": planning.remainder, "lane": self._lane, "taken": taken}
        return {"done": done, "steps": steps}
