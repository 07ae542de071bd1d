#include "png_rows.h"

#include <stdlib.h>
#include <string.h>

#include "color.h"
#include "png_simd.h"

#define INLINE static inline __attribute__((always_inline))

enum { NONE, SUB, UP, AVERAGE, PAETH, FILTERS };

/* What the filters predict a byte from: its neighbours to the left, above, and above to the left. */
INLINE unsigned predict(const int filter, int left, int up, int corner)
{
    int to_left, to_up, to_corner;
    switch (filter) {
    case SUB: return left;
    case UP: return up;
    case AVERAGE: return (left + up) >> 1;
    case PAETH:
        to_left = up - corner;
        to_up = left - corner;
        to_corner = abs(to_left + to_up);
        to_left = abs(to_left);
        to_up = abs(to_up);
        up ^= (up ^ corner) & -(to_corner < to_up);
        to_up = to_corner < to_up ? to_corner : to_up;
        return left ^ ((left ^ up) & -(to_up < to_left));
    default: return 0;
    }
}

/* Pixels first..end of one row. Everything const is known at compile time: the loop over bytes unrolls. (The arrays are
 * of int so that they stay in registers.) */
INLINE void row_part(const int filter, const int bytes, const int step, const uint8_t *raw, const uint8_t *above, uint8_t *out,
                     size_t first, size_t end)
{
    int left[8] = {0}, corner[8] = {0};
    for (int j = 0; first && j < bytes; j++) {
        left[j] = out[(first - 1) * step + j];
        corner[j] = above[(first - 1) * step + j];
    }
    for (size_t i = first; i < end; i++) {
#pragma GCC unroll 8
        for (int j = 0; j < bytes; j++) {
            int up = above[i * step + j];
            left[j] = (raw[i * bytes + j] + predict(filter, left[j], up, corner[j])) & 255;
            corner[j] = up;
            out[i * step + j] = left[j];
        }
        if (step > bytes)
            out[i * step + bytes] = 255;
    }
}

/* Eight bytes at a time, without a carry from one into the next. */
static void add_up(const uint8_t *raw, const uint8_t *above, uint8_t *out, size_t size)
{
    const uint64_t low = 0x7f7f7f7f7f7f7f7f;
    size_t i = 0;
    for (; i + 8 <= size; i += 8) {
        uint64_t a, b;
        memcpy(&a, raw + i, 8);
        memcpy(&b, above + i, 8);
        a = ((a & low) + (b & low)) ^ ((a ^ b) & ~low);
        memcpy(out + i, &a, 8);
    }
    for (; i < size; i++)
        out[i] = raw[i] + above[i];
}

INLINE void row_of(int filter, const int bytes, const int step, const uint8_t *raw, const uint8_t *above, uint8_t *out,
                   size_t first, size_t end)
{
    switch (filter) {
    case NONE:
        if (step > bytes)
            row_part(NONE, bytes, step, raw, above, out, first, end);
        else if (out != raw)
            memcpy(out + first * step, raw + first * step, (end - first) * step);
        break;
    case SUB: row_part(SUB, bytes, step, raw, above, out, first, end); break;
    case UP:
        if (step > bytes)
            row_part(UP, bytes, step, raw, above, out, first, end);
        else
            add_up(raw + first * step, above + first * step, out + first * step, (end - first) * step);
        break;
    case AVERAGE: row_part(AVERAGE, bytes, step, raw, above, out, first, end); break;
    case PAETH: row_part(PAETH, bytes, step, raw, above, out, first, end); break;
    }
}

static void row(int filter, int bytes, int step, const uint8_t *raw, const uint8_t *above, uint8_t *out, size_t first, size_t end)
{
    switch (bytes + 8 * (step > bytes)) {
    case 1: row_of(filter, 1, 1, raw, above, out, first, end); break;
    case 2: row_of(filter, 2, 2, raw, above, out, first, end); break;
    case 3: row_of(filter, 3, 3, raw, above, out, first, end); break;
    case 4: row_of(filter, 4, 4, raw, above, out, first, end); break;
    case 6: row_of(filter, 6, 6, raw, above, out, first, end); break;
    case 8: row_of(filter, 8, 8, raw, above, out, first, end); break;
    case 11: row_of(filter, 3, 4, raw, above, out, first, end); break;
    }
}

#ifdef DG_LANES

/* A pixel needs the one to its left, so one row cannot be done faster than some nine instructions wait for each other.
 * But four rows can be done in one go, each a pixel behind the row above: in step x, lane k does pixel x - k of row k.
 * Its left neighbour is then its own lane of the step before, and what is above it the lane below of the step before.
 *
 * One formula serves all filters, with the neighbours that a row's filter does not use masked to 0. Of left and up, let
 * high be the larger and low the smaller one, over = high - corner and under = corner - low, both at least 0. Paeth's
 * choice is low if 2 over <= under, high if 2 under <= over, else the corner. That is (tests try all 2^24 cases)
 *     corner + (over, if 2 under <= over) - (under, if 2 over <= under)
 * and with corner 0 it is high, which is just left for Sub, up for Up, 0 for None. Average alone is added apart. Where
 * all four rows are Paeth's, as in most photographs, a third of this falls away. */
typedef struct {
    uint32_t left[4], up[4], corner[4], average[4];
} masks;

static void masks_set(masks *use, int lane, int filter)
{
    use->left[lane] = -(uint32_t)(filter == SUB || filter == AVERAGE || filter == PAETH);
    use->up[lane] = -(uint32_t)(filter == UP || filter == AVERAGE || filter == PAETH);
    use->corner[lane] = -(uint32_t)(filter == PAETH);
    use->average[lane] = -(uint32_t)(filter == AVERAGE);
}

#define Z 0x80, 0x80, 0x80
#define NOTHING Z, Z, Z, Z
/* How pixels of so many bytes are spread to lanes, and lanes are packed. */
static const uint8_t SPREAD[5][16] = {
    [1] = {0, Z, 1, Z, 2, Z, 3, Z},
    [2] = {0, 1, 0x80, 0x80, 2, 3, 0x80, 0x80, 4, 5, 0x80, 0x80, 6, 7, 0x80, 0x80},
    [3] = {0, 1, 2, 0x80, 3, 4, 5, 0x80, 6, 7, 8, 0x80, 9, 10, 11, 0x80},
    [4] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
};
static const uint8_t PACK[5][16] = {
    [1] = {0, 4, 8, 12, NOTHING},
    [2] = {0, 1, 4, 5, 8, 9, 12, 13, 0x80, 0x80, Z, Z},
    [3] = {0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 0x80, Z},
    [4] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
};
/* In the first steps the upper lanes have not come to their row's first pixel. */
static const uint32_t STARTED[3][4] = {{~0u, 0, 0, 0}, {~0u, ~0u, 0, 0}, {~0u, ~0u, ~0u, 0}};

DG_LANES INLINE void four_rows(const dg_png_band *band, int first_row, const int all_paeth, const int bytes, const int step)
{
    const uint8_t *raw[4], *above = band->above;
    uint8_t *out[4];
    masks use;
    if (first_row)
        above = band->out + (first_row - 1) * band->out_stride;
    for (int k = 0; k < 4; k++) {
        raw[k] = band->raw + (first_row + k) * band->raw_stride + 1;
        out[k] = band->out + (first_row + k) * band->out_stride;
        masks_set(&use, k, raw[k][-1]);
    }
    const lanes use_left = lanes_load(use.left), use_up = lanes_load(use.up), use_corner = lanes_load(use.corner);
    const lanes average = lanes_load(use.average), opaque = lanes_fill(step > bytes ? 0xff000000 : 0);
    const lanes spread = lanes_load(SPREAD[bytes]), spread_above = lanes_load(SPREAD[step]);
    const lanes pack = lanes_load(PACK[step]), zero = lanes_fill(0);
    lanes done = zero, corner = zero;
    size_t x = 0;
    for (; x * step + 16 <= band->pixels * step; x += 4) {
        lanes pixel[4], from_above = lanes_reorder(lanes_load(above + x * step), spread_above);
        for (int k = 0; k < 4; k++)
            pixel[k] = lanes_reorder(lanes_load(raw[k] + ((ptrdiff_t)x - k) * bytes), spread);
        lanes_transpose(pixel);
        if (x == 0)
            for (int j = 0; j < 3; j++)
                pixel[j] = lanes_and(pixel[j], lanes_load(STARTED[j]));
#define STEP(j)                                                                                                \
    do {                                                                                                       \
        lanes next = lanes_shift_in(done, from_above, j);                                                      \
        lanes left = all_paeth ? done : lanes_and(done, use_left);                                             \
        lanes up = all_paeth ? next : lanes_and(next, use_up);                                                 \
        lanes over = lanes_subtract_clamped(lanes_larger(left, up), corner);                                   \
        lanes under = lanes_subtract_clamped(corner, lanes_smaller(left, up));                                 \
        /* `average`, all ones, is what the difference never is with corner 0: over is then left out */        \
        lanes take_over = lanes_equal(lanes_subtract_clamped(lanes_add_clamped(under, under), over), average); \
        lanes take_under = lanes_equal(lanes_subtract_clamped(lanes_add_clamped(over, over), under), zero);    \
        lanes base = lanes_add(pixel[j], corner);                                                              \
        if (!all_paeth)                                                                                        \
            base = lanes_add(base, lanes_and(lanes_average(left, up), average));                               \
        done = lanes_add(base, lanes_subtract(lanes_and(over, take_over), lanes_and(under, take_under)));      \
        corner = all_paeth ? next : lanes_and(next, use_corner);                                               \
        pixel[j] = done;                                                                                       \
    } while (0)
        STEP(0);
        STEP(1);
        STEP(2);
        STEP(3);
        lanes_transpose(pixel);
        /* Stores reach past what is known, into pixels that a later one writes: to the right of a row, and in the first
         * step to the left of rows 1 to 3, which is the end of the row above; hence from the last row to the first. */
        for (int k = 3; k >= 0; k--)
            lanes_store(out[k] + ((ptrdiff_t)x - k) * step, lanes_reorder(lanes_or(pixel[k], opaque), pack));
    }
    for (int k = 0; k < 4; k++)
        row(raw[k][-1], bytes, step, raw[k], k ? out[k - 1] : above, out[k], x ? x - k : 0, band->pixels);
}

#define FOUR_ROWS_OF(name, bytes, step)                                                                   \
    DG_LANES static void name(const dg_png_band *band, int row) { four_rows(band, row, 0, bytes, step); } \
    DG_LANES static void name##_paeth(const dg_png_band *band, int row) { four_rows(band, row, 1, bytes, step); }
FOUR_ROWS_OF(grey, 1, 1)
FOUR_ROWS_OF(grey_alpha, 2, 2)
FOUR_ROWS_OF(rgb, 3, 3)
FOUR_ROWS_OF(rgba, 4, 4)
FOUR_ROWS_OF(rgbx, 3, 4)

/* Does four rows if that pays, which is so from two rows of Paeth on: plain C is slow at no other filter. */
static int four_rows_try(const dg_png_band *band, int first_row)
{
    static void (*const BY_SHAPE[5][2])(const dg_png_band *, int) = {
        {rgbx, rgbx_paeth}, {grey, grey_paeth}, {grey_alpha, grey_alpha_paeth}, {rgb, rgb_paeth}, {rgba, rgba_paeth},
    };
    int paeth = 0;
    for (int k = 0; k < 4; k++)
        paeth += band->raw[(first_row + k) * band->raw_stride] == PAETH;
    if (paeth >= 2)
        BY_SHAPE[band->step > band->bytes ? 0 : band->bytes][paeth == 4](band, first_row);
    return paeth >= 2;
}

#endif

int dg_png_simd(void)
{
#ifdef DG_LANES
    return lanes_usable() && !dg_simd_is_refused();
#else
    return 0;
#endif
}

int dg_png_unfilter(const dg_png_band *band, int simd)
{
    int legal = 0, done = 0;
    while (legal < band->rows && band->raw[legal * band->raw_stride] < FILTERS)
        legal++;
    simd = simd && band->bytes <= 4 && band->out != band->raw + 1;
    while (done < legal) {
#ifdef DG_LANES
        if (simd && done + 4 <= legal && done % 4 == 0 && four_rows_try(band, done)) {
            done += 4;
            continue;
        }
#endif
        uint8_t *out = band->out + done * band->out_stride;
        const uint8_t *raw = band->raw + done * band->raw_stride, *above = done ? out - band->out_stride : band->above;
        row(raw[0], band->bytes, band->step, raw + 1, above, out, 0, band->pixels);
        done++;
    }
    return legal;
}
