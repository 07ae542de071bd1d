#include "gamut.h"

#include <pthread.h>

#include "color.h"

enum { SPAN = 32 }; /* chroma samples looked at together: nearly all spans of nearly all pictures need nothing */

/* Both functions are written for the compiler to make vectors of; the two copies differ in the width of those alone. */

static inline __attribute__((always_inline)) int span_is_inside(uint8_t *const luma[], int rows, int ratio, const uint8_t *blue,
                                                                const uint8_t *red, int width, int start)
{
    int16_t low[SPAN], high[SPAN];
    int outside = 0;
    for (int i = 0; i < width; i++)
        low[i] = 255, high[i] = 0;
    for (int row = 0; row < rows; row++) {
        const uint8_t *y = luma[row] + start * ratio;
        for (int part = 0; part < ratio; part++)
            for (int i = 0; i < width; i++) {
                int16_t level = y[i * ratio + part];
                low[i] = level < low[i] ? level : low[i];
                high[i] = level > high[i] ? level : high[i];
            }
    }
    for (int i = 0; i < width; i++) { /* 7 bits of fraction: enough to tell inside from outside */
        int16_t cb = (int16_t)(blue[i] - 128), cr = (int16_t)(red[i] - 128);
        int16_t r = (int16_t)(179 * cr >> 7), g = (int16_t)((-44 * cb - 91 * cr) >> 7), b = (int16_t)(227 * cb >> 7);
        int16_t least = r < g ? r : g, most = r > g ? r : g;
        least = b < least ? b : least;
        most = b > most ? b : most;
        outside |= (low[i] + least < 0) | (high[i] + most > 255);
    }
    return !outside;
}

static inline __attribute__((always_inline)) float clip(float v) { return v < 0 ? 0 : v > 255 ? 255 : v; }

static inline __attribute__((always_inline)) void span_clip(uint8_t *const luma[], int rows, int ratio, uint8_t *blue,
                                                            uint8_t *red, int width, int start)
{
    float cb[SPAN * 4], cr[SPAN * 4], new_cb[SPAN * 4] = {0}, new_cr[SPAN * 4] = {0};
    int count = width * ratio;
    for (int i = 0; i < width; i++)
        for (int part = 0; part < ratio; part++) {
            cb[i * ratio + part] = blue[i] - 128.0f;
            cr[i * ratio + part] = red[i] - 128.0f;
        }
    for (int row = 0; row < rows; row++) {
        uint8_t *y = luma[row] + start * ratio;
        for (int i = 0; i < count; i++) {
            float r = clip(y[i] + 1.402f * cr[i]), g = clip(y[i] - 0.344136f * cb[i] - 0.714136f * cr[i]);
            float b = clip(y[i] + 1.772f * cb[i]), level = 0.299f * r + 0.587f * g + 0.114f * b;
            y[i] = (uint8_t)(level + 0.5f);
            new_cb[i] += (b - level) * (1 / 1.772f);
            new_cr[i] += (r - level) * (1 / 1.402f);
        }
    }
    for (int i = 0; i < width; i++) {
        float sum_cb = 0, sum_cr = 0, share = 1.0f / (float)(rows * ratio);
        for (int part = 0; part < ratio; part++) {
            sum_cb += new_cb[i * ratio + part];
            sum_cr += new_cr[i * ratio + part];
        }
        blue[i] = (uint8_t)(sum_cb * share + 128.5f);
        red[i] = (uint8_t)(sum_cr * share + 128.5f);
    }
}

static inline __attribute__((always_inline)) void row_clip(uint8_t *const luma[], int rows, int ratio, uint8_t *blue, uint8_t *red,
                                                           int width)
{
    for (int x = 0; x < width; x += SPAN) {
        int span = width - x < SPAN ? width - x : SPAN;
        if (!span_is_inside(luma, rows, ratio, blue + x, red + x, span, x))
            span_clip(luma, rows, ratio, blue + x, red + x, span, x);
    }
}

/* Subsampling by one and two is nearly everything there is: with the number known the loops become vectors. */
static inline __attribute__((always_inline)) void clip_by_ratio(uint8_t *const luma[], int rows, int ratio, uint8_t *blue,
                                                                uint8_t *red, int width)
{
    if (ratio == 1)
        row_clip(luma, rows, 1, blue, red, width);
    else if (ratio == 2)
        row_clip(luma, rows, 2, blue, red, width);
    else if (ratio <= 4)
        row_clip(luma, rows, ratio, blue, red, width);
}

static void clip_generic(uint8_t *const luma[], int rows, int ratio, uint8_t *blue, uint8_t *red, int width)
{
    clip_by_ratio(luma, rows, ratio, blue, red, width);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void clip_avx2(uint8_t *const luma[], int rows, int ratio, uint8_t *blue, uint8_t *red,
                                                      int width)
{
    clip_by_ratio(luma, rows, ratio, blue, red, width);
}
#endif

static void (*clip_row)(uint8_t *const[], int, int, uint8_t *, uint8_t *, int) = clip_generic;

static void choose(void)
{
#ifdef __x86_64__
    if (dg_simd_choice() == DG_SIMD_AVX2)
        clip_row = clip_avx2;
#endif
}

void dg_gamut_clip(uint8_t *const luma[], int rows, int ratio, uint8_t *blue, uint8_t *red, int width)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose);
    clip_row(luma, rows, ratio, blue, red, width);
}
