/* What the files of the resampler share: weights, the table of inner loops, and the 16-bit path.
 *
 * Both passes are one operation, a weighted sum of vectors of bytes: the vertical pass adds rows; the horizontal pass
 * adds columns of a band of DG_BAND rows that has been transposed, so that a column is DG_BAND bytes in memory order.
 * So no shuffling depends on the number of channels: a pixel of three channels is three columns. */
#ifndef DG_RESIZE_KERNELS_H
#define DG_RESIZE_KERNELS_H

#include "resize.h"
#include "scratch.h"

enum {
    DG_BAND = 32,        /* rows that the horizontal pass takes at once: the bytes of an AVX2 register */
    DG_EXACT_BITS = 22,  /* Pillow's precision: 32 bits less 8 for the sample and 2 for overshoot and sign */
    DG_FAST_BITS = 14,   /* 16 bits less 2, for weights may go a little beyond 1 */
    DG_FAST_TAPS = 126,  /* every product of the fast sum rounds to 1/128 of a level: together less than half a level */
};

typedef enum { DG_WEIGHTS_EXACT, DG_WEIGHTS_FAST, DG_WEIGHTS_FLOAT } dg_weights;

/* Two neighbouring weights in the form that the inner loops like. exact: weight = high * 65536 + low. The low half
 * takes a 16-bit multiplication, two taps at a time with pmaddwd; the high half (weights stay below 2, so it fits 8
 * bits) pmaddubsw, and only the low 16 bits of its sum matter. */
typedef union {
    struct {
        int16_t low[2];
        int8_t high[4]; /* both, twice: a 32-bit broadcast is cheaper than a 16-bit one */
    } exact;
    int16_t fast[2][2]; /* each twice, for the same reason */
    float wide[2];
} dg_pair;

/* The source samples of one destination sample, and how many weights there are for them. */
typedef struct {
    int first, taps;
} dg_span;

/* What one direction of a resize has to do. */
typedef struct {
    int offset, source;  /* samples that may be looked at: `source` of them, from `offset` on */
    float start, end;    /* the box, from `offset` on, in float as in Pillow */
    int whole;           /* samples that it is resized to … */
    int from, target;    /* … of which `target` are made, from `from` on */
    dg_resize_filter filter;
    dg_weights weights;
} dg_axis_plan;

/* One direction of a resize. Weights of the i-th sample that is made are at pairs[i * stride]; an odd last pair ends with 0. */
typedef struct {
    dg_axis_plan plan;
    int target;       /* plan.target; 0 where the weights are not valid */
    int first, count; /* the source samples that are needed at all */
    int taps;         /* the longest span */
    int same;         /* each destination sample is just a source sample */
    size_t stride;    /* pairs per destination sample */
    dg_span *spans;
    dg_pair *pairs;
    dg_scratch span_memory, pair_memory;
} dg_axis;

/* Fills `axis`; nothing to do if it already has that plan. */
dg_status dg_axis_set(dg_axis *axis, const dg_axis_plan *plan);
void dg_axis_free(dg_axis *axis);
/* The longest span of such an axis, without making it. */
int dg_axis_taps(const dg_axis_plan *plan);

/* `n` and `columns` may be rounded up to 32 and 16, and one vector more than the last tap may be read: buffers have
 * room. Fast sums take and give samples less 128, as signed bytes. */
typedef struct {
    /* out[i] = sum of in[tap * stride + i] * weight, for i < n */
    void (*rows_exact)(uint8_t *out, const uint8_t *in, size_t stride, const dg_pair *pairs, int taps, size_t n);
    void (*rows_fast)(uint8_t *out, const uint8_t *in, size_t stride, const dg_pair *pairs, int taps, size_t n);
    /* The same for each target column of `channels` columns; `in` begins at axis->first. */
    void (*columns_exact)(uint8_t *out, const uint8_t *in, const dg_axis *axis, int channels);
    void (*columns_fast)(uint8_t *out, const uint8_t *in, const dg_axis *axis, int channels);
    /* out[column][DG_BAND] = in[DG_BAND rows][column], and back */
    void (*rows_to_columns)(uint8_t *out, const uint8_t *in, size_t stride, size_t columns);
    void (*columns_to_rows)(uint8_t *out, size_t stride, const uint8_t *in, size_t columns);
    /* out[i] = in[i] ^ flip for exactly n bytes; in may be out */
    void (*copy)(uint8_t *out, const uint8_t *in, size_t n, uint8_t flip);
    /* n pixels in place, the last of their channels (2 or 4) being alpha: color * alpha / 255, rounded; and color * 255
     * / alpha, rounded down and clipped, with what is under alpha 0 left alone */
    void (*premultiply)(uint8_t *row, size_t n, int channels);
    void (*unpremultiply)(uint8_t *row, size_t n, int channels);
} dg_resize_functions;

/* resize_begin.c makes it ready for a picture, resize.c takes the rows through it. */
struct dg_resizer {
    const dg_resize_functions *functions;
    dg_axis x, y;
    dg_resize_plan plan;
    uint8_t *dst;
    size_t dst_stride;
    int vertical_first;
    int alpha;          /* the last channel is alpha, and there is something to resample */
    uint8_t flip;       /* 128 where the passes work on signed bytes */
    int loaded, stored; /* samples (bytes) of a row before and after the horizontal pass */
    int next;           /* the source row to come */
    int made;           /* rows that the vertical pass has made */
    int done;           /* rows that are in the destination */

    uint8_t *window; /* rows window_first … + window_rows - 1 of the vertical pass's input */
    size_t window_stride;
    int window_first, window_rows, window_room;

    uint8_t *band; /* up to DG_BAND rows for the horizontal pass */
    size_t band_stride;
    int band_rows;
    uint8_t *columns_in, *columns_out; /* the band before and after it, transposed */
    uint8_t *finished;                 /* DG_BAND rows, or one, on the way to the destination */
    size_t finished_stride;

    dg_scratch memory; /* all of the above */
};

extern const dg_resize_functions dg_resize_generic;
#ifdef __x86_64__
extern const dg_resize_functions dg_resize_avx2;
#endif
#ifdef __aarch64__
extern const dg_resize_functions dg_resize_neon;
#endif

static inline size_t dg_round_up(size_t n, size_t grain) { return (n + grain - 1) / grain * grain; }

/* 16-bit samples (resize_wide.c): one source row to a row of target width in floats, premultiplied if there is `alpha`;
 * and such rows to the destination row of that index. Scratch is as long as the row that comes in, and that goes
 * out. */
void dg_wide_horizontal(float *out, const uint16_t *row, const dg_axis *x, const dg_resize_plan *plan, int alpha, float *scratch);
void dg_wide_vertical(uint16_t *out, const float *rows, size_t stride, const dg_axis *y, int index, const dg_resize_plan *plan,
                      int alpha, float *scratch);

#endif
