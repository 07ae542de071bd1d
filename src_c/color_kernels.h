/* The table behind color.h: one set of functions for each instruction set, equal to the last bit. For color*.c and
 * tests. */
#ifndef DG_COLOR_KERNELS_H
#define DG_COLOR_KERNELS_H

#include "color.h"

/* Arguments as in color.h. */
typedef struct {
    void (*ycc_to_rgb)(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *out, size_t n, int pixel_stride);
    void (*rgba_over)(const uint8_t *in, const uint8_t background[3], uint8_t *out, size_t n, int pixel_stride);
    void (*grey_to_rgb)(const uint8_t *in, uint8_t *out, size_t n, int pixel_stride);
    void (*rgb_to_rgbx)(const uint8_t *in, uint8_t *out, size_t n);
    void (*rgbx_to_rgb)(const uint8_t *in, uint8_t *out, size_t n);
    void (*depth_16_to_8)(const uint16_t *in, uint8_t *out, size_t n);
} dg_color_functions;

extern const dg_color_functions dg_color_generic;
#ifdef __x86_64__
extern const dg_color_functions dg_color_avx2;
#endif

/* The functions of `simd`; where it has none of its own (NEON), the plain ones. */
const dg_color_functions *dg_color_table(dg_simd simd);

static inline uint8_t dg_clamp_8(int value) { return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value); }

#endif
