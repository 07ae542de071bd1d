# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""The one module that is linked to src_c (see _pixels.pxd)."""
from libc.stdint cimport uint8_t, uint16_t, uint64_t

cdef extern from "status.h" nogil:
    const char *c_status_name "dg_status_name"(dg_status status)
    dg_status c_status_find "dg_status_find"(const char *name)
    dg_status c_fail "dg_fail"(dg_error *error, dg_status status, const char *format, ...)

cdef extern from "image.h" nogil:
    dg_heap *c_heap_new "dg_heap_new"(size_t keep)
    bint c_heap_inherited "dg_heap_inherited"(const dg_heap *heap)
    void c_heap_trim "dg_heap_trim"(dg_heap *heap)
    void c_heap_free "dg_heap_free"(dg_heap *heap)
    dg_status c_buffer_alloc "dg_buffer_alloc"(dg_heap *heap, size_t size, dg_buffer *buffer)
    void c_buffer_free "dg_buffer_free"(dg_buffer *buffer)
    dg_status c_image_alloc "dg_image_alloc"(dg_heap *heap, int width, int height, int channels, int pixel_stride, int depth,
                                             dg_image *image)

cdef extern from "scratch.h" nogil:
    void c_scratch_free "dg_scratch_free"(dg_scratch *scratch)

cdef extern from "file.h" nogil:
    dg_status c_file_read "dg_file_read"(const char *path, uint64_t max_bytes, dg_scratch *scratch, size_t *size, dg_error *error)

cdef extern from "header_file.h" nogil:
    dg_status c_header_file_size "dg_header_file_size"(const char *path, uint64_t max_bytes, int orient, dg_scratch *scratch, int *width,
                                                       int *height, dg_error *error)

cdef extern from "buckets.h" nogil:
    const dg_bucket *c_bucket_choose "dg_bucket_choose"(const dg_bucket *buckets, size_t count, int width, int height)
    dg_status c_buckets_build "dg_buckets_build"(int default_image_size, int downsampling_ratio, double min_aspect, double max_aspect,
                                                 dg_bucket **buckets, size_t *count, dg_error *error)

cdef extern from "draws.h" nogil:
    void c_draw_begin "dg_draw_begin"(dg_draw *draw, const dg_crop_options *options, uint64_t seed, uint64_t epoch, const char *name,
                                      size_t length)

cdef extern from "place.h" nogil:
    dg_status c_placement_set "dg_placement_set"(dg_placement *placement, dg_layout layout, dg_dtype dtype, int channels,
                                                 const double *mean, const double *std, dg_error *error)
    size_t c_placement_size "dg_placement_size"(const dg_placement *placement, int width, int height)
    dg_status c_place "dg_place"(const dg_placement *placement, const dg_image *image, void *destination, dg_error *error)

cdef extern from "process.h" nogil:
    dg_worker *c_worker_new "dg_worker_new"(dg_heap *heap)
    void c_worker_enter "dg_worker_enter"(dg_worker *worker)
    void c_worker_free "dg_worker_free"(dg_worker *worker)
    dg_status c_process "dg_process"(dg_worker *worker, const uint8_t *data, size_t size, dg_role role,
                                     const dg_process_options *options, dg_draw *draw, dg_format *format, dg_picture *picture,
                                     dg_error *error)
    dg_status c_process_pixels "dg_process_pixels"(dg_worker *worker, int orientation, dg_role role, const dg_process_options *options,
                                                   dg_draw *draw, dg_picture *picture, dg_error *error)

cdef extern from "cost.h" nogil:
    uint64_t c_process_cost "dg_process_cost"(const uint8_t *data, size_t size, dg_role role, const dg_process_options *options)
    uint64_t c_pillow_cost "dg_pillow_cost"(int width, int height, size_t size, const dg_process_options *options)

cdef extern from "color.h" nogil:
    void c_rgb_to_rgbx "dg_rgb_to_rgbx"(const uint8_t *source, uint8_t *out, size_t n)
    void c_rgbx_to_rgb "dg_rgbx_to_rgb"(const uint8_t *source, uint8_t *out, size_t n)
    void c_depth_16_to_8 "dg_depth_16_to_8"(const uint16_t *source, uint8_t *out, size_t n)

cdef extern from "versions.h" nogil:
    void c_versions "dg_versions"(char *text, size_t size)


def versions() -> str:
    """The libraries that src_c calls, with their versions: "NAME VERSION, NAME VERSION, …"."""
    cdef char text[256]
    c_versions(text, sizeof(text))
    return (<bytes>text).decode()


cdef const char *dg_status_name(dg_status status) noexcept nogil:
    return c_status_name(status)


cdef dg_status dg_status_find(const char *name) noexcept nogil:
    return c_status_find(name)


cdef dg_status dg_fail(dg_error *error, dg_status status, const char *text) noexcept nogil:
    return c_fail(error, status, "%s", text)


cdef dg_heap *dg_heap_new(size_t keep) noexcept nogil:
    return c_heap_new(keep)


cdef bint dg_heap_inherited(const dg_heap *heap) noexcept nogil:
    return c_heap_inherited(heap)


cdef void dg_heap_trim(dg_heap *heap) noexcept nogil:
    c_heap_trim(heap)


cdef void dg_heap_free(dg_heap *heap) noexcept nogil:
    c_heap_free(heap)


cdef dg_status dg_buffer_alloc(dg_heap *heap, size_t size, dg_buffer *buffer) noexcept nogil:
    return c_buffer_alloc(heap, size, buffer)


cdef void dg_buffer_free(dg_buffer *buffer) noexcept nogil:
    c_buffer_free(buffer)


cdef dg_status dg_image_alloc(dg_heap *heap, int width, int height, int channels, int pixel_stride, int depth,
                              dg_image *image) noexcept nogil:
    return c_image_alloc(heap, width, height, channels, pixel_stride, depth, image)


cdef void dg_image_free(dg_image *image) noexcept nogil:
    c_buffer_free(&image.buffer)


cdef void dg_scratch_free(dg_scratch *scratch) noexcept nogil:
    c_scratch_free(scratch)


cdef dg_status dg_file_read(const char *path, uint64_t max_bytes, dg_scratch *scratch, size_t *size, dg_error *error) noexcept nogil:
    return c_file_read(path, max_bytes, scratch, size, error)


cdef dg_status dg_header_file_size(const char *path, uint64_t max_bytes, int orient, dg_scratch *scratch, int *width, int *height,
                                   dg_error *error) noexcept nogil:
    return c_header_file_size(path, max_bytes, orient, scratch, width, height, error)


cdef const dg_bucket *dg_bucket_choose(const dg_bucket *buckets, size_t count, int width, int height) noexcept nogil:
    return c_bucket_choose(buckets, count, width, height)


cdef dg_status dg_buckets_build(int default_image_size, int downsampling_ratio, double min_aspect, double max_aspect,
                                dg_bucket **buckets, size_t *count, dg_error *error) noexcept nogil:
    return c_buckets_build(default_image_size, downsampling_ratio, min_aspect, max_aspect, buckets, count, error)


cdef void dg_draw_begin(dg_draw *draw, const dg_crop_options *options, uint64_t seed, uint64_t epoch, const char *name,
                        size_t length) noexcept nogil:
    c_draw_begin(draw, options, seed, epoch, name, length)


cdef dg_status dg_placement_set(dg_placement *placement, dg_layout layout, dg_dtype dtype, int channels, const double *mean,
                                const double *std, dg_error *error) noexcept nogil:
    return c_placement_set(placement, layout, dtype, channels, mean, std, error)


cdef size_t dg_placement_size(const dg_placement *placement, int width, int height) noexcept nogil:
    return c_placement_size(placement, width, height)


cdef dg_status dg_place(const dg_placement *placement, const dg_image *image, void *destination, dg_error *error) noexcept nogil:
    return c_place(placement, image, destination, error)


cdef dg_worker *dg_worker_new(dg_heap *heap) noexcept nogil:
    return c_worker_new(heap)


cdef void dg_worker_enter(dg_worker *worker) noexcept nogil:
    c_worker_enter(worker)


cdef void dg_worker_free(dg_worker *worker) noexcept nogil:
    c_worker_free(worker)


cdef dg_status dg_process(dg_worker *worker, const uint8_t *data, size_t size, dg_role role, const dg_process_options *options,
                          dg_draw *draw, dg_format *format, dg_picture *picture, dg_error *error) noexcept nogil:
    return c_process(worker, data, size, role, options, draw, format, picture, error)


cdef dg_status dg_process_pixels(dg_worker *worker, int orientation, dg_role role, const dg_process_options *options, dg_draw *draw,
                                 dg_picture *picture, dg_error *error) noexcept nogil:
    return c_process_pixels(worker, orientation, role, options, draw, picture, error)


cdef uint64_t dg_process_cost(const uint8_t *data, size_t size, dg_role role, const dg_process_options *options) noexcept nogil:
    return c_process_cost(data, size, role, options)


cdef uint64_t dg_pillow_cost(int width, int height, size_t size, const dg_process_options *options) noexcept nogil:
    return c_pillow_cost(width, height, size, options)


cdef void dg_rgb_to_rgbx(const uint8_t *source, uint8_t *out, size_t n) noexcept nogil:
    c_rgb_to_rgbx(source, out, n)


cdef void dg_rgbx_to_rgb(const uint8_t *source, uint8_t *out, size_t n) noexcept nogil:
    c_rgbx_to_rgb(source, out, n)


cdef void dg_depth_16_to_8(const uint16_t *source, uint8_t *out, size_t n) noexcept nogil:
    c_depth_16_to_8(source, out, n)
