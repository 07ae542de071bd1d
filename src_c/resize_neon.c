/* The sums with NEON; the rest is the plain functions. See resize_generic.c for the same in plain C. */
#include "resize_kernels.h"

#ifdef __aarch64__
#include <arm_neon.h>

static inline void exact_16(uint8_t *out, const uint8_t *in, size_t stride, const dg_pair *pairs, int taps)
{
    int32x4_t low[4];
    int16x8_t high[2] = {vdupq_n_s16(0), vdupq_n_s16(0)};
    for (int i = 0; i < 4; i++)
        low[i] = vdupq_n_s32(1 << (DG_EXACT_BITS - 1));
    for (int tap = 0; tap < taps; tap++, in += stride) {
        int16_t low_weight = pairs[tap / 2].exact.low[tap & 1], high_weight = pairs[tap / 2].exact.high[tap & 1];
        uint8x16_t bytes = vld1q_u8(in);
        int16x8_t half[2] = {vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(bytes))),
                             vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(bytes)))};
        for (int i = 0; i < 2; i++) {
            high[i] = vmlaq_n_s16(high[i], half[i], high_weight);
            low[2 * i] = vmlal_n_s16(low[2 * i], vget_low_s16(half[i]), low_weight);
            low[2 * i + 1] = vmlal_n_s16(low[2 * i + 1], vget_high_s16(half[i]), low_weight);
        }
    }
    uint8x8_t levels[2];
    for (int i = 0; i < 2; i++) {
        int32x4_t first = vaddq_s32(low[2 * i], vshlq_n_s32(vmovl_s16(vget_low_s16(high[i])), 16));
        int32x4_t second = vaddq_s32(low[2 * i + 1], vshlq_n_s32(vmovl_s16(vget_high_s16(high[i])), 16));
        first = vshrq_n_s32(first, DG_EXACT_BITS);
        second = vshrq_n_s32(second, DG_EXACT_BITS);
        levels[i] = vqmovun_s16(vcombine_s16(vqmovn_s32(first), vqmovn_s32(second)));
    }
    vst1q_u8(out, vcombine_u8(levels[0], levels[1]));
}

static inline void fast_16(uint8_t *out, const uint8_t *in, size_t stride, const dg_pair *pairs, int taps)
{
    int16x8_t sums[2] = {vdupq_n_s16(64), vdupq_n_s16(64)};
    for (int tap = 0; tap < taps; tap++, in += stride) {
        int16_t weight = pairs[tap / 2].fast[tap & 1][0];
        int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(in));
        sums[0] = vaddq_s16(sums[0], vqrdmulhq_n_s16(vshlq_n_s16(vmovl_s8(vget_low_s8(bytes)), 8), weight));
        sums[1] = vaddq_s16(sums[1], vqrdmulhq_n_s16(vshlq_n_s16(vmovl_s8(vget_high_s8(bytes)), 8), weight));
    }
    vst1q_s8((int8_t *)out, vcombine_s8(vqshrn_n_s16(sums[0], 7), vqshrn_n_s16(sums[1], 7)));
}

static void rows_exact(uint8_t *out, const uint8_t *in, size_t stride, const dg_pair *pairs, int taps, size_t n)
{
    for (size_t i = 0; i < n; i += 16)
        exact_16(out + i, in + i, stride, pairs, taps);
}

static void rows_fast(uint8_t *out, const uint8_t *in, size_t stride, const dg_pair *pairs, int taps, size_t n)
{
    for (size_t i = 0; i < n; i += 16)
        fast_16(out + i, in + i, stride, pairs, taps);
}

static void columns_exact(uint8_t *out, const uint8_t *in, const dg_axis *axis, int channels)
{
    size_t pixel = (size_t)channels * DG_BAND;
    for (int x = 0; x < axis->target; x++, out += pixel)
        for (size_t i = 0; i < pixel; i += 16)
            exact_16(out + i, in + (axis->spans[x].first - axis->first) * pixel + i, pixel,
                     axis->pairs + x * axis->stride, axis->spans[x].taps);
}

static void columns_fast(uint8_t *out, const uint8_t *in, const dg_axis *axis, int channels)
{
    size_t pixel = (size_t)channels * DG_BAND;
    for (int x = 0; x < axis->target; x++, out += pixel)
        for (size_t i = 0; i < pixel; i += 16)
            fast_16(out + i, in + (axis->spans[x].first - axis->first) * pixel + i, pixel,
                    axis->pairs + x * axis->stride, axis->spans[x].taps);
}

static void rows_to_columns(uint8_t *out, const uint8_t *in, size_t stride, size_t columns)
{
    dg_resize_generic.rows_to_columns(out, in, stride, columns);
}

static void columns_to_rows(uint8_t *out, size_t stride, const uint8_t *in, size_t columns)
{
    dg_resize_generic.columns_to_rows(out, stride, in, columns);
}

static void copy(uint8_t *out, const uint8_t *in, size_t n, uint8_t flip)
{
    dg_resize_generic.copy(out, in, n, flip);
}

static void premultiply(uint8_t *row, size_t n, int channels)
{
    dg_resize_generic.premultiply(row, n, channels);
}

static void unpremultiply(uint8_t *row, size_t n, int channels)
{
    dg_resize_generic.unpremultiply(row, n, channels);
}

const dg_resize_functions dg_resize_neon = {rows_exact,      rows_fast,       columns_exact, columns_fast,
                                            rows_to_columns, columns_to_rows, copy,          premultiply,
                                            unpremultiply};
#endif
