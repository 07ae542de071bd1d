"""DatagoClient: samples and failures as the reader gets them. Its lifetime, epochs and states are in lifecycle.py."""

from collections.abc import Iterator
from typing import Any, cast

from datago import metrics
from datago.checks import seconds
from datago.engine._sample import Failure, Sample, SampleBatch
from datago.errors import SourceError, sample_error
from datago.help import with_keys
from datago.lifecycle import Lifecycle
from datago.run import STOP_GRACE, Pass
from datago.stats import no_counts, summary
from datago.typed import SampleDict


@with_keys
class DatagoClient(Lifecycle):
    """Streams decoded samples of a source, on all cores, outside the GIL.

    Args:
        config: a dict, the JSON text of one, or the path of a JSON, TOML or YAML file; its keys are below, and in docs/config.md.

    Raises:
        ValueError: the config is wrong; the text names the key, what it got and what it wants.

    A client is iterable (`for sample in client`), a context manager (`with DatagoClient(config) as client`), usable from
    several threads at once, and picklable before it is started. A forked child cannot use one that was started: what has to do with
    the pass raises RuntimeError there. Once nobody has the client any more, its pass ends.
    """

    # ---- reading ----

    def get_sample(self, timeout: float | None = None) -> Sample | None:
        """The next Sample, or None at the end of the stream or after `stop()`. The first call starts the stream.

        A sample that is ready is taken at once; else the call waits outside the GIL, and a signal is seen within 0.1 s.

        Args:
            timeout: seconds to wait at most, a number; 0 or less: no waiting; None or infinity: for ever.

        Raises:
            ValueError: `timeout` is no such number.
            TimeoutError: no sample within `timeout`; the stream goes on.
            SourceError: the source died, or gave nothing at all, or more items failed than `max_failures` allows.
            SampleError: an item failed, and `on_error` is "raise"; the next call goes on behind it.
        """
        return cast("Sample | None", self._next(False, timeout))

    def get_sample_auto_convert(self, timeout: float | None = None) -> SampleDict | None:
        """As `get_sample`, but as a dict of plain Python values, images as PIL images (mode RGB for colour).

        See datago.SampleDict for its keys.
        """
        return cast("SampleDict | None", self._next(True, timeout))

    def _next(self, convert: bool, timeout: float | None) -> Any:
        if timeout is not None:
            timeout = seconds(timeout)
        running = self._pass
        if running is None or running.pool is None or running.pool.inherited:
            self._check_process()
            if not self._ended:
                self._start(again=False)  # another reader's pass may have ended since
            running = self._pass
            if running is None or running.pool is None:
                return None  # stopped before it began
        if self._ended:
            return None
        while True:
            try:
                result = running.pool.take(convert, timeout)
            except KeyboardInterrupt:
                self.stop()
                raise
            if result is None:
                return self._finish(running)
            if isinstance(result, SampleBatch) and result.dropped:
                running.losses.drop(result)
                continue
            if not isinstance(result, Failure):
                return result
            try:
                running.note(result)
            except SourceError:
                self._end(STOP_GRACE)
                raise
            if self._config.on_error == "raise":
                raise sample_error(result)
            if self._config.on_error != "skip":
                self._config.on_error(result)

    def _finish(self, running: Pass) -> None:
        """The pool says it is over: by stop(), by the limit, or because the source ended, well or not."""
        with self._lock():
            first = not self._ended and running is self._pass
            if first:
                self._ended = True
        if not first:
            return None
        try:
            running.conclude()
        finally:
            running.close(STOP_GRACE)
        return None

    def __iter__(self) -> Iterator[Sample]:
        """Yields samples to the end of the stream; a client that has ended starts again."""
        if self._ended:
            self.start()
        while (sample := self.get_sample()) is not None:
            yield sample

    # ---- accounts ----

    def stats(self) -> dict[str, Any]:
        """Where every item of the current (or last) pass went.

        Returns:
            A dict: `seen` = `delivered` + `failed` + `skipped` + `in_flight` (integers); `failures` (reason → count);
            `last_failures` (a list of dicts with name, reason, text; the last 16); `skips` (reason → count);
            `dropped` (ids of samples that made no full batch, where `remainder` is "drop");
            `damaged` (delivered pictures in which libjpeg patched up data that cannot be right);
            `memory` (`limit`, `in_flight` and its `peak`: bytes; zeros without a memory_limit);
            `bottleneck` (a line that says which of source, decoding and training loop is slow, None before the start);
            `threads`; `work_ring` and `ready_ring`, each with `depth`, `capacity`, `passed`, `push_waits` (a full ring made a
            producer wait: what comes behind it is slow) and `pop_waits` (an empty one made a consumer wait: what comes before).
        """
        self._check_process()
        running = self._pass
        return running.stats() if running is not None else summary(no_counts(), {}, {}, [])

    def metrics(self, **labels: str) -> str:
        """`stats()` as OpenMetrics text, for Prometheus and its kin: families datago_…, with `labels` on every sample.

        It is for the body of an answer of the type `application/openmetrics-text; version=1.0.0; charset=utf-8`. Raises ValueError:
        a label's name is none that OpenMetrics has, or one of ours (outcome, reason, ring, side).
        """
        return metrics.openmetrics(self.stats(), labels)
