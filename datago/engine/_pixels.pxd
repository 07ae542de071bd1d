# What other modules use of src_c: its types, and functions that pass a call on to it. Units, ownership and errors stand in the headers.
#
# src_c has one table of names, one choice of SIMD and one kind of heap, and it is large. So only one module is linked to it, _pixels, and
# a call from another module takes an indirect jump more. These calls are made some ten times a picture, never for a row of pixels.
from libc.stdint cimport uint8_t, uint16_t, uint64_t


cdef extern from "<stdatomic.h>" nogil:
    ctypedef int atomic_int


cdef extern from "status.h" nogil:
    ctypedef enum dg_status:
        DG_OK
        DG_CANCELLED
        DG_NO_MEMORY
        DG_UNSUPPORTED
        DG_CORRUPT
        DG_SAMPLE
        DG_TOO_LARGE
        DG_NOT_FOUND

    ctypedef struct dg_error:
        dg_status status
        char text[232]


cdef extern from "image.h" nogil:
    ctypedef struct dg_heap:
        pass

    ctypedef struct dg_buffer:
        uint8_t *data
        size_t size
        size_t capacity
        dg_heap *heap

    ctypedef struct dg_image:
        dg_buffer buffer
        int width, height, channels, pixel_stride, depth


cdef extern from "scratch.h" nogil:
    ctypedef struct dg_scratch:
        uint8_t *data
        size_t capacity


cdef extern from "buckets.h" nogil:
    ctypedef struct dg_bucket:
        int width, height


cdef extern from "boxes.h" nogil:
    ctypedef struct dg_size:
        int width, height

    ctypedef struct dg_steps:
        dg_size resize, center_crop, pad
        double across, down


cdef extern from "draws.h" nogil:
    ctypedef struct dg_crop_options:
        const dg_bucket *buckets
        size_t bucket_count
        bint random_position
        dg_size resized
        double scale[2]
        double ratio[2]
        dg_steps steps
        double flip

    ctypedef struct dg_frame:
        dg_size target

    ctypedef struct dg_draw:
        dg_frame frame


cdef extern from "place.h" nogil:
    ctypedef enum dg_layout:
        DG_LAYOUT_NCHW
        DG_LAYOUT_NHWC

    ctypedef enum dg_dtype:
        DG_DTYPE_UINT8
        DG_DTYPE_FLOAT16
        DG_DTYPE_BFLOAT16
        DG_DTYPE_FLOAT32

    ctypedef struct dg_placement:
        pass


cdef extern from "process.h" nogil:
    ctypedef enum dg_format:
        DG_FORMAT_JPEG
        DG_FORMAT_PNG
        DG_FORMAT_HTML

    ctypedef enum dg_role:
        DG_ROLE_IMAGE
        DG_ROLE_MASK
        DG_ROLE_ADDITIONAL

    ctypedef enum dg_encoding:
        DG_ENCODE_NOT
        DG_ENCODE_PNG
        DG_ENCODE_JPEG

    ctypedef enum dg_resize_mode:
        DG_RESIZE_EXACT
        DG_RESIZE_FAST

    ctypedef enum dg_resize_filter:
        DG_FILTER_LANCZOS
        DG_FILTER_BICUBIC
        DG_FILTER_BILINEAR
        DG_FILTER_BOX
        DG_FILTER_NEAREST

    ctypedef struct dg_decode_options:
        uint64_t max_pixels
        bint rgbx, accept_truncated, accept_damaged
        const atomic_int *stop

    ctypedef struct dg_process_options:
        dg_decode_options decode
        dg_crop_options crop
        dg_resize_mode mode
        dg_resize_filter filter, mask_filter
        bint orient, rgb8
        uint8_t background[3]
        uint8_t fill[3]
        dg_encoding encoding
        int quality, chroma

    ctypedef struct dg_picture:
        dg_image image
        bint encoded
        int original_width, original_height
        bint damaged

    ctypedef struct dg_worker:
        pass


cdef extern from "cost.h" nogil:
    int DG_PILLOW_PIXEL


cdef const char *dg_status_name(dg_status status) noexcept nogil
cdef dg_status dg_status_find(const char *name) noexcept nogil
cdef dg_status dg_fail(dg_error *error, dg_status status, const char *text) noexcept nogil
cdef dg_heap *dg_heap_new(size_t keep) noexcept nogil
cdef bint dg_heap_inherited(const dg_heap *heap) noexcept nogil
cdef void dg_heap_trim(dg_heap *heap) noexcept nogil
cdef void dg_heap_free(dg_heap *heap) noexcept nogil
cdef dg_status dg_buffer_alloc(dg_heap *heap, size_t size, dg_buffer *buffer) noexcept nogil
cdef void dg_buffer_free(dg_buffer *buffer) noexcept nogil
cdef dg_status dg_image_alloc(dg_heap *heap, int width, int height, int channels, int pixel_stride, int depth,
                              dg_image *image) noexcept nogil
cdef void dg_image_free(dg_image *image) noexcept nogil
cdef void dg_scratch_free(dg_scratch *scratch) noexcept nogil
cdef dg_status dg_file_read(const char *path, uint64_t max_bytes, dg_scratch *scratch, size_t *size, dg_error *error) noexcept nogil
cdef dg_status dg_header_file_size(const char *path, uint64_t max_bytes, int orient, dg_scratch *scratch, int *width, int *height,
                                   dg_error *error) noexcept nogil
cdef const dg_bucket *dg_bucket_choose(const dg_bucket *buckets, size_t count, int width, int height) noexcept nogil
cdef dg_status dg_buckets_build(int default_image_size, int downsampling_ratio, double min_aspect, double max_aspect,
                                dg_bucket **buckets, size_t *count, dg_error *error) noexcept nogil
cdef void dg_draw_begin(dg_draw *draw, const dg_crop_options *options, uint64_t seed, uint64_t epoch, const char *name,
                        size_t length) noexcept nogil
cdef dg_status dg_placement_set(dg_placement *placement, dg_layout layout, dg_dtype dtype, int channels, const double *mean,
                                const double *std, dg_error *error) noexcept nogil
cdef size_t dg_placement_size(const dg_placement *placement, int width, int height) noexcept nogil
cdef dg_status dg_place(const dg_placement *placement, const dg_image *image, void *destination, dg_error *error) noexcept nogil
cdef dg_worker *dg_worker_new(dg_heap *heap) noexcept nogil
cdef void dg_worker_enter(dg_worker *worker) noexcept nogil
cdef void dg_worker_free(dg_worker *worker) noexcept nogil
cdef dg_status dg_process(dg_worker *worker, const uint8_t *data, size_t size, dg_role role, const dg_process_options *options,
                          dg_draw *draw, dg_format *format, dg_picture *picture, dg_error *error) noexcept nogil
cdef dg_status dg_process_pixels(dg_worker *worker, int orientation, dg_role role, const dg_process_options *options, dg_draw *draw,
                                 dg_picture *picture, dg_error *error) noexcept nogil
cdef uint64_t dg_process_cost(const uint8_t *data, size_t size, dg_role role, const dg_process_options *options) noexcept nogil
cdef uint64_t dg_pillow_cost(int width, int height, size_t size, const dg_process_options *options) noexcept nogil
cdef void dg_rgb_to_rgbx(const uint8_t *source, uint8_t *out, size_t n) noexcept nogil
cdef void dg_rgbx_to_rgb(const uint8_t *source, uint8_t *out, size_t n) noexcept nogil
cdef void dg_depth_16_to_8(const uint16_t *source, uint8_t *out, size_t n) noexcept nogil
