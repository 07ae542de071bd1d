"""The lifetime of a client: starts and stops passes over a source, and keeps the epoch and the place from which the next pass begins."""

import os
from dataclasses import replace
from typing import Any, Self

from datago import config as configuration
from datago.checkpoint import resume
from datago.checks import NATURAL, integer
from datago.engine._progress import Progress
from datago.order import ranks
from datago.run import STOP_GRACE, Pass
from datago.settings import Settings
from datago.sources import Source, open_source
from datago.threads import OwnLock


class Lifecycle:
    """The base of DatagoClient without the reading: starts and stops passes, and gives and loads states."""

    def __init__(self, config: dict[str, Any] | str | bytes | os.PathLike[str]) -> None:
        self._config = configuration.parse(config)
        self._epoch = self._config.epoch
        self._resumed: resume.Run | None = None
        self._worker = 0, 1
        self._reset()

    def _reset(self) -> None:
        self._lock = OwnLock()  # never held while waiting, because a finalizer in any thread may call stop()
        self._starting = OwnLock()  # held while a source opens, which may take long; acquired before _lock
        self._pass: Pass | None = None
        self._hold: object = None
        self._pid: int | None = None  # the process that started the pass, and has its threads
        self._ended = False

    # ---- lifetime ----

    def start(self) -> None:
        """Starts a pass, which prefetches at once. Does nothing while a pass runs. `stop()` interrupts it even while the source opens.

        Raises:
            SourceError: the source does not exist.
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
        """Ends the pass within a second: buffered samples are dropped, and reads return None. Idempotent; any thread may call it."""
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
        """The state from which a client that reads the same can be made. "auto" ranks are replaced by numbers, because a new process may
        not have the environment that tells them."""
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
        return self._opened().count()

    def _opened(self) -> Source:
        """The source of a pass from the beginning, from which nobody reads."""
        run = resume.begin(self._config, self._epoch, *self._worker)
        run.draw()
        source = open_source(self._config, run, Progress())
        source.open()
        return source

    def part(self, worker: int, workers: int) -> Self:
        """A new client, not started, that reads part `worker` of `workers` of this client's samples. Raises ValueError."""
        if not integer(1).test(workers) or not integer(0, workers - 1).test(worker):
            raise ValueError(f"worker, workers: got {worker!r}, {workers!r}, wanted an integer, and one that is greater")
        client = type(self).__new__(type(self))
        client.__setstate__({**self._settings(), "_worker": (worker, workers)})
        return client

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass, which has an order of its own if it is shuffled. Raises ValueError."""
        if not NATURAL.test(epoch):
            raise ValueError(f"epoch: got {epoch!r}, wanted {NATURAL.wanted}")
        self._check_process()
        with self._lock():
            self._epoch = epoch
            if self._resumed is not None and self._resumed.epoch != epoch:
                self._resumed = None

    def state_dict(self) -> dict[str, Any]:
        """The position of this client in its epoch, as a small dict that JSON can write. Samples that were prefetched but not handed out
        count as not read.

        Before the first sample, or after set_epoch, the state is the beginning of the epoch; after the last sample, its end. Raises
        SourceError if the source has no order that can be resumed.
        """
        self._check_process()
        with self._lock():
            running, resumed, epoch = self._pass, self._resumed, self._epoch
        if resumed is None and running and running.pool and (running.run.epoch == epoch or not running.pool.stopped):
            return running.state()
        run = self._next_run()
        return run.state(self._config, 0, run.resume)

    def load_state_dict(self, state: dict[str, Any] | list[dict[str, Any]]) -> None:
        """Makes the next pass read exactly the samples that had not been handed out when `state` was taken; later passes are complete.
        A running pass is ended.

        Args:
            state: the result of `state_dict` on this rank, or a list with the results of all ranks, which is needed if the number of
                ranks has changed.

        Raises:
            ValueError: `state` is not such a dict or list, or does not fit the config or this rank.
        """
        self._check_process()
        run = resume.resume(state, self._config, *self._worker)
        if self._pass is not None:
            self.stop()
        with self._lock():
            self._resumed, self._epoch, self._pass, self._ended = run, run.epoch, None, False

    def _next_run(self) -> resume.Run:
        return self._resumed or resume.begin(self._config, self._epoch, *self._worker)
