/* Resampling: a box of a picture to a new size, with a filter whose kernel widens on shrinking.
 *
 * A dg_resizer belongs to one worker and is reused from picture to picture: it keeps coefficient tables (as long as the
 * geometry stays) and scratch rows. There is one way through it: source rows are pushed from top to bottom, as a
 * decoder makes them, and destination rows appear as soon as the rows they need are there; what is kept in between is a
 * window of rows, never the picture. dg_resize pushes the rows of a picture that is in memory.
 *
 * Pictures are raw pointers and strides, so that a stored plane of a JPEG (one channel, its own scale and box) is as
 * good as pixels. Grey + alpha and RGBA are premultiplied on the way in and divided again on the way out, as Pillow
 * does. */
#ifndef DG_RESIZE_H
#define DG_RESIZE_H

#include "boxes.h"
#include "color.h"
#include "status.h"

typedef enum {
    DG_RESIZE_EXACT, /* bit for bit Pillow's resize(size, filter, box=box) of L, LA, RGB and RGBA: 22-bit weights */
    DG_RESIZE_FAST   /* the same geometry with 14-bit weights: two thirds of the time, 60 dB and more from EXACT */
} dg_resize_mode;

/* Pillow's filters of the same names. All but the last take the mean over what a destination sample covers when the picture shrinks. */
typedef enum {
    DG_FILTER_LANCZOS, /* of three lobes */
    DG_FILTER_BICUBIC, /* with a = -0.5 */
    DG_FILTER_BILINEAR,
    DG_FILTER_BOX,
    DG_FILTER_NEAREST, /* the one sample at the centre, in either mode; alpha is like any other channel then */
} dg_resize_filter;

/* Which pass comes first. The pass between rounds to 8 bits, so this shows in the last bit of some pixels. */
typedef enum {
    DG_ORDER_AUTO,       /* Pillow 13's rule: vertical if it removes more than twice as many rows as columns go */
    DG_ORDER_HORIZONTAL, /* always so in Pillow 12 and before */
    DG_ORDER_VERTICAL
} dg_resize_order;

typedef struct {
    int src_width, src_height;
    dg_box box; /* within the source; rounded to float as Pillow does */
    int dst_width, dst_height;
    int channels; /* 1 grey, 2 grey + alpha, 3 RGB, 4 RGBA */
    int src_pixel_stride; /* samples from pixel to pixel: `channels`, or 4 for RGB stored as RGBX */
    int dst_pixel_stride; /* the same for the destination; X is 255 (65535) */
    int depth;    /* bits per sample, 8 or 16 (native byte order; `mode` is not looked at: floats all the way) */
    dg_resize_mode mode;
    dg_resize_order order;
    dg_resize_filter filter;
    int crop_first; /* the box is cut out first, to whole pixels, and what lies around it is not looked at; else it is, as in Pillow */
    /* Only a part of the result can be made, with the very pixels that it has in the whole one: the box is resized to `whole`, and the
     * destination is its part of dst_width x dst_height from (dst_x, dst_y) on. A `whole` of zeros: the destination is all of it. */
    dg_size whole;
    int dst_x, dst_y;
} dg_resize_plan;

typedef struct dg_resizer dg_resizer;

dg_resizer *dg_resizer_new(void); /* NULL when memory is short */
void dg_resizer_free(dg_resizer *resizer);

/* Begins one picture, and abandons one that was begun before and is not finished. Rows of the destination will be written at `dst`, which
 * the caller owns, `dst_stride` bytes apart; they must not overlap the source. A plan that makes no sense is DG_UNSUPPORTED. */
dg_status dg_resizer_begin(dg_resizer *resizer, const dg_resize_plan *plan, uint8_t *dst, size_t dst_stride, dg_error *error);
/* What dg_resizer_begin found to be needed of the source: rows *y to *y + *rows - 1 and, of each, columns *x to
 * *x + *columns - 1. Nothing else is read. */
void dg_resizer_source(const dg_resizer *resizer, int *x, int *columns, int *y, int *rows);
/* The next needed source row, from *y on. `row` is where its column 0 is or would be; it is not kept. Returns how many
 * destination rows are complete by now. Rows after the last needed one are ignored. */
int dg_resizer_push_row(dg_resizer *resizer, const uint8_t *row);

/* Resizes a picture that is in memory: dg_resizer_begin, and each row in turn. Strides are in bytes. */
dg_status dg_resize(dg_resizer *resizer, const dg_resize_plan *plan, const uint8_t *src, size_t src_stride, uint8_t *dst,
                    size_t dst_stride, dg_error *error);

/* For tests: uses the functions of `simd` from now on; 0 if this machine or build has none. */
int dg_resizer_use(dg_resizer *resizer, dg_simd simd);

#endif
