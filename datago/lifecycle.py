"""The lifetime of a client: one pass over a source after another, in which epoch, and from which place in it."""

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
    """What DatagoClient has, but for reading: it starts and stops passes, and says where it is."""

    def __init__(self, config: dict[str, Any] | str | bytes | os.PathLike[str]) -> None:
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
        return self._opened().count()

    def _opened(self) -> Source:
        """The source of a pass from the beginning, from which nobody reads."""
        run = resume.begin(self._config, self._epoch, *self._worker)
        run.draw()
        source = open_source(self._config, run, Progress())
        source.open()
        return source

    def part(self, worker: int, workers: int) -> Self:
        """Another client, not started, that gives part `worker` of `workers` of this one's samples. Raises ValueError."""
        if not integer(1).test(workers) or not integer(0, workers - 1).test(worker):
            raise ValueError(f"worker, workers: got {worker!r}, {workers!r}, wanted an integer, and one that is greater")
        client = type(self).__new__(type(self))
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
