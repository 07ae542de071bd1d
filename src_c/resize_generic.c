/* The inner loops in plain C: what the others must equal. Sums run over blocks of samples so that the weights of a tap
 * are taken apart once a block and the compiler may vectorise. */
#include "resize_kernels.h"

#include <string.h>

enum { BLOCK = DG_BAND };

static inline uint8_t clamp(int value) { return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value); }

static inline int exact_weight(const dg_pair *pairs, int tap)
{
    return pairs[tap / 2].exact.high[tap & 1] * 65536 + pairs[tap / 2].exact.low[tap & 1];
}

static inline void exact_block(uint8_t *out, const uint8_t *in, size_t stride, const dg_pair *pairs, int taps)
{
    int sums[BLOCK];
    for (int i = 0; i < BLOCK; i++)
        sums[i] = 1 << (DG_EXACT_BITS - 1);
    for (int tap = 0; tap < taps; tap++, in += stride) {
        int weight = exact_weight(pairs, tap);
        for (int i = 0; i < BLOCK; i++)
            sums[i] += in[i] * weight;
    }
    for (int i = 0; i < BLOCK; i++)
        out[i] = clamp(sums[i] >> DG_EXACT_BITS);
}

/* What pmulhrsw and sqrdmulh do: samples come times 256, and products, rounded, leave times 128. */
static inline void fast_block(uint8_t *out, const uint8_t *in, size_t stride, const dg_pair *pairs, int taps)
{
    int sums[BLOCK];
    for (int i = 0; i < BLOCK; i++)
        sums[i] = 64;
    for (int tap = 0; tap < taps; tap++, in += stride) {
        int weight = pairs[tap / 2].fast[tap & 1][0];
        for (int i = 0; i < BLOCK; i++)
            sums[i] += ((int8_t)in[i] * 256 * weight + 16384) >> 15;
    }
    for (int i = 0; i < BLOCK; i++) {
        int value = sums[i] >> 7;
        out[i] = (uint8_t)(value < -128 ? -128 : value > 127 ? 127 : value);
    }
}

static void rows_exact(uint8_t *out, const uint8_t *in, size_t stride, const dg_pair *pairs, int taps, size_t n)
{
    for (size_t i = 0; i < n; i += BLOCK)
        exact_block(out + i, in + i, stride, pairs, taps);
}

static void rows_fast(uint8_t *out, const uint8_t *in, size_t stride, const dg_pair *pairs, int taps, size_t n)
{
    for (size_t i = 0; i < n; i += BLOCK)
        fast_block(out + i, in + i, stride, pairs, taps);
}

static void columns_exact(uint8_t *out, const uint8_t *in, const dg_axis *axis, int channels)
{
    size_t pixel = (size_t)channels * DG_BAND;
    for (int x = 0; x < axis->target; x++)
        for (int c = 0; c < channels; c++, out += DG_BAND)
            exact_block(out, in + (axis->spans[x].first - axis->first) * pixel + c * DG_BAND, pixel,
                        axis->pairs + x * axis->stride, axis->spans[x].taps);
}

static void columns_fast(uint8_t *out, const uint8_t *in, const dg_axis *axis, int channels)
{
    size_t pixel = (size_t)channels * DG_BAND;
    for (int x = 0; x < axis->target; x++)
        for (int c = 0; c < channels; c++, out += DG_BAND)
            fast_block(out, in + (axis->spans[x].first - axis->first) * pixel + c * DG_BAND, pixel,
                       axis->pairs + x * axis->stride, axis->spans[x].taps);
}

static void rows_to_columns(uint8_t *out, const uint8_t *in, size_t stride, size_t columns)
{
    for (size_t x = 0; x < columns; x++)
        for (size_t y = 0; y < DG_BAND; y++)
            out[x * DG_BAND + y] = in[y * stride + x];
}

static void columns_to_rows(uint8_t *out, size_t stride, const uint8_t *in, size_t columns)
{
    for (size_t y = 0; y < DG_BAND; y++)
        for (size_t x = 0; x < columns; x++)
            out[y * stride + x] = in[x * DG_BAND + y];
}

static void copy(uint8_t *out, const uint8_t *in, size_t n, uint8_t flip)
{
    for (size_t i = 0; i < n; i++)
        out[i] = in[i] ^ flip;
}

static void premultiply(uint8_t *row, size_t n, int channels)
{
    for (size_t i = 0; i < n; i++, row += channels)
        for (int c = 0; c < channels - 1; c++) {
            unsigned product = (unsigned)row[c] * row[channels - 1] + 128;
            row[c] = (uint8_t)((product + (product >> 8)) >> 8); /* divided by 255, to nearest */
        }
}

static void unpremultiply(uint8_t *row, size_t n, int channels)
{
    for (size_t i = 0; i < n; i++, row += channels) {
        unsigned alpha = row[channels - 1];
        for (int c = 0; c < channels - 1 && alpha != 0 && alpha != 255; c++) {
            unsigned color = 255u * row[c] / alpha;
            row[c] = (uint8_t)(color > 255 ? 255 : color);
        }
    }
}

const dg_resize_functions dg_resize_generic = {rows_exact,      rows_fast, columns_exact, columns_fast, rows_to_columns,
                                               columns_to_rows, copy,      premultiply,   unpremultiply};
