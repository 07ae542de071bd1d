# Settings that were checked in Python become the options of native code. The setters raise ValueError.
from datago.engine._batch cimport Batcher
from datago.engine._pixels cimport dg_process_options

cdef int set_image_options(dg_process_options *options, image) except -1  # of an image_config; `options` is zeros
cdef void free_image_options(dg_process_options *options) noexcept        # its buckets
cdef int set_batch_options(Batcher *batcher, batch) except -1             # of what DatagoBatchDataset asks for
