/* Which box of a picture is shown, and at what size: pure arithmetic, in double, that knows neither codecs nor pixels nor chance. */
#ifndef DG_BOXES_H
#define DG_BOXES_H

#include <stddef.h>

/* A rectangle of a picture in pixels, from its top left corner; x1 and y1 are not inside. */
typedef struct {
    double x0, y0, x1, y1;
} dg_box;

typedef struct {
    int width, height; /* 0: none, or not yet known */
} dg_size;

/* The part that is shown of each picture of a sample. All zeros: pictures stay as they are. */
typedef struct {
    dg_size target; /* what the part is resized to; {0, 0} without a crop, and until the sample's first picture chose a bucket */
    double across, down; /* where in a bucket's slack the crop lies: 0 left or top, 0.5 the middle, below 1 right or bottom */
    dg_box box; /* where a box was drawn: the box, in pixels of the sample's first picture … */
    dg_size of; /* … and that picture's size; {0, 0} where none was drawn */
} dg_frame;

/* The largest part of a width x height picture that has the target's aspect: the box of PIL.ImageOps.fit(image,
 * (target_width, target_height), centering=(across, down)), computed in the same order so that it is equal to the last
 * bit. `across` and `down` are 0 to 1; 0.5 is the middle. */
dg_box dg_box_fit(int width, int height, int target_width, int target_height, double across, double down);

/* The box to be resized to frame->target, of a picture of that sample that is stored with width x height pixels and turned by a
 * viewer as EXIF's `orientation` says (1 to 8; 1 if it is upright already): in stored pixels; the target's sides change places where
 * the picture's do. With buckets it is that of dg_box_fit. A box that was drawn is taken in proportion: exactly that box where the
 * sizes are equal. frame->target must be known. */
dg_box dg_frame_box(const dg_frame *frame, int width, int height, int orientation);

/* Whether an upright picture of that size has to be cut or resized. */
int dg_frame_changes(const dg_frame *frame, int width, int height);

#endif
