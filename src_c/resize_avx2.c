/* The inner loops with AVX2. See resize_kernels.h for what they do, and resize_generic.c for the same in plain C. */
#include "resize_kernels.h"

#ifdef __x86_64__
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
#define INLINE AVX2 static inline __attribute__((always_inline))

INLINE __m256i load(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE __m256i broadcast(const void *four)
{
    int value;
    __builtin_memcpy(&value, four, 4);
    return _mm256_set1_epi32(value);
}

/* Adds the low halves of two taps for 16 samples, which come as bytes of one tap and the other in turns. */
INLINE void add_low(__m256i sums[2], __m256i both, __m256i weights)
{
    const __m256i zero = _mm256_setzero_si256();
    sums[0] = _mm256_add_epi32(sums[0], _mm256_madd_epi16(_mm256_unpacklo_epi8(both, zero), weights));
    sums[1] = _mm256_add_epi32(sums[1], _mm256_madd_epi16(_mm256_unpackhi_epi8(both, zero), weights));
}

/* (high << 16) + low, which may wrap on the way but not at the end, then down to 16-bit levels. */
INLINE __m256i finish(const __m256i low[2], __m256i high)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i first = _mm256_add_epi32(low[0], _mm256_unpacklo_epi16(zero, high));
    __m256i second = _mm256_add_epi32(low[1], _mm256_unpackhi_epi16(zero, high));
    return _mm256_packs_epi32(_mm256_srai_epi32(first, DG_EXACT_BITS), _mm256_srai_epi32(second, DG_EXACT_BITS));
}

INLINE void exact_32(uint8_t *out, const uint8_t *in, size_t stride, const dg_pair *pairs, int taps)
{
    const __m256i half = _mm256_set1_epi32(1 << (DG_EXACT_BITS - 1));
    __m256i low[2][2] = {{half, half}, {half, half}};
    __m256i high[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (int tap = 0; tap < taps; tap += 2, pairs++, in += 2 * stride) {
        __m256i a = load(in), b = load(in + stride);
        __m256i low_weights = broadcast(pairs->exact.low), high_weights = broadcast(pairs->exact.high);
        __m256i first = _mm256_unpacklo_epi8(a, b), second = _mm256_unpackhi_epi8(a, b);
        high[0] = _mm256_add_epi16(high[0], _mm256_maddubs_epi16(first, high_weights));
        high[1] = _mm256_add_epi16(high[1], _mm256_maddubs_epi16(second, high_weights));
        add_low(low[0], first, low_weights);
        add_low(low[1], second, low_weights);
    }
    /* Unpacking and packing both work within halves of a register, so the order is right again. */
    _mm256_storeu_si256((__m256i *)out, _mm256_packus_epi16(finish(low[0], high[0]), finish(low[1], high[1])));
}

/* `blocks` neighbouring vectors at once share the broadcasts and the loop. */
INLINE void fast_blocks(uint8_t *out, const uint8_t *in, size_t stride, const dg_pair *pairs, int taps,
                        const int blocks)
{
    const __m256i zero = _mm256_setzero_si256(), half = _mm256_set1_epi16(64);
    __m256i sums[8];
#pragma GCC unroll 8
    for (int i = 0; i < 2 * blocks; i++)
        sums[i] = half;
    const int16_t(*weights)[2] = pairs->fast;
    for (int tap = 0; tap < taps; tap++, in += stride) {
        __m256i weight = broadcast(weights[tap]);
#pragma GCC unroll 4
        for (int i = 0; i < blocks; i++) {
            __m256i bytes = load(in + 32 * i);
            __m256i first = _mm256_unpacklo_epi8(zero, bytes), second = _mm256_unpackhi_epi8(zero, bytes);
            sums[2 * i] = _mm256_add_epi16(sums[2 * i], _mm256_mulhrs_epi16(first, weight));
            sums[2 * i + 1] = _mm256_add_epi16(sums[2 * i + 1], _mm256_mulhrs_epi16(second, weight));
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < blocks; i++)
        _mm256_storeu_si256((__m256i *)(out + 32 * i), _mm256_packs_epi16(_mm256_srai_epi16(sums[2 * i], 7),
                                                                          _mm256_srai_epi16(sums[2 * i + 1], 7)));
}

AVX2 static void rows_exact(uint8_t *out, const uint8_t *in, size_t stride, const dg_pair *pairs, int taps, size_t n)
{
    for (size_t i = 0; i < n; i += 32)
        exact_32(out + i, in + i, stride, pairs, taps);
}

AVX2 static void rows_fast(uint8_t *out, const uint8_t *in, size_t stride, const dg_pair *pairs, int taps, size_t n)
{
    size_t i = 0;
    for (; i + 96 < n; i += 128)
        fast_blocks(out + i, in + i, stride, pairs, taps, 4);
    for (; i < n; i += 32)
        fast_blocks(out + i, in + i, stride, pairs, taps, 1);
}

AVX2 static void columns_exact(uint8_t *out, const uint8_t *in, const dg_axis *axis, int channels)
{
    size_t pixel = (size_t)channels * DG_BAND;
    for (int x = 0; x < axis->target; x++) {
        const uint8_t *from = in + (axis->spans[x].first - axis->first) * pixel;
        for (int c = 0; c < channels; c++, out += DG_BAND)
            exact_32(out, from + c * DG_BAND, pixel, axis->pairs + x * axis->stride, axis->spans[x].taps);
    }
}

INLINE void columns_fast_of(uint8_t *out, const uint8_t *in, const dg_axis *axis, const int channels)
{
    const size_t pixel = (size_t)channels * DG_BAND;
    for (int x = 0; x < axis->target; x++, out += pixel)
        fast_blocks(out, in + (axis->spans[x].first - axis->first) * pixel, pixel, axis->pairs + x * axis->stride,
                    axis->spans[x].taps, channels);
}

AVX2 static void columns_fast(uint8_t *out, const uint8_t *in, const dg_axis *axis, int channels)
{
    switch (channels) {
    case 1: columns_fast_of(out, in, axis, 1); break;
    case 2: columns_fast_of(out, in, axis, 2); break;
    case 3: columns_fast_of(out, in, axis, 3); break;
    default: columns_fast_of(out, in, axis, 4); break;
    }
}

/* 16 x 16 bytes in each half: taking the first and second eight registers in turns, four times, turns rows to
 * columns. */
INLINE void transpose(__m256i v[16])
{
    __m256i w[16];
#pragma GCC unroll 4
    for (int round = 0; round < 4; round++) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            w[2 * i] = _mm256_unpacklo_epi8(v[i], v[i + 8]);
            w[2 * i + 1] = _mm256_unpackhi_epi8(v[i], v[i + 8]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            v[i] = w[i];
    }
}

AVX2 static void rows_to_columns(uint8_t *out, const uint8_t *in, size_t stride, size_t columns)
{
    for (size_t x = 0; x < columns; x += 16) {
        __m256i v[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            __m128i upper = _mm_loadu_si128((const __m128i *)(in + i * stride + x));
            __m128i lower = _mm_loadu_si128((const __m128i *)(in + (i + 16) * stride + x));
            v[i] = _mm256_inserti128_si256(_mm256_castsi128_si256(upper), lower, 1);
        }
        transpose(v);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            _mm256_storeu_si256((__m256i *)(out + (x + i) * DG_BAND), v[i]);
    }
}

AVX2 static void columns_to_rows(uint8_t *out, size_t stride, const uint8_t *in, size_t columns)
{
    for (size_t x = 0; x < columns; x += 16) {
        __m256i v[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            v[i] = load(in + (x + i) * DG_BAND);
        transpose(v);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            _mm_storeu_si128((__m128i *)(out + i * stride + x), _mm256_castsi256_si128(v[i]));
            _mm_storeu_si128((__m128i *)(out + (i + 16) * stride + x), _mm256_extracti128_si256(v[i], 1));
        }
    }
}

AVX2 static void copy(uint8_t *out, const uint8_t *in, size_t n, uint8_t flip)
{
    const __m256i flips = _mm256_set1_epi8((char)flip);
    size_t i = 0;
    for (; i + 32 <= n; i += 32)
        _mm256_storeu_si256((__m256i *)(out + i), _mm256_xor_si256(load(in + i), flips));
    for (; i < n; i++)
        out[i] = in[i] ^ flip;
}

INLINE __m256i multiply_255(__m256i color, __m256i alpha)
{
    __m256i product = _mm256_add_epi16(_mm256_mullo_epi16(color, alpha), _mm256_set1_epi16(128));
    return _mm256_srli_epi16(_mm256_add_epi16(product, _mm256_srli_epi16(product, 8)), 8);
}

AVX2 static void premultiply(uint8_t *row, size_t n, int channels)
{
    const __m256i zero = _mm256_setzero_si256();
    const __m256i opaque = _mm256_set1_epi32((int)0xff000000); /* alpha itself is multiplied by 1 */
    const __m256i alphas = _mm256_setr_epi8(3, 3, 3, -1, 7, 7, 7, -1, 11, 11, 11, -1, 15, 15, 15, -1,
                                            3, 3, 3, -1, 7, 7, 7, -1, 11, 11, 11, -1, 15, 15, 15, -1);
    size_t i = 0;
    for (; channels == 4 && i + 8 <= n; i += 8) {
        __m256i color = load(row + 4 * i), alpha = _mm256_or_si256(_mm256_shuffle_epi8(color, alphas), opaque);
        __m256i low = multiply_255(_mm256_unpacklo_epi8(color, zero), _mm256_unpacklo_epi8(alpha, zero));
        __m256i high = multiply_255(_mm256_unpackhi_epi8(color, zero), _mm256_unpackhi_epi8(alpha, zero));
        _mm256_storeu_si256((__m256i *)(row + 4 * i), _mm256_packus_epi16(low, high));
    }
    dg_resize_generic.premultiply(row + i * channels, n - i, channels);
}

/* Floats do it: a quotient below 256 that is not whole is 1/255 or more below the next whole number, and the two
 * roundings err by less than a ten-thousandth; 1/1024 more keeps those that are whole from falling short. */
AVX2 static void unpremultiply(uint8_t *row, size_t n, int channels)
{
    const __m256i byte = _mm256_set1_epi32(255);
    const __m256 one = _mm256_set1_ps(1.0f), most = _mm256_set1_ps(255.0f), more = _mm256_set1_ps(1.0f / 1024);
    size_t i = 0;
    for (; channels == 4 && i + 8 <= n; i += 8) {
        __m256i pixels = load(row + 4 * i), alpha = _mm256_srli_epi32(pixels, 24);
        __m256 scale = _mm256_div_ps(most, _mm256_cvtepi32_ps(alpha));
        __m256i empty = _mm256_cmpeq_epi32(alpha, _mm256_setzero_si256());
        scale = _mm256_blendv_ps(scale, one, _mm256_castsi256_ps(empty));
        __m256i result = _mm256_slli_epi32(alpha, 24);
#pragma GCC unroll 3
        for (int c = 0; c < 3; c++) {
            __m256 color = _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(pixels, 8 * c), byte));
            color = _mm256_min_ps(_mm256_add_ps(_mm256_mul_ps(color, scale), more), most);
            result = _mm256_or_si256(result, _mm256_slli_epi32(_mm256_cvttps_epi32(color), 8 * c));
        }
        _mm256_storeu_si256((__m256i *)(row + 4 * i), result);
    }
    dg_resize_generic.unpremultiply(row + i * channels, n - i, channels);
}

const dg_resize_functions dg_resize_avx2 = {rows_exact,      rows_fast,       columns_exact, columns_fast,
                                            rows_to_columns, columns_to_rows, copy,          premultiply,
                                            unpremultiply};
#endif
