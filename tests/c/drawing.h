/* What the tests of draws share: a draw for a sample of some name, and the options of a random resized crop to 32 x 24 pixels. */
#ifndef DRAWING_H
#define DRAWING_H

#include <string.h>

#include "draws.h"

static dg_draw begin(const dg_crop_options *options, uint64_t seed, uint64_t epoch, const char *name)
{
    dg_draw draw;
    dg_draw_begin(&draw, options, seed, epoch, name, strlen(name));
    return draw;
}

static dg_crop_options resized(double min_scale, double max_scale, double min_ratio, double max_ratio)
{
    return (dg_crop_options){.resized = {32, 24}, .scale = {min_scale, max_scale}, .ratio = {min_ratio, max_ratio}};
}

#endif
