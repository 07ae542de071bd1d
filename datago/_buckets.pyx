# cython: language_level=3, freethreading_compatible=True
"""Aspect buckets from Python: the arithmetic is src_c/buckets.c."""
from libc.stdlib cimport free

from datago._pixels cimport DG_OK, dg_bucket, dg_buckets_build, dg_error


def aspect_buckets(default_image_size, downsampling_ratio, double min_aspect_ratio, double max_aspect_ratio) -> list:
    """The sizes that `crop_and_resize` brings pictures to.

    Args:
        default_image_size: side of the square bucket, pixels; all buckets have about its area.
        downsampling_ratio: every side is a multiple of it, pixels.
        min_aspect_ratio, max_aspect_ratio: width / height. Rounding takes the outermost buckets a little past them.

    Returns:
        A list of (width, height) in pixels, from the tallest to the widest. A picture goes to the bucket whose width / height is
        nearest to its own.

    Raises:
        ValueError: an argument makes no sense, or there would be more than ten thousand buckets.
    """
    cdef dg_bucket *buckets = NULL
    cdef size_t count = 0, i
    cdef dg_error error
    cdef int side, ratio
    try:
        side, ratio = default_image_size, downsampling_ratio
    except OverflowError:
        raise ValueError(f"default_image_size {default_image_size}, downsampling_ratio {downsampling_ratio}: too large") from None
    if dg_buckets_build(side, ratio, min_aspect_ratio, max_aspect_ratio, &buckets, &count,
                        &error) != DG_OK:
        raise ValueError(error.text.decode())
    sizes = [(buckets[i].width, buckets[i].height) for i in range(count)]
    free(buckets)
    return sizes
