"""DatagoIterDataset: the stream as an iterable for a training loop, one that a DataLoader takes where torch is installed."""

import logging
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any, Self

from datago.checkpoint.state import checked
from datago.client import DatagoClient
from datago.order import plan

try:
    import torch
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info
except ImportError:
    torch, DataLoader, IterableDataset, get_worker_info = None, (), object, lambda: None

__all__ = ["DatagoIterDataset", "asking_workers", "get_worker_info", "torch"]

log = logging.getLogger("datago.dataset")

COUNTABLE = 10**8  # a limit above this is no count of samples but "all"; list() would take memory for as many


class Closed(Exception):
    """Thrown into a pass: its reader has closed it."""


class Outcomes:
    """Iterates over what a generator yields, and raises the exceptions among it: unlike one that is raised in the generator, they do
    not end it. `close` waits until the pass has ended; one that is only dropped ends by itself."""

    def __init__(self, outcomes: Generator[Any, None, None]) -> None:
        self._outcomes = outcomes

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        outcome = next(self._outcomes)
        if not isinstance(outcome, Exception):
            return outcome
        try:
            del self  # else the traceback, which others may keep, would keep the pass
            raise outcome
        finally:
            del outcome

    def close(self) -> None:
        with suppress(Closed, StopIteration):
            self._outcomes.throw(Closed)


class DatagoIterDataset(IterableDataset):
    """Iterates over the samples of a config, a full pass each time. A torch.utils.data.IterableDataset if torch is installed.

    Args:
        config: as for DatagoClient.
        return_python_types: yield dicts of plain Python values with PIL images (as `get_sample_auto_convert`), else Samples.

    In the workers of a DataLoader each reads a part of its rank's samples, so that all of them together give each sample once, in
    whatever order the workers take turns; `limit` stays the rank's. It can be pickled at any time. `state_dict` and
    `load_state_dict` are those of DatagoClient; with workers torchdata's StatefulDataLoader calls them in each. An iterator that has
    raised SampleError (where `on_error` is "raise") gives what comes behind it when it is asked again.
    """

    def __init__(self, config: dict[str, Any] | str | bytes | os.PathLike[str], return_python_types: bool = True) -> None:
        self._client = DatagoClient(config)  # never started: every pass has one of its own
        self._convert = return_python_types
        self._epoch = _shared(self._client.epoch)
        self._states: list[dict[str, Any]] | None = None  # loaded, and no pass has begun with them yet
        self._running: DatagoClient | None = None  # the client of the pass under way, or of the last one

    def __iter__(self) -> Iterator[Any]:
        self._running = None
        if self._states is not None and all(state["ended"] for state in self._states):
            self._states = None  # the rest of that epoch is nothing; whoever asks again wants a pass
            return iter(())
        return Outcomes(self._pass())

    def _pass(self) -> Generator[Any, None, None]:
        # A generator: nothing starts before the first sample is asked for, and iterators that nobody reads cost nothing.
        client, self._states = self._next(), None
        self._running = client
        client.start()
        # The pass ends with this generator, be it dropped: no code of Python's runs for that, which could lose a KeyboardInterrupt. The
        # client stays, as somebody may ask for its state.
        hold, client._hold = client._hold, None
        try:
            get = client.get_sample_auto_convert if self._convert else client.get_sample
            while True:
                outcome: Any
                try:
                    outcome = get()
                    if outcome is None:
                        return
                    outcome = self._made(outcome)
                except Exception as error:
                    outcome = error
                try:
                    yield outcome
                except Closed:
                    client.stop()
                    return
        finally:
            hold = None  # noqa: F841  (a traceback that somebody keeps may keep this frame)

    def _made(self, sample: Any) -> Any:
        """What the reader gets of what the client gives."""
        return sample

    def _next(self) -> DatagoClient:
        """The client of the pass that would begin now."""
        info = get_worker_info()
        client = self._client.part(info.id, info.num_workers) if info else self._client.part(0, 1)
        if info and isinstance(self._epoch, list):
            log.warning("shared memory cannot be used: a worker that outlives an epoch does not see what set_epoch says")
        if self._states is not None:
            client.load_state_dict(self._states)
        client.set_epoch(self._epoch_now())  # of another epoch than the state's: that is over
        return client

    def _epoch_now(self) -> int:
        return int(self._epoch[0])

    def set_epoch(self, epoch: int) -> None:
        """The next pass is that epoch's, in every worker. Raises ValueError."""
        self._client.set_epoch(epoch)
        self._epoch[0] = epoch

    def state_dict(self) -> dict[str, Any]:
        """Where this process is in its epoch; see DatagoClient.state_dict."""
        running = self._running
        client = running if running is not None and not running._foreign() else self._next()
        client.set_epoch(self._epoch_now())
        return client.state_dict()

    def load_state_dict(self, state: dict[str, Any] | list[dict[str, Any]]) -> None:
        """The next pass gives exactly what was left; see DatagoClient.load_state_dict.

        Whether the state fits this rank and worker, it says (ValueError) when that pass begins.
        """
        found = checked(state, self._client.config)
        self.set_epoch(found[0]["epoch"])
        self._states = found

    def __len__(self) -> int:
        """How many samples a pass gives on this rank, over all workers, if none fails: a folder is listed for that, once for each worker
        of the DataLoader that asks.

        Shards without an index and databases are not counted: their `limit` is given, and TypeError raised if there is none.
        """
        return sum(self._counts(asking_workers(sys._getframe(1))))

    def _counts(self, workers: int, guessed: bool = True) -> list[int]:
        """How many samples each of so many workers gives; `guessed`: its part of the limit where the source does not count."""
        limit = self._client.config.limit
        counts = [self._client.part(worker, workers).count() for worker in range(workers)]
        limits = [plan.portion(limit, worker, workers) for worker in range(workers)]
        if None in counts and (limit > COUNTABLE or not guessed):
            lack = "the config has no limit, and this source does not count" if guessed else "this source does not count each worker's"
            raise TypeError(f"the number of samples is not known: {lack}")
        known = [min(count, limit) for count, limit in zip(counts, limits, strict=True) if count is not None]
        return known if len(known) == workers else limits

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_running": None}


def _shared(epoch: int) -> Any:
    """The epoch where workers that outlive one see what set_epoch says in the parent; a plain list where there is no shared memory."""
    try:
        return torch.tensor([epoch]).share_memory_() if torch else [epoch]
    except (OSError, RuntimeError):  # /dev/shm is not there, or cannot be written
        return [epoch]


def asking_workers(frame: FrameType) -> int:
    """In how many parts a pass is read by who asks for a length. A DataLoader does not say how many workers it has: the frame of its own
    `__len__` is where that can be seen."""
    loader = frame.f_locals.get("self")
    return max(1, loader.num_workers) if isinstance(loader, DataLoader) else 1
