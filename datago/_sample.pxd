# What travels from a source through both rings, and becomes a Sample (or a Failure) at the end.
#
# An Item is one malloc with its parts and their strings behind it; item_free gives back everything it holds. It belongs
# to exactly one of feeder, ring, worker and reader. `entry` and the buffers are Python's: whoever makes or frees an item
# that has them holds the GIL. Workers never look at them.
from libc.stdint cimport int64_t, uint64_t

from datago._pixels cimport dg_buffer, dg_error, dg_picture, dg_role

cdef struct Part:
    dg_role role         # the first part decides the bucket
    const char *path     # a file to read, or NULL:
    Py_buffer data       # the bytes themselves
    dg_picture picture   # the result

cdef struct Batch

cdef struct Item:
    Batch *batch         # where it has its place; of an item without parts: what it carries
    int place
    void *entry          # the Entry, owned; NULL: the first part is a file, and its path the id
    const char *name     # what a failure calls it
    const char *drawn    # what names it when something is drawn for it: no machine's folders or hosts
    dg_error error       # status DG_OK: good
    int64_t target       # its class, where it has one
    int64_t position     # see _progress.pxd; negative: the source has none for it
    uint64_t encoded, pixels  # what it has of the budget, in bytes
    uint64_t number      # in the order in which the pool let items in
    Item *next           # in the list of what stop() found between the rings
    int part_count
    Part parts[1]

cdef struct Batch:
    int width, height, taken, filled   # places that were given out, and those that are written
    bint closed                        # no more of them will be given out
    bint dropped                       # it did not get full, and was to be full
    size_t stride                      # bytes of one picture
    dg_buffer memory                   # all of them, one after the other
    Batch *next                        # in the list of open ones
    Item *carrier                      # what goes through the ready ring
    Item *items[1]                     # in their places

cdef Item *item_new(object entry) except NULL  # from what a source yields; see sources/__init__.py
cdef void item_free(Item *item) noexcept       # with the batch that it carries
# Moves one part's encoded bytes out, for the caller to release: they are decoded. False where it has no more.
cdef bint item_give_up(Item *item, Py_buffer *data) noexcept nogil
cdef void entry_empty(object entry) noexcept   # an Entry lets go of its images' bytes
cdef void batch_free(Batch *batch) noexcept    # with its carrier and items
# A Sample, its dict if `convert`, a Failure or a SampleBatch, to which the item's pixels go. MemoryError where there is none for a
# batch, or even for a Failure.
cdef object item_result(Item *item, bint convert)
