/* Placing with AVX2 and F16C. Each function does blocks and leaves the rest to the plain one. */
#include "place_kernels.h"

#ifdef __x86_64__
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,f16c")))

/* Eight pixels as red, green, blue, x of 0 to 3, then the same of 4 to 7: four bytes each. */
AVX2 static inline __m256i load_8(const uint8_t *in, int step)
{
    if (step == 4) {
        const __m256i order = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,
                                               0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        return _mm256_shuffle_epi8(_mm256_loadu_si256((const __m256i *)in), order);
    }
    /* 12 bytes from the beginning of the first 16, and from the end of the last 16 of the 24. */
    const __m256i order = _mm256_setr_epi8(0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, -1, -1, -1, -1,
                                           4, 7, 10, 13, 5, 8, 11, 14, 6, 9, 12, 15, -1, -1, -1, -1);
    __m128i first = _mm_loadu_si128((const __m128i *)in), second = _mm_loadu_si128((const __m128i *)(in + 8));
    return _mm256_shuffle_epi8(_mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1), order);
}

AVX2 static void split(const uint8_t *in, int step, uint8_t *red, uint8_t *green, uint8_t *blue, size_t n)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); /* unpacking worked within halves */
    size_t i = 0;
    for (; i + 32 <= n; i += 32, in += 32 * step) {
        __m256i a = load_8(in, step), b = load_8(in + 8 * step, step);
        __m256i c = load_8(in + 16 * step, step), d = load_8(in + 24 * step, step);
        __m256i ab = _mm256_unpacklo_epi32(a, b), cd = _mm256_unpacklo_epi32(c, d);
        __m256i ab_blue = _mm256_unpackhi_epi32(a, b), cd_blue = _mm256_unpackhi_epi32(c, d);
        __m256i r = _mm256_permutevar8x32_epi32(_mm256_unpacklo_epi64(ab, cd), order);
        __m256i g = _mm256_permutevar8x32_epi32(_mm256_unpackhi_epi64(ab, cd), order);
        __m256i u = _mm256_permutevar8x32_epi32(_mm256_unpacklo_epi64(ab_blue, cd_blue), order);
        _mm256_storeu_si256((__m256i *)(red + i), r);
        _mm256_storeu_si256((__m256i *)(green + i), g);
        _mm256_storeu_si256((__m256i *)(blue + i), u);
    }
    dg_place_generic.split(in, step, red + i, green + i, blue + i, n - i);
}

AVX2 static inline __m256 scale_8(const uint8_t *in, const dg_place_scaling *scaling, int k)
{
    __m256 samples = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)in)));
    __m256 from_whole = _mm256_sub_ps(samples, _mm256_loadu_ps(scaling->whole + k));
    __m256 distance = _mm256_sub_ps(from_whole, _mm256_loadu_ps(scaling->rest + k));
    return _mm256_mul_ps(distance, _mm256_loadu_ps(scaling->scale + k));
}

AVX2 static void to_float32(const uint8_t *in, float *out, size_t n, const dg_place_scaling *scaling)
{
    size_t i = 0;
    for (; i + DG_PLACE_PATTERN <= n; i += DG_PLACE_PATTERN)
        for (int k = 0; k < DG_PLACE_PATTERN; k += 8)
            _mm256_storeu_ps(out + i + k, scale_8(in + i + k, scaling, k));
    dg_place_generic.to_float32(in + i, out + i, n - i, scaling);
}

AVX2 static void to_float16(const uint8_t *in, uint16_t *out, size_t n, const dg_place_scaling *scaling)
{
    size_t i = 0;
    for (; i + DG_PLACE_PATTERN <= n; i += DG_PLACE_PATTERN)
        for (int k = 0; k < DG_PLACE_PATTERN; k += 8)
            _mm_storeu_si128((__m128i *)(out + i + k),
                             _mm256_cvtps_ph(scale_8(in + i + k, scaling, k), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    dg_place_generic.to_float16(in + i, out + i, n - i, scaling);
}

AVX2 static void to_bfloat16(const uint8_t *in, uint16_t *out, size_t n, const dg_place_scaling *scaling)
{
    const __m256i one = _mm256_set1_epi32(1), below_half = _mm256_set1_epi32(0x7fff);
    size_t i = 0;
    for (; i + DG_PLACE_PATTERN <= n; i += DG_PLACE_PATTERN)
        for (int k = 0; k < DG_PLACE_PATTERN; k += 8) {
            __m256i bits = _mm256_castps_si256(scale_8(in + i + k, scaling, k));
            __m256i even = _mm256_and_si256(_mm256_srli_epi32(bits, 16), one);
            bits = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, below_half), even), 16);
            bits = _mm256_permute4x64_epi64(_mm256_packus_epi32(bits, bits), 0x08);
            _mm_storeu_si128((__m128i *)(out + i + k), _mm256_castsi256_si128(bits));
        }
    dg_place_generic.to_bfloat16(in + i, out + i, n - i, scaling);
}

const dg_place_functions dg_place_avx2 = {split, to_float32, to_float16, to_bfloat16};
#endif
