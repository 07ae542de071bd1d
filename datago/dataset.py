"""DatagoIterDataset: the stream as an iterable for a training loop, one that a DataLoader takes where torch is installed."""

import logging
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any, Self

from datago.client import DatagoClient
from datago.observed import Observed
from datago.order import plan
from datago.resumable import Resumable
from datago.trainers import FitLoop

try:
    import torch
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info
except ImportError:
    torch, DataLoader, IterableDataset, get_worker_info = None, (), object, lambda: None

__all__ = ["DataLoader", "DatagoIterDataset", "asking_workers", "get_worker_info", "torch"]

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


class DatagoIterDataset(Resumable, Observed, IterableDataset):
    """Iterates over the samples of a config, a full pass each time. A torch.utils.data.IterableDataset if torch is installed.

    Args:
        config: as for DatagoClient.
        return_python_types: yield dicts of plain Python values with PIL images (as `get_sample_auto_convert`), else Samples.
        with_state: each dict has the `state` of its stream (this rank's, or this DataLoader worker's) right after it, as `state_dict`
            gives it. For `update`, or to be stored. It costs what a state costs: some 20 µs.

    In the workers of a DataLoader each reads a part of its rank's samples, so that all of them together give each sample once, in
    whatever order the workers take turns; `limit` stays the rank's. It can be pickled at any time. `state_dict` and
    `load_state_dict` are those of DatagoClient; with workers a loop calls `update`, or torchdata's StatefulDataLoader calls them in each.
    An iterator that has raised SampleError (where `on_error` is "raise") gives what comes behind it when it is asked again.

    As a context manager it ends its pass (`close`). Raises ValueError: the config is wrong; with_state where Samples are yielded.
    """

    def __init__(
        self, config: dict[str, Any] | str | bytes | os.PathLike[str], return_python_types: bool = True, with_state: bool = False
    ) -> None:
        if with_state and not return_python_types:
            raise ValueError("with_state: got True, wanted False where return_python_types is False: a Sample has no place for a state")
        self._client = DatagoClient(config)  # never started: every pass has one of its own
        self._convert = return_python_types
        self._make_resumable(_shared(self._client.epoch), with_state)
        self._watch(self._client)

    def __iter__(self) -> Iterator[Any]:
        self._running = None
        self._follow(FitLoop.of(sys._getframe(1)))
        if self._states is not None and all(state["ended"] for state in self._states):
            self._states = None  # the rest of that epoch is nothing; whoever asks again wants a pass
            return iter(())
        return Outcomes(self._pass())

    def _pass(self) -> Generator[Any, None, None]:
        # A generator: nothing starts before the first sample is asked for, and iterators that nobody reads cost nothing.
        client = self._next()
        self._keeper.begin(self._states)
        self._running, self._states = client, None
        tell = self._watch_pass(client, get_worker_info())
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
                        tell(True)
                        return
                    outcome = self._stated(client, self._made(outcome))
                except Exception as error:
                    outcome = error
                tell()
                try:
                    yield outcome
                except Closed:
                    client.stop()
                    tell(True)
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

    def __len__(self) -> int:
        """How many samples a pass gives on this rank, over all workers, if none fails: a folder is listed for that, once for each worker
        of the DataLoader that asks.

        Shards without an index and databases are not counted: their `limit` is given, and TypeError raised if there is none.
        """
        workers = asking_workers(sys._getframe(1))
        self._check_length(FitLoop.of(sys._getframe(1)), workers, 1)
        return sum(self._counts(workers))

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
        return {**self.__dict__, "_running": None, "_watched": self._client, "_fit_loop": None}


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
