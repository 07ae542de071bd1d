# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""Settings that were checked in Python become the options of native code (see _options.pxd)."""
from libc.stdlib cimport free

from datago.engine._pixels cimport (
    DG_DTYPE_BFLOAT16, DG_DTYPE_FLOAT16, DG_DTYPE_FLOAT32, DG_DTYPE_UINT8, DG_ENCODE_JPEG, DG_ENCODE_PNG, DG_FILTER_BICUBIC,
    DG_FILTER_BILINEAR, DG_FILTER_BOX, DG_FILTER_LANCZOS, DG_FILTER_NEAREST, DG_LAYOUT_NCHW, DG_LAYOUT_NHWC, DG_OK, DG_RESIZE_EXACT,
    DG_RESIZE_FAST, dg_bucket, dg_buckets_build, dg_error, dg_placement_set, dg_size, dg_steps,
)

cdef dict DTYPES = {"uint8": DG_DTYPE_UINT8, "float16": DG_DTYPE_FLOAT16, "bfloat16": DG_DTYPE_BFLOAT16, "float32": DG_DTYPE_FLOAT32}
cdef dict FILTERS = {
    "lanczos": DG_FILTER_LANCZOS, "bicubic": DG_FILTER_BICUBIC, "bilinear": DG_FILTER_BILINEAR, "box": DG_FILTER_BOX,
    "nearest": DG_FILTER_NEAREST,
}
# Where the picture lies when the canvas goes on there: a share of the slack that is on its left, and above it.
cdef dict PLACES = {
    "center": (0.5, 0.5), "top_left": (1, 1), "top_right": (0, 1), "bottom_left": (1, 0), "bottom_right": (0, 0),
}


cdef int set_image_options(dg_process_options *options, image) except -1:
    cdef dg_bucket *buckets = NULL
    cdef dg_error error
    options.decode.max_pixels = image.max_pixels
    options.decode.accept_truncated = image.on_truncated == "accept"
    options.decode.accept_damaged = image.on_damaged == "accept"
    options.mode = DG_RESIZE_EXACT if image.resize_mode == "exact" else DG_RESIZE_FAST
    options.orient = image.apply_exif_orientation
    options.filter = FILTERS[image.interpolation]
    options.mask_filter = FILTERS[image.mask_resample]
    options.rgb8 = image.image_to_rgb8
    options.background = image.background
    if image.pre_encode_images:
        options.encoding = DG_ENCODE_JPEG if image.encode_format == "jpeg" else DG_ENCODE_PNG
    options.crop.random_position = image.random_crop
    options.crop.flip = image.horizontal_flip
    if image.random_resized_crop is not None:
        options.crop.resized.width, options.crop.resized.height = image.random_resized_crop.size
        for i in range(2):
            options.crop.scale[i] = image.random_resized_crop.scale[i]
            options.crop.ratio[i] = image.random_resized_crop.ratio[i]
    set_steps(&options.crop.steps, image)
    if image.pad is not None:
        options.fill = image.pad.fill
    options.quality = max(1, min(100, image.jpeg_quality))
    options.chroma = int(image.jpeg_chroma)
    if image.crop_and_resize:
        if dg_buckets_build(image.default_image_size, image.downsampling_ratio, image.min_aspect_ratio,
                            image.max_aspect_ratio, &buckets, &options.crop.bucket_count, &error) != DG_OK:
            raise ValueError(error.text.decode())
        options.crop.buckets = buckets
    return 0


cdef int set_steps(dg_steps *steps, image) except -1:
    if image.resize is not None:
        set_size(&steps.resize, [image.resize, 0] if isinstance(image.resize, int) else image.resize)
    if image.center_crop is not None:
        set_size(&steps.center_crop, image.center_crop)
    if image.pad is not None:
        set_size(&steps.pad, image.pad.size)
        steps.across, steps.down = PLACES[image.pad.where]
    return 0


cdef int set_size(dg_size *size, pair) except -1:
    size.width, size.height = pair
    return 0


cdef void free_image_options(dg_process_options *options) noexcept:
    free(<dg_bucket *>options.crop.buckets)
    options.crop.buckets = NULL


cdef int set_batch_options(Batcher *batcher, batch) except -1:
    cdef double[3] mean, std
    cdef dg_error error
    for i in range(batch.channels):
        mean[i], std[i] = batch.mean[i], batch.std[i]
    layout = DG_LAYOUT_NCHW if batch.layout == "NCHW" else DG_LAYOUT_NHWC
    if dg_placement_set(&batcher.placement, layout, DTYPES[batch.dtype], batch.channels, mean, std, &error) != DG_OK:
        raise ValueError(f"mean, std: {error.text.decode()}")
    batcher.size, batcher.drop, batcher.most_waiting, batcher.max_batches = batch.size, batch.drop, batch.most_waiting, batch.most
    batcher.planned = batch.planning is not None
    return 0
