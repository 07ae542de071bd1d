/* A picture's place in a batch: 8-bit pixels as a tensor wants them, in its layout and type, written straight into it. */
#ifndef DG_PLACE_H
#define DG_PLACE_H

#include "image.h"

typedef enum { DG_LAYOUT_NCHW, DG_LAYOUT_NHWC } dg_layout;
typedef enum { DG_DTYPE_UINT8, DG_DTYPE_FLOAT16, DG_DTYPE_BFLOAT16, DG_DTYPE_FLOAT32 } dg_dtype;

enum { DG_PLACE_PATTERN = 24 }; /* values after which the channels begin anew with a vector: 3 channels, 8 floats */

/* Factors for a run of values; see dg_placement_set. */
typedef struct {
    float whole[DG_PLACE_PATTERN], rest[DG_PLACE_PATTERN], scale[DG_PLACE_PATTERN];
} dg_place_scaling;

/* Made once by dg_placement_set, then read by any number of threads. */
typedef struct {
    dg_layout layout;
    dg_dtype dtype;
    int channels;
    dg_place_scaling scaling[3]; /* NCHW: of each channel; NHWC: the first is of all, in turn */
} dg_placement;

/* How pictures are placed: with 1 (grey) or 3 (RGB) `channels`. UINT8 are the samples x themselves, and `mean` and `std`, `channels`
 * numbers each, are not looked at. The others are (x / 255 - mean[c]) / std[c], computed as ((x - whole) - rest) * scale in float32, each
 * step rounded to nearest: whole is 255 * mean rounded to an integer, rest what that left over, scale 1 / (255 * std), all three computed
 * in double and rounded once. No cancellation takes digits away: the relative error is at most 4 * 2^-24, one 2^-24 for each rounding,
 * for any x and any mean between -65536 and 65536. FLOAT16 and BFLOAT16 are that float32 rounded to nearest, halves to even; what is too
 * large becomes infinite. Other channels are DG_UNSUPPORTED, and so is a mean or std that makes
 * no finite factors, like a std of 0. */
dg_status dg_placement_set(dg_placement *placement, dg_layout layout, dg_dtype dtype, int channels, const double *mean,
                           const double *std, dg_error *error);

/* Bytes that a picture of that size takes. */
size_t dg_placement_size(const dg_placement *placement, int width, int height);

/* Writes `image` at `destination`: channels x height x width values (NCHW), or height x width x channels (NHWC), with nothing between
 * them. These are dg_placement_size bytes, aligned as the type is; `image` stays the caller's. Grey becomes three equal channels. RGB
 * becomes grey as Pillow's convert("L") makes it, (19595 R + 38470 G + 7471 B + 32768) >> 16. Alpha is left out (dg_process composites it
 * where rgb8 is asked for). 16-bit samples are DG_UNSUPPORTED. Takes no memory, and any number of threads may call it at once. */
dg_status dg_place(const dg_placement *placement, const dg_image *image, void *destination, dg_error *error);

#endif
