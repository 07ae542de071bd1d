#include "boxes.h"

#include <math.h>

#include "orientation.h"

enum { SIDE_MOST = 1 << 30 };

dg_box dg_box_fit(int width, int height, int target_width, int target_height, double across, double down)
{
    double aspect = (double)width / height, target = (double)target_width / target_height;
    double crop_width = width, crop_height = height;
    if (aspect > target)
        crop_width = target * height;
    else if (aspect < target)
        crop_height = width / target;
    double left = (width - crop_width) * across, top = (height - crop_height) * down;
    return (dg_box){left, top, left + crop_width, top + crop_height};
}

/* A box of the upright picture, in the stored one, whose size is width x height. */
static dg_box stored_box(dg_box box, int width, int height, dg_orientation turn)
{
    if (turn.transposed)
        box = (dg_box){box.y0, box.x0, box.y1, box.x1};
    if (turn.mirrored)
        box = (dg_box){width - box.x1, box.y0, width - box.x0, box.y1};
    if (turn.flipped_vertically)
        box = (dg_box){box.x0, height - box.y1, box.x1, height - box.y0};
    return box;
}

/* The drawn box in a picture whose stored size is width x height. */
static dg_box drawn_box(const dg_frame *frame, int width, int height, dg_orientation turn)
{
    int w = turn.transposed ? height : width, h = turn.transposed ? width : height; /* upright */
    /* A product before the quotient is exact where the sizes are equal. */
    dg_box box = {frame->box.x0 * w / frame->of.width, frame->box.y0 * h / frame->of.height, frame->box.x1 * w / frame->of.width,
                  frame->box.y1 * h / frame->of.height};
    return stored_box(box, width, height, turn);
}

dg_box dg_frame_box(const dg_frame *frame, int width, int height, int orientation)
{
    dg_orientation turn = dg_orientations[orientation];
    if (frame->whole.width)
        return (dg_box){0, 0, width, height};
    if (frame->of.width)
        return drawn_box(frame, width, height, turn);
    dg_size target = frame->target;
    double across = frame->across, down = frame->down;
    if (turn.transposed) {
        target = (dg_size){frame->target.height, frame->target.width};
        across = frame->down;
        down = frame->across;
    }
    return dg_box_fit(width, height, target.width, target.height, turn.mirrored ? 1 - across : across,
                      turn.flipped_vertically ? 1 - down : down);
}

static dg_size turned(dg_size size, dg_orientation turn) { return turn.transposed ? (dg_size){size.height, size.width} : size; }

dg_part dg_frame_kept(const dg_frame *frame, int orientation, dg_size *whole)
{
    dg_orientation turn = dg_orientations[orientation];
    *whole = turned(frame->whole.width ? frame->whole : frame->target, turn);
    if (!frame->whole.width)
        return (dg_part){0, 0, *whole};
    const dg_part *kept = &frame->kept;
    dg_box box = {kept->x, kept->y, (double)kept->x + kept->size.width, (double)kept->y + kept->size.height};
    box = stored_box(box, whole->width, whole->height, turn);
    return (dg_part){(int)box.x0, (int)box.y0, turned(kept->size, turn)};
}

static int clamped(double side) { return (int)fmax(1, fmin(side, SIDE_MOST)); }

/* torchvision's rule for the shorter side, and PIL.ImageOps.contain's for what just fits inside. */
static dg_size resized(const dg_steps *steps, int width, int height)
{
    dg_size size = steps->resize;
    if (size.height)
        return size;
    if (size.width) {
        int wide = width > height;
        int longer = clamped((double)size.width * (wide ? width : height) / (wide ? height : width)); /* rounded down */
        return wide ? (dg_size){longer, size.width} : (dg_size){size.width, longer};
    }
    if (!steps->pad.width || steps->center_crop.width)
        return (dg_size){width, height};
    size = steps->pad;
    double aspect = (double)width / height, target = (double)size.width / size.height;
    if (aspect > target)
        size.height = clamped(rint((double)height / width * size.width)); /* halves to even, as Python's round does */
    else if (aspect < target)
        size.width = clamped(rint((double)width / height * size.height));
    return size;
}

/* One direction of a crop about the middle: the part that is kept of `side`, and where on the canvas it lies. */
static void crop_side(int side, int cropped, int *from, int *count, int *at)
{
    *from = cropped < side ? (int)rint((side - cropped) / 2.0) : 0;
    *count = cropped < side ? cropped : side;
    *at = cropped > side ? (cropped - side) / 2 : 0;
}

static int differ(dg_size a, dg_size b) { return a.width != b.width || a.height != b.height; }

void dg_frame_follow(dg_frame *frame, const dg_steps *steps, int width, int height)
{
    frame->whole = frame->target = resized(steps, width, height);
    frame->kept = (dg_part){0, 0, frame->whole};
    if (steps->center_crop.width) {
        dg_part *kept = &frame->kept, crop = {.size = steps->center_crop};
        crop_side(frame->whole.width, crop.size.width, &kept->x, &kept->size.width, &crop.x);
        crop_side(frame->whole.height, crop.size.height, &kept->y, &kept->size.height, &crop.y);
        frame->target = crop.size;
        if (differ(kept->size, crop.size))
            frame->crop = crop;
    }
    if (steps->pad.width && differ(steps->pad, frame->target)) {
        frame->pad = (dg_part){(int)rint((steps->pad.width - frame->target.width) * steps->across),
                               (int)rint((steps->pad.height - frame->target.height) * steps->down), steps->pad};
        frame->target = steps->pad;
    }
}

int dg_frame_changes(const dg_frame *frame, int width, int height)
{
    if (frame->target.width == 0)
        return 0;
    dg_size whole, own = {width, height};
    dg_part kept = dg_frame_kept(frame, 1, &whole);
    dg_box box = dg_frame_box(frame, width, height, 1);
    return differ(frame->target, own) || differ(whole, own) || differ(kept.size, own) || box.x0 != 0 || box.y0 != 0
           || box.x1 != width || box.y1 != height;
}
