# Pictures that only Pillow can decode. Both functions take the GIL.
from libc.stdint cimport uint64_t

from datago.engine._item cimport Part
from datago.engine._pixels cimport dg_draw, dg_error, dg_heap, dg_process_options, dg_status, dg_worker

# Bytes that decoding a picture takes, by what its header says. A picture that Pillow does not know either costs next to nothing: it fails
# when it is decoded.
cdef uint64_t pillow_cost(Part *part, const dg_process_options *options) noexcept nogil
# Decodes and processes one picture. `memory_limit` is in bytes; 0: none.
cdef dg_status pillow_process(dg_heap *heap, uint64_t memory_limit, dg_worker *tools, Part *part, const dg_process_options *options,
                              dg_draw *draw, dg_error *error) noexcept nogil
