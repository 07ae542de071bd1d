"""One pass over a source: its feeder thread and its pool, and how these end, even if nobody stops the client."""

import atexit
import logging
import os
import threading
import time
from contextlib import suppress
from typing import Any

from datago import environment, metrics
from datago.checkpoint.resume import Run
from datago.checks import MAX_INT
from datago.engine._pool import Hold, Pool
from datago.engine._progress import Progress
from datago.engine._sample import Failure
from datago.errors import SourceValueError, raise_kept
from datago.feeder import feed
from datago.losses import Losses
from datago.net.cancel import Stopped
from datago.settings import Settings
from datago.sources import open_source
from datago.stats import no_counts, summary
from datago.threads import start_thread

log = logging.getLogger("datago")  # warnings, which every user should see
log_of_lines = logging.getLogger("datago.client")  # the periodic lines, for users who set its level

STOP_GRACE = 0.5  # seconds that stop() waits for work in flight
EXIT_GRACE = 0.1  # the same at the interpreter's end

# All passes that have not ended. A pass adds and removes itself, because the callback of a weak set would lose a KeyboardInterrupt that a
# signal handler raises in it.
_passes: set["Pass"] = set()


def live_cleanup_threads() -> int:
    """How many background threads wait for stopped work to end, such as a read on a dead network file system."""
    return sum(running.late for running in list(_passes))


class Pass:
    """One pass, until its last thread has ended: NEW → OPEN → CLOSING → CLOSED.

    A pass is closed by `close`, or when its pool is stopped, which happens when the Hold that `open` returned is freed. A thread of the
    pass, the keeper, then stops the source and waits until all other threads have ended.
    """

    def __init__(self, config: Settings[Any], run: Run) -> None:
        run.draw()
        self.run, self._config = run, config
        self._progress = Progress()
        self.source = open_source(config, run, self._progress)
        self.pool: Pool | None = None  # set by `open`
        self.promised: int | None = None  # how many good samples Source.target promises, if it does
        self.error: BaseException | None = None  # the exception that ended the source, if one did
        self.ended = False  # whether the reader has reached the end
        self.losses = Losses(config.max_failures, limited=config.on_error == "skip")
        self._told = False  # whether an exception has told the reader what was lost, so that it need not be logged
        self.late = False  # whether work is still in flight after the grace period of a close
        self._threads: list[Any] = []  # the feeder and the keeper
        self._closed = False

    def open(self) -> Hold | None:
        """Opens the source and starts the threads, unless `close` was called before. This may take long, if a storage lists its shards for
        instance; `close` interrupts it.

        Returns:
            The Hold on the pool, or None if the pass was closed.

        Raises:
            SourceError: the source does not exist, or no thread can be started.
        """
        _passes.add(self)
        try:
            self.source.open()
            hold = None if self._closed else self._start()
            if self._closed and self.pool is not None:  # `close` was called meanwhile, perhaps before there was a pool.
                self._end(self.pool, STOP_GRACE)
            return hold
        except Stopped:
            return None
        finally:
            if self.pool is None:
                _passes.discard(self)

    def _start(self) -> Hold:
        config, run = self._config, self.run
        assert run.seed is not None  # it was drawn
        planned = config.batch is not None and config.batch.planning is not None
        limit = MAX_INT if planned else run.left(config.limit)  # the plan itself keeps to the limit
        if self.source.target is not None:
            limit = self.promised = min(limit, max(0, self.source.target - run.delivered))
        threads = environment.worker_count(limit, run.workers)
        ready = config.samples_buffer_size if config.batch is None else max(2, config.samples_buffer_size // config.batch.size)
        pool = Pool(
            threads=threads,
            work_capacity=self.source.work_ahead,
            ready_capacity=ready,
            limit=limit,
            max_file_bytes=config.max_file_bytes,
            memory_limit=config.memory_limit or 0,
            image=config.image_config,
            progress=self._progress,
            ordered=config.ordered and not planned,  # planned batches leave in order by themselves
            seed=run.seed,
            epoch=run.epoch,
            base=self.source.base,
            batch=config.batch,
        )
        if pool.thread_count < threads:
            log.warning("only %d of %d worker threads could be started", pool.thread_count, threads)
        hold = Hold(pool)
        try:
            self._threads.append(start_thread(self._feed, "datago feeder", pool))
            self._threads.append(start_thread(self._keep, "datago keeper", pool))
        except BaseException:
            pool.stop()
            pool.join(STOP_GRACE)
            raise
        self.pool = pool
        return hold

    def _feed(self, pool: Pool) -> None:
        try:
            feed(pool, self.source, self._config.batch.label if self._config.batch else None)
        except BaseException as error:
            self.error = error
        finally:
            pool.finish()

    def _keep(self, pool: Pool) -> None:
        """The keeper's thread. It logs the progress once a period and at the end. When the pool has stopped, it stops the source, logs what
        was lost, and waits until the feeder and the workers have ended."""
        period, over = self._config.log_period, False
        then, before = time.monotonic(), summary(no_counts(), {}, {}, [])
        while not over:
            over = pool.wait(period or 3600)
            with suppress(MemoryError):
                if period:
                    now, stats = time.monotonic(), self.stats()
                    log_of_lines.info("%s", metrics.line(stats, before, now - then))
                    before, then = stats, now
        self.source.stop()
        with suppress(MemoryError):
            if self.losses.total and not self._told:
                log.warning("%s", self.losses.text(self._items()))
        if not self._left(pool, STOP_GRACE):
            self.late = True
            log.warning("work is still in flight %.1f s after stop; a background thread waits for it", STOP_GRACE)
            while not self._left(pool, 3600):
                pass
        _passes.discard(self)

    def note(self, failure: Failure) -> None:
        """Counts a Failure, and logs it.

        Raises:
            SourceError: there are now more failures than `max_failures` allows.
        """
        self.losses.add(failure)
        items = self._items()
        if self.losses.too_many(items):
            self._told = True
            raise SourceValueError(f"more failures than max_failures allows: {self.losses.text(items)}")

    def _items(self) -> int:
        """How many items have succeeded or failed so far."""
        counts: dict[str, int] = self.pool.counts() if self.pool is not None else no_counts()
        return counts["delivered"] + counts["dropped"] + counts["failed"]

    def stats(self) -> dict[str, Any]:
        """See DatagoClient.stats."""
        counts = self.pool.counts() if self.pool is not None else no_counts()
        return summary(counts, dict(self.source.skipped), *self.losses.accounts())

    def conclude(self) -> None:
        """Called at the end of the stream. Raises the source's error if there is one, and SourceError if samples are lacking."""
        raise_kept(self, "error")
        self.ended = True
        assert self.pool is not None  # The end was read from it.
        counts = self.pool.counts()
        if self.promised is not None and counts["delivered"] + counts["dropped"] < self.promised:
            raise SourceValueError(
                f"uneven {self._config.uneven!r} promises {self.promised} samples on every rank, but only {counts['delivered']} were "
                f"delivered: {counts['failed']} failed, and no others are left to replace them"
            )
        if counts["delivered"] == self.run.delivered == counts["dropped"] == 0 and counts["failed"]:
            self._told = True
            lost = counts["failed"]
            raise SourceValueError(f"none of the {lost} items of the source gave a sample: {self.losses.text(lost)}")

    def state(self) -> dict[str, Any]:
        """The current state dict. The pass must be open."""
        assert self.pool is not None
        return self.run.state(self._config, self.pool.counts()["delivered"], self.source.state(), self.ended)

    def close(self, grace: float) -> None:
        """Stops the source and the pool. Waits up to `grace` seconds until all threads have ended; after that only the keeper waits."""
        first, self._closed = not self._closed, True
        self.source.stop()
        if self.pool is not None:
            self._end(self.pool, grace if first else None)

    def _end(self, pool: Pool, grace: float | None) -> None:
        pool.stop()
        if grace is None or threading.get_ident() in [thread.ident for thread in self._threads]:
            return  # A finalizer may run in the feeder or the keeper, which cannot wait for themselves.
        end = time.monotonic() + grace
        self.late = not self._left(pool, grace)
        if not self.late:
            self._threads[1].over.wait(max(0, end - time.monotonic()))

    def _left(self, pool: Pool, grace: float) -> bool:
        """Waits for the feeder and the workers. Returns False if they have not ended within `grace` seconds."""
        end = time.monotonic() + grace
        return self._threads[0].over.wait(grace) and pool.join(max(0, end - time.monotonic()))


def _forget_all() -> None:
    """Called in a forked child, which has neither the threads of these passes nor anyone to release their locks."""
    _passes.clear()


os.register_at_fork(after_in_child=_forget_all)


@atexit.register
def _close_all() -> None:
    running = list(_passes)
    for one in running:
        if one.pool is not None:
            one.pool.stop()
    for one in running:
        one.close(EXIT_GRACE)
