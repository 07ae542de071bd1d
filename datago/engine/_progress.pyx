# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""Progress: a set of positions as ranges (see _progress.pxd). The pool adds to it, and the source reads it."""
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memmove

from datago._threads cimport pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock


cdef class Progress:
    """A set of positions (integers from 0), which is small if they are added nearly in order. Any thread may use it.

    Args:
        ranges: the initial [begin, end] pairs, as `ranges` returns them; `end` is not in the range.
    """

    def __cinit__(self):
        pthread_mutex_init(&self.lock, NULL)

    def __init__(self, ranges=()):
        for begin, end in ranges:
            self.add(begin, end)

    def __dealloc__(self):
        free(self.items)
        pthread_mutex_destroy(&self.lock)

    cdef size_t _find(self, int64_t position) noexcept nogil:
        """The first range that ends at `position` or later."""
        cdef size_t low = 0, high = self.count, middle
        if high and self.items[high - 1].end <= position:  # the usual case, since most positions are added in order
            return high - 1 if self.items[high - 1].end == position else high
        while low < high:
            middle = (low + high) // 2
            if self.items[middle].end < position:
                low = middle + 1
            else:
                high = middle
        return low

    cdef int mark(self, int64_t begin, int64_t end) except -1 nogil:
        """Adds begin, begin + 1 … end - 1."""
        cdef size_t first, last, capacity
        cdef void *grown
        if begin >= end:
            return 0
        pthread_mutex_lock(&self.lock)
        first = last = self._find(begin)
        while last < self.count and self.items[last].begin <= end:  # The new range is merged with those that it touches.
            begin = min(begin, self.items[last].begin)
            end = max(end, self.items[last].end)
            last += 1
        if first == last and self.count == self.capacity:
            capacity = max(<size_t>16, 2 * self.capacity)
            grown = realloc(self.items, capacity * sizeof(Range))
            if grown == NULL:
                pthread_mutex_unlock(&self.lock)
                with gil:
                    raise MemoryError("no memory to record what was handed out")
            self.items, self.capacity = <Range *>grown, capacity
        if last != first + 1:
            memmove(&self.items[first + 1], &self.items[last], (self.count - last) * sizeof(Range))
            self.count = self.count + 1 + first - last
        self.items[first] = Range(begin, end)
        pthread_mutex_unlock(&self.lock)
        return 0

    def add(self, int64_t begin, int64_t end):
        """Adds begin, begin + 1 … end - 1."""
        self.mark(begin, end)

    def remove(self, int64_t begin, int64_t end):
        """Removes the ranges that lie entirely between `begin` and `end`. Ranges that lie there only in part stay."""
        cdef size_t first, last
        pthread_mutex_lock(&self.lock)
        first = last = self._find(begin)
        while first < self.count and self.items[first].begin < begin:
            first = last = first + 1
        while last < self.count and self.items[last].end <= end:
            last += 1
        if first < last:
            memmove(&self.items[first], &self.items[last], (self.count - last) * sizeof(Range))
            self.count -= last - first
        pthread_mutex_unlock(&self.lock)

    def first_missing(self, int64_t position=0) -> int:
        """The first position from `position` on that is not in the set."""
        cdef size_t found
        pthread_mutex_lock(&self.lock)
        found = self._find(position + 1)
        if found < self.count and self.items[found].begin <= position:
            position = self.items[found].end
        pthread_mutex_unlock(&self.lock)
        return position

    def ranges(self) -> list:
        """The ranges as a sorted list of [begin, end], which JSON can write."""
        cdef size_t i, count
        cdef Range *copy = NULL
        pthread_mutex_lock(&self.lock)
        count = self.count
        if count:
            copy = <Range *>malloc(count * sizeof(Range))
        if copy != NULL:
            memmove(copy, self.items, count * sizeof(Range))
        pthread_mutex_unlock(&self.lock)
        if count and copy == NULL:
            raise MemoryError
        try:
            return [[copy[i].begin, copy[i].end] for i in range(count)]
        finally:
            free(copy)
