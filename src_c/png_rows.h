/* PNG's row filters, undone. */
#ifndef DG_PNG_ROWS_H
#define DG_PNG_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* A band of filtered rows and where their bytes go. Each row in `raw` is a filter byte and then pixels x bytes bytes.
 * Either out is raw + 1 (in place: pixel_stride = bytes, the same strides), or the two do not overlap and 64 bytes may be read
 * before and after the rows in `raw`. */
typedef struct {
    const uint8_t *raw;
    size_t raw_stride;
    uint8_t *out;
    size_t out_stride;
    const uint8_t *above; /* the row over the first one as it was written out, zeros over the picture's first */
    size_t pixels;        /* in a row; of depths below 8 bits a "pixel" is a byte */
    int bytes;            /* of a filtered pixel: 1, 2, 3, 4, 6 or 8 */
    int pixel_stride;             /* of a pixel written: `bytes`, or 4 for 3 with 255 as the fourth */
    int rows;
} dg_png_band;

/* Returns how many rows had a legal filter and were written: `rows`, unless one had none. `simd` 0 takes plain C. */
int dg_png_unfilter(const dg_png_band *band, int simd);

/* Whether this machine has instructions for it, and DATAGO_SIMD=generic does not forbid them. */
int dg_png_simd(void);

#endif
