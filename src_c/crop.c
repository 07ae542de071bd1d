#include "crop.h"

#include <math.h>

enum { ATTEMPTS = 10 };

void dg_crop_begin(dg_crop *crop, const dg_crop_options *options, uint64_t seed, uint64_t epoch, const char *name, size_t length)
{
    *crop = (dg_crop){.target = options->resized};
    dg_random_init(&crop->random, seed, epoch, name, length);
    crop->mirrored = dg_random_uniform(&crop->random) < options->flip;
    double across = dg_random_uniform(&crop->random), down = dg_random_uniform(&crop->random);
    crop->across = options->random_position ? across : 0.5;
    crop->down = options->random_position ? down : 0.5;
}

/* The box of a random resized crop. */
static dg_box draw(dg_random *random, const dg_crop_options *options, int width, int height)
{
    double area = (double)width * height, log_least = log(options->ratio[0]), log_most = log(options->ratio[1]);
    double w, h;
    for (int i = 0; i < ATTEMPTS; i++) {
        double share = options->scale[0] + dg_random_uniform(random) * (options->scale[1] - options->scale[0]);
        double ratio = exp(log_least + dg_random_uniform(random) * (log_most - log_least));
        w = rint(sqrt(area * share * ratio)); /* halves to even, as Python's round does */
        h = rint(sqrt(area * share / ratio));
        if (w >= 1 && w <= width && h >= 1 && h <= height) {
            double top = (double)dg_random_below(random, (uint64_t)(height - h) + 1);
            double left = (double)dg_random_below(random, (uint64_t)(width - w) + 1);
            return (dg_box){left, top, left + w, top + h};
        }
    }
    double aspect = (double)width / height;
    w = aspect > options->ratio[1] ? fmax(rint(height * options->ratio[1]), 1) : width;
    h = aspect < options->ratio[0] ? fmax(rint(width / options->ratio[0]), 1) : height;
    double left = floor((width - w) / 2), top = floor((height - h) / 2);
    return (dg_box){left, top, left + w, top + h};
}

void dg_crop_choose(dg_crop *crop, const dg_crop_options *options, int width, int height)
{
    if (options->resized.width && !crop->of.width) {
        crop->box = draw(&crop->random, options, width, height);
        crop->of = (dg_size){width, height};
    } else if (options->bucket_count && !crop->target.width) {
        const dg_bucket *chosen = dg_bucket_choose(options->buckets, options->bucket_count, width, height);
        crop->target = (dg_size){chosen->width, chosen->height};
    }
}

dg_box dg_crop_box(const dg_crop *crop, int width, int height, int orientation)
{
    static const struct {
        unsigned char mirrored, flipped_vertically, transposed;
    } TURNS[9] = {
        [2] = {1, 0, 0}, [3] = {1, 1, 0}, [4] = {0, 1, 0}, [5] = {0, 0, 1}, [6] = {1, 0, 1}, [7] = {1, 1, 1}, [8] = {0, 1, 1},
    };
    int mirrored = TURNS[orientation].mirrored, flipped_vertically = TURNS[orientation].flipped_vertically, transposed = TURNS[orientation].transposed;
    if (crop->of.width) {
        /* Upright pixels; a product before the quotient is exact where the sizes are equal. */
        int w = transposed ? height : width, h = transposed ? width : height;
        dg_box box = {crop->box.x0 * w / crop->of.width, crop->box.y0 * h / crop->of.height, crop->box.x1 * w / crop->of.width,
                      crop->box.y1 * h / crop->of.height};
        if (mirrored)
            box = (dg_box){w - box.x1, box.y0, w - box.x0, box.y1};
        if (flipped_vertically)
            box = (dg_box){box.x0, h - box.y1, box.x1, h - box.y0};
        return transposed ? (dg_box){box.y0, box.x0, box.y1, box.x1} : box;
    }
    double across = mirrored ? 1 - crop->across : crop->across, down = flipped_vertically ? 1 - crop->down : crop->down;
    if (transposed)
        return dg_box_fit(width, height, crop->target.height, crop->target.width, down, across);
    return dg_box_fit(width, height, crop->target.width, crop->target.height, across, down);
}
