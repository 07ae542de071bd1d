# Bytes in flight, and who has to wait so that they do not become more than `limit`. Without a limit nothing is counted.
#
# Encoded bytes come in with their item, or when a worker reads a file; they may be half of the limit. Pixels are reserved before
# they are decoded, by what the header says, and stay until the reader takes them. Nobody waits for ever: what has to be done
# before anything else can leave is always let through, be it beyond the limit. That is the item whose turn it is where order is
# kept, and else whatever comes when no pixels are in flight.
from libc.stdint cimport uint64_t

from datago._threads cimport pthread_cond_t, pthread_mutex_t

cdef struct BudgetCounts:
    uint64_t limit, in_flight, peak

cdef struct Budget:
    uint64_t limit          # bytes; 0: none
    bint ordered
    pthread_mutex_t lock    # guards what follows
    pthread_cond_t changed
    uint64_t encoded, pixels, peak
    uint64_t turn           # number of the item that leaves next, where order is kept
    bint stopped

cdef void budget_init(Budget *budget, uint64_t limit, bint ordered) noexcept nogil
cdef void budget_destroy(Budget *budget) noexcept nogil
# These wait for room; False once stopped: then nothing was taken.
cdef bint budget_take_encoded(Budget *budget, uint64_t number, uint64_t bytes) noexcept nogil
cdef bint budget_take_pixels(Budget *budget, uint64_t number, uint64_t bytes) noexcept nogil
cdef void budget_give_back(Budget *budget, uint64_t encoded, uint64_t pixels) noexcept nogil
cdef void budget_leave(Budget *budget, uint64_t number) noexcept nogil  # item `number` was taken by the reader
cdef BudgetCounts budget_counts(Budget *budget) noexcept nogil
cdef void budget_stop(Budget *budget) noexcept nogil
