# Counts the bytes in flight, and makes threads wait so that these bytes stay within `limit`. Without a limit nothing is counted.
#
# Encoded bytes are taken with their item, or when a worker reads a file; they may use half of the limit. Pixels are reserved before
# they are decoded, as many as the header says, until the reader takes them or they are copied to their place in a batch.
#
# No thread waits for ever, because an item that must be done before any other can leave is always admitted, even beyond the limit. If
# order is kept, that is the item that leaves next; otherwise it is the first item in the queue when no pixels are in flight. All
# other items are admitted in the order in which they came, because a large picture would otherwise wait as long as small ones come.
# Batches have a share of the limit that nothing else uses, and their number is fixed (see _batch.pxd), so they never wait here.
from libc.stdint cimport int64_t, uint64_t

from datago._threads cimport pthread_cond_t, pthread_mutex_t

cdef struct BudgetCounts:
    uint64_t limit, in_flight, peak

cdef struct Waiter:  # a waiting thread's place in a queue, on that thread's stack
    Waiter *next

cdef struct Budget:
    uint64_t limit          # bytes without the batches' share; 0: no limit
    uint64_t share          # bytes that are reserved for batches
    bint ordered
    pthread_mutex_t lock    # guards what follows
    pthread_cond_t changed
    uint64_t encoded, pixels, batches, peak
    uint64_t turn           # if order is kept, the number of the item that leaves next, to the reader or into its batch
    bint stopped
    Waiter *for_encoded     # the queues of threads that wait for room, each with the first one at its head
    Waiter *for_pixels

cdef void budget_init(Budget *budget, uint64_t limit, uint64_t share, bint ordered) noexcept nogil
cdef void budget_destroy(Budget *budget) noexcept nogil
# These two wait for room. They return False once the budget is stopped, and have taken nothing then.
cdef bint budget_take_encoded(Budget *budget, uint64_t number, uint64_t bytes) noexcept nogil
cdef bint budget_take_pixels(Budget *budget, uint64_t number, uint64_t bytes) noexcept nogil
cdef void budget_give_back(Budget *budget, uint64_t encoded, uint64_t pixels) noexcept nogil
cdef void budget_leave(Budget *budget, uint64_t number) noexcept nogil  # Item `number` has left; the next one may leave.
cdef void budget_add_batch(Budget *budget, int64_t bytes) noexcept nogil  # for a new batch; negative when it is handed out
cdef BudgetCounts budget_counts(Budget *budget) noexcept nogil
cdef void budget_stop(Budget *budget) noexcept nogil
