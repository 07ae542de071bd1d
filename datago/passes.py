"""One pass over a source: its feeder thread, the pool, and the way down, also when the interpreter ends."""

import atexit
import logging
import os
import threading
import time
import weakref
from collections import deque

from datago import accounts, environment, metrics
from datago._pool import Pool
from datago._progress import Progress
from datago.errors import SourceError, SourceValueError, printable
from datago.labels import labelled
from datago.sources import open_source
from datago.sources.waiting import Stopped
from datago.threads import start_thread

log = logging.getLogger("datago.client")

STOP_GRACE = 0.5   # seconds that stop() waits for work in flight before a reaper takes over
DROP_GRACE = 0.1   # the same when a client is dropped, or the interpreter ends
FAILURES_KEPT = 16

_passes = weakref.WeakSet()
_reapers = set()  # threads that wait for a stopped pass to get out of a system call


def live_cleanup_threads() -> int:
    """How many background threads are waiting for stopped work to end (a read on a dead network file system, say)."""
    return sum(reaper.is_alive() for reaper in list(_reapers))


class Pass:
    """From birth to the last thread's leaving: NEW → OPEN → CLOSING → CLOSED, by `open` and `close` alone."""

    def __init__(self, config, run):
        run.draw()
        self.run, self._config = run, config
        self._progress = Progress()
        self.source = open_source(config, run, self._progress)
        self.pool = None      # until it is open
        self.promised = None  # good samples that other ranks count on
        self.error = None     # what ended the source, if it did not end by itself
        self.ended = False    # the reader was told that this is the end
        self.failures = {}    # reason -> count
        self.last_failures = deque(maxlen=FAILURES_KEPT)
        self.dropped = []     # ids of samples that made no full batch
        self._lock = threading.RLock()  # guards pool, failures, dropped and _closed; a signal handler may call close()
        self._threads = []
        self._closed = False
        self._over = threading.Event()

    def open(self):
        """Starts everything, unless `close` came first. It may take long (a storage lists its shards): `close` ends that too.

        Raises:
            SourceError: the source is not there, or no thread can be started.
        """
        _passes.add(self)
        try:
            self.source.open()
        except Stopped:
            return
        with self._lock:
            if not self._closed:
                self._start()

    def _start(self):
        config, run = self._config, self.run
        limit = run.left(config.limit)
        if self.source.target is not None:
            limit = self.promised = min(limit, max(0, self.source.target - run.delivered))
        threads = environment.worker_count(limit, run.workers)
        ready = config.samples_buffer_size if config.batch is None else max(2, config.samples_buffer_size // config.batch.size)
        pool = Pool(
            threads, self.source.work_ahead, ready, limit, config.max_file_bytes, config.memory_limit or 0, config.image_config,
            self._progress, config.ordered, run.seed, run.epoch, self.source.base, config.batch,
        )  # fmt: skip
        if pool.thread_count < threads:
            log.warning("only %d of %d worker threads could be started", pool.thread_count, threads)
        try:
            self._threads.append(start_thread(self._feed, "datago feeder", pool))
        except SourceError:
            pool.stop()
            pool.join(STOP_GRACE)
            raise
        self.pool = pool
        if config.log_period:
            self._threads.append(start_thread(self._report, "datago log"))

    def _feed(self, pool):
        try:
            label, classes = self._config.batch and self._config.batch.label, None
            for batch in self.source.batches():
                if label:
                    batch, classes = labelled(batch, label, self.source.base)
                if not pool.submit(batch, classes):
                    break
        except BaseException as error:
            self.error = error
        finally:
            pool.finish()

    def _report(self):
        """Logs how it goes, once a period and at the end."""
        before, then, over = self.stats(), time.monotonic(), False
        while not over:
            over = self._over.wait(self._config.log_period)
            now, stats = time.monotonic(), self.stats()
            log.info("%s", metrics.line(stats, before, now - then))
            before, then = stats, now

    def note(self, failure):
        """Counts a Failure, and logs it."""
        with self._lock:
            self.failures[failure.reason] = self.failures.get(failure.reason, 0) + 1
            self.last_failures.append({"name": failure.name, "reason": failure.reason, "text": failure.text})
        log.error("%s: %s: %s", printable(failure.name), failure.reason, failure.text)

    def drop(self, batch):
        """Keeps and logs the ids of a batch that did not get full."""
        names = [sample.id for sample in batch.samples]
        with self._lock:
            self.dropped += names
        text = ", ".join(map(printable, names))
        log.warning("%d samples of %d x %d pixels make no full batch and are dropped: %s", len(names), batch.width, batch.height, text)

    def stats(self):
        """See DatagoClient.stats."""
        with self._lock:
            failures, last, dropped = dict(self.failures), list(self.last_failures), list(self.dropped)
        counts = self.pool.counts() if self.pool is not None else accounts.nothing()
        return accounts.stats(counts, dict(self.source.skipped), failures, last, dropped)

    def conclude(self):
        """At the end of the stream: raises what ended it, if it did not end well."""
        if self.error is not None:
            raise self.error
        self.ended = True
        counts = self.pool.counts()
        if self.promised is not None and counts["delivered"] + counts["dropped"] < self.promised:
            raise SourceValueError(
                f"{counts['delivered']} of the {self.promised} samples that uneven {self._config.uneven!r} promises of every rank "
                f"could be had; {counts['failed']} failed, and there are no others in their place"
            )
        if counts["delivered"] == self.run.delivered == counts["dropped"] == 0 and counts["failed"]:
            last = self.last_failures[-1]
            raise SourceValueError(
                f"none of the {counts['failed']} items of the source gave a sample; the last: {printable(last['name'])}: "
                f"{last['reason']}: {last['text']}"
            )

    def state(self):
        """The state dict of this moment."""
        return self.run.state(self._config, self.pool.counts()["delivered"], self.source.state(), self.ended)

    def close(self, grace):
        """Stops the source, closes the rings, lets the workers leave. What takes longer than `grace` goes to a reaper."""
        self.source.stop()
        with self._lock:
            first, self._closed = not self._closed, True
        if self.pool is None:
            return
        self._over.set()
        self.pool.stop()
        if not first or self._wait(grace):
            return
        log.warning("work is still in flight %.1f s after stop; a background thread waits for it", grace)
        try:
            _reapers.add(start_thread(self._reap, "datago reaper"))
        except SourceError:  # the interpreter is on its way out, and the process takes the threads along; or there are too many
            pass

    def _wait(self, grace):
        end = time.monotonic() + grace
        # Garbage may be collected in any thread, and a client with it: one of its own leaves by itself.
        others = [thread for thread in self._threads if thread is not threading.current_thread()]
        for thread in others:
            thread.join(max(0, end - time.monotonic()))
        return self.pool.join(max(0, end - time.monotonic())) and not any(thread.is_alive() for thread in others)

    def _reap(self):
        while not self._wait(3600):
            pass
        _reapers.discard(threading.current_thread())


def _forget_all():
    """In a forked child: the threads stayed in the parent, and so did whoever would let go of their locks."""
    _passes.clear()
    _reapers.clear()


os.register_at_fork(after_in_child=_forget_all)


@atexit.register
def _close_all():
    for running in list(_passes):
        running.close(DROP_GRACE)
