"""Reads several shards at once, and decides the order in which their entries leave.

A reader is a thread that reads one shard after the other. It puts the entries that it finds into a queue of its own, one batch for
each block of the shard. Readers are known by their numbers, from 0.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

from datago.engine._sample import Entry, Failure
from datago.errors import SourceOSError, raise_kept
from datago.net.cancel import Stopped
from datago.threads import Bell, Flag, start_thread

MAX_QUEUED = 2  # batches in the queue of each reader
MAX_BATCH = 32  # entries in a batch that is made of the entries of all readers in turn
Batch = list[Entry | Failure]


class ShardReaders:
    """
    Args:
        pending: for each reader, a deque of the shards (ordinals) that it reads. If all readers have the same deque, each takes the
            next shard from it.
        read: a function of a shard's ordinal that returns a generator of batches: lists of entries.
        stop: a Flag that ends all readers. After setting it, call `wake`.
    """

    def __init__(self, pending: list[deque[int]], read: Callable[[int], Generator[Batch, None, None]], stop: Flag) -> None:
        self._read, self._stop = read, stop
        self._arrived, self._room = Bell(), [Bell() for _ in pending]  # no locks, as a finalizer may call `wake` in any thread
        self._queues: list[deque[Batch]] = [deque() for _ in pending]
        self._running = {reader for reader, own in enumerate(pending) if own}
        self._error: BaseException | None = None
        self._pending, self._threads = pending, list[Any]()

    def wake(self) -> None:
        for bell in (self._arrived, *self._room):
            bell.ring()

    def batches(self, first: int | None = None) -> Generator[Batch, None, None]:
        """Yields batches as they arrive, if `first` is None. Otherwise yields one entry of each reader in turn, beginning with reader
        `first`, so that the order does not depend on timing; a reader without further entries drops out. An exception of a reader
        is raised after the entries of all readers."""
        try:
            self._start(need_all=first is not None)
            yield from self._arriving() if first is None else self._round_robin(first)
        finally:
            if self._running:  # The caller has closed this generator before the end.
                self._stop.set()
            self.wake()
            for thread in self._threads:
                thread.join()
        raise_kept(self, "_error")

    def _start(self, need_all: bool) -> None:
        """Starts a thread for each reader. If the order does not depend on their number (`need_all` is false), it is enough that the
        system allows one thread."""
        for reader in sorted(self._running):
            try:
                self._threads.append(start_thread(self._run, "datago shards", reader, self._pending[reader]))
            except SourceOSError:
                if need_all or not self._threads:
                    self._running.clear()
                    raise
                self._running.discard(reader)

    def _arriving(self) -> Iterator[Batch]:
        readers = deque(range(len(self._queues)))
        while (batch := self._take(readers)) is not None:
            yield batch
            readers.rotate(-1)  # If one reader were preferred, the connections of the others would be idle.

    def _round_robin(self, first: int) -> Iterator[Batch]:
        readers, out = deque(range(len(self._queues))), Batch()
        readers.rotate(-first)
        current: list[Iterator[Entry | Failure]] = [iter(()) for _ in readers]
        while readers:
            reader = readers[0]
            entry = next(current[reader], None)
            if entry is not None:
                out.append(entry)
                readers.rotate(-1)
            if out and (len(out) >= MAX_BATCH or entry is None and not self._queues[reader]):
                yield out
                out = Batch()
            if entry is None:
                batch = self._take((reader,))
                if batch is None:
                    readers.popleft()
                else:
                    current[reader] = iter(batch)
        if out:
            yield out

    def _take(self, readers: Sequence[int] | deque[int]) -> Batch | None:
        """The next batch of the first of `readers` that has one, or None if all of them have ended or `stop` is set."""
        while not self._stop.is_set():
            ended = self._running.isdisjoint(readers)  # checked before the queues, since a reader fills its queue and then ends
            for reader in readers:
                if self._queues[reader]:
                    batch = self._queues[reader].popleft()
                    self._room[reader].ring()
                    return batch
            if ended:
                break
            self._arrived.wait(1)
        return None

    # ---- a reader's thread ----

    def _run(self, reader: int, pending: deque[int]) -> None:
        try:
            while not self._stop.is_set() and self._error is None:  # what ended a lane lets the others end their shards, and no more
                try:
                    shard = pending.popleft()
                except IndexError:
                    break
                with closing(self._read(shard)) as batches:
                    for batch in batches:
                        if not self._enqueue(reader, batch):
                            return
        except Stopped:
            pass
        except BaseException as error:
            self._error = error
        finally:
            self._running.discard(reader)
            self._arrived.ring()

    def _enqueue(self, reader: int, batch: Batch) -> bool:
        """Waits for room in the reader's queue, and appends the batch. Returns False once `stop` is set."""
        while len(self._queues[reader]) >= MAX_QUEUED and not self._stop.is_set():
            self._room[reader].wait(1)
        if self._stop.is_set():
            return False
        self._queues[reader].append(batch)
        self._arrived.ring()
        return True
