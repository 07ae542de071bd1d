/* The sixteen-byte operations png_rows.c needs, once for SSSE3 and once for NEON. DG_LANES is defined where they exist;
 * elsewhere, and on an x86-64 without SSSE3, plain C does the work. A "lane" is four bytes: a pixel of one row. */
#ifndef DG_PNG_SIMD_H
#define DG_PNG_SIMD_H

#include <stdint.h>

#if defined __x86_64__
#include <tmmintrin.h>

#define DG_LANES __attribute__((target("ssse3")))
#define DG_LANE_OP DG_LANES static inline __attribute__((always_inline))
typedef __m128i lanes;

static inline int lanes_usable(void) { return __builtin_cpu_supports("ssse3") != 0; }
DG_LANE_OP lanes lanes_load(const void *at) { return _mm_loadu_si128(at); }
DG_LANE_OP void lanes_store(void *at, lanes a) { _mm_storeu_si128(at, a); }
DG_LANE_OP lanes lanes_fill(uint32_t lane) { return _mm_set1_epi32((int)lane); }
DG_LANE_OP lanes lanes_and(lanes a, lanes b) { return _mm_and_si128(a, b); }
DG_LANE_OP lanes lanes_or(lanes a, lanes b) { return _mm_or_si128(a, b); }
DG_LANE_OP lanes lanes_add(lanes a, lanes b) { return _mm_add_epi8(a, b); }
DG_LANE_OP lanes lanes_subtract(lanes a, lanes b) { return _mm_sub_epi8(a, b); }
DG_LANE_OP lanes lanes_add_clamped(lanes a, lanes b) { return _mm_adds_epu8(a, b); }
DG_LANE_OP lanes lanes_subtract_clamped(lanes a, lanes b) { return _mm_subs_epu8(a, b); }
DG_LANE_OP lanes lanes_larger(lanes a, lanes b) { return _mm_max_epu8(a, b); }
DG_LANE_OP lanes lanes_smaller(lanes a, lanes b) { return _mm_min_epu8(a, b); }
DG_LANE_OP lanes lanes_equal(lanes a, lanes b) { return _mm_cmpeq_epi8(a, b); }
DG_LANE_OP lanes lanes_average(lanes a, lanes b) /* rounded down, where pavgb rounds up */
{
    return _mm_sub_epi8(_mm_avg_epu8(a, b), _mm_and_si128(_mm_xor_si128(a, b), _mm_set1_epi8(1)));
}
/* Byte i of the result is byte order[i] of `a`, or 0 where order[i] is 0x80. */
DG_LANE_OP lanes lanes_reorder(lanes a, lanes order) { return _mm_shuffle_epi8(a, order); }
/* Moves every lane one up and puts lane `which` of `from` into the lowest. `which` is a constant. */
#define lanes_shift_in(a, from, which) _mm_alignr_epi8(a, _mm_shuffle_epi32(from, (which) * 0x55), 12)
DG_LANE_OP void lanes_transpose(lanes a[4])
{
    lanes low01 = _mm_unpacklo_epi32(a[0], a[1]), low23 = _mm_unpacklo_epi32(a[2], a[3]);
    lanes high01 = _mm_unpackhi_epi32(a[0], a[1]), high23 = _mm_unpackhi_epi32(a[2], a[3]);
    a[0] = _mm_unpacklo_epi64(low01, low23);
    a[1] = _mm_unpackhi_epi64(low01, low23);
    a[2] = _mm_unpacklo_epi64(high01, high23);
    a[3] = _mm_unpackhi_epi64(high01, high23);
}

#elif defined __aarch64__ && defined __ARM_NEON && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#include <arm_neon.h>

#define DG_LANES /* NEON is part of every aarch64 */
#define DG_LANE_OP static inline __attribute__((always_inline))
typedef uint8x16_t lanes;

static inline int lanes_usable(void) { return 1; }
DG_LANE_OP lanes lanes_load(const void *at) { return vld1q_u8(at); }
DG_LANE_OP void lanes_store(void *at, lanes a) { vst1q_u8(at, a); }
DG_LANE_OP lanes lanes_fill(uint32_t lane) { return vreinterpretq_u8_u32(vdupq_n_u32(lane)); }
DG_LANE_OP lanes lanes_and(lanes a, lanes b) { return vandq_u8(a, b); }
DG_LANE_OP lanes lanes_or(lanes a, lanes b) { return vorrq_u8(a, b); }
DG_LANE_OP lanes lanes_add(lanes a, lanes b) { return vaddq_u8(a, b); }
DG_LANE_OP lanes lanes_subtract(lanes a, lanes b) { return vsubq_u8(a, b); }
DG_LANE_OP lanes lanes_add_clamped(lanes a, lanes b) { return vqaddq_u8(a, b); }
DG_LANE_OP lanes lanes_subtract_clamped(lanes a, lanes b) { return vqsubq_u8(a, b); }
DG_LANE_OP lanes lanes_larger(lanes a, lanes b) { return vmaxq_u8(a, b); }
DG_LANE_OP lanes lanes_smaller(lanes a, lanes b) { return vminq_u8(a, b); }
DG_LANE_OP lanes lanes_equal(lanes a, lanes b) { return vceqq_u8(a, b); }
DG_LANE_OP lanes lanes_average(lanes a, lanes b) { return vhaddq_u8(a, b); }
DG_LANE_OP lanes lanes_reorder(lanes a, lanes order) { return vqtbl1q_u8(a, order); }
#define lanes_shift_in(a, from, which) \
    vextq_u8(vreinterpretq_u8_u32(vdupq_laneq_u32(vreinterpretq_u32_u8(from), which)), a, 12)
DG_LANE_OP void lanes_transpose(lanes a[4])
{
    uint32x4_t low02 = vzip1q_u32(vreinterpretq_u32_u8(a[0]), vreinterpretq_u32_u8(a[2]));
    uint32x4_t low13 = vzip1q_u32(vreinterpretq_u32_u8(a[1]), vreinterpretq_u32_u8(a[3]));
    uint32x4_t high02 = vzip2q_u32(vreinterpretq_u32_u8(a[0]), vreinterpretq_u32_u8(a[2]));
    uint32x4_t high13 = vzip2q_u32(vreinterpretq_u32_u8(a[1]), vreinterpretq_u32_u8(a[3]));
    a[0] = vreinterpretq_u8_u32(vzip1q_u32(low02, low13));
    a[1] = vreinterpretq_u8_u32(vzip2q_u32(low02, low13));
    a[2] = vreinterpretq_u8_u32(vzip1q_u32(high02, high13));
    a[3] = vreinterpretq_u8_u32(vzip2q_u32(high02, high13));
}

#endif
#endif
