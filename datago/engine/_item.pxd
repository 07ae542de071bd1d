# What travels from a source through both rings to the reader, who gets a Sample, a Failure or a SampleBatch for it (see _sample.pxd).
#
# An Item is one block of memory: its parts and their strings lie behind it. It belongs to exactly one of feeder, ring, worker and
# reader, and item_free gives back all that it holds. `entry` and the buffers of `data` are Python objects, so whoever makes or frees an
# item holds the GIL. Workers do not hold it, and so they never touch these objects.
from libc.stdint cimport int64_t, uint64_t

from datago.engine._pixels cimport dg_buffer, dg_error, dg_picture, dg_role

cdef struct Part:
    dg_role role         # the first part decides the bucket
    const char *path     # the file to read; NULL where `data` has the bytes already
    Py_buffer data       # the encoded bytes
    dg_picture picture   # the result

cdef enum ItemKind:
    ITEM_SAMPLE          # has been good so far
    ITEM_FAILURE         # gives no sample, and `error` says why; the source found that, or whoever had the item since
    ITEM_BATCH           # carries `batch` to the reader

cdef struct Batch

cdef struct Item:
    ItemKind kind
    Batch *batch         # of a sample: where it has its place, once it has one; a planned one from the beginning
    int place            # its number there
    bint repeated        # another one of the same sample counts, and this one does not
    void *entry          # the Entry, owned; NULL where the source gave but the path of a file, which is the sample's id
    const char *name     # what a failure calls it
    const char *rng_name  # what it is called when something is drawn for it: without the folders and hosts of a machine
    dg_error error       # of a failure
    int64_t target       # its class, where it has one
    int64_t position     # see _progress.pxd; negative where the source has none for it
    uint64_t encoded, pixels  # bytes of the budget that it has taken
    uint64_t number      # its number in the order in which the pool admitted items
    Item *next           # in a list of items that no ring holds
    int part_count
    Part parts[1]

cdef struct Batch:
    int width, height    # pixels, of every picture
    int taken            # places that were given out; all of them in a planned batch
    int filled           # places that are written
    int pending          # of a planned batch: items that are on their way to a place
    int64_t group        # of a planned batch: its number in the plan of the stream
    bint closed          # no more places will be given out
    bint dropped         # it did not get full, and batches that do not are dropped
    size_t stride        # bytes of one picture
    dg_buffer memory     # all pictures, one after the other
    Batch *next          # in the list of open batches
    Item *carrier        # what goes through the ready ring
    Item *items[1]       # in their places; NULL where nothing is written yet

cdef Item *item_new(object entry) except NULL  # of what a source yields; see sources/__init__.py
cdef void item_free(Item *item) noexcept       # with the batch that it carries
# Moves the encoded bytes of one part out, for the caller to release: once they are decoded nobody reads them any more. False where no
# part has any.
cdef bint item_give_up(Item *item, Py_buffer *data) noexcept nogil
cdef void entry_empty(object entry) noexcept   # the Entry lets go of its images' bytes
cdef void batch_free(Batch *batch) noexcept    # with its carrier and its items
