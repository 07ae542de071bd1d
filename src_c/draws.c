#include "draws.h"

#include <math.h>

enum { ATTEMPTS = 10 };

void dg_draw_begin(dg_draw *draw, const dg_crop_options *options, uint64_t seed, uint64_t epoch, const char *name, size_t length)
{
    *draw = (dg_draw){.frame.target = options->resized};
    dg_random_init(&draw->random, seed, epoch, name, length);
    draw->mirrored = dg_random_uniform(&draw->random) < options->flip;
    double across = dg_random_uniform(&draw->random), down = dg_random_uniform(&draw->random);
    draw->frame.across = options->random_position ? across : 0.5;
    draw->frame.down = options->random_position ? down : 0.5;
}

/* The box of a random resized crop. */
static dg_box draw_box(dg_random *random, const dg_crop_options *options, int width, int height)
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

static int has_steps(const dg_steps *steps) { return steps->resize.width || steps->center_crop.width || steps->pad.width; }

void dg_draw_choose(dg_draw *draw, const dg_crop_options *options, int width, int height)
{
    dg_frame *frame = &draw->frame;
    if (options->resized.width && !frame->of.width) {
        frame->box = draw_box(&draw->random, options, width, height);
        frame->of = (dg_size){width, height};
    } else if (options->bucket_count && !frame->target.width) {
        const dg_bucket *chosen = dg_bucket_choose(options->buckets, options->bucket_count, width, height);
        frame->target = (dg_size){chosen->width, chosen->height};
    } else if (has_steps(&options->steps) && !frame->target.width) {
        dg_frame_follow(frame, &options->steps, width, height);
    }
}

dg_size dg_crop_target(const dg_crop_options *options, int width, int height)
{
    dg_draw draw = {.frame.target = options->resized};
    if (!options->resized.width)
        dg_draw_choose(&draw, options, width, height);
    return draw.frame.target;
}
