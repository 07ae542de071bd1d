"""What a dataset says of its passes, in this process and in the workers of a DataLoader: stats, metrics, the end."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Self

from datago import metrics
from datago.client import DatagoClient
from datago.shared_stats import SharedStats


class Observed:
    """The part of DatagoIterDataset that watches."""

    def _watch(self, client: DatagoClient) -> None:
        self._watched = client  # of the pass under way in this process, or of the last one; at first one that is never started
        self._begun = 0.0  # time.monotonic() when that pass began
        self._passes = 0  # that began in this process
        self._shared_stats = SharedStats()

    def _watch_pass(self, client: DatagoClient, worker: Any) -> Callable[..., None]:
        """A pass begins here. A function that tells its stats to other processes, where they want them: called after each outcome, and
        with True at the end. `worker` is what torch's get_worker_info says."""
        self._watched, self._begun, self._passes = client, time.monotonic(), self._passes + 1
        writer = self._shared_stats.writer(worker, self._passes) if worker else None
        tell: Callable[..., None] = partial(writer.write, client.stats) if writer else lambda always=False: None
        tell(True)
        return tell

    def stats(self) -> dict[str, Any]:
        """Where every item of the current (or last) pass went, as DatagoClient.stats says it: of this process's pass, or, where a
        DataLoader with workers reads the dataset, the sum over its workers.

        A worker tells its numbers about once a second and at the end of its pass, from when on they are exact. What a worker that was
        killed told last stays counted. Raises RuntimeError in a forked child of a process that has begun a pass.
        """
        of_workers, begun = self._shared_stats.newest()
        if of_workers is not None and begun > self._begun:
            return of_workers
        return self._watched.stats()

    def metrics(self, **labels: str) -> str:
        """`stats()` as OpenMetrics text; see DatagoClient.metrics."""
        return metrics.openmetrics(self.stats(), labels)

    def close(self) -> None:
        """Ends the pass of this process, if there is one; its iterator ends. Workers end with the iterator of their DataLoader.
        `stats()` stays what it was. Iterating again begins another pass."""
        if self._begun and not self._watched._foreign():
            self._watched.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
