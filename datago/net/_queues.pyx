# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""The Fetcher's way to its download thread (_transfers.pyx) and back: jobs go in, done ones come out, and the thread is asked to leave."""
from posix.unistd cimport write

from datago._threads cimport dg_cond_wait, dg_now, pthread_cond_broadcast, pthread_mutex_lock, pthread_mutex_unlock
from datago.net._room cimport HELD
from datago.net._transfers cimport JOIN, LEAVE_BEHIND, NOT_MINE, FetchState, Job, JoinOutcome, Queue, append, pop


cdef bint push(FetchState *engine, Queue *jobs) noexcept nogil:
    """Moves jobs into the engine as there is room. True if it was closed."""
    cdef bint wake, closed
    pthread_mutex_lock(&engine.lock)
    while jobs.first != NULL and not engine.closing:
        wake = False
        while jobs.first != NULL and engine.inside < engine.capacity:
            append(&engine.waiting, pop(jobs))
            engine.inside += 1
            wake = engine.active < engine.slot_count  # else the thread looks by itself, when a slot is free again
        if wake:
            wake_thread(engine)
        if jobs.first != NULL:
            dg_cond_wait(&engine.changed, &engine.lock, dg_now() + 3600)
    closed = engine.closing
    pthread_mutex_unlock(&engine.lock)
    return closed


cdef void wake_thread(FetchState *engine) noexcept nogil:
    cdef ssize_t _ignored = write(engine.wake[1], b"", 1)  # a full pipe wakes as well


cdef bint pull(FetchState *engine, Queue *jobs, double timeout) noexcept nogil:
    """Moves what is done out of the engine. True if it was closed."""
    cdef double deadline = dg_now() + timeout
    cdef Job *job
    cdef bint closed
    pthread_mutex_lock(&engine.lock)
    while engine.done.first == NULL and not engine.closing and dg_now() < deadline:
        dg_cond_wait(&engine.changed, &engine.lock, deadline)
    closed = engine.closing
    if not closed and engine.done.first != NULL:
        jobs[0] = engine.done
        engine.done.first = NULL
        job = jobs.first
        while job != NULL:
            engine.inside -= 1
            job = job.next
        pthread_cond_broadcast(&engine.changed)
        if engine.held > <size_t>HELD:  # the thread may have waited for that
            wake_thread(engine)
        engine.held = 0
    pthread_mutex_unlock(&engine.lock)
    return closed


cdef JoinOutcome ask_to_leave(FetchState *engine, double deadline) noexcept nogil:
    """Waits until the thread has left, up to `deadline`. Says what to do about it: only the first who asks may."""
    cdef bint first, left
    pthread_mutex_lock(&engine.lock)
    first = not engine.closing
    engine.closing = True
    pthread_cond_broadcast(&engine.changed)
    wake_thread(engine)
    while not engine.left and dg_now() < deadline:
        dg_cond_wait(&engine.changed, &engine.lock, deadline)
    left = engine.left
    pthread_mutex_unlock(&engine.lock)
    return NOT_MINE if not first else JOIN if left else LEAVE_BEHIND
