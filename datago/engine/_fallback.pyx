# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""Pictures that only Pillow can decode.

Few pictures need it, and Pillow needs Python: so this is the one place where a worker takes the GIL.
"""
from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from datago.engine._pixels cimport (
    DG_NO_MEMORY, DG_OK, DG_PILLOW_PIXEL, DG_UNSUPPORTED, dg_fail, dg_image, dg_image_alloc, dg_pillow_cost, dg_process_pixels,
    dg_status_find,
)
from datago.engine._sample cimport Failure


cdef uint64_t pillow_cost(Part *part, const dg_process_options *options) noexcept nogil:
    cdef int width = 0, height = 0
    with gil:
        try:
            from datago.engine.fallback import size
            width, height = size(PyMemoryView_FromMemory(<char *>part.data.buf, part.data.len, PyBUF_READ))
        except BaseException:
            return 1  # the same will go wrong when it is decoded, and be reported then
    return dg_pillow_cost(width, height, part.data.len, options) if width > 0 and height > 0 else 1


cdef dg_status pillow_process(dg_heap *heap, uint64_t memory_limit, dg_worker *tools, Part *part, const dg_process_options *options,
                              dg_draw *draw, dg_error *error) noexcept nogil:
    cdef int orientation = 1
    cdef dg_status status
    with gil:
        status = pillow_decode(heap, memory_limit, part, options, &orientation, error)
    if status != DG_OK:
        return status
    return dg_process_pixels(tools, orientation, part.role, options, draw, &part.picture, error)


cdef dg_status pillow_decode(dg_heap *heap, uint64_t memory_limit, Part *part, const dg_process_options *options, int *orientation,
                             dg_error *error) noexcept:
    cdef dg_image *image = &part.picture.image
    cdef uint64_t memory_pixels = memory_limit // DG_PILLOW_PIXEL if memory_limit else options.decode.max_pixels
    try:
        from datago.engine.fallback import decode
        found = decode(PyMemoryView_FromMemory(<char *>part.data.buf, part.data.len, PyBUF_READ), options.decode.max_pixels,
                       memory_pixels)
        if isinstance(found, Failure):
            if found.text:  # without one, the text of the native path stays: it names the bytes, or the format
                text = found.text.encode("utf-8", "replace")[:sizeof(error.text) - 1]
                memcpy(error.text, <const char *>text, len(text) + 1)
            return dg_status_find(found.reason.encode())
        pixels, width, height, channels, depth, orientation[0] = found
        if dg_image_alloc(heap, width, height, channels, channels, depth, image) != DG_OK:
            return dg_fail(error, DG_NO_MEMORY, "no memory for the pixels")
        memcpy(image.buffer.data, <const char *>pixels, min(<size_t>len(pixels), image.buffer.size))
        return DG_OK
    except MemoryError:
        return dg_fail(error, DG_NO_MEMORY, "no memory for Pillow")
    except BaseException as failed:  # the fallback could not even be imported
        try:
            text = f"Pillow fallback failed: {type(failed).__name__}: {failed}".encode("utf-8", "replace")
            return dg_fail(error, DG_UNSUPPORTED, text)
        except BaseException:
            return dg_fail(error, DG_UNSUPPORTED, "Pillow fallback failed")
