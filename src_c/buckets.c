#include "buckets.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_SIZES = 10000, /* far beyond any real list (1024/1 has 1450); a typing error must not eat the memory */
    MAX_SIDE = 1 << 20,
};

int64_t dg_aspect_thousandths(int width, int height)
{
    /* The double's own digits decide, as in printf: aspect = mantissa * 2^exponent, so the product by 1000 is exact in
     * 63 bits, and the shift back rounds halves to even. */
    int exponent;
    int64_t mantissa = (int64_t)ldexp(frexp((double)width / height, &exponent), 53);
    uint64_t product = (uint64_t)mantissa * 1000;
    int shift = 53 - exponent; /* aspect < 2^31: always positive */
    if (shift > 63)
        return 0;
    uint64_t whole = product >> shift, rest = product & ((UINT64_C(1) << shift) - 1), half = UINT64_C(1) << (shift - 1);
    return (int64_t)(whole + (rest > half || (rest == half && (whole & 1))));
}

static int by_key(const void *a, const void *b)
{
    const dg_bucket *left = a, *right = b;
    if (left->thousandths != right->thousandths)
        return left->thousandths < right->thousandths ? -1 : 1;
    return 0;
}

/* Appends, or replaces the size that has the same key: a linear search, but once per client and on a few dozen
 * sizes. */
static size_t add(dg_bucket *list, size_t count, int width, int height)
{
    dg_bucket bucket = {width, height, dg_aspect_thousandths(width, height)};
    for (size_t i = count; i-- > 0;)
        if (list[i].thousandths == bucket.thousandths) {
            list[i] = bucket;
            return count;
        }
    list[count] = bucket;
    return count + 1;
}

dg_status dg_buckets_build(int default_image_size, int downsampling_ratio, double min_aspect, double max_aspect,
                           dg_bucket **buckets, size_t *count, dg_error *error)
{
    *buckets = NULL;
    *count = 0;
    if (downsampling_ratio <= 0 || default_image_size < downsampling_ratio)
        return dg_fail(error, DG_UNSUPPORTED, "default_image_size %d must be at least downsampling_ratio %d, and that at least 1",
                       default_image_size, downsampling_ratio);
    if (!(min_aspect > 0 && min_aspect <= max_aspect && isfinite(max_aspect)))
        return dg_fail(error, DG_UNSUPPORTED, "aspect limits %g to %g must be positive, finite and in order", min_aspect,
                       max_aspect);
    double side = default_image_size / downsampling_ratio, area = side * side;
    double width_first = ceil(sqrt(area * min_aspect)), width_last = floor(sqrt(area * max_aspect));
    double height_first = ceil(sqrt(area / max_aspect)), height_last = floor(sqrt(area / min_aspect));
    /* Beyond `area` the other side would be 0. */
    width_last = fmin(width_last, area);
    height_last = fmin(height_last, area);
    double sizes = fmax(width_last - width_first + 1, 0) + fmax(height_last - height_first + 1, 0);
    if (sizes > MAX_SIZES || fmax(width_last, height_last) * downsampling_ratio > MAX_SIDE)
        return dg_fail(error, DG_TOO_LARGE,
                       "default_image_size %d, downsampling_ratio %d, aspects %g to %g: too many buckets, or too large",
                       default_image_size, downsampling_ratio, min_aspect, max_aspect);
    dg_bucket *list = malloc(((size_t)sizes + 1) * sizeof *list);
    if (!list)
        return dg_fail(error, DG_NO_MEMORY, "no memory for %g buckets", sizes);
    size_t n = 0;
    for (int width = (int)width_first; width <= width_last; width++)
        n = add(list, n, width * downsampling_ratio, (int)floor(area / width) * downsampling_ratio);
    for (int height = (int)height_first; height <= height_last; height++)
        n = add(list, n, (int)floor(area / height) * downsampling_ratio, height * downsampling_ratio);
    qsort(list, n, sizeof *list, by_key);
    *buckets = list;
    *count = n;
    return DG_OK;
}

const dg_bucket *dg_bucket_choose(const dg_bucket *buckets, size_t count, int width, int height)
{
    double aspect = (double)width / height;
    size_t low = 0, high = count; /* the first key that is not below the aspect */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if ((double)buckets[middle].thousandths / 1000 < aspect)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == count)
        return &buckets[count - 1];
    if (low == 0)
        return &buckets[0];
    /* n / 1000 in double is what the key's text would be read as. */
    double below = aspect - (double)buckets[low - 1].thousandths / 1000;
    double above = (double)buckets[low].thousandths / 1000 - aspect;
    return below < above ? &buckets[low - 1] : &buckets[low];
}
