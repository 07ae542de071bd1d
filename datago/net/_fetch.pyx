# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""Many small downloads at once: one native thread around libcurl's multi interface, without the GIL.

    submit ──► waiting jobs ──► slots, each with a connection ──► done jobs ──► take
                    ▲ ── retries, when they are due ──┘

The thread (_transfers.pyx) touches no Python object: what Python knows of a job stays here, under the job's number. So
a thread that does not come back (a name server that hangs) is left behind with its memory, and never waited for.
"""
import atexit
import os
import weakref

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from posix.unistd cimport getpid

from datago._threads cimport dg_now, dg_thread_start, pthread_detach, pthread_join, pthread_t
from datago.net._queues cimport ask_to_leave, pull, push
from datago.net._transfers cimport (
    GOOD, JOIN, LEAVE_BEHIND, NO_MEMORY, NOT_FOUND, REMOTE, TOO_LARGE, FetchState, Job, JoinOutcome, Queue, append, drop, engine_new,
    engine_prepare, job_free, pop, run,
)

from datago.net import policy
from datago.net.url import bare, redact_text

cdef double POLL_INTERVAL_S = 0.05         # seconds between two looks for signals
cdef double CLOSE_GRACE = 0.15   # seconds that close() waits for the thread

REASONS = {REMOTE: "remote", NOT_FOUND: "not_found", TOO_LARGE: "too_large", NO_MEMORY: "no_memory"}


cdef class Body:
    """The bytes of a download: bytes-like, no copy."""

    cdef uint8_t *data
    cdef size_t size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data if self.data != NULL else <uint8_t *>b"", self.size, 1, flags)

    def __len__(self):
        return self.size

    def __repr__(self):
        return f"<Body, {self.size} bytes>"

    def __dealloc__(self):
        free(self.data)


cdef dict open_fetchers = {}  # address -> a weak reference without a callback: that is Python code, and what it raises is lost


@atexit.register
def _close_all():
    """Before the C library takes down what the threads stand on."""
    for reference in list(open_fetchers.values()):
        fetcher = reference()
        if fetcher is not None:
            fetcher.close()


cdef Job *job_new(uint64_t number, bytes url) except NULL:
    cdef Py_ssize_t length = len(url)
    cdef Job *job = <Job *>calloc(1, sizeof(Job) + length)
    if job == NULL:
        raise MemoryError
    job.number, job.attempt = number, 1
    memcpy(job.url, <const char *>url, length)
    return job


cdef char *copied(bytes text) except NULL:
    cdef char *copy = <char *>calloc(1, len(text) + 1)
    if copy == NULL:
        raise MemoryError
    memcpy(copy, <const char *>text, len(text))
    return copy


cdef class Fetcher:
    """Downloads urls, `max_connections` at a time, and tries again what may pass.

    Args:
        max_connections: connections at once, in total and to one host; idle ones are kept for what comes next.
        timeout: seconds of silence (before the headers, or between two reads) after which a transfer is given up. So is
            one that brings less than 1000 bytes a second over three time-outs: this is for images, which are small.
        attempts: how often a url is asked for in all, if it cannot be connected to, times out, breaks off, ends early,
            or answers what is_retried of policy.py says, after the waits that it has. Other answers are final. A host that a url did
            not reach with all of them is out for a while: the other urls on it fail at once (_hosts.pyx).
        user_agent: the header.
        max_bytes: longer bodies are failures.
        capacity: urls inside at once, from submit to take.

    Only status 200 is good. Redirects are followed, 10 at most, to http and https, and not from https to http. HTTP/1.1
    is spoken. Proxies and certificates are those that policy.py finds in the environment at construction: a native thread
    must not look at it while Python may be changing it. When it is closed or dropped, and when the interpreter exits,
    everything inside is. In a forked child it raises RuntimeError.

    Raises:
        OSError: the thread could not be started.
    """

    cdef FetchState *engine
    cdef pthread_t thread
    cdef bint started
    cdef int pid
    cdef uint64_t numbers
    cdef dict jobs             # number -> (tag, url)
    cdef object __weakref__

    def __cinit__(self, int max_connections=64, double timeout=20, int attempts=3, user_agent="datago",
                  uint64_t max_bytes=2**30, size_t capacity=0):
        cdef int failed
        if max_connections < 1 or attempts < 1 or not timeout > 0:
            raise ValueError("max_connections, attempts and timeout must be above 0")
        self.pid = getpid()
        self.jobs = {}
        self.engine = engine_new(max_connections, attempts, timeout, max_bytes, capacity or 4 * max_connections)
        self.engine.hosts.rest = policy.HOST_REST
        self.engine.rng_state = int.from_bytes(os.urandom(8))
        http, https, no_proxy = (os.fsencode(value) for value in policy.proxies())
        self.engine.proxies[0], self.engine.proxies[1], self.engine.no_proxy = copied(http), copied(https), copied(no_proxy)
        file, folder = (os.fsencode(path) for path in policy.trust())
        engine_prepare(self.engine, user_agent.encode(), file, folder)
        self.engine.owners = 2
        failed = dg_thread_start(&self.thread, run, self.engine)
        if failed:
            self.engine.owners = 1
            raise OSError(failed, f"the download thread could not be started: {os.strerror(failed)}")
        self.started = True
        open_fetchers[<size_t><void *>self] = weakref.ref(self)

    def __dealloc__(self):
        open_fetchers.pop(<size_t><void *>self, None)
        if self.engine == NULL or self.pid != getpid():
            return  # a forked child: the thread, and whatever lock it held, stayed in the parent
        if self.started:
            self.leave()
        drop(self.engine)

    cdef int check_process(self) except -1:
        if self.pid != getpid():
            raise RuntimeError("this Fetcher was made in another process, and its thread stayed there")
        return 0

    def submit(self, list jobs) -> bool:
        """Lets (tag, url) pairs in, waiting outside the GIL for room. False once the Fetcher was closed."""
        cdef FetchState *engine = self.engine
        cdef Queue queue = Queue(NULL, NULL)
        cdef uint64_t number
        cdef bint closed
        self.check_process()
        jobs = list(jobs)  # which may change meanwhile
        try:
            with cython.critical_section(self):  # no two jobs have one number
                number = self.numbers
                self.numbers += len(jobs)
            for tag, url in jobs:
                number += 1
                append(&queue, job_new(number, url.encode("utf-8", "surrogateescape")))
                self.jobs[number] = (tag, url)
            with nogil:
                closed = push(engine, &queue)
            return not closed
        finally:
            while queue.first != NULL:  # those that did not get in
                self.jobs.pop(queue.first.number, None)
                job_free(pop(&queue))

    def take(self, double timeout):
        """What is done, waiting outside the GIL up to `timeout` seconds for the first.

        Returns:
            A list, empty after the time-out, of (tag, status, body, error): the HTTP status (0: no answer), and either
            the body, bytes-like, or (reason, text) with a reason of stats()["failures"]. None once it was closed.
        """
        cdef FetchState *engine = self.engine
        cdef double deadline = dg_now() + timeout, left
        cdef Queue queue = Queue(NULL, NULL)
        cdef Job *job
        cdef bint closed = False
        self.check_process()
        while True:
            left = deadline - dg_now()
            with nogil:
                closed = pull(engine, &queue, min(left, POLL_INTERVAL_S))
            if closed:
                return None
            if queue.first != NULL or left <= POLL_INTERVAL_S:
                break
            PyErr_CheckSignals()
        results = []
        while queue.first != NULL:
            job = pop(&queue)
            known = self.jobs.pop(job.number, None)
            if known is None:  # close() came in between
                job_free(job)
                closed = True
            else:
                results.append(self.result(job, known[0], known[1]))
        return None if closed else results

    cdef tuple result(self, Job *job, tag, url):
        cdef Body body = None
        if job.verdict == GOOD:
            error = None
            body = Body.__new__(Body)
            body.data, body.size = job.data, job.size
            job.data = NULL
        else:
            error = REASONS[job.verdict], self.text(job, url)
        result = tag, job.status, body, error
        job_free(job)
        return result

    cdef str text(self, Job *job, url):
        """What went wrong, where, and after how many attempts; the end may be cut off."""
        words = (<bytes>job.text).decode("utf-8", "replace")
        words = words or ("no memory for the download" if job.verdict == NO_MEMORY else f"HTTP {job.status}")
        if job.verdict == TOO_LARGE:
            words = f"larger than max_file_bytes, which is {self.engine.max_bytes}"
        if job.status == 403 and b"xpired" in <bytes>(<char *>job.data)[:job.size]:
            words += ", the signed url has expired"
        if job.attempt > 1:
            words += f" (attempt {job.attempt} of {self.engine.attempts})"
        return f"{redact_text(words)}: {bare(url)}"

    def close(self):
        """Drops everything, wherever it is. Idempotent, from any thread; at most 0.15 s if the thread does not come."""
        if self.pid == getpid():
            self.leave()
            self.jobs.clear()

    cdef void leave(self) noexcept:
        cdef JoinOutcome way
        with nogil:
            way = ask_to_leave(self.engine, dg_now() + CLOSE_GRACE)
            if way == JOIN:
                pthread_join(self.thread, NULL)
            elif way == LEAVE_BEHIND:
                pthread_detach(self.thread)
