# What a reader gets of one image or one latent.
from datago.engine._pixels cimport dg_buffer, dg_picture

cdef class PixelBuffer:
    cdef dg_buffer buffer

cdef class ImagePayload:
    cdef object _data    # a PixelBuffer where native code filled it, else whatever bytes the user put there
    cdef int _step       # samples from one pixel of _data to the next: `channels`, or 4 for RGB that is stored as RGBX
    cdef readonly int original_height, original_width, height, width, channels, bit_depth
    cdef readonly bint is_encoded
    cdef int fill(self, str name, value) except -1
    cdef int _check(self) except -1

cdef class LatentPayload:
    cdef public bytes data

# Both take the memory over, and leave an empty buffer behind.
cdef PixelBuffer adopt(dg_buffer *buffer)
cdef ImagePayload payload_of(dg_picture *picture)
