/* Placing with NEON. Each function does blocks and leaves the rest to the plain one. */
#include "place_kernels.h"

#ifdef __aarch64__
#include <arm_neon.h>

static void split(const uint8_t *in, int step, uint8_t *red, uint8_t *green, uint8_t *blue, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16, in += 16 * step) {
        uint8x16x3_t rgb;
        if (step == 4) {
            uint8x16x4_t rgbx = vld4q_u8(in);
            rgb = (uint8x16x3_t){{rgbx.val[0], rgbx.val[1], rgbx.val[2]}};
        } else {
            rgb = vld3q_u8(in);
        }
        vst1q_u8(red + i, rgb.val[0]);
        vst1q_u8(green + i, rgb.val[1]);
        vst1q_u8(blue + i, rgb.val[2]);
    }
    dg_place_generic.split(in, step, red + i, green + i, blue + i, n - i);
}

/* Values k to k + 7 of the pattern. */
static inline float32x4x2_t scale_8(const uint8_t *in, const dg_place_scaling *scaling, int k)
{
    uint16x8_t samples = vmovl_u8(vld1_u8(in));
    float32x4x2_t out = {{vcvtq_f32_u32(vmovl_u16(vget_low_u16(samples))), vcvtq_f32_u32(vmovl_u16(vget_high_u16(samples)))}};
    for (int i = 0; i < 2; i++, k += 4) {
        float32x4_t from_whole = vsubq_f32(out.val[i], vld1q_f32(scaling->whole + k));
        out.val[i] = vmulq_f32(vsubq_f32(from_whole, vld1q_f32(scaling->rest + k)), vld1q_f32(scaling->scale + k));
    }
    return out;
}

static void to_float32(const uint8_t *in, float *out, size_t n, const dg_place_scaling *scaling)
{
    size_t i = 0;
    for (; i + DG_PLACE_PATTERN <= n; i += DG_PLACE_PATTERN)
        for (int k = 0; k < DG_PLACE_PATTERN; k += 8) {
            float32x4x2_t values = scale_8(in + i + k, scaling, k);
            vst1q_f32(out + i + k, values.val[0]);
            vst1q_f32(out + i + k + 4, values.val[1]);
        }
    dg_place_generic.to_float32(in + i, out + i, n - i, scaling);
}

static void to_float16(const uint8_t *in, uint16_t *out, size_t n, const dg_place_scaling *scaling)
{
    size_t i = 0;
    for (; i + DG_PLACE_PATTERN <= n; i += DG_PLACE_PATTERN)
        for (int k = 0; k < DG_PLACE_PATTERN; k += 8) {
            float32x4x2_t values = scale_8(in + i + k, scaling, k);
            for (int half = 0; half < 2; half++)
                vst1_u16(out + i + k + 4 * half, vreinterpret_u16_f16(vcvt_f16_f32(values.val[half])));
        }
    dg_place_generic.to_float16(in + i, out + i, n - i, scaling);
}

static void to_bfloat16(const uint8_t *in, uint16_t *out, size_t n, const dg_place_scaling *scaling)
{
    size_t i = 0;
    for (; i + DG_PLACE_PATTERN <= n; i += DG_PLACE_PATTERN)
        for (int k = 0; k < DG_PLACE_PATTERN; k += 8) {
            float32x4x2_t values = scale_8(in + i + k, scaling, k);
            for (int half = 0; half < 2; half++) {
                uint32x4_t bits = vreinterpretq_u32_f32(values.val[half]);
                uint32x4_t even = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
                bits = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), even);
                vst1_u16(out + i + k + 4 * half, vshrn_n_u32(bits, 16));
            }
        }
    dg_place_generic.to_bfloat16(in + i, out + i, n - i, scaling);
}

const dg_place_functions dg_place_neon = {split, to_float32, to_float16, to_bfloat16};
#endif
