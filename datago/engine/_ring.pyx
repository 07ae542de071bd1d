# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""The bounded ring buffer between two stages of the pipeline (see _ring.pxd), and a Python class of it for tests and benchmarks."""
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
    dg_cond_init(&ring.consumers.changed)
    dg_cond_init(&ring.producers.changed)
    ring.consumers.waits, ring.producers.waits = &ring.counts.pop_waits, &ring.counts.push_waits
    return ring


cdef void ring_free(Ring *ring) noexcept nogil:
    if ring == NULL:
        return
    pthread_cond_destroy(&ring.consumers.changed)
    pthread_cond_destroy(&ring.producers.changed)
    pthread_mutex_destroy(&ring.lock)
    PyMem_RawFree(ring.slots)
    PyMem_RawFree(ring)


# Waking a thread costs more than everything else here. So at most one thread on each side is being woken at a time; once it runs, it wakes
# the next one if there is something left to do.

cdef inline void wake_popper(Ring *ring) noexcept nogil:
    if ring.consumers.asleep and not ring.consumers.woken and ring.slots[ring.head] != NULL:
        ring.consumers.woken = True
        pthread_cond_signal(&ring.consumers.changed)


cdef inline void wake_pusher(Ring *ring) noexcept nogil:
    if ring.producers.asleep and not ring.producers.woken and ring.counts.depth < ring.counts.capacity:
        ring.producers.woken = True
        pthread_cond_signal(&ring.producers.changed)


cdef inline bint wait_on(Ring *ring, Side *side, int *waits, double timeout, double deadline) noexcept nogil:
    """Waits until the other side wakes this thread, and returns False if the deadline has passed. The caller holds the lock. `waits` is
    the number of waits in the caller's call, because RingCounts counts a call once even if it waits several times."""
    waits[0] += 1
    if waits[0] == 1:
        side.waits[0] += 1
    if timeout >= 0 and (timeout == 0 or dg_now() >= deadline):
        return False
    side.asleep += 1
    dg_cond_wait(&side.changed, &ring.lock, deadline if timeout > 0 else dg_now() + 3600)
    side.asleep -= 1
    side.woken = False
    return True


cdef RingState ring_push(Ring *ring, void *item, double timeout) noexcept nogil:
    cdef double deadline = dg_now() + timeout if timeout > 0 else 0
    cdef int waits = 0
    pthread_mutex_lock(&ring.lock)
    while ring.counts.depth == ring.counts.capacity and not ring.closed:
        if not wait_on(ring, &ring.producers, &waits, timeout, deadline):
            pthread_mutex_unlock(&ring.lock)
            return RING_TIMEOUT
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
    cdef int waits = 0
    pthread_mutex_lock(&ring.lock)
    # passed - depth items have left; this is also the number of the item that leaves next.
    while number >= ring.counts.passed - ring.counts.depth + ring.counts.capacity and not ring.closed:
        wait_on(ring, &ring.producers, &waits, -1, 0)
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
    cdef int waits = 0
    pthread_mutex_lock(&ring.lock)
    while ring.slots[ring.head] == NULL:
        if ring.closed and ring.counts.depth == 0:
            pthread_mutex_unlock(&ring.lock)
            return RING_CLOSED
        if ring.closed:  # The item of this slot will never be placed, so the later items are returned.
            ring.head = (ring.head + 1) % ring.counts.capacity
            continue
        if not wait_on(ring, &ring.consumers, &waits, timeout, deadline):
            pthread_mutex_unlock(&ring.lock)
            return RING_TIMEOUT
    item[0] = ring.slots[ring.head]
    ring.slots[ring.head] = NULL
    ring.head = (ring.head + 1) % ring.counts.capacity
    ring.counts.depth -= 1
    wake_popper(ring)
    if not ring.placed:
        wake_pusher(ring)
    elif ring.producers.asleep:
        pthread_cond_broadcast(&ring.producers.changed)  # Each producer waits for another number.
    pthread_mutex_unlock(&ring.lock)
    return RING_OK


cdef void ring_close(Ring *ring) noexcept nogil:
    pthread_mutex_lock(&ring.lock)
    ring.closed = True
    pthread_cond_broadcast(&ring.consumers.changed)
    pthread_cond_broadcast(&ring.producers.changed)
    pthread_mutex_unlock(&ring.lock)


cdef RingCounts ring_counts(Ring *ring) noexcept nogil:
    pthread_mutex_lock(&ring.lock)
    cdef RingCounts counts = ring.counts
    pthread_mutex_unlock(&ring.lock)
    return counts


class RingClosed(Exception):
    """The ring is closed: nothing can be pushed, or nothing is left to pop."""


cdef class PyRing:
    """The ring as a Python class, for the tests and `bench/ring.py`. It holds objects, first in first out.

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
        """Appends `item`; waits without the GIL while the ring is full. Raises TimeoutError after `timeout` seconds, and RingClosed."""
        cdef RingState state
        Py_INCREF(item)
        with nogil:
            state = ring_push(self.ring, <void *>item, timeout)
        if state != RING_OK:
            Py_DECREF(item)
            raise RingClosed if state == RING_CLOSED else TimeoutError

    def place(self, item, uint64_t number):
        """Puts `item` in as number `number` (from 0) in the order in which items leave; waits without the GIL until fewer than
        `capacity` items have to leave before it. Use either `push` or `place` on a ring, not both. Raises RingClosed."""
        cdef RingState state
        Py_INCREF(item)
        with nogil:
            state = ring_place(self.ring, <void *>item, number)
        if state != RING_OK:
            Py_DECREF(item)
            raise RingClosed

    def pop(self, double timeout=-1):
        """The oldest item; waits without the GIL while the ring is empty. Raises TimeoutError after `timeout` seconds, and RingClosed."""
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
        """Makes `push` raise RingClosed from now on, and `pop` once the ring is empty; idempotent."""
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
        number = __sync_add_and_fetch(&shared.next, 1)  # atomic, since a lock's time would be measured too
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
