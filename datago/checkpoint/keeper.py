"""What a training loop is done with, however far DataLoader workers or a prefetcher have read ahead of it."""

from collections import deque
from collections.abc import Callable
from typing import Any

# States of batches that a loop may hold back unread; none that is known holds more than one. The older ones count as done.
MOST_AHEAD = 16


class Keeper:
    """The last state of each stream of this rank, from the states of the batches that were done.

    Attributes:
        base: the states that the pass began with, or None: those of streams that no batch came from yet.
        workers: streams of this rank, as its batches say; 1 before the first of them.
    """

    def __init__(self) -> None:
        self.begin(None)
        self.workers = 1

    def begin(self, base: list[dict[str, Any]] | None) -> None:
        """A pass begins: nothing of it is done."""
        self.base = base
        self._done: dict[int, dict[str, Any]] = {}
        self._ahead: deque[dict[str, Any]] = deque()

    def add(self, state: dict[str, Any]) -> None:
        """The loop was given the batch that has this state; it is done once `settle` says so."""
        self._ahead.append(state)
        self.workers = int(state["workers"])
        self.settle(MOST_AHEAD)

    def settle(self, ahead: int) -> None:
        """All batches but the last so many are done."""
        while len(self._ahead) > ahead:
            state = self._ahead.popleft()
            before = self._done.get(state["worker"])
            # The batches of a worker's pass say of more and more samples that they were delivered: otherwise another pass has begun.
            if before is not None and before["delivered"] >= state["delivered"]:
                self.base, self._done = None, {}
            self._done[state["worker"]] = state

    def states(self, beginning: Callable[..., dict[str, Any]]) -> list[dict[str, Any]]:
        """The states of all streams of this rank; `beginning(worker, workers, base)` is that of one of which no batch
        was done. What the pass began with, if nothing was: that may be a list of all ranks' states."""
        if self.base is not None and not self._done:
            return list(self.base)
        return [self._done.get(worker) or beginning(worker, self.workers, self.base) for worker in range(self.workers)]
