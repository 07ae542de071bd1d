# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""The bounded ring buffer between two stages of the path (see _ring.pxd), and a Python face of it for tests and benches."""
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport uint64_t

from datago._threads cimport (
    dg_cond_init, dg_cond_wait, dg_now, dg_thread_start, pthread_cond_broadcast, pthread_cond_destroy, pthread_cond_signal,
    pthread_join, pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock, pthread_t,
)


cdef Ring *ring_new(size_t capacity) noexcept nogil:
    cdef Ring *ring = <Ring *>PyMem_RawCalloc(1, sizeof(Ring))
    if ring == NULL:
        return NULL
    ring.slots = <void **>PyMem_RawCalloc(capacity, sizeof(void *))
    if ring.slots == NULL or capacity == 0:
        PyMem_RawFree(ring.slots)
        PyMem_RawFree(ring)
        return NULL
    ring.counts.capacity = capacity
    pthread_mutex_init(&ring.lock, NULL)
    dg_cond_init(&ring.not_empty)
    dg_cond_init(&ring.not_full)
    return ring


cdef void ring_free(Ring *ring) noexcept nogil:
    if ring == NULL:
        return
    pthread_cond_destroy(&ring.not_empty)
    pthread_cond_destroy(&ring.not_full)
    pthread_mutex_destroy(&ring.lock)
    PyMem_RawFree(ring.slots)
    PyMem_RawFree(ring)


# Waking a thread costs more than everything else here. So one sleeper at a time is woken on either side, and nobody is woken while it is
# on its way; it wakes the next one if there is something left to do.

cdef inline void wake_popper(Ring *ring) noexcept nogil:
    if ring.poppers and not ring.pop_woken and ring.slots[ring.head] != NULL:
        ring.pop_woken = True
        pthread_cond_signal(&ring.not_empty)


cdef inline void wake_pusher(Ring *ring) noexcept nogil:
    if ring.pushers and not ring.push_woken and ring.counts.depth < ring.counts.capacity:
        ring.push_woken = True
        pthread_cond_signal(&ring.not_full)


cdef RingState ring_push(Ring *ring, void *item, double timeout) noexcept nogil:
    cdef double deadline = dg_now() + timeout if timeout > 0 else 0
    cdef bint waited = False
    pthread_mutex_lock(&ring.lock)
    while ring.counts.depth == ring.counts.capacity and not ring.closed:
        if not waited:
            waited = True
            ring.counts.push_waits += 1
        if timeout >= 0 and (timeout == 0 or dg_now() >= deadline):
            pthread_mutex_unlock(&ring.lock)
            return RING_TIMEOUT
        ring.pushers += 1
        dg_cond_wait(&ring.not_full, &ring.lock, deadline if timeout > 0 else dg_now() + 3600)
        ring.pushers -= 1
        ring.push_woken = False
    if ring.closed:
        pthread_mutex_unlock(&ring.lock)
        return RING_CLOSED
    ring.slots[(ring.head + ring.counts.depth) % ring.counts.capacity] = item
    ring.counts.depth += 1
    ring.counts.passed += 1
    wake_popper(ring)
    wake_pusher(ring)
    pthread_mutex_unlock(&ring.lock)
    return RING_OK


cdef RingState ring_place(Ring *ring, void *item, uint64_t number) noexcept nogil:
    cdef bint waited = False
    pthread_mutex_lock(&ring.lock)
    # passed - depth items have left, and the next one to leave has that number
    while number >= ring.counts.passed - ring.counts.depth + ring.counts.capacity and not ring.closed:
        if not waited:
            waited = True
            ring.counts.push_waits += 1
        ring.pushers += 1
        dg_cond_wait(&ring.not_full, &ring.lock, dg_now() + 3600)
        ring.pushers -= 1
    if ring.closed:
        pthread_mutex_unlock(&ring.lock)
        return RING_CLOSED
    ring.slots[number % ring.counts.capacity] = item
    ring.counts.depth += 1
    ring.counts.passed += 1
    ring.placed = True
    wake_popper(ring)
    pthread_mutex_unlock(&ring.lock)
    return RING_OK


cdef RingState ring_pop(Ring *ring, void **item, double timeout) noexcept nogil:
    cdef double deadline = dg_now() + timeout if timeout > 0 else 0
    cdef bint waited = False
    pthread_mutex_lock(&ring.lock)
    while ring.slots[ring.head] == NULL:
        if ring.closed and ring.counts.depth == 0:
            pthread_mutex_unlock(&ring.lock)
            return RING_CLOSED
        if ring.closed:  # nobody will bring the item that is missing here, so those behind it are given out
            ring.head = (ring.head + 1) % ring.counts.capacity
            continue
        if not waited:
            waited = True
            ring.counts.pop_waits += 1
        if timeout >= 0 and (timeout == 0 or dg_now() >= deadline):
            pthread_mutex_unlock(&ring.lock)
            return RING_TIMEOUT
        ring.poppers += 1
        dg_cond_wait(&ring.not_empty, &ring.lock, deadline if timeout > 0 else dg_now() + 3600)
        ring.poppers -= 1
        ring.pop_woken = False
    item[0] = ring.slots[ring.head]
    ring.slots[ring.head] = NULL
    ring.head = (ring.head + 1) % ring.counts.capacity
    ring.counts.depth -= 1
    wake_popper(ring)
    if not ring.placed:
        wake_pusher(ring)
    elif ring.pushers:
        pthread_cond_broadcast(&ring.not_full)  # each waits for a number of its own
    pthread_mutex_unlock(&ring.lock)
    return RING_OK


cdef void ring_close(Ring *ring) noexcept nogil:
    pthread_mutex_lock(&ring.lock)
    ring.closed = True
    pthread_cond_broadcast(&ring.not_empty)
    pthread_cond_broadcast(&ring.not_full)
    pthread_mutex_unlock(&ring.lock)


cdef RingCounts ring_counts(Ring *ring) noexcept nogil:
    pthread_mutex_lock(&ring.lock)
    cdef RingCounts counts = ring.counts
    pthread_mutex_unlock(&ring.lock)
    return counts


class RingClosed(Exception):
    """Nothing more can be pushed, or popped."""


cdef class PyRing:
    """The ring from Python: what the tests and `bench/ring.py` drive. It holds objects, first in first out.

    Args:
        capacity: how many items it holds before `push` waits; at least 1.
    """

    cdef Ring *ring

    def __cinit__(self, size_t capacity):
        if capacity == 0:
            raise ValueError("capacity: got 0, wanted at least 1")
        self.ring = ring_new(capacity)
        if self.ring == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef void *item = NULL
        if self.ring == NULL:
            return
        ring_close(self.ring)
        while ring_pop(self.ring, &item, 0) == RING_OK:
            Py_DECREF(<object>item)
        ring_free(self.ring)

    def push(self, item, double timeout=-1):
        """Appends `item`; waits outside the GIL while full. Raises TimeoutError after `timeout` seconds, RingClosed."""
        cdef RingState state
        Py_INCREF(item)
        with nogil:
            state = ring_push(self.ring, <void *>item, timeout)
        if state != RING_OK:
            Py_DECREF(item)
            raise RingClosed if state == RING_CLOSED else TimeoutError

    def place(self, item, uint64_t number):
        """Puts `item` in as number `number` (from 0) of the order in which they leave; waits outside the GIL until it is
        less than `capacity` ahead. A ring is filled by `push` or by `place`, not by both. Raises RingClosed."""
        cdef RingState state
        Py_INCREF(item)
        with nogil:
            state = ring_place(self.ring, <void *>item, number)
        if state != RING_OK:
            Py_DECREF(item)
            raise RingClosed

    def pop(self, double timeout=-1):
        """The oldest item; waits outside the GIL while empty. Raises TimeoutError after `timeout` seconds, RingClosed."""
        cdef void *item = NULL
        cdef RingState state
        with nogil:
            state = ring_pop(self.ring, &item, timeout)
        if state != RING_OK:
            raise RingClosed if state == RING_CLOSED else TimeoutError
        result = <object>item
        Py_DECREF(result)
        return result

    def close(self):
        """Ends pushing at once and popping once empty; idempotent."""
        ring_close(self.ring)

    def counts(self) -> dict:
        """depth, capacity, passed (items ever pushed), push_waits, pop_waits: integers."""
        return ring_counts(self.ring)


cdef extern from *:
    size_t __sync_add_and_fetch(size_t *value, size_t more) nogil

cdef struct Spin:
    Ring *ring
    pthread_mutex_t lock
    size_t items, work, next, sum, mixed
    size_t producers, finished  # the last to finish closes the ring


cdef void *spin_push(void *argument) noexcept nogil:
    cdef Spin *shared = <Spin *>argument
    cdef size_t number
    while True:
        number = __sync_add_and_fetch(&shared.next, 1)  # the time that a lock takes would be measured too
        if number > shared.items:
            if __sync_add_and_fetch(&shared.finished, 1) == shared.producers:
                ring_close(shared.ring)
            return NULL
        ring_push(shared.ring, <void *>number, -1)


cdef void *spin_pop(void *argument) noexcept nogil:
    cdef Spin *shared = <Spin *>argument
    cdef void *item = NULL
    cdef size_t total = 0, mixed = 0
    while ring_pop(shared.ring, &item, -1) == RING_OK:
        for _ in range(shared.work):
            mixed = (mixed ^ <size_t>item) * <size_t>0x5851F42D4C957F2D + 1
        total += <size_t>item
    pthread_mutex_lock(&shared.lock)
    shared.sum += total
    shared.mixed ^= mixed
    pthread_mutex_unlock(&shared.lock)
    return NULL


def spin(size_t capacity, int producers, int consumers, size_t items, size_t work) -> dict:
    """Times the ring alone: native threads push and pop the numbers 1 to `items`, with `work` rounds of arithmetic on each.

    Returns a dict with `seconds`, `sum` (of the numbers popped: items * (items + 1) / 2 if none was lost or doubled) and
    the ring's counts.
    """
    cdef Spin shared
    cdef pthread_t threads[128]
    cdef int started = 0, i
    cdef double begin
    if not (0 < producers <= 64 and 0 < consumers <= 64):
        raise ValueError(f"producers, consumers: got {producers}, {consumers}, wanted 1 to 64 of each")
    shared.ring = ring_new(capacity)
    if shared.ring == NULL:
        raise MemoryError
    shared.items = items
    shared.work = work
    shared.next = shared.sum = shared.mixed = shared.finished = 0
    shared.producers = producers
    pthread_mutex_init(&shared.lock, NULL)
    with nogil:
        begin = dg_now()
        for i in range(producers + consumers):
            if dg_thread_start(&threads[started], spin_push if i < producers else spin_pop, &shared) == 0:
                started += 1
        for i in range(started):
            pthread_join(threads[i], NULL)
        begin = dg_now() - begin
    counts = ring_counts(shared.ring)
    pthread_mutex_destroy(&shared.lock)
    ring_free(shared.ring)
    return {"seconds": begin, "sum": shared.sum, **counts}
