"""One pass over a source: its feeder thread, the pool, and the way down, also when the interpreter ends."""

import atexit
import logging
import threading
import weakref

from datago import environment
from datago._pool import Pool
from datago._progress import Progress
from datago.errors import SourceError
from datago.sources import open_source
from datago.threads import start_thread

log = logging.getLogger("datago.client")

STOP_GRACE = 0.5   # seconds that stop() waits for work in flight before a reaper takes over
DROP_GRACE = 0.1   # the same when a client is dropped, or the interpreter ends

_passes = weakref.WeakSet()
_reapers = set()  # threads that wait for a stopped pass to get out of a system call


def live_cleanup_threads():
    """How many background threads are waiting for stopped work to end (a read on a dead network file system, say)."""
    return sum(reaper.is_alive() for reaper in list(_reapers))


class Pass:
    """From birth to the last thread's leaving. OPEN → CLOSING → CLOSED, by `close` alone."""

    def __init__(self, config, run):
        run.draw()
        self.run, self._source_type = run, config.source_type
        progress = Progress()
        self.source = open_source(config, run, progress)
        self.source.open()
        self.limit = run.left(config.limit)
        self.promised = None  # good samples that other ranks count on
        if self.source.target is not None:
            self.limit = self.promised = min(self.limit, max(0, self.source.target - run.delivered))
        threads = environment.worker_count(self.limit, run.workers)
        self.pool = Pool(
            threads, self.source.work_ahead, config.samples_buffer_size, self.limit, config.max_file_bytes, config.image_config,
            progress, config.ordered,
        )  # fmt: skip
        if self.pool.thread_count < threads:
            log.warning("only %d of %d worker threads could be started", self.pool.thread_count, threads)
        self.error = None  # what ended the source, if it did not end by itself
        self._lock = threading.Lock()
        self._closed = False
        try:
            self._feeder = start_thread(self._feed, "datago feeder")
        except SourceError:
            self.pool.stop()
            self.pool.join(STOP_GRACE)
            raise
        _passes.add(self)

    def _feed(self):
        try:
            for batch in self.source.batches():
                if not self.pool.submit(batch):
                    break
        except BaseException as error:
            self.error = error
        finally:
            self.pool.finish()

    def state(self):
        """The state dict of this moment."""
        return self.run.state(self._source_type, self.pool.counts()["delivered"], self.source.state())

    def close(self, grace):
        """Stops the source, closes the rings, lets the workers leave. What takes longer than `grace` goes to a reaper."""
        self.source.stop()
        self.pool.stop()
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._wait(grace):
            return
        log.warning("work is still in flight %.1f s after stop; a background thread waits for it", grace)
        reaper = threading.Thread(target=self._reap, name="datago reaper", daemon=True)
        try:
            reaper.start()
        except RuntimeError:  # the interpreter is on its way out: the process takes the threads along
            return
        _reapers.add(reaper)

    def _wait(self, grace):
        self._feeder.join(grace)
        return self.pool.join(grace) and not self._feeder.is_alive()

    def _reap(self):
        while not self._wait(3600):
            pass
        _reapers.discard(threading.current_thread())


@atexit.register
def _close_all():
    for running in list(_passes):
        running.close(DROP_GRACE)
