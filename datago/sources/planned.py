"""Planned passes: which batch each rank takes at which step is known before anything is read (datago/order/steps.py)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from datago.sources.protocol import Source

if TYPE_CHECKING:
    from numpy import int32
    from numpy.typing import NDArray

    from datago.engine._sample import Entry, Failure


@dataclass(frozen=True, kw_only=True)
class Planning:
    """What a planned pass follows: all streams take the batches that one StepPlan gives them.

    Attributes:
        batch_size, remainder: of the plan.
        sizes: the (width, height) of each bucket, by its number.
        buckets: a function of the paths (bytes) of all samples, of how many bytes at their beginning say only where the folder lies, and of
            a function that says whether the pass was stopped. It gives the bucket of each, an array of int32 of shape (n,), negative where
            there is none, and for each of these its number and a Failure; None if it was stopped. It may raise what ends the pass.
    """

    batch_size: int
    remainder: Literal["keep", "drop"]
    sizes: tuple[tuple[int, int], ...]
    buckets: "Callable[[list[bytes], int, Callable[[], bool]], tuple[NDArray[int32], list[tuple[int, Failure]]] | None]"


class Group(list["tuple[bytes, int] | Entry | Failure"]):
    """The entries of a planned batch, or of what is to fill places of it.

    Attributes:
        number: of the batch in its stream, which is the position of its samples.
        size: (width, height), pixels.
        valid: for each entry whether it counts, or repeats one that does.
    """

    def __init__(
        self, number: int, size: tuple[int, int], entries: "Iterable[tuple[bytes, int] | Entry | Failure]", valid: list[bool]
    ) -> None:
        super().__init__(entries)
        self.number, self.size, self.valid = number, size, valid


class PlannedSource(Source, Protocol):
    """A Source where `settings.planning` is given. Its `batches` yields Groups in the order of their numbers, and lists of Failures of what
    is in none of them. A group is handed out whole, once all before it were."""

    def steps(self) -> int:
        """How many steps all ranks have in this pass, from its beginning. Called after `open`."""

    def others(self, group: int, places: Sequence[int]) -> Group:
        """What is to be tried in places of a group where samples failed. Raises SourceError: there is nothing more to be tried."""
