"""Keeps track of which samples of which shards have been handed out. The state of a WebDataset source is made of this.

An *ordinal* is a shard's place in the order in which its stream reads the shards; when the shards are read again, ordinals go on
counting. A position combines an ordinal and a number. The samples that the stream takes from that shard have the numbers 1, 2, 3 ….
The failure of the shard itself has the number 0, because a network or a disk does not fail at the same sample every time.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

from datago.engine._progress import Progress
from datago.engine._sample import Entry, Failure
from datago.threads import new_lock

BITS = 40  # the lower bits of a position, which hold the number
MAX_NUMBER = (1 << BITS) - 1


class Ledger:
    """
    Args:
        progress: the Progress in which the pool marks the positions that it has handed out.
        resume: the result of `state` in an earlier pass, or None.
    """

    def __init__(self, progress: Progress, resume: dict[str, Any] | None) -> None:
        resume = resume or {"done": [], "partial": [], "last": -1}
        self._lock = new_lock()
        self._progress = progress  # positions handed out of shards that are not in `_done`
        self._done = Progress(resume["done"])  # ordinals of shards of which everything was handed out
        self._ended: dict[int, tuple[int, bool]] = {}  # ordinal -> (samples, failed) of shards that were read to their end
        self._following: deque[int] = deque()  # positions that will be handed out next, in this order
        self._last: int = resume["last"]  # ordinal of the sample that was handed out last; updated only if `follow` is called
        self._begun = {ordinal for ordinal, _, _ in resume["partial"]}
        for ordinal, begin, end in resume["partial"]:
            progress.add(ordinal << BITS | begin, ordinal << BITS | end)
        self.was_new = not resume["done"] and not resume["partial"]  # Nothing was handed out before this pass.

    @property
    def last(self) -> int:
        return self._last

    def is_done(self, ordinal: int) -> bool:
        return self._done.first_missing(ordinal) > ordinal

    def was_begun(self, ordinal: int) -> bool:
        """Whether some samples of the shard were handed out before the state was taken."""
        return ordinal in self._begun

    def was_handed_out(self, position: int) -> bool:
        """Whether the sample at `position` has been handed out."""
        return self._progress.first_missing(position) > position or self.is_done(position >> BITS)

    def ended(self, ordinal: int, samples: int, failed: bool) -> None:
        """Records that a shard was read to its end, or up to the damage if it `failed`."""
        with self._lock:
            self._ended[ordinal] = samples, failed
            self._complete_shards()

    def follow(self, entries: Iterable[Entry | Failure]) -> None:
        """Records that `entries` will be handed out next, in this order, so that `last` can be kept up to date."""
        with self._lock:
            self._following.extend(entry.position for entry in entries)
            self._update_last()

    def state(self) -> dict[str, Any]:
        """A dict with `done`, ranges of ordinals of finished shards; `partial`, a list of [ordinal, begin, end], ranges of numbers that
        were handed out of unfinished shards; and `last`."""
        with self._lock:
            self._update_last()
            self._complete_shards()
            ranges = self._progress.ranges()
            partial = [[begin >> BITS, begin & MAX_NUMBER, end & MAX_NUMBER] for begin, end in ranges]
            return {"done": self._done.ranges(), "partial": partial, "last": self._last}

    def _update_last(self) -> None:
        while self._following and self.was_handed_out(self._following[0]):
            self._last = self._following.popleft() >> BITS

    def _complete_shards(self) -> None:
        """Replaces the positions of each shard of which everything was handed out by its ordinal in `_done`."""
        for ordinal, (samples, failed) in list(self._ended.items()):
            begin, end = ordinal << BITS, (ordinal << BITS) + samples + 1
            if self._progress.first_missing(begin + 1) >= end and (not failed or self._progress.first_missing(begin) > begin):
                self._done.add(ordinal, ordinal + 1)
                self._progress.remove(begin, end)
                del self._ended[ordinal]
