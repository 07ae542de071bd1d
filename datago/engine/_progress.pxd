# Keeps track of which samples of an epoch have been handed out. The pool marks their positions, and the source makes its state of them.
#
# A position is a number that the source gives a sample, the same in every run of that epoch. Positions are kept as ranges: samples that
# were handed out in order are one range, and each thread that lags behind makes one more.
from libc.stdint cimport int64_t

from datago._threads cimport pthread_mutex_t

cdef struct Range:
    int64_t begin, end   # `end` is not in the range.

cdef class Progress:
    cdef pthread_mutex_t lock  # guards the rest
    cdef Range *items          # in order, neither overlapping nor touching
    cdef size_t count, capacity
    cdef size_t _find(self, int64_t position) noexcept nogil
    cdef int mark(self, int64_t begin, int64_t end) except -1 nogil
