"""What has been handed out of which shard: what a WebDataset source's state is made of.

An *ordinal* is a shard's place in the order in which its stream reads them; where they are read again, it counts on. A position is
an ordinal and a number: 1, 2, 3 … for what the stream takes of that shard, 0 for the failure of the shard itself, since where a
network or a disk breaks off is not the same every time.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

from datago.engine._progress import Progress
from datago.engine._sample import Entry, Failure
from datago.threads import new_lock

BITS = 40  # of a number
NUMBERS = (1 << BITS) - 1


class Ledger:
    """
    Args:
        progress: a Progress, into which others put the positions that were handed out.
        resume: what `state` gave, or None.
    """

    def __init__(self, progress: Progress, resume: dict[str, Any] | None) -> None:
        resume = resume or {"done": [], "partial": [], "last": -1}
        self._lock = new_lock()
        self._progress = progress  # positions in shards that are not done
        self._done = Progress(resume["done"])  # ordinals of shards of which everything was handed out
        self._ended: dict[int, tuple[int, bool]] = {}  # ordinal -> (samples, failed) of those that were read to their end
        self._on_their_way: deque[int] = deque()  # positions, in the order in which they will be handed out
        self._last: int = resume["last"]  # ordinal of what was handed out last; kept only by `follow`
        self._begun = {ordinal for ordinal, _, _ in resume["partial"]}
        for ordinal, begin, end in resume["partial"]:
            progress.add(ordinal << BITS | begin, ordinal << BITS | end)
        self.was_new = not resume["done"] and not resume["partial"]  # nothing had been handed out before

    @property
    def last(self) -> int:
        return self._last

    def is_done(self, ordinal: int) -> bool:
        return self._done.first_missing(ordinal) > ordinal

    def was_begun(self, ordinal: int) -> bool:
        """Whether something of the shard had been handed out before the state was taken."""
        return ordinal in self._begun

    def is_out(self, position: int) -> bool:
        """Whether it has been handed out."""
        return self._progress.first_missing(position) > position or self.is_done(position >> BITS)

    def ended(self, ordinal: int, samples: int, failed: bool) -> None:
        """A shard was read to its end, or to where it `failed`."""
        with self._lock:
            self._ended[ordinal] = samples, failed
            self._settle()

    def follow(self, entries: Iterable[Entry | Failure]) -> None:
        """These are the next that will be handed out: for `last`."""
        with self._lock:
            self._on_their_way.extend(entry.position for entry in entries)
            self._catch_up()

    def state(self) -> dict[str, Any]:
        """A dict of `done`, ranges of ordinals; `partial`, [ordinal, begin, end] of ranges of numbers in the shards between; `last`."""
        with self._lock:
            self._catch_up()
            self._settle()
            ranges = self._progress.ranges()
            partial = [[begin >> BITS, begin & NUMBERS, end & NUMBERS] for begin, end in ranges]
            return {"done": self._done.ranges(), "partial": partial, "last": self._last}

    def _catch_up(self) -> None:
        while self._on_their_way and self.is_out(self._on_their_way[0]):
            self._last = self._on_their_way.popleft() >> BITS

    def _settle(self) -> None:
        """Shards of which everything was handed out become one number."""
        for ordinal, (samples, failed) in list(self._ended.items()):
            begin, end = ordinal << BITS, (ordinal << BITS) + samples + 1
            if self._progress.first_missing(begin + 1) >= end and (not failed or self._progress.first_missing(begin) > begin):
                self._done.add(ordinal, ordinal + 1)
                self._progress.remove(begin, end)
                del self._ended[ordinal]
