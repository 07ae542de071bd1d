"""The file source: images below a folder, in an order that does not depend on the file system."""

import logging
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from datago.engine._sample import Entry, Failure
from datago.errors import SourceValueError
from datago.order import plan
from datago.sources.file.captions import Captions
from datago.sources.file.planned import PlannedImages
from datago.sources.file.settings import FileSettings
from datago.sources.file.tree import BATCH, Listing, Tree, checksum
from datago.sources.planned import Group
from datago.sources.settings import PassSettings

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

log = logging.getLogger("datago.source")


class FileSource:
    """Yields the images of a Tree as (path, position) pairs, those that have attributes as Entries (see captions.py).

    The order is that of the paths' raw bytes over the whole tree, or a shuffled one; stream s of n takes entries s, s + n, s +
    2n … of it. Without a common seed each stream shuffles its own part. In plain order the first samples leave while the tree is
    still walked; else it is listed first.
    """

    work_ahead = 1024  # what two cores get through while the feeder waits for its turn with the GIL; a path is small

    def __init__(self, config: PassSettings[FileSettings]) -> None:
        self._config = config
        self._stopped = False
        self._tree: Tree | None = None
        self._listing: Listing | None = None
        self._images: PlannedImages | None = None  # in a planned pass
        self._captions: Captions | None = None
        self._walked = 0, 0, False  # how many paths were seen so far, their checksum, whether the order rests on their number
        self._phases = config.resume["phases"] if config.resume else []  # what was read with other numbers of streams
        for begin, end in config.resume["done"] if config.resume else ():
            config.progress.add(begin, end)
        self.target: int | None = None
        self.base = 0
        self.skipped: dict[str, int] = {}

    def open(self) -> None:
        self._tree = Tree(os.fsencode(self._config.source.root_path), self.skipped)
        self._tree.stopped = self._stopped
        self.base = len(self._tree.base)
        if self._config.source.captions:
            self._captions = Captions(self._tree, lambda: self._stopped)
        if self._config.planning is not None:
            listing = self._list()
            self._images = PlannedImages(self._config, self._config.planning, listing, self._tree.base, lambda: self._stopped)
        elif self._config.uneven != "keep":
            listing = self._list()
            self.target = len(self._numbers)
            log.info("rank %d of %d reads %d of %d images", self._config.rank, self._config.world_size, self.target, len(listing))

    def count(self) -> int:
        if self._images is not None:
            return self._images.course.count()
        self._list()
        return len(self._numbers)

    def stop(self) -> None:
        self._stopped = True
        if self._tree is not None:
            self._tree.stopped = True

    def state(self) -> dict[str, Any] | None:
        """Where this stream is: `done`, ranges of positions; `listing`, how many paths that rests on, their checksum,
        and whether there may not be more of them; `phases` (see plan.remaining, and Course of a planned pass); and of that `steps`."""
        if self._walked[0] == 0 or self._config.planning is not None and self._images is None:
            return self._config.resume
        if self._images is not None:
            return {"listing": list(self._walked), "phases": self._phases, **self._images.state()}
        return {"done": self._config.progress.ranges(), "listing": list(self._walked), "phases": self._phases}

    def steps(self) -> int:
        assert self._images is not None
        return self._images.course.steps

    def others(self, group: int, places: Sequence[int]) -> Group:
        assert self._images is not None
        others = self._images.others(group, places)
        return cast(Group, next(self._captions.attach(iter([others])), others)) if self._captions else others

    def batches(self) -> Iterator[Sequence[tuple[bytes, int] | Entry | Failure]]:
        config = self._config
        if self._images is not None:
            batches = self._grouped()
        elif config.source.random_sampling or config.uneven != "keep" or config.resume:
            batches = self._planned()
        else:
            batches = self._streamed()
        yield from self._captions.attach(batches) if self._captions else batches

    def _grouped(self) -> Iterator[Sequence[tuple[bytes, int] | Entry | Failure]]:
        assert self._images is not None
        if self._opened().unread:
            yield self._opened().unread
        yield from self._images.groups()

    def _streamed(self) -> Iterator[Sequence[tuple[bytes, int] | Failure]]:
        stream, streams, tree = self._config.stream, self._config.streams, self._opened()
        base = tree.base
        found = crc = 0
        for step in tree.walk():
            if isinstance(step, Failure):
                yield [step]
                continue
            crc = checksum(step, crc)
            self._walked = found + len(step), crc, False
            first = (stream - found) % streams
            position = (found + first) // streams
            own = step[first::streams]
            found += len(step)
            if own:
                yield list(zip([base + path for path in own], range(position, position + len(own)), strict=True))
        if not self._stopped:
            self._check_not_empty(found)

    def _planned(self) -> Iterator[Sequence[tuple[bytes, int] | Failure]]:
        listing, tree = self._list(), self._opened()
        if tree.unread:
            yield tree.unread
        own, base = self._numbers, tree.base
        # Where ranks are promised equal counts, what fails is replaced by what is read a second time.
        end = len(own) * (1 if self._config.uneven == "keep" else 2)
        for begin, behind in plan.gaps(self._config.progress.ranges(), end):
            for first in range(begin, behind, BATCH):
                positions = range(first, min(first + BATCH, behind))
                if self._stopped:
                    return
                numbers = own.take(positions, mode="wrap").tolist()
                yield [(base + listing.path(number), position) for number, position in zip(numbers, positions, strict=True)]

    def _opened(self) -> Tree:
        assert self._tree is not None  # `open` came before
        return self._tree

    def _list(self) -> Listing:
        """Lists the whole tree, once, and finds which of its paths are this stream's, in which order (`_numbers`)."""
        if self._listing is not None:
            return self._listing
        config, listing = self._config, Listing()
        for step in self._opened().walk():
            if not isinstance(step, Failure):
                listing.add(step)
        self._listing = listing
        fixed = config.source.random_sampling or config.uneven != "keep" or bool(self._phases) or config.planning is not None
        self._walked = len(listing), listing.checksum(len(listing)), fixed
        if config.planning is None:
            self._numbers = self._own(self._order(len(listing)))
        if not self._stopped:
            if config.resume:
                self._check_unchanged(listing, *config.resume["listing"])
            self._check_not_empty(len(listing))
        return listing

    def _order(self, count: int) -> "NDArray[int64]":
        import numpy

        config = self._config
        order = numpy.arange(count)
        if config.source.random_sampling and not config.seed_is_random:
            order = plan.permutation(count, plan.key(config.seed, config.epoch))
        return plan.remaining(order, self._phases)

    def _own(self, order: "NDArray[int64]") -> "NDArray[int64]":
        config = self._config
        own = order[plan.share(len(order), config.stream, config.streams, config.world_size, config.uneven)]
        if config.source.random_sampling and config.seed_is_random:
            own = own[plan.permutation(len(own), plan.key(config.seed, config.epoch))]
        return own

    def _check_unchanged(self, listing: Listing, count: int, crc: int, fixed: bool) -> None:
        """Positions mean something only in the listing that they were made for."""
        now = len(listing)
        if count > now or fixed and count < now or listing.checksum(count) != crc:
            root = os.fsdecode(self._config.source.root_path)
            raise SourceValueError(
                f"root_path: what is below {root!r} has changed since the state was taken ({count} images then, {now} now): it "
                "cannot be resumed"
            )

    def _check_not_empty(self, found: int) -> None:
        config, root = self._config, os.fsdecode(self._config.source.root_path)
        if found == 0:
            raise self._opened().nothing()
        if config.planning is None and plan.total(found, config.world_size, config.uneven) <= config.rank:
            raise SourceValueError(
                f"rank {config.rank} of world_size {config.world_size} has no image: {found} below {root!r}"
                + (f", and uneven is {config.uneven!r}" if config.uneven != "keep" else "")
            )
