"""What a pass has lost: counted by reason, told once when it ends, and an error where it is more than anybody can want."""

from collections import deque
from typing import TYPE_CHECKING

from datago.errors import shown_name

if TYPE_CHECKING:
    from datago.engine._sample import Failure

FIRST_ITEMS = 100  # fewer items say nothing about a share of them
NAMES_TOLD = 3
FAILURES_KEPT = 16


class Losses:
    """The failures of one pass.

    Args:
        most: `max_failures` of the config. An integer: so many items may fail. A fraction (float): that share of all items may fail, and of
            the first 100 items that share of 100. None: half of the first 100 items may fail, and any number of those that follow.
        limited: whether None sets that limit. It does not where the reader is told of each failure.

    Attributes:
        counts: reason -> number of failures.
        last: the last 16 of them, dicts with name, reason and text.
    """

    def __init__(self, most: float | None, limited: bool) -> None:
        self.counts: dict[str, int] = {}
        self.last: deque[dict[str, str]] = deque(maxlen=FAILURES_KEPT)
        self._most, self._limited = most, limited
        self._first: list[str] = []

    def add(self, failure: "Failure") -> None:
        """Counts a failure."""
        self.counts[failure.reason] = self.counts.get(failure.reason, 0) + 1
        self.last.append({"name": failure.name, "reason": failure.reason, "text": failure.text})
        if len(self._first) < NAMES_TOLD:
            self._first.append(f"{shown_name(failure.name)}: {failure.reason}" + (f": {failure.text}" if failure.text else ""))

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(self.counts.values())

    def too_many(self, items: int) -> bool:
        """Whether that is more than `max_failures` allows, of so many items that were good or failed."""
        if self._most is None:
            return self._limited and items <= FIRST_ITEMS and self.total > FIRST_ITEMS // 2
        if isinstance(self._most, int):
            return self.total > self._most
        return self.total > self._most * max(FIRST_ITEMS, items)

    def text(self, items: int) -> str:
        """A sentence on what was lost of so many items: counts by reason, three names, and where to see all."""
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(self.counts.items(), key=lambda one: -one[1]))
        return (
            f"{self.total} of {items} items failed ({reasons}); the first: {'; '.join(self._first)}. stats() has the counts and the last "
            f"{FAILURES_KEPT} failures, and the logger 'datago.client' tells of each"
        )
