"""Ranks that agree at each step whether all of them have a batch, and end together."""

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, TypeVar, cast

from datago.errors import SourceError
from datago.order import ranks

Batch = TypeVar("Batch")
TIMEOUT = 1800.0  # seconds, as torch has it for gloo: one rank may do what the others do not, such as writing a checkpoint
POLL_INTERVALS = 0.0002, 0.01  # seconds, the first and the longest: a wait in native code could not be interrupted

_groups: dict[float, tuple[Any, Any]] = {}  # timeout: (the default group when it was made, a group), since making one takes all ranks


def agreed(batches: Iterable[Batch], timeout: float = TIMEOUT, group: Any = None) -> Iterator[Batch]:
    """Yields `batches` until the first rank has no more: all ranks yield the same number.

    At each step every rank says whether it has a batch, by one all_reduce of three integers on the CPU. It is begun before the batch of
    the step before is yielded, so that the answer is there when the trainer comes back. For that, one batch more is kept: what the
    dataset says of its state is one batch ahead of the trainer. A batch that a rank has when another one ends is dropped.

    A rank whose `batches` raise, or whose trainer stops reading (`break`, `close`), says so, and the others end at the step behind it.

    Args:
        batches: those of this process: wrap the DataLoader, not what its workers read.
        timeout: seconds that the other ranks have to come to a step. A rank that has died is noticed at once.
        group: a gloo process group of all ranks. None: one is made at the first batch, on all ranks, and kept for further calls.

    Where there is one rank, batches are passed on.

    Raises:
        SourceError: several ranks were started, but torch.distributed is not initialised; a rank did not answer in time, died, or is at
            another step. The text says at which step this rank was.
    """
    if not _several():
        yield from batches
        return
    steps = _Steps(_group(timeout) if group is None else group, timeout)
    iterator = iter(batches)
    try:
        ahead = steps.ask(iterator)
        while steps.agree():
            batch, ahead = ahead, steps.ask(iterator)
            yield cast(Batch, batch)  # all ranks have one
    except BaseException:  # also GeneratorExit: the trainer reads no further
        steps.leave()
        raise


class _Steps:
    """The questions of one pass, numbered from 0; one at a time is open."""

    def __init__(self, group: Any, timeout: float) -> None:
        self._group, self._timeout = group, timeout
        self._number, self._since = -1, 0.0
        self._work: Any = None
        self._answer: Any = None
        self._error: Exception | None = None  # what `batches` raised when asked for the batch of this step

    def ask(self, iterator: Iterator[Batch]) -> Batch | None:
        """Takes the next batch, and begins to ask whether all ranks have one; None where this one has not."""
        batch, have = None, True
        try:
            batch = next(iterator)
        except StopIteration:
            have = False
        except Exception as error:  # the batch of the step before comes first, as on the other ranks
            have, self._error = False, error
        self._begin(have)
        return batch

    def _begin(self, have: bool) -> None:
        import torch
        from torch import distributed

        self._number += 1
        self._answer = torch.tensor([have, self._number, -self._number], dtype=torch.int64)
        self._since = time.monotonic()
        try:
            self._work = distributed.all_reduce(self._answer, distributed.ReduceOp.MIN, self._group, async_op=True)
        except RuntimeError as error:
            raise self._failed(error) from None

    def agree(self) -> bool:
        """Whether all ranks have a batch. Raises what kept this one from having it."""
        interval, longest = POLL_INTERVALS
        while not self._work.is_completed():
            if time.monotonic() - self._since > self._timeout + 1:  # the group's own time is over first, where it is that of `_group`
                raise self._failed(f"no answer within {self._timeout:g} s")
            time.sleep(interval)
            interval = min(2 * interval, longest)
        try:
            self._work.wait()
        except RuntimeError as error:
            raise self._failed(error) from None
        have, least, most = self._answer.tolist()
        if least != -most:
            self._work = None
            raise SourceError(f"step {self._number}: ranks are at different steps, {least} to {-most}: all must read as many batches")
        if self._error is not None:
            raise self._error
        return bool(have)

    def leave(self) -> None:
        """Says, without waiting, that this rank will read no further, unless all know that a rank has ended."""
        with contextlib.suppress(Exception):
            if self._work is not None and not (self._work.is_completed() and self._answer[0] == 0):
                self._begin(False)

    def _failed(self, reason: object) -> SourceError:
        self._work = None
        waited = time.monotonic() - self._since
        return SourceError(f"step {self._number}: a rank did not answer ({waited:.1f} s, timeout {self._timeout:g} s): {reason}")


def initialized() -> bool:
    """Whether torch.distributed is initialised in this process."""
    distributed = sys.modules.get("torch.distributed")  # who has not loaded it has not initialised it
    return distributed is not None and distributed.is_available() and distributed.is_initialized()


def _several() -> bool:
    if initialized():
        return bool(sys.modules["torch.distributed"].get_world_size() > 1)
    if ranks.resolve("auto", "auto")[1] > 1:
        raise SourceError("ranks cannot agree on their steps: torch.distributed.init_process_group has to be called first")
    return False


def _group(timeout: float) -> Any:
    from torch import distributed

    default, group = _groups.get(timeout, (None, None))
    if default is not distributed.group.WORLD:
        group = distributed.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
        _groups[timeout] = distributed.group.WORLD, group
    return group
