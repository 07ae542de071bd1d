# A bounded first-in first-out ring of pointers for any number of producers and consumers, all without the GIL.
#
# With `ring_place` items are numbered from 0, come in in any order, and leave by number.
#
# It is a mutex and two condition variables. A closed ring still gives what it holds: after ring_close nothing goes in any more, and
# ring_pop gives what is left before it returns RING_CLOSED. Times are seconds; a timeout of 0 never waits, a negative one waits for ever.
from libc.stdint cimport uint64_t

from datago._threads cimport pthread_cond_t, pthread_mutex_t

cdef enum RingState:
    RING_OK = 0
    RING_CLOSED = 1
    RING_TIMEOUT = 2

cdef struct RingCounts:
    size_t depth          # items in the ring now
    size_t capacity
    uint64_t passed       # items ever pushed
    uint64_t push_waits   # times a producer found it full: what comes after is the bottleneck
    uint64_t pop_waits    # times a consumer found it empty: what comes before is the bottleneck

cdef struct Side:
    pthread_cond_t changed
    size_t asleep         # threads that wait; nobody is signalled when nobody sleeps
    bint woken            # one of them was signalled, and does not run yet
    uint64_t *waits       # counts of the ring: push_waits or pop_waits

cdef struct Ring:
    pthread_mutex_t lock
    Side producers        # threads that wait for room
    Side consumers        # threads that wait for an item
    void **slots          # NULL where there is none
    size_t head           # the next to be popped
    bint closed
    bint placed           # filled by ring_place
    RingCounts counts

cdef Ring *ring_new(size_t capacity) noexcept nogil   # NULL when memory is short
cdef void ring_free(Ring *ring) noexcept nogil        # no thread may be inside; the items are the caller's
cdef RingState ring_push(Ring *ring, void *item, double timeout) noexcept nogil
cdef RingState ring_place(Ring *ring, void *item, uint64_t number) noexcept nogil  # waits until `capacity` before it have left
cdef RingState ring_pop(Ring *ring, void **item, double timeout) noexcept nogil
cdef void ring_close(Ring *ring) noexcept nogil       # idempotent; wakes everybody
cdef RingCounts ring_counts(Ring *ring) noexcept nogil
