# What a source yields, and what the reader gets.
from libc.stdint cimport int64_t

from datago.engine._item cimport Item
from datago.engine._payload cimport PixelBuffer

cdef class Entry:
    cdef readonly object id, source, attributes, tags, coca_embedding, latents
    cdef tuple _images  # its elements are tuples of three, which native code relies on
    cdef readonly int duplicate_state
    cdef public int64_t position

cdef class Failure:
    cdef readonly object name
    cdef readonly str reason, text
    cdef public int64_t position

cdef class Sample:
    cdef public object id, source
    cdef readonly object attributes
    cdef public int duplicate_state
    cdef public object image, masks, additional_images, latents, coca_embedding, tags

cdef class SampleBatch:
    cdef readonly int width, height
    cdef readonly bint dropped
    cdef readonly PixelBuffer pixels
    cdef readonly list samples, targets, valid

# A Sample (its dict if `convert`), a Failure or a SampleBatch; the item's pixels move into it. It raises MemoryError where there is no
# memory for a batch, or not even for a Failure.
cdef object item_result(Item *item, bint convert)
