# The worker's stage: the bytes of an item are read, room for its pixels is waited for, and each of its pictures is processed.
from libc.stdint cimport uint64_t

from datago.engine._budget cimport Budget
from datago.engine._item cimport Item
from datago.engine._pixels cimport atomic_int, dg_heap, dg_process_options, dg_scratch, dg_worker

cdef struct ProcessContext:  # what the workers of a pool share
    dg_process_options options
    dg_heap *heap            # of pixels
    Budget *budget
    uint64_t max_file_bytes
    uint64_t seed, epoch     # of what is drawn for each sample
    size_t base              # leading bytes of a path that are left out of what is drawn, since they differ from machine to machine
    atomic_int rgbx          # the reader takes PIL images, and Pillow borrows pixels of four bytes only

# Processes every part of a sample. If that fails the item becomes a failure: nothing that is wrong with an item ends the worker.
# `tools` may be NULL, where there was no memory for them; `scratch` has the bytes of a file until the item is done.
cdef void process_item(ProcessContext *context, dg_worker *tools, dg_scratch *scratch, Item *item) noexcept nogil
# Whether an item needs more than the whole budget; it is a failure then.
cdef bint never_fits(Budget *budget, Item *item, uint64_t bytes) noexcept nogil
# A processed item gives back what it does not need any more: it keeps its pixels, and the bytes that its Entry holds. The bytes of a file
# lie in the worker's memory, which is used again.
cdef void shrink_reservation(ProcessContext *context, Item *item) noexcept nogil
