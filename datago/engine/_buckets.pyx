# cython: language_level=3, freethreading_compatible=True
"""The Python API of aspect buckets, whose arithmetic is in src_c/buckets.c."""
from libc.stdlib cimport free

from datago.engine._pixels cimport DG_OK, dg_bucket, dg_buckets_build, dg_error


def aspect_buckets(default_image_size, downsampling_ratio, double min_aspect_ratio, double max_aspect_ratio) -> list:
    """The sizes to which `crop_and_resize` resizes pictures.

    Args:
        default_image_size: the side of the square bucket in pixels; all buckets have about its area.
        downsampling_ratio: every side is a multiple of this many pixels.
        min_aspect_ratio, max_aspect_ratio: the limits of width / height. Rounding takes the outermost buckets a little past them.

    Returns:
        A list of (width, height) in pixels, from the tallest to the widest. A picture goes to the bucket whose width / height is
        nearest to its own.

    Raises:
        ValueError: an argument is out of range, or there would be more than ten thousand buckets.
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
