"""What a pass has lost: counted by reason, told once when it ends, and an error where it is more than anybody can want."""

import logging
from collections import deque
from typing import TYPE_CHECKING

from datago.errors import shown_name
from datago.threads import new_lock

if TYPE_CHECKING:
    from datago.engine._sample import Failure, SampleBatch

log = logging.getLogger("datago")  # what everybody should see
log_of_failures = logging.getLogger("datago.client")  # what only those see who ask for it

FIRST_ITEMS = 100  # fewer items say nothing about a share of them
NAMES_TOLD = 3
FAILURES_KEPT = 16


class Losses:
    """The failures of one pass, and the samples of batches that were dropped because they did not get full.

    Args:
        most: `max_failures` of the config. An integer: so many items may fail. A fraction (float): that share of all items may fail, and of
            the first 100 items that share of 100. None: half of the first 100 items may fail, and any number of those that follow.
        limited: whether None sets that limit. It does not where the reader is told of each failure.
    """

    def __init__(self, most: float | None, limited: bool) -> None:
        self._most, self._limited = most, limited
        self._lock = new_lock()  # guards the rest
        self._counts: dict[str, int] = {}
        self._first: list[str] = []
        self._last: deque[dict[str, str]] = deque(maxlen=FAILURES_KEPT)
        self._dropped: list[str] = []

    def add(self, failure: "Failure") -> None:
        """Counts a failure, and logs it."""
        name, reason, text = shown_name(failure.name), failure.reason, failure.text
        log_of_failures.error("%s: %s: %s", name, reason, text)
        with self._lock:
            self._counts[reason] = self._counts.get(reason, 0) + 1
            self._last.append({"name": failure.name, "reason": reason, "text": text})
            if len(self._first) < NAMES_TOLD:
                self._first.append(f"{name}: {reason}" + (f": {text}" if text else ""))

    def drop(self, batch: "SampleBatch") -> None:
        """Keeps the ids of a batch that did not get full, and logs them."""
        names = [sample.id for sample in batch.samples]
        with self._lock:
            self._dropped += names
        text = ", ".join(map(shown_name, names))
        log.warning("%d samples of %d x %d pixels make no full batch and are dropped: %s", len(names), batch.width, batch.height, text)

    def accounts(self) -> tuple[dict[str, int], list[dict[str, str]], list[str]]:
        """How many failures there are, by reason; the last 16 of them, dicts with name, reason and text; and the ids that were dropped."""
        with self._lock:
            return dict(self._counts), list(self._last), list(self._dropped)

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(self._counts.values())

    def too_many(self, items: int) -> bool:
        """Whether that is more than `max_failures` allows, of so many items that were good or failed."""
        if self._most is None:
            return self._limited and items <= FIRST_ITEMS and self.total > FIRST_ITEMS // 2
        if isinstance(self._most, int):
            return self.total > self._most
        return self.total > self._most * max(FIRST_ITEMS, items)

    def text(self, items: int) -> str:
        """A sentence on what was lost of so many items: counts by reason, three names, and where to see all."""
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(self._counts.items(), key=lambda one: -one[1]))
        return (
            f"{self.total} of {items} items failed ({reasons}); the first: {'; '.join(self._first)}. stats() has the counts and the last "
            f"{FAILURES_KEPT} failures, and the logger 'datago.client' tells of each"
        )
