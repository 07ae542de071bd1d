"""How far a walk over records has come: which of them were handed out, told by their ids."""

from typing import Any

from datago.engine._progress import Progress
from datago.order.plan import gaps
from datago.threads import new_lock

BEGINNING: dict[str, Any] = {"last": None, "after": None, "missing": []}
Place = tuple[str | None, str | None, str | None]
SLACK = 1024  # records that may come in before those are forgotten that nothing needs any more


class Window:
    """The records between the first that was not handed out and the last that was.

    Each gets a number as it comes in, from 0 in every pass. Ids are never compared but for being the same: which of two comes
    first, the server knows.

    Args:
        progress: the numbers that were handed out.
        resume: what `state` gave in an earlier pass; None: the walk begins at the beginning.
    """

    def __init__(self, progress: Progress, resume: dict[str, Any] | None) -> None:
        start = resume or BEGINNING
        # Handed out for sure, where the walk is resumed: a server may begin with it again.
        self.known = None if start["last"] in start["missing"] else start["last"]
        self._progress, self._resume, self._after, self._last = progress, resume, start["after"], start["last"]
        self._missing: dict[str, None] = dict.fromkeys(start["missing"])  # those that have not come yet, in the order in which they will
        self._found = 0  # how many of them have come: these have the first numbers
        # number: the id, an id somewhere before it, and `last` once it is the last one handed out
        self._records: dict[int, Place] = {}
        self._count, self._reached, self._most = 0, self._last, SLACK
        self._lock = new_lock()  # the walk goes on in one thread, another asks for the state

    def add(self, identity: str | None) -> int:
        """The number of the walk's next record. A record without a usable id (None) is known by where it is alone: it comes again
        if the walk is resumed before it, and is taken for handed out if another behind it was."""
        with self._lock:
            if identity in self._missing:
                del self._missing[identity]
                self._found += 1
                before, self._after = self._after, identity
                record: Place = identity, before, self._last
            else:
                self._missing.clear()  # the walk is behind them: those that did not come are not there any more
                before, self._reached = self._reached, identity or self._reached
                record = identity, before, self._reached
            self._records[self._count] = record
            self._count += 1
            if len(self._records) > self._most:
                self._forget()
            return self._count - 1

    def state(self) -> dict[str, Any] | None:
        """`last`: everything behind this id was not handed out (None: everything at all); `missing`: the ids before it that were
        not either; `after`: an id before all of these. Their number is that of the records in flight at most."""
        with self._lock:
            done = self._progress.ranges()
            if not done:
                return self._resume
            last = self._records[done[-1][1] - 1][2]
            end = max(done[-1][1], self._found)
            left = [self._records[number] for begin, behind in gaps(done, end) for number in range(begin, behind)]
            after = left[0][1] if left else self._after if self._missing else last
            missing = [identity for identity, _, _ in left if identity is not None]
            return {"last": last, "after": after, "missing": [*missing, *self._missing]}

    def _forget(self) -> None:
        """Keeps what was not handed out yet, and the last one that was: one slow download does not make this grow."""
        done = self._progress.ranges()
        last = [done[-1][1] - 1] if done else []
        left = [number for begin, behind in gaps(done, self._count) for number in range(begin, behind)]
        self._records = {number: self._records[number] for number in last + left}
        self._most = 2 * len(self._records) + SLACK
