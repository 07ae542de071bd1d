# A bounded first-in first-out ring buffer of pointers for any number of producers and consumers, without the GIL.
#
# ring_push appends an item. With ring_place instead, items are numbered from 0, may be put in in any order, and leave by number.
#
# The ring is made of a mutex and two condition variables. After ring_close nothing can be put in, but ring_pop returns the items that are
# left before it returns RING_CLOSED. Timeouts are in seconds; 0 never waits, and a negative one waits for ever.
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
    uint64_t push_waits   # how often a producer found the ring full: many mean that the stage after it is the bottleneck
    uint64_t pop_waits    # how often a consumer found the ring empty: many mean that the stage before it is the bottleneck

cdef struct Side:
    pthread_cond_t changed
    size_t asleep         # threads that wait on `changed`; if there are none, it is not signalled
    bint woken            # One of these threads was signalled, and does not run yet.
    uint64_t *waits       # the ring's push_waits or pop_waits

cdef struct Ring:
    pthread_mutex_t lock
    Side producers        # threads that wait for room
    Side consumers        # threads that wait for an item
    void **slots          # the items; NULL in an empty slot
    size_t head           # the slot that is popped next
    bint closed
    bint placed           # ring_place was used, not ring_push
    RingCounts counts

cdef Ring *ring_new(size_t capacity) noexcept nogil   # NULL when memory is short
cdef void ring_free(Ring *ring) noexcept nogil        # No thread may use the ring; items in it are not freed.
cdef RingState ring_push(Ring *ring, void *item, double timeout) noexcept nogil
cdef RingState ring_place(Ring *ring, void *item, uint64_t number) noexcept nogil  # waits until item number - capacity has left
cdef RingState ring_pop(Ring *ring, void **item, double timeout) noexcept nogil
cdef void ring_close(Ring *ring) noexcept nogil       # idempotent; wakes all waiting threads
cdef RingCounts ring_counts(Ring *ring) noexcept nogil
