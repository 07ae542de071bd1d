"""One pass over a source: its feeder thread, the pool, and the way down, also when nobody wants it any more or the interpreter ends."""

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

log = logging.getLogger("datago")  # what everybody should see
log_of_lines = logging.getLogger("datago.client")  # what only those see who ask for it

STOP_GRACE = 0.5  # seconds that stop() waits for work in flight
EXIT_GRACE = 0.1  # the same when the interpreter ends

# Those that are not over. Each puts itself in and out: what takes things out of a weak set is a callback, and an exception in there, the
# KeyboardInterrupt of a signal handler say, is lost.
_passes: set["Pass"] = set()


def live_cleanup_threads() -> int:
    """How many background threads are waiting for stopped work to end (a read on a dead network file system, say)."""
    return sum(running.late for running in list(_passes))


class Pass:
    """From birth to the last thread's leaving: NEW → OPEN → CLOSING → CLOSED.

    It is closed by `close`, or by the pool's being stopped, which is what becomes of it when nobody has the Hold any more that `open`
    gave. A thread of its own, the keeper, sees to the rest.
    """

    def __init__(self, config: Settings[Any], run: Run) -> None:
        run.draw()
        self.run, self._config = run, config
        self._progress = Progress()
        self.source = open_source(config, run, self._progress)
        self.pool: Pool | None = None  # until it is open
        self.promised: int | None = None  # good samples that other ranks count on
        self.error: BaseException | None = None  # what ended the source, if it did not end by itself
        self.ended = False  # the reader was told that this is the end
        self.losses = Losses(config.max_failures, limited=config.on_error == "skip")
        self._told = False  # an error has told the reader what was lost
        self.late = False  # it was closed, and something is still in flight after the grace period
        self._threads: list[Any] = []  # the feeder and the keeper
        self._closed = False

    def open(self) -> Hold | None:
        """Starts everything, unless `close` came first. It may take long (a storage lists its shards): `close` ends that too.

        Returns:
            The Hold on its pool, or None if it was closed before.

        Raises:
            SourceError: the source is not there, or no thread can be started.
        """
        _passes.add(self)
        try:
            self.source.open()
            hold = None if self._closed else self._start()
            if self._closed and self.pool is not None:  # `close` came meanwhile, and may have seen no pool
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
        """Logs how it goes, once a period and at the end, and what was lost; ends the source then, and stays until all have left."""
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
            SourceError: that is one more than `max_failures` allows.
        """
        self.losses.add(failure)
        items = self._items()
        if self.losses.too_many(items):
            self._told = True
            raise SourceValueError(f"more failures than max_failures allows: {self.losses.text(items)}")

    def _items(self) -> int:
        """How many items were good or failed so far."""
        counts: dict[str, int] = self.pool.counts() if self.pool is not None else no_counts()
        return counts["delivered"] + counts["dropped"] + counts["failed"]

    def stats(self) -> dict[str, Any]:
        """See DatagoClient.stats."""
        counts = self.pool.counts() if self.pool is not None else no_counts()
        return summary(counts, dict(self.source.skipped), *self.losses.accounts())

    def conclude(self) -> None:
        """At the end of the stream: raises what ended it, if it did not end well."""
        raise_kept(self, "error")
        self.ended = True
        assert self.pool is not None  # it has said that this is the end
        counts = self.pool.counts()
        if self.promised is not None and counts["delivered"] + counts["dropped"] < self.promised:
            raise SourceValueError(
                f"{counts['delivered']} of the {self.promised} samples that uneven {self._config.uneven!r} promises of every rank "
                f"could be had; {counts['failed']} failed, and there are no others in their place"
            )
        if counts["delivered"] == self.run.delivered == counts["dropped"] == 0 and counts["failed"]:
            self._told = True
            lost = counts["failed"]
            raise SourceValueError(f"none of the {lost} items of the source gave a sample: {self.losses.text(lost)}")

    def state(self) -> dict[str, Any]:
        """The state dict of this moment, of a pass that has begun."""
        assert self.pool is not None
        return self.run.state(self._config, self.pool.counts()["delivered"], self.source.state(), self.ended)

    def close(self, grace: float) -> None:
        """Stops the source, closes the rings, lets the workers leave. Waits for that up to `grace` seconds, the keeper for as long as it
        takes."""
        first, self._closed = not self._closed, True
        self.source.stop()
        if self.pool is not None:
            self._end(self.pool, grace if first else None)

    def _end(self, pool: Pool, grace: float | None) -> None:
        pool.stop()
        if grace is None or threading.get_ident() in [thread.ident for thread in self._threads]:
            return  # a finalizer, which may run in any thread: these leave by themselves
        end = time.monotonic() + grace
        self.late = not self._left(pool, grace)
        if not self.late:
            self._threads[1].over.wait(max(0, end - time.monotonic()))

    def _left(self, pool: Pool, grace: float) -> bool:
        """Waits for the feeder and the workers; False if they have not left within `grace` seconds."""
        end = time.monotonic() + grace
        return self._threads[0].over.wait(grace) and pool.join(max(0, end - time.monotonic()))


def _forget_all() -> None:
    """In a forked child: the threads stayed in the parent, and so did whoever would let go of their locks."""
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
