#include "boxes.h"

#include "orientation.h"

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

/* The drawn box in a picture whose stored size is width x height. */
static dg_box drawn_box(const dg_frame *frame, int width, int height, dg_orientation turn)
{
    int w = turn.transposed ? height : width, h = turn.transposed ? width : height; /* upright */
    /* A product before the quotient is exact where the sizes are equal. */
    dg_box box = {frame->box.x0 * w / frame->of.width, frame->box.y0 * h / frame->of.height, frame->box.x1 * w / frame->of.width,
                  frame->box.y1 * h / frame->of.height};
    if (turn.transposed)
        box = (dg_box){box.y0, box.x0, box.y1, box.x1};
    if (turn.mirrored)
        box = (dg_box){width - box.x1, box.y0, width - box.x0, box.y1};
    if (turn.flipped_vertically)
        box = (dg_box){box.x0, height - box.y1, box.x1, height - box.y0};
    return box;
}

dg_box dg_frame_box(const dg_frame *frame, int width, int height, int orientation)
{
    dg_orientation turn = dg_orientations[orientation];
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

int dg_frame_changes(const dg_frame *frame, int width, int height)
{
    if (frame->target.width == 0)
        return 0;
    dg_box box = dg_frame_box(frame, width, height, 1);
    return frame->target.width != width || frame->target.height != height || box.x0 != 0 || box.y0 != 0 || box.x1 != width
           || box.y1 != height;
}
