/* Aspect buckets: pure arithmetic, in double, that knows neither codecs nor pixels.
 *
 * The list and the choice are those of the reference loader (it too computes in double), so that a swap of loaders
 * moves no picture to another bucket. A bucket is named by its width / height rounded to three decimals, which is kept
 * here as an integer number of thousandths: no text, hence no locale. */
#ifndef DG_BUCKETS_H
#define DG_BUCKETS_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

typedef struct {
    int width, height;
    int64_t thousandths; /* the key: width / height as C's "%.3f" rounds it, times 1000 */
} dg_bucket;

/* The buckets of about default_image_size² pixels whose sides are multiples of downsampling_ratio, sorted by key.
 * Rounding the other side down may take the outermost ones a little past the aspect limits (1024/32, 0.5 to 2 ends with
 * 704x1440 = 0.489 and 1440x704 = 2.045). Sizes with a side of 0 are left out.
 * On DG_OK the caller frees *buckets; *count may be 0 (limits that admit no size at all). DG_UNSUPPORTED: an argument
 * makes no sense (the text says which), DG_TOO_LARGE: more than ten thousand sizes or a side beyond 2^20,
 * DG_NO_MEMORY. */
dg_status dg_buckets_build(int default_image_size, int downsampling_ratio, double min_aspect, double max_aspect,
                           dg_bucket **buckets, size_t *count, dg_error *error);

/* The bucket for a picture of width x height (both positive): the nearest key to width / height, the larger of two
 * equally near ones, an end beyond the ends. `count` must not be 0. */
const dg_bucket *dg_bucket_choose(const dg_bucket *buckets, size_t count, int width, int height);

/* width / height in thousandths, rounded exactly as printf("%.3f", width / height) does. */
int64_t dg_aspect_thousandths(int width, int height);

#endif
