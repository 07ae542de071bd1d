/* What of a picture is shown, at what size, and whether mirrored: one draw for all pictures of a sample. */
#ifndef DG_CROP_H
#define DG_CROP_H

#include "buckets.h"
#include "random.h"

typedef struct {
    int width, height; /* 0: none, or not yet known */
} dg_size;

/* What the caller wants. All zeros: pictures stay as they are. */
typedef struct {
    const dg_bucket *buckets; /* each sample is cropped and resized to one of them; none if bucket_count is 0 */
    size_t bucket_count;
    int random_position;      /* the crop lies anywhere in the bucket's slack; else in its middle */
    dg_size resized;          /* where not 0: random resized crops of this size, and buckets are not looked at */
    double scale[2];          /* of these: least and most area of the box as a share of the picture's, 0 < least <= most … */
    double ratio[2];          /* … and least and most width / height of the box, 0 < least <= most */
    double flip;              /* how probably a sample is mirrored left to right, 0 to 1 */
} dg_crop_options;

/* What was drawn for one sample. */
typedef struct {
    dg_size target;      /* of every picture of it; {0, 0} without a crop, and until the first one of a sample chose a bucket */
    int mirrored;        /* left to right, after everything else */
    double across, down; /* where in a bucket's slack the crop lies: 0 left or top, 0.5 the middle, below 1 right or bottom */
    dg_box box;          /* random resized crops: the box, in whole pixels of the first picture … */
    dg_size of;          /* … and its size; {0, 0} before it is known */
    dg_random random;
} dg_crop;

/* Begins a sample: same seed, epoch and name, same draw. What is switched on or off changes no other draw: first comes mirroring,
 * then the position across and down, then what a random resized crop takes. */
void dg_crop_begin(dg_crop *crop, const dg_crop_options *options, uint64_t seed, uint64_t epoch, const char *name, size_t length);

/* Shows a sample's picture of width x height upright pixels. The first one decides what is the same for all: the bucket (see
 * dg_bucket_choose), or the box of the random resized crop. That is drawn as torchvision.transforms.RandomResizedCrop.get_params
 * does: ten times an area is drawn evenly from `scale` and an aspect ratio from `ratio`, evenly in its logarithm; the first box
 * whose rounded sides fit lies anywhere, in whole pixels; after ten misses the largest centred box within `ratio` is taken. The
 * distribution is torchvision's, the numbers are not, as the generator is another. */
void dg_crop_choose(dg_crop *crop, const dg_crop_options *options, int width, int height);

/* The box to be resized to crop->target, of a picture of that sample that is stored with width x height pixels and turned by a viewer
 * as EXIF's `orientation` says (1 to 8; 1 if it is upright already): in stored pixels; the target's sides change places where the
 * picture's do. With buckets it is that of PIL.ImageOps.fit(image, target, centering=(across, down)), with a random resized crop the
 * first picture's in proportion: exactly that where sizes are equal. crop->target must be known. */
dg_box dg_crop_box(const dg_crop *crop, int width, int height, int orientation);

#endif
