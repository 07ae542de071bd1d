/* What is drawn at random: where in a picture the box lies, and whether it is mirrored. One draw holds for all pictures of a sample. */
#ifndef DG_DRAWS_H
#define DG_DRAWS_H

#include "boxes.h"
#include "buckets.h"
#include "random.h"

/* What the caller wants. All zeros: pictures stay as they are. */
typedef struct {
    const dg_bucket *buckets; /* each sample is cropped and resized to one of them; none if bucket_count is 0 */
    size_t bucket_count;
    int random_position; /* the crop lies anywhere in the bucket's slack; else in its middle */
    dg_size resized; /* where not 0: random resized crops of this size, and buckets are not looked at */
    double scale[2]; /* of these: least and most area of the box as a share of the picture's, 0 < least <= most … */
    double ratio[2]; /* … and least and most width / height of the box, 0 < least <= most */
    dg_steps steps; /* where neither of the two above is wanted: what is done instead; all zeros for nothing */
    double flip; /* how probably a sample is mirrored left to right, 0 to 1 */
} dg_crop_options;

/* What was drawn for one sample. */
typedef struct {
    dg_frame frame;
    int mirrored; /* left to right, after everything else, a canvas included */
    dg_random random;
} dg_draw;

/* Begins a sample. The same seed, epoch and name (`length` bytes, which need not end with 0) give the same draw. Mirroring is drawn first,
 * then the position across and down, then what a random resized crop takes, so that switching one of them on or off changes no other. */
void dg_draw_begin(dg_draw *draw, const dg_crop_options *options, uint64_t seed, uint64_t epoch, const char *name, size_t length);

/* The size of the result for a sample whose first picture has width x height upright pixels; {0, 0} where it stays as it is. */
dg_size dg_crop_target(const dg_crop_options *options, int width, int height);

/* Shows a sample's picture of width x height upright pixels. The first one decides what is the same for all: the bucket (see
 * dg_bucket_choose), what the steps come to, or the box of the random resized crop. That is drawn as RandomResizedCrop.get_params of
 * torchvision.transforms does: ten times an area is drawn evenly from `scale` and an aspect ratio from `ratio`, evenly in its logarithm;
 * the first box whose rounded sides fit lies anywhere, in whole pixels; after ten misses the largest centred box within `ratio` is taken.
 * The distribution is torchvision's, the numbers are not, as the generator is another. */
void dg_draw_choose(dg_draw *draw, const dg_crop_options *options, int width, int height);

#endif
