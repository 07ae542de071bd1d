"""DatagoClient: one pass over a source after another. Lifetime, signals, forks, and what to do with failures."""

import atexit
import logging
import os
import threading
import weakref
from collections import deque

from datago import accounts
from datago import config as configuration
from datago._pool import Pool
from datago._sample import Failure
from datago.errors import SourceValueError, printable, sample_error
from datago.sources import open_source

log = logging.getLogger("datago.client")

STOP_GRACE = 0.5   # seconds that stop() waits for work in flight before a reaper takes over
DROP_GRACE = 0.1   # the same when a client is dropped, or the interpreter ends
FAILURES_KEPT = 16

_reapers = set()  # threads that wait for a stopped pass to get out of a system call


def live_cleanup_threads():
    """How many background threads are waiting for stopped work to end (a read on a dead network file system, say)."""
    return sum(reaper.is_alive() for reaper in list(_reapers))


class _Pass:
    """One run over the source: feeder thread, pool, and the way down. OPEN → CLOSING → CLOSED, by `close` alone."""

    def __init__(self, config):
        self.source = open_source(config)
        self.source.open()
        threads = configuration.worker_count(config.limit)
        ready = config.samples_buffer_size
        self.pool = Pool(threads, self.source.work_ahead, ready, config.limit, config.max_file_bytes, config.image_config)
        if self.pool.thread_count < threads:
            log.warning("only %d of %d worker threads could be started", self.pool.thread_count, threads)
        self.error = None  # what ended the source, if it did not end by itself
        self._lock = threading.Lock()
        self._closed = False
        self._feeder = threading.Thread(target=self._feed, name="datago feeder", daemon=True)
        self._feeder.start()

    def _feed(self):
        try:
            for batch in self.source.batches():
                if not self.pool.submit(batch):
                    break
        except BaseException as error:
            self.error = error
        finally:
            self.pool.finish()

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


_passes = weakref.WeakSet()


@atexit.register
def _close_all():
    for running in list(_passes):
        running.close(DROP_GRACE)


class DatagoClient:
    """Streams decoded samples of a source, on all cores, outside the GIL.

    Args:
        config: a dict or the JSON text of one; README has the keys.

    Raises:
        ValueError: the config is wrong; the text names the key, what it got and what it wants.

    A client is iterable (`for sample in client`), a context manager (`with DatagoClient(config) as client`), usable from
    several threads at once, and picklable before it is started. It must not be used in a forked child: there it raises
    RuntimeError.
    """

    def __init__(self, config):
        self._config = configuration.parse(config)
        self._reset()

    def _reset(self):
        self._lock = threading.RLock()
        self._pass = None
        self._pid = None  # the process that started the pass: only there are its threads
        self._ended = False
        self._failures = {}
        self._last_failures = deque(maxlen=FAILURES_KEPT)

    # ---- lifetime ----

    def start(self):
        """Starts a pass from the beginning and prefetches at once; does nothing while one runs.

        Raises:
            SourceError: the source is not there.
            OSError: no worker thread could be started.
        """
        self._check_process()
        with self._lock:
            if self._pass is not None and not self._ended:
                return
            self._failures.clear()
            self._last_failures.clear()
            self._pass = _Pass(self._config)
            self._pid = os.getpid()
            self._ended = False
            _passes.add(self._pass)

    def stop(self):
        """Ends the pass; buffered samples are dropped and reads give None. Idempotent, from any thread, within a second."""
        self._check_process()
        self._end(STOP_GRACE)

    def _end(self, grace):
        with self._lock:
            self._ended = True
            running = self._pass
        if running is not None:
            running.close(grace)

    def _check_process(self):
        if self._pass is not None and self._pid != os.getpid():
            raise RuntimeError(
                "this DatagoClient was started in another process, and its threads stayed there: make the client (or iterate the "
                "dataset) after the fork, or start workers by 'spawn'"
            )

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exception):
        self.stop()

    def __del__(self):
        # A half-built client has no pass; a forked child's copy has no threads.
        if getattr(self, "_pass", None) is not None and self._pid == os.getpid():
            self._pass.close(DROP_GRACE)

    def __getstate__(self):
        if self._pass is not None:
            raise TypeError("a DatagoClient that was started cannot be pickled: pickle it before, or pickle its config")
        return {"_config": self._config}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._reset()

    # ---- reading ----

    def get_sample(self, timeout=None):
        """The next Sample, or None at the end of the stream or after `stop()`. The first call starts the stream.

        A sample that is ready is taken at once; else the call waits outside the GIL, and a signal is seen within 0.1 s.

        Args:
            timeout: seconds to wait at most; None: for ever.

        Raises:
            TimeoutError: no sample within `timeout`; the stream goes on.
            SourceError: the source died, or gave nothing at all.
            SampleError: an item failed, and `on_error` is "raise"; the next call goes on behind it.
        """
        return self._next(False, timeout)

    def get_sample_auto_convert(self, timeout=None):
        """As `get_sample`, but as a dict of plain Python values, images as PIL images (mode RGB for colour).

        Keys: id, source, duplicate_state, attributes (a dict), tags, coca_embedding, latents, image, masks,
        additional_images. An image that the sample does not have is None.
        """
        return self._next(True, timeout)

    def _next(self, convert, timeout):
        running = self._pass
        if running is None or self._pid != os.getpid():
            self._check_process()
            if self._ended:
                return None
            self.start()
            running = self._pass
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
            if not isinstance(result, Failure):
                return result
            self._note(result)
            if self._config.on_error == "raise":
                raise sample_error(result)

    def _note(self, failure):
        with self._lock:
            self._failures[failure.reason] = self._failures.get(failure.reason, 0) + 1
            self._last_failures.append({"name": failure.name, "reason": failure.reason, "text": failure.text})
        log.error("%s: %s: %s", printable(failure.name), failure.reason, failure.text)

    def _finish(self, running):
        """The pool says it is over: by stop(), by the limit, or because the source ended, well or not."""
        with self._lock:
            first = not self._ended and running is self._pass
            if first:
                self._ended = True
        if not first:
            return None
        running.close(STOP_GRACE)
        if running.error is not None:
            raise running.error
        counts = running.pool.counts()
        if counts["delivered"] == 0 and counts["failed"]:
            last = self._last_failures[-1]
            raise SourceValueError(
                f"none of the {counts['failed']} items of the source gave a sample; the last: {printable(last['name'])}: "
                f"{last['reason']}: {last['text']}"
            )
        return None

    def __iter__(self):
        """Yields samples to the end of the stream; a client that has ended starts again."""
        if self._ended:
            self.start()
        while (sample := self.get_sample()) is not None:
            yield sample

    # ---- accounts ----

    def stats(self):
        """Where every item of the current (or last) pass went.

        Returns:
            A dict: `seen` = `delivered` + `failed` + `skipped` + `in_flight` (integers); `failures` (reason → count);
            `last_failures` (a list of dicts with name, reason, text; the last 16); `skips` (reason → count);
            `damaged` (delivered pictures in which libjpeg patched up data that cannot be right);
            `bottleneck` (a line that says which of source, decoding and reader the others wait for, None before the start);
            `threads`; `work_ring` and `ready_ring`, each with `depth`, `capacity`, `passed`, `push_waits` (a full ring made a
            producer wait: what comes behind it is slow) and `pop_waits` (an empty one made a consumer wait: what comes before).
        """
        with self._lock:
            running = self._pass
            failures, last = dict(self._failures), list(self._last_failures)
        counts = running.pool.counts() if running is not None else accounts.nothing()
        skips = dict(running.source.skipped) if running is not None else {}
        return accounts.stats(counts, skips, failures, last)
