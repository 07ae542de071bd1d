# Counts the bytes in flight, and makes threads wait so that these stay within `limit`. Without a limit nothing is counted.
#
# Encoded bytes come in with their item, or when a worker reads a file; they may be half of the limit. Pixels are reserved before
# they are decoded, by what the header says, and stay until the reader takes them, or until they are in their place in a batch.
# Nobody waits for ever: an item that must be done before anything else can leave is always admitted, even beyond the limit. That is
# the item whose turn it is where order is kept, and else the first in the queue when no pixels are in flight. Nobody else passes
# those who came before, or a large picture would wait as long as small ones come. Of batches there is a fixed number (see
# _batch.pxd), whose share is no one else's: so these rules need not know them.
from libc.stdint cimport int64_t, uint64_t

from datago._threads cimport pthread_cond_t, pthread_mutex_t

cdef struct BudgetCounts:
    uint64_t limit, in_flight, peak

cdef struct Waiter:  # lives on its thread's stack
    Waiter *next

cdef struct Budget:
    uint64_t limit          # bytes, the batches' share apart; 0: none
    uint64_t share          # bytes that are kept for batches
    bint ordered
    pthread_mutex_t lock    # guards what follows
    pthread_cond_t changed
    uint64_t encoded, pixels, batches, peak
    uint64_t turn           # number of the item that leaves next, where order is kept: to the reader, or into its batch
    bint stopped
    Waiter *for_encoded     # the queue of those who wait for room, the first of them at its head
    Waiter *for_pixels

cdef void budget_init(Budget *budget, uint64_t limit, uint64_t share, bint ordered) noexcept nogil
cdef void budget_destroy(Budget *budget) noexcept nogil
# These wait for room; False once stopped: then nothing was taken.
cdef bint budget_take_encoded(Budget *budget, uint64_t number, uint64_t bytes) noexcept nogil
cdef bint budget_take_pixels(Budget *budget, uint64_t number, uint64_t bytes) noexcept nogil
cdef void budget_give_back(Budget *budget, uint64_t encoded, uint64_t pixels) noexcept nogil
cdef void budget_leave(Budget *budget, uint64_t number) noexcept nogil  # item `number` has left, the next one has its turn
cdef void budget_add_batch(Budget *budget, int64_t bytes) noexcept nogil  # one that begins, or (negative) is handed out
cdef BudgetCounts budget_counts(Budget *budget) noexcept nogil
cdef void budget_stop(Budget *budget) noexcept nogil
