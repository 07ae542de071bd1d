"""Shards read side by side, and the order in which what is in them leaves.

A lane is a thread that reads one shard after the other. What it finds waits in a queue of its own, a batch for each block.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

from datago.engine._sample import Entry, Failure
from datago.errors import SourceOSError, raise_kept
from datago.net.cancel import Stopped
from datago.threads import Bell, Flag, start_thread

AHEAD = 2  # batches of each lane that wait; a batch is what one block held
Batch = list[Entry | Failure]

BATCH = 32  # entries that leave at once where lanes take turns


class Lanes:
    """
    Args:
        waiting: for each lane a deque of what it is to read; where that is one deque for all, each takes what is next.
        read: a function of one of these that gives a generator of batches: lists of entries.
        stop: a Flag that ends everything; whoever sets it calls `wake`.
    """

    def __init__(self, waiting: list[deque[int]], read: Callable[[int], Generator[Batch, None, None]], stop: Flag) -> None:
        self._read, self._stop = read, stop
        self._arrived, self._room = Bell(), [Bell() for _ in waiting]  # no locks: finalizers may call `wake`, in a lane's thread too
        self._queues: list[deque[Batch]] = [deque() for _ in waiting]
        self._running = {lane for lane, own in enumerate(waiting) if own}
        self._error: BaseException | None = None
        self._waiting, self._threads = waiting, list[Any]()

    def wake(self) -> None:
        for bell in (self._arrived, *self._room):
            bell.ring()

    def batches(self, first: int | None = None) -> Generator[Batch, None, None]:
        """Yields batches as they come; or in an order that does not depend on time: one entry of each lane in turn, from lane
        `first` on, where a lane that has no more drops out. What ended a lane is raised behind what the others had."""
        try:
            self._start(all_of_them=first is not None)
            yield from self._arriving() if first is None else self._in_turn(first)
        finally:
            if self._running:  # nobody wants the rest
                self._stop.set()
            self.wake()
            for thread in self._threads:
                thread.join()
        raise_kept(self, "_error")

    def _start(self, all_of_them: bool) -> None:
        """A thread for each lane. Where the order does not rest on them, those that the system allows will do."""
        for lane in sorted(self._running):
            try:
                self._threads.append(start_thread(self._run, "datago shards", lane, self._waiting[lane]))
            except SourceOSError:
                if all_of_them or not self._threads:
                    self._running.clear()
                    raise
                self._running.discard(lane)

    def _arriving(self) -> Iterator[Batch]:
        lanes = deque(range(len(self._queues)))
        while (batch := self._take(lanes)) is not None:
            yield batch
            lanes.rotate(-1)  # none is preferred, lest the others' connections lie idle

    def _in_turn(self, first: int) -> Iterator[Batch]:
        lanes, out = deque(range(len(self._queues))), Batch()
        lanes.rotate(-first)
        current: list[Iterator[Entry | Failure]] = [iter(()) for _ in lanes]
        while lanes:
            lane = lanes[0]
            entry = next(current[lane], None)
            if entry is not None:
                out.append(entry)
                lanes.rotate(-1)
            if out and (len(out) >= BATCH or entry is None and not self._queues[lane]):
                yield out
                out = Batch()
            if entry is None:
                batch = self._take((lane,))
                if batch is None:
                    lanes.popleft()
                else:
                    current[lane] = iter(batch)
        if out:
            yield out

    def _take(self, lanes: Sequence[int] | deque[int]) -> Batch | None:
        """The next batch of the first of `lanes` that has one; None when all of them have ended, or after `stop`."""
        while not self._stop.is_set():
            ended = self._running.isdisjoint(lanes)  # before the queues are looked at: a lane fills its own, and then ends
            for lane in lanes:
                if self._queues[lane]:
                    batch = self._queues[lane].popleft()
                    self._room[lane].ring()
                    return batch
            if ended:
                break
            self._arrived.wait(1)
        return None

    # ---- a lane's thread ----

    def _run(self, lane: int, waiting: deque[int]) -> None:
        try:
            while not self._stop.is_set() and self._error is None:  # what ended a lane lets the others end their shards, and no more
                try:
                    shard = waiting.popleft()
                except IndexError:
                    break
                with closing(self._read(shard)) as batches:
                    for batch in batches:
                        if not self._put(lane, batch):
                            return
        except Stopped:
            pass
        except BaseException as error:
            self._error = error
        finally:
            self._running.discard(lane)
            self._arrived.ring()

    def _put(self, lane: int, batch: Batch) -> bool:
        """Waits for room; False once told to stop."""
        while len(self._queues[lane]) >= AHEAD and not self._stop.is_set():
            self._room[lane].wait(1)
        if self._stop.is_set():
            return False
        self._queues[lane].append(batch)
        self._arrived.ring()
        return True
