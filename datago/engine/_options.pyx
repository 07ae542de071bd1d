# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True
"""Settings that were checked in Python become the options of native code (see _options.pxd)."""
from libc.stdlib cimport free

from datago.engine._pixels cimport (
    DG_DTYPE_BFLOAT16, DG_DTYPE_FLOAT16, DG_DTYPE_FLOAT32, DG_DTYPE_UINT8, DG_ENCODE_JPEG, DG_ENCODE_PNG, DG_LAYOUT_NCHW,
    DG_LAYOUT_NHWC, DG_OK, DG_RESIZE_EXACT, DG_RESIZE_FAST, dg_bucket, dg_buckets_build, dg_error, dg_placement_set,
)

cdef dict DTYPES = {"uint8": DG_DTYPE_UINT8, "float16": DG_DTYPE_FLOAT16, "bfloat16": DG_DTYPE_BFLOAT16, "float32": DG_DTYPE_FLOAT32}


cdef int set_image_options(dg_process_options *options, image) except -1:
    cdef dg_bucket *buckets = NULL
    cdef dg_error error
    options.decode.max_pixels = image.max_pixels
    options.decode.accept_truncated = image.on_truncated == "accept"
    options.decode.accept_damaged = image.on_damaged == "accept"
    options.mode = DG_RESIZE_EXACT if image.resize_mode == "exact" else DG_RESIZE_FAST
    options.orient = image.apply_exif_orientation
    options.nearest_masks = image.mask_resample == "nearest"
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
    options.quality = max(1, min(100, image.jpeg_quality))
    options.chroma = int(image.jpeg_chroma)
    if image.crop_and_resize:
        if dg_buckets_build(image.default_image_size, image.downsampling_ratio, image.min_aspect_ratio,
                            image.max_aspect_ratio, &buckets, &options.crop.bucket_count, &error) != DG_OK:
            raise ValueError(error.text.decode())
        options.crop.buckets = buckets
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
    return 0
