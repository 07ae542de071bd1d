"""DatagoClient: one pass over a source after another. Signals, forks, order, and what to do with failures."""

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self, cast

from datago import config as configuration
from datago import metrics
from datago.checkpoint import resume
from datago.checks import NATURAL, integer, seconds
from datago.engine._progress import Progress
from datago.engine._sample import Failure, Sample, SampleBatch
from datago.errors import SourceError, sample_error
from datago.order import ranks
from datago.run import STOP_GRACE, Pass
from datago.settings import Settings
from datago.sources import open_source
from datago.stats import no_counts, summary
from datago.threads import OwnLock


class DatagoClient:
    """Streams decoded samples of a source, on all cores, outside the GIL.

    Args:
        config: a dict or the JSON text of one; docs/config.md has the keys.

    Raises:
        ValueError: the config is wrong; the text names the key, what it got and what it wants.

    A client is iterable (`for sample in client`), a context manager (`with DatagoClient(config) as client`), usable from
    several threads at once, and picklable before it is started. A forked child cannot use one that was started: what has to do with
    the pass raises RuntimeError there. Once nobody has the client any more, its pass ends.
    """

    def __init__(self, config: dict[str, Any] | str | bytes) -> None:
        self._config = configuration.parse(config)
        self._epoch = self._config.epoch
        self._resumed: resume.Run | None = None
        self._worker = 0, 1
        self._reset()

    def _reset(self) -> None:
        self._lock = OwnLock()  # held for a moment, and with it nothing is waited for: a finalizer in any thread may call stop()
        self._starting = OwnLock()  # held while a source opens, which may take long; taken before _lock
        self._pass: Pass | None = None
        self._hold: object = None
        self._pid: int | None = None  # the process that started the pass: only there are its threads
        self._ended = False

    # ---- lifetime ----

    def start(self) -> None:
        """Starts a pass from the beginning and prefetches at once; does nothing while one runs. `stop()` ends it while it still
        looks at its source.

        Raises:
            SourceError: the source is not there.
            OSError: no worker thread could be started.
        """
        self._start(again=True)

    def _start(self, again: bool) -> None:
        self._check_process()
        with self._starting():
            with self._lock():
                before = self._pass, self._ended
                if self._pass is not None and not (again and self._ended):
                    return
            running = Pass(self._config, self._next_run())
            try:
                with self._lock():
                    self._pass, self._pid, self._ended = running, os.getpid(), False
                hold = running.open()
                with self._lock():
                    if self._pass is running:
                        self._hold, self._resumed = hold, None
            except BaseException:
                running.close(STOP_GRACE)
                with self._lock():
                    if self._pass is running:
                        self._pass, self._ended = before
                raise

    def stop(self) -> None:
        """Ends the pass; buffered samples are dropped and reads give None. Idempotent, from any thread, within a second."""
        self._check_process()
        self._end(STOP_GRACE)

    def _end(self, grace: float) -> None:
        with self._lock():
            self._ended = True
            running = self._pass
        if running is not None:
            running.close(grace)

    def _foreign(self) -> bool:
        """Whether this is the forked child of a process that started the client."""
        return self._pass is not None and self._pid != os.getpid()

    def _check_process(self) -> None:
        if self._foreign():
            raise RuntimeError(
                "this DatagoClient was started in another process, and its threads stayed there: make the client (or iterate the "
                "dataset) after the fork, or start workers by 'spawn'"
            )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __getstate__(self) -> dict[str, Any]:
        if self._pass is not None:
            raise TypeError("a DatagoClient that was started cannot be pickled: pickle it before, or pickle its config")
        return self._settings()

    def _settings(self) -> dict[str, Any]:
        """What makes another client that reads the same. The ranks are settled: a new process may not know them."""
        source = self._config.source_config
        rank, world_size = ranks.resolve(source.rank, source.world_size)
        config = replace(self._config, source_config=replace(source, rank=rank, world_size=world_size))
        return {"_config": config, "_epoch": self._epoch, "_resumed": self._resumed, "_worker": self._worker}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    # ---- order ----

    @property
    def epoch(self) -> int:
        """The epoch of the next pass."""
        return self._epoch

    @property
    def config(self) -> Settings[Any]:
        """The checked configuration, with its defaults: frozen dataclasses, whose attributes are the keys of docs/config.md."""
        return self._config

    def count(self) -> int | None:
        """How many samples a pass gives on this rank if none fails, the limit apart; None where the source does not count them.
        A folder is listed for that. Raises SourceError."""
        run = resume.begin(self._config, self._epoch, *self._worker)
        run.draw()
        source = open_source(self._config, run, Progress())
        source.open()
        return source.count()

    def part(self, worker: int, workers: int) -> "DatagoClient":
        """Another client, not started, that gives part `worker` of `workers` of this one's samples. Raises ValueError."""
        if not integer(1).test(workers) or not integer(0, workers - 1).test(worker):
            raise ValueError(f"worker, workers: got {worker!r}, {workers!r}, wanted an integer, and one that is greater")
        client = DatagoClient.__new__(DatagoClient)
        client.__setstate__({**self._settings(), "_worker": (worker, workers)})
        return client

    def set_epoch(self, epoch: int) -> None:
        """The next pass is that epoch's: its order is another one, where it is shuffled. Raises ValueError."""
        if not NATURAL.test(epoch):
            raise ValueError(f"epoch: got {epoch!r}, wanted {NATURAL.wanted}")
        self._check_process()
        with self._lock():
            self._epoch = epoch
            if self._resumed is not None and self._resumed.epoch != epoch:
                self._resumed = None

    def state_dict(self) -> dict[str, Any]:
        """Where this client is in its epoch: what it handed out, not what it has prefetched. A small dict that JSON can write.

        Taken before the first sample, or after set_epoch, it stands for the beginning; after the last one, for the end. Raises
        SourceError where a source has no order that can be resumed.
        """
        self._check_process()
        with self._lock():
            running, resumed, epoch = self._pass, self._resumed, self._epoch
        if resumed is None and running and running.pool and (running.run.epoch == epoch or not running.pool.stopped):
            return running.state()
        run = self._next_run()
        return run.state(self._config, 0, run.resume)

    def load_state_dict(self, state: dict[str, Any] | list[dict[str, Any]]) -> None:
        """The next pass gives exactly what had not been handed out when `state` was taken; the ones after it are whole. A pass under
        way is ended.

        Args:
            state: what `state_dict` gave on this rank, or a list with those of all ranks: needed where their number has changed.

        Raises:
            ValueError: that is no such dict, or it does not fit the config or this rank.
        """
        self._check_process()
        run = resume.resume(state, self._config, *self._worker)
        if self._pass is not None:
            self.stop()
        with self._lock():
            self._resumed, self._epoch, self._pass, self._ended = run, run.epoch, None, False

    def _next_run(self) -> resume.Run:
        return self._resumed or resume.begin(self._config, self._epoch, *self._worker)

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

    def get_sample_auto_convert(self, timeout: float | None = None) -> dict[str, Any] | None:
        """As `get_sample`, but as a dict of plain Python values, images as PIL images (mode RGB for colour).

        Keys: id, source, duplicate_state, attributes (a dict), tags, coca_embedding, latents, image, masks,
        additional_images. An image that the sample does not have is None.
        """
        return cast("dict[str, Any] | None", self._next(True, timeout))

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
                running.drop(result)
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
