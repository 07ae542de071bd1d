/* An estimate of how much the picture's colours shift where luma and chroma are resampled as they are stored.
 *
 * Decoding to RGB clips pixels that make no colour (saturated, and dark or noisy) one by one. Decoding at a reduced size and resampling
 * planes averages first, and the mean of clipped grain is not the clipped mean: a dark channel of a saturated,
 * grainy picture comes out up to two levels darker. A dg_gamut looks at a few groups of neighbouring samples on the way and
 * tells what shift of a channel's mean that makes, from how near the groups are to the limits and how grainy they are there.
 * For normal grain of deviation s around a mean m, clipping at 0 adds s * (phi(m/s) - m/s * (1 - Phi(m/s))). */
#ifndef DG_GAMUT_H
#define DG_GAMUT_H

#include "scratch.h"

typedef struct {
    dg_scratch groups; /* near the limits: all others add nothing */
    size_t near, looked_at;
    float scale;       /* grain of full-size pixels over that of decoded ones */
} dg_gamut;

/* For a picture decoded at 1/scale of its size. */
void dg_gamut_begin(dg_gamut *gamut, float scale);
/* Looks at one row, which has `width` samples of chroma and `ratio` times as many of luma. Fails with DG_NO_MEMORY alone. */
dg_status dg_gamut_look(dg_gamut *gamut, const uint8_t *luma, int ratio, const uint8_t *blue, const uint8_t *red, int width);
/* The largest expected shift of a channel's mean, in levels, if the rest of the picture is as what was looked at. */
double dg_gamut_shift(const dg_gamut *gamut);
void dg_gamut_free(dg_gamut *gamut);

#endif
