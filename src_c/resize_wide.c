/* 16-bit samples: floats from the first product to the last sum, rounded and clipped once. Plain C: such pictures are
 * rare. */
#include "resize_kernels.h"

static inline float weight_of(const dg_pair *pairs, int tap) { return pairs[tap / 2].wide[tap & 1]; }

void dg_wide_horizontal(float *out, const uint16_t *row, const dg_axis *x, const dg_resize_plan *plan, int alpha, float *scratch)
{
    int channels = plan->channels;
    row += (size_t)x->first * plan->src_pixel_stride;
    float *pixel = scratch;
    for (int i = 0; i < x->count; i++, row += plan->src_pixel_stride, pixel += channels) {
        float scale = alpha ? row[channels - 1] / 65535.0f : 1.0f;
        for (int c = 0; c < channels; c++)
            pixel[c] = alpha && c == channels - 1 ? row[c] : row[c] * scale;
    }
    for (int i = 0; i < x->target; i++, out += channels) {
        const dg_pair *pairs = x->pairs + i * x->stride;
        const float *from = scratch + (size_t)(x->spans[i].first - x->first) * channels;
        float sums[4] = {0, 0, 0, 0};
        for (int tap = 0; tap < x->spans[i].taps; tap++, from += channels)
            for (int c = 0; c < channels; c++)
                sums[c] += from[c] * weight_of(pairs, tap);
        for (int c = 0; c < channels; c++)
            out[c] = sums[c];
    }
}

static uint16_t clip(float value) { return (uint16_t)(value <= 0 ? 0 : value >= 65535 ? 65535 : value + 0.5f); }

void dg_wide_vertical(uint16_t *out, const float *rows, size_t stride, const dg_axis *y, int index, const dg_resize_plan *plan,
                      int alpha, float *scratch)
{
    int channels = plan->channels;
    size_t n = (size_t)plan->dst_width * channels;
    const dg_pair *pairs = y->pairs + index * y->stride;
    for (size_t i = 0; i < n; i++)
        scratch[i] = 0;
    for (int tap = 0; tap < y->spans[index].taps; tap++, rows += stride) {
        float weight = weight_of(pairs, tap);
        for (size_t i = 0; i < n; i++)
            scratch[i] += rows[i] * weight;
    }
    for (int i = 0; i < plan->dst_width; i++, scratch += channels, out += plan->dst_pixel_stride) {
        float opacity = alpha ? scratch[channels - 1] : 0;
        float scale = opacity > 0 && opacity < 65535 ? 65535.0f / opacity : 1.0f; /* undoes the premultiplication */
        for (int c = 0; c < channels; c++)
            out[c] = clip(alpha && c == channels - 1 ? opacity : scratch[c] * scale);
        if (plan->dst_pixel_stride > channels)
            out[channels] = 65535;
    }
}
