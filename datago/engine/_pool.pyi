from typing import Any

from datago.engine._progress import Progress
from datago.engine._sample import Entry, Failure, Sample, SampleBatch

class Pool:
    def __init__(
        self,
        *,
        threads: int,
        work_capacity: int,
        ready_capacity: int,
        limit: int,
        max_file_bytes: int,
        image: Any,
        progress: Progress,
        memory_limit: int = 0,
        ordered: bool = False,
        seed: int = 0,
        epoch: int = 0,
        base: int = 0,
        batch: Any = None,
    ) -> None: ...
    @property
    def thread_count(self) -> int: ...
    @property
    def inherited(self) -> bool: ...
    @property
    def stopped(self) -> bool: ...
    def submit(self, entries: list[tuple[bytes, int] | Entry | Failure], classes: list[int] | None = None) -> bool: ...
    def submit_planned(
        self,
        group: int,
        width: int,
        height: int,
        entries: list[tuple[bytes, int] | Entry | Failure],
        valid: list[bool],
        places: list[int] | None = None,
        classes: list[int] | None = None,
    ) -> bool: ...
    def empty_places(self, at_end: bool = False) -> tuple[int, list[int]] | None: ...
    def finish(self) -> None: ...
    def take(self, convert: bool, timeout: float | None = None) -> Sample | dict[str, Any] | SampleBatch | Failure | None: ...
    def stop(self) -> None: ...
    def wait(self, timeout: float) -> bool: ...
    def join(self, timeout: float) -> bool: ...
    def counts(self) -> dict[str, Any]: ...

class Hold:
    def __init__(self, pool: Pool) -> None: ...
