/* Luma and chroma that make no RGB colour: saturated, and dark or noisy.
 *
 * Who decodes to RGB clips such pixels one by one; who resamples the stored planes first does not, and the mean of clipped
 * grain is not the clipped mean: a dark channel of a saturated picture comes out up to two levels darker. So the planes are
 * clipped here as RGB would be, before they are resampled. */
#ifndef DG_GAMUT_H
#define DG_GAMUT_H

#include <stdint.h>

/* One row of chroma with the `rows` rows of luma that belong to it, `ratio` samples of luma to one of chroma: where a pixel
 * is outside of RGB, its luma and its share of the chroma become those of the clipped pixel. `width` counts chroma samples;
 * luma has at least width * ratio. */
void dg_gamut_clip(uint8_t *const luma[], int rows, int ratio, uint8_t *blue, uint8_t *red, int width);

#endif
