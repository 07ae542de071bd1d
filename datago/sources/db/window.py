"""Keeps track of which records of a walk were handed out, by their ids, so that the walk can be resumed."""

from typing import Any

from datago.engine._progress import Progress
from datago.order.plan import gaps
from datago.threads import new_lock

BEGINNING: dict[str, Any] = {"last": None, "after": None, "missing": []}
Place = tuple[str | None, str | None, str | None]
SLACK = 1024  # records that may be added before records that are not needed any more are dropped


class Window:
    """The records between the first one that was not handed out and the last one that was.

    Each record gets a number when it is added, from 0 in every pass. Ids are compared only for equality, because only the server knows
    their order.

    Args:
        progress: the Progress in which the numbers that were handed out are marked.
        resume: the result of `state` in an earlier pass, or None to begin at the first record.
    """

    def __init__(self, progress: Progress, resume: dict[str, Any] | None) -> None:
        start = resume or BEGINNING
        # A record that was certainly handed out. When the walk is resumed, a server may begin with it again.
        self.known = None if start["last"] in start["missing"] else start["last"]
        self._progress, self._resume, self._after, self._last = progress, resume, start["after"], start["last"]
        self._missing: dict[str, None] = dict.fromkeys(start["missing"])  # ids still expected, in the order in which they will come
        self._found = 0  # how many of the missing records have come; these have the first numbers
        # number -> (the record's id, an id somewhere before it, the value of `last` if this is the last record handed out)
        self._records: dict[int, Place] = {}
        self._count, self._reached, self._most = 0, self._last, SLACK
        self._lock = new_lock()  # One thread walks, another one may call `state`.

    def add(self, identity: str | None) -> int:
        """Adds the walk's next record, and returns its number. A record without a usable id (None) is known only by its place: it comes
        again if the walk is resumed before it, and counts as handed out if a later record was."""
        with self._lock:
            if identity in self._missing:
                del self._missing[identity]
                self._found += 1
                before, self._after = self._after, identity
                record: Place = identity, before, self._last
            else:
                self._missing.clear()  # The walk has passed the missing records; those that did not come do not exist any more.
                before, self._reached = self._reached, identity or self._reached
                record = identity, before, self._reached
            self._records[self._count] = record
            self._count += 1
            if len(self._records) > self._most:
                self._forget()
            return self._count - 1

    def state(self) -> dict[str, Any] | None:
        """A dict with `last`: no record after this id was handed out (None: no record at all); `missing`: the ids up to `last` that were
        not handed out, at most as many as records are in flight; and `after`: an id before all of these."""
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
        """Drops all records except those that were not handed out, and the last one that was. So one slow download does not make the
        window grow."""
        done = self._progress.ranges()
        last = [done[-1][1] - 1] if done else []
        left = [number for begin, behind in gaps(done, self._count) for number in range(begin, behind)]
        self._records = {number: self._records[number] for number in last + left}
        self._most = 2 * len(self._records) + SLACK
