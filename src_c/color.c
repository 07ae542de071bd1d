/* The plain functions, which are the reference, and the choice of instruction set. */
#include "color_kernels.h"

#include <stdlib.h>
#include <string.h>

static const char *const simd_names[DG_SIMD_COUNT] = {"generic", "avx2", "neon"};
static dg_simd choice;
static int plain;

int dg_simd_available(dg_simd simd)
{
    switch (simd) {
    case DG_SIMD_GENERIC: return 1;
#ifdef __x86_64__
    case DG_SIMD_AVX2: __builtin_cpu_init(); return __builtin_cpu_supports("avx2") != 0;
#endif
#ifdef __aarch64__
    case DG_SIMD_NEON: return 1;
#endif
    default: return 0;
    }
}

/* When the module is loaded, which is when `import` holds the GIL: later another thread may be changing the environment. */
__attribute__((constructor)) static void choose(void)
{
    const char *wanted = getenv("DATAGO_SIMD");
    plain = wanted && !strcmp(wanted, simd_names[DG_SIMD_GENERIC]);
    for (int simd = 0; simd < DG_SIMD_COUNT; simd++) {
        if (!dg_simd_available(simd))
            continue;
        choice = simd; /* the last one is the best one */
        if (wanted && !strcmp(wanted, simd_names[simd]))
            break;
    }
}

dg_simd dg_simd_choice(void) { return choice; }

int dg_simd_is_refused(void) { return plain; }

/* libjpeg's integers: coefficients times 65536, each of red and blue rounded alone, the two of green together. */
static void ycc_to_rgb(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *out, size_t n, int step)
{
    for (size_t i = 0; i < n; i++, out += step) {
        int blue = cb[i] - 128, red = cr[i] - 128;
        out[0] = dg_clamp_8(y[i] + ((91881 * red + 32768) >> 16));
        out[1] = dg_clamp_8(y[i] + ((-22554 * blue - 46802 * red + 32768) >> 16));
        out[2] = dg_clamp_8(y[i] + ((116130 * blue + 32768) >> 16));
        if (step == 4)
            out[3] = 255;
    }
}

/* c * a + b * (255 - a), divided by 255, to nearest. */
static inline uint8_t over(int color, int alpha, int background)
{
    int sum = color * alpha + background * (255 - alpha) + 128;
    return (uint8_t)((sum + (sum >> 8)) >> 8);
}

static void rgba_over(const uint8_t *in, const uint8_t background[3], uint8_t *out, size_t n, int step)
{
    for (size_t i = 0; i < n; i++, in += 4, out += step) {
        for (int c = 0; c < 3; c++)
            out[c] = over(in[c], in[3], background[c]);
        if (step == 4)
            out[3] = 255;
    }
}

static void grey_alpha_over(const uint8_t *in, const uint8_t background[3], uint8_t *out, size_t n, int step)
{
    for (size_t i = 0; i < n; i++, in += 2, out += step) {
        for (int c = 0; c < 3; c++)
            out[c] = over(in[0], in[1], background[c]);
        if (step == 4)
            out[3] = 255;
    }
}

static void grey_to_rgb(const uint8_t *in, uint8_t *out, size_t n, int step)
{
    for (size_t i = 0; i < n; i++, out += step) {
        out[0] = out[1] = out[2] = in[i];
        if (step == 4)
            out[3] = 255;
    }
}

static void rgb_to_rgbx(const uint8_t *in, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++, in += 3, out += 4) {
        memcpy(out, in, 3);
        out[3] = 255;
    }
}

static void rgbx_to_rgb(const uint8_t *in, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++, in += 4, out += 3)
        memcpy(out, in, 3);
}

static void depth_16_to_8(const uint16_t *in, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)(in[i] >> 8);
}

const dg_color_functions dg_color_generic = {ycc_to_rgb, rgba_over, grey_to_rgb, rgb_to_rgbx, rgbx_to_rgb, depth_16_to_8};

const dg_color_functions *dg_color_table(dg_simd simd)
{
#ifdef __x86_64__
    if (simd == DG_SIMD_AVX2)
        return &dg_color_avx2;
#endif
    (void)simd;
    return &dg_color_generic;
}

static const dg_color_functions *functions(void) { return dg_color_table(dg_simd_choice()); }

void dg_ycc_to_rgb(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *out, size_t n, int step)
{
    functions()->ycc_to_rgb(y, cb, cr, out, n, step);
}

void dg_alpha_over(const uint8_t *in, int channels, const uint8_t background[3], uint8_t *out, size_t n, int step)
{
    if (channels == 2)
        grey_alpha_over(in, background, out, n, step);
    else
        functions()->rgba_over(in, background, out, n, step);
}

void dg_grey_to_rgb(const uint8_t *in, uint8_t *out, size_t n, int step) { functions()->grey_to_rgb(in, out, n, step); }

void dg_rgb_to_rgbx(const uint8_t *in, uint8_t *out, size_t n) { functions()->rgb_to_rgbx(in, out, n); }

void dg_rgbx_to_rgb(const uint8_t *in, uint8_t *out, size_t n) { functions()->rgbx_to_rgb(in, out, n); }

void dg_depth_16_to_8(const uint16_t *in, uint8_t *out, size_t n) { functions()->depth_16_to_8(in, out, n); }
