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

/* A rectangle of whole pixels. */
typedef struct {
    int x, y;
    dg_size size;
} dg_part;

/* Steps that are fixed beforehand, in this order; sizes of zeros are left out. The first two are torchvision's transforms Resize and
 * CenterCrop. */
typedef struct {
    dg_size resize; /* the whole picture becomes this size; {n, 0}: its shorter side becomes n, the longer one in proportion */
    dg_size center_crop; /* the middle of it, with zeros around it where it is smaller */
    dg_size pad; /* it is put on a canvas of this size; without the other steps it is resized first, to just fit inside */
    double across, down; /* where on the canvas it lies: 0 left or top, 0.5 the middle, 1 right or bottom */
} dg_steps;

/* The part that is shown of each picture of a sample. All zeros: pictures stay as they are. */
typedef struct {
    dg_size target; /* the size of the result; {0, 0} where pictures stay as they are, and until the first one decided about it */
    double across, down; /* where in a bucket's slack the crop lies: 0 left or top, 0.5 the middle, below 1 right or bottom */
    dg_box box; /* where a box was drawn: the box, in pixels of the sample's first picture … */
    dg_size of; /* … and that picture's size; {0, 0} where none was drawn */
    /* Where `steps` were followed (`whole` is not {0, 0}) the box is the whole picture, and is resized to `whole` … */
    dg_size whole;
    dg_part kept; /* … this part of which is put … */
    dg_part crop; /* … on a canvas of zeros, if its size is not {0, 0}; x and y say where on it … */
    dg_part pad; /* … and that on a canvas that is coloured, likewise */
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

/* The size that the box is resized to, and the part of that which is kept: for a picture that is stored turned, as above. */
dg_part dg_frame_kept(const dg_frame *frame, int orientation, dg_size *whole);

/* Follows the steps with the sample's first picture, of width x height upright pixels. The size of the result and of what it is
 * resized to are at most 2^30 on a side; what is larger is cut there. */
void dg_frame_follow(dg_frame *frame, const dg_steps *steps, int width, int height);

/* Whether an upright picture of that size has to be cut, resized or put on a canvas. */
int dg_frame_changes(const dg_frame *frame, int width, int height);

#endif
