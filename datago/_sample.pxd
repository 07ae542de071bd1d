# What travels from a source through both rings, and becomes a Sample (or a Failure) at the end.
#
# An Item is one malloc with its parts and their strings behind it; item_free gives back everything it holds. It belongs
# to exactly one of feeder, ring, worker and reader. `entry` and the buffers are Python's: whoever makes or frees an item
# that has them holds the GIL. Workers never look at them.
from libc.stdint cimport int64_t, uint64_t

from datago._pixels cimport dg_error, dg_picture, dg_role

cdef struct Part:
    dg_role role         # the first part decides the bucket
    const char *path     # a file to read, or NULL:
    Py_buffer data       # the bytes themselves
    dg_picture picture   # the result

cdef struct Item:
    void *entry          # the Entry, owned; NULL: the first part is a file, and its path the id
    const char *name     # what a failure calls it
    dg_error error       # status DG_OK: good
    int64_t position     # see _progress.pxd; negative: the source has none for it
    uint64_t encoded, pixels  # what it has of the budget, in bytes
    uint64_t number      # in the order in which the pool let items in
    Item *next           # in the list of what stop() found between the rings
    int part_count
    Part parts[1]

cdef Item *item_new(object entry) except NULL  # from what a source yields; see sources/__init__.py
cdef void item_free(Item *item) noexcept
cdef object item_result(Item *item, bint convert)  # a Sample, its dict if `convert`, or a Failure; frees `item`
