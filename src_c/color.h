/* Colour on rows of pixels: each function turns `n` pixels at `in` into `n` pixels at `out`, which must not overlap.
 *
 * `step` is 3 for RGB or 4 for RGBX (X = 255). Nothing outside the n pixels is read or written. Samples are 8-bit but
 * for the source of dg_depth_16_to_8. The functions are safe from any thread; the choice of instruction set is made
 * once. */
#ifndef DG_COLOR_H
#define DG_COLOR_H

#include <stddef.h>
#include <stdint.h>

typedef enum { DG_SIMD_GENERIC, DG_SIMD_AVX2, DG_SIMD_NEON, DG_SIMD_COUNT } dg_simd;

/* The best instruction set of this processor among those built in, or the one that DATAGO_SIMD=generic|avx2|neon names
 * (if this processor has it). Read once, when the module is loaded; all give the same results to the last bit. */
dg_simd dg_simd_choice(void);
int dg_simd_is_refused(void); /* whether DATAGO_SIMD=generic asks for plain C */
int dg_simd_available(dg_simd simd);

/* Full-range JFIF YCbCr from three rows of samples, with the integers of libjpeg. */
void dg_ycc_to_rgb(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *out, size_t n, int step);

/* Grey + alpha (channels 2) or RGBA (channels 4) over a background colour: (c * a + background * (255 - a)) / 255,
 * rounded to nearest as Pillow's compositing does (the reference loader rounds down, so it is up to one less). The
 * background itself under alpha 0, the picture itself under alpha 255. */
void dg_alpha_over(const uint8_t *in, int channels, const uint8_t background[3], uint8_t *out, size_t n, int step);

void dg_grey_to_rgb(const uint8_t *in, uint8_t *out, size_t n, int step);
void dg_rgb_to_rgbx(const uint8_t *in, uint8_t *out, size_t n);
void dg_rgbx_to_rgb(const uint8_t *in, uint8_t *out, size_t n);

/* v >> 8; here `n` counts samples. */
void dg_depth_16_to_8(const uint16_t *in, uint8_t *out, size_t n);

#endif
