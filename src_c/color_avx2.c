/* Rows of colour with AVX2. Each function does blocks of 32 (or 8) pixels and leaves the rest to the plain one.
 *
 * Three-byte pixels are written as 16 bytes of which 12 count, the next store covering the other four: so a block is
 * only begun while two more pixels follow it, whose bytes may be scribbled on because they are still to be written.
 * Reading three-byte pixels has the same rule. */
#include "color_kernels.h"

#ifdef __x86_64__
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
enum { SLACK = 2 }; /* pixels: the four bytes that a 16-byte access of three-byte pixels goes too far */

/* The first 12 bytes of each half: four RGBX as four RGB. */
AVX2 static inline __m256i pack_rgb(__m256i rgbx)
{
    const __m256i order = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,
                                           0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    return _mm256_shuffle_epi8(rgbx, order);
}

/* Eight RGBX pixels to `out`, as they are or as RGB; writes 28 bytes for the latter. */
AVX2 static inline void store_8(uint8_t *out, __m256i rgbx, int pixel_stride)
{
    if (pixel_stride == 4) {
        _mm256_storeu_si256((__m256i *)out, rgbx);
        return;
    }
    __m256i rgb = pack_rgb(rgbx);
    _mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(rgb));
    _mm_storeu_si128((__m128i *)(out + 12), _mm256_extracti128_si256(rgb, 1));
}

/* 32 pixels from 32 bytes of each colour. */
AVX2 static inline void store_32(uint8_t *out, __m256i red, __m256i green, __m256i blue, int pixel_stride)
{
    const __m256i x = _mm256_set1_epi8(-1);
    __m256i rg0 = _mm256_unpacklo_epi8(red, green), rg1 = _mm256_unpackhi_epi8(red, green);
    __m256i bx0 = _mm256_unpacklo_epi8(blue, x), bx1 = _mm256_unpackhi_epi8(blue, x);
    /* Pixels 0-3 and 16-19, 4-7 and 20-23, … : unpacking works within halves. */
    __m256i p0 = _mm256_unpacklo_epi16(rg0, bx0), p1 = _mm256_unpackhi_epi16(rg0, bx0);
    __m256i p2 = _mm256_unpacklo_epi16(rg1, bx1), p3 = _mm256_unpackhi_epi16(rg1, bx1);
    store_8(out, _mm256_permute2x128_si256(p0, p1, 0x20), pixel_stride);
    store_8(out + 8 * pixel_stride, _mm256_permute2x128_si256(p2, p3, 0x20), pixel_stride);
    store_8(out + 16 * pixel_stride, _mm256_permute2x128_si256(p0, p1, 0x31), pixel_stride);
    store_8(out + 24 * pixel_stride, _mm256_permute2x128_si256(p2, p3, 0x31), pixel_stride);
}

/* 16 pixels as 16-bit numbers. (k * x + 32768) >> 16 is ((2 * k * x >> 16) + 1) >> 1, which needs no 32-bit numbers; k
 * = 1.402 and 1.772 become 1 + 0.402 and 2 - 0.228 to fit 16 bits. Green adds two products before it rounds, so it
 * takes 32 bits, with 0.71414 as 1 - 0.28586. */
AVX2 static inline void ycc_16(__m256i y, __m256i cb, __m256i cr, __m256i *red, __m256i *green, __m256i *blue)
{
    const __m256i one = _mm256_set1_epi16(1), half = _mm256_set1_epi32(32768);
    __m256i cb2 = _mm256_add_epi16(cb, cb), cr2 = _mm256_add_epi16(cr, cr);
    __m256i r = _mm256_mulhi_epi16(cr2, _mm256_set1_epi16(26345));
    __m256i b = _mm256_mulhi_epi16(cb2, _mm256_set1_epi16(-14942));
    r = _mm256_add_epi16(cr, _mm256_srai_epi16(_mm256_add_epi16(r, one), 1));
    b = _mm256_add_epi16(cb2, _mm256_srai_epi16(_mm256_add_epi16(b, one), 1));
    const __m256i k = _mm256_set1_epi32((18734 << 16) | (-22554 & 0xffff));
    __m256i g0 = _mm256_madd_epi16(_mm256_unpacklo_epi16(cb, cr), k);
    __m256i g1 = _mm256_madd_epi16(_mm256_unpackhi_epi16(cb, cr), k);
    g0 = _mm256_srai_epi32(_mm256_add_epi32(g0, half), 16);
    g1 = _mm256_srai_epi32(_mm256_add_epi32(g1, half), 16);
    __m256i g = _mm256_sub_epi16(_mm256_packs_epi32(g0, g1), cr);
    *red = _mm256_add_epi16(y, r);
    *green = _mm256_add_epi16(y, g);
    *blue = _mm256_add_epi16(y, b);
}

AVX2 static void ycc_to_rgb(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *out, size_t n, int pixel_stride)
{
    const __m256i zero = _mm256_setzero_si256(), middle = _mm256_set1_epi16(128);
    size_t i = 0;
    for (; i + 32 + SLACK <= n; i += 32, out += 32 * pixel_stride) {
        __m256i vy = _mm256_loadu_si256((const __m256i *)(y + i));
        __m256i vb = _mm256_loadu_si256((const __m256i *)(cb + i));
        __m256i vr = _mm256_loadu_si256((const __m256i *)(cr + i));
        __m256i r0, g0, b0, r1, g1, b1;
        ycc_16(_mm256_unpacklo_epi8(vy, zero), _mm256_sub_epi16(_mm256_unpacklo_epi8(vb, zero), middle),
               _mm256_sub_epi16(_mm256_unpacklo_epi8(vr, zero), middle), &r0, &g0, &b0);
        ycc_16(_mm256_unpackhi_epi8(vy, zero), _mm256_sub_epi16(_mm256_unpackhi_epi8(vb, zero), middle),
               _mm256_sub_epi16(_mm256_unpackhi_epi8(vr, zero), middle), &r1, &g1, &b1);
        store_32(out, _mm256_packus_epi16(r0, r1), _mm256_packus_epi16(g0, g1), _mm256_packus_epi16(b0, b1), pixel_stride);
    }
    dg_color_generic.ycc_to_rgb(y + i, cb + i, cr + i, out, n - i, pixel_stride);
}

/* 16-bit c * a + b * (255 - a), at most 65025, divided by 255, to nearest: (x + (x >> 8)) >> 8 of what is 128 more. */
AVX2 static inline __m256i over_16(__m256i color, __m256i alpha, __m256i background)
{
    __m256i rest = _mm256_sub_epi16(_mm256_set1_epi16(255), alpha);
    __m256i x = _mm256_add_epi16(_mm256_mullo_epi16(color, alpha), _mm256_mullo_epi16(background, rest));
    x = _mm256_add_epi16(x, _mm256_set1_epi16(128));
    return _mm256_srli_epi16(_mm256_add_epi16(x, _mm256_srli_epi16(x, 8)), 8);
}

AVX2 static void rgba_over(const uint8_t *in, const uint8_t background[3], uint8_t *out, size_t n, int pixel_stride)
{
    const __m256i zero = _mm256_setzero_si256(), x = _mm256_set1_epi32((int)0xff000000);
    const __m256i behind = _mm256_unpacklo_epi8(
        _mm256_set1_epi32(background[0] | background[1] << 8 | background[2] << 16), zero);
    const __m256i alphas = _mm256_setr_epi8(3, 3, 3, 3, 7, 7, 7, 7, 11, 11, 11, 11, 15, 15, 15, 15,
                                            3, 3, 3, 3, 7, 7, 7, 7, 11, 11, 11, 11, 15, 15, 15, 15);
    size_t i = 0;
    for (; i + 8 + SLACK <= n; i += 8, out += 8 * pixel_stride) {
        __m256i color = _mm256_loadu_si256((const __m256i *)(in + 4 * i));
        __m256i alpha = _mm256_shuffle_epi8(color, alphas);
        __m256i low = over_16(_mm256_unpacklo_epi8(color, zero), _mm256_unpacklo_epi8(alpha, zero), behind);
        __m256i high = over_16(_mm256_unpackhi_epi8(color, zero), _mm256_unpackhi_epi8(alpha, zero), behind);
        store_8(out, _mm256_or_si256(_mm256_packus_epi16(low, high), x), pixel_stride);
    }
    dg_color_generic.rgba_over(in + 4 * i, background, out, n - i, pixel_stride);
}

AVX2 static void grey_to_rgb(const uint8_t *in, uint8_t *out, size_t n, int pixel_stride)
{
    size_t i = 0;
    for (; i + 32 + SLACK <= n; i += 32, out += 32 * pixel_stride) {
        __m256i grey = _mm256_loadu_si256((const __m256i *)(in + i));
        store_32(out, grey, grey, grey, pixel_stride);
    }
    dg_color_generic.grey_to_rgb(in + i, out, n - i, pixel_stride);
}

AVX2 static void rgb_to_rgbx(const uint8_t *in, uint8_t *out, size_t n)
{
    const __m256i order = _mm256_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1,
                                           0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
    const __m256i x = _mm256_set1_epi32((int)0xff000000);
    size_t i = 0;
    for (; i + 8 + SLACK <= n; i += 8) {
        __m128i first = _mm_loadu_si128((const __m128i *)(in + 3 * i));
        __m128i second = _mm_loadu_si128((const __m128i *)(in + 3 * i + 12));
        __m256i rgb = _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
        _mm256_storeu_si256((__m256i *)(out + 4 * i), _mm256_or_si256(_mm256_shuffle_epi8(rgb, order), x));
    }
    dg_color_generic.rgb_to_rgbx(in + 3 * i, out + 4 * i, n - i);
}

AVX2 static void rgbx_to_rgb(const uint8_t *in, uint8_t *out, size_t n)
{
    size_t i = 0;
    for (; i + 8 + SLACK <= n; i += 8)
        store_8(out + 3 * i, _mm256_loadu_si256((const __m256i *)(in + 4 * i)), 3);
    dg_color_generic.rgbx_to_rgb(in + 4 * i, out + 3 * i, n - i);
}

AVX2 static void depth_16_to_8(const uint16_t *in, uint8_t *out, size_t n)
{
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256i low = _mm256_srli_epi16(_mm256_loadu_si256((const __m256i *)(in + i)), 8);
        __m256i high = _mm256_srli_epi16(_mm256_loadu_si256((const __m256i *)(in + i + 16)), 8);
        __m256i bytes = _mm256_packus_epi16(low, high); /* quarters 0 2 1 3 */
        _mm256_storeu_si256((__m256i *)(out + i), _mm256_permute4x64_epi64(bytes, 0xd8));
    }
    dg_color_generic.depth_16_to_8(in + i, out + i, n - i);
}

const dg_color_functions dg_color_avx2 = {ycc_to_rgb, rgba_over, grey_to_rgb, rgb_to_rgbx, rgbx_to_rgb, depth_16_to_8};
#endif
