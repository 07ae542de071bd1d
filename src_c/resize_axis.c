/* Weights: which source samples make a destination sample, and how much of each. The arithmetic is Pillow's, in
 * double. */
#include "resize_kernels.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOBES = 3,
    TABLE_STEPS = 512, /* per sample; straight lines between them stay within 1e-5 of the curve, a sixth of a unit */
    FAST_TRIM = 8,     /* fast weights up to this, 1/2048, are left out at the ends of a span */
};

static float table[LOBES * TABLE_STEPS + 2];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static double sinc(double x)
{
    if (x == 0.0)
        return 1.0;
    x *= M_PI;
    return sin(x) / x;
}

static double lanczos(double x) { return -LOBES <= x && x < LOBES ? sinc(x) * sinc(x / LOBES) : 0.0; }

static void fill_table(void)
{
    for (int i = 0; i < LOBES * TABLE_STEPS; i++)
        table[i] = (float)lanczos((double)i / TABLE_STEPS);
}

/* The fast path looks weights up in a table, since two sines for each of them would take a millisecond a picture. */
static double lanczos_looked_up(double x)
{
    double place = fabs(x) * TABLE_STEPS;
    if (place >= LOBES * TABLE_STEPS)
        return 0.0;
    int i = (int)place;
    double part = place - i;
    return table[i] + part * (table[i + 1] - table[i]);
}

static double widened(double start, double end, int target)
{
    double scale = (double)((float)end - (float)start) / target;
    return scale < 1.0 ? 1.0 : scale;
}

int dg_axis_taps(double start, double end, int target) { return (int)ceil(LOBES * widened(start, end, target)) * 2 + 1; }

static void put_exact(dg_pair *pair, int slot, double weight)
{
    double scaled = weight * (1 << DG_EXACT_BITS);
    int rounded = (int)(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
    int low = (int16_t)(rounded & 0xffff);
    pair->exact.low[slot] = (int16_t)low;
    pair->exact.high[slot] = pair->exact.high[2 + slot] = (int8_t)((rounded - low) >> 16);
}

/* Rounded weights must add up to 1, or a flat area would change its level: the largest takes the difference. */
static void round_fast(dg_span *span, double *weights)
{
    int from = 0, to = span->taps, sum = 0, largest = 0;
    double total = 0.0;
    for (int i = 0; i < to; i++)
        total += weights[i];
    double factor = (1 << DG_FAST_BITS) / total;
    for (int i = 0; i < to; i++) /* a cast is many times faster than floor */
        weights[i] = (int)(weights[i] * factor + 32768.5) - 32768;
    while (to - from > 1 && fabs(weights[to - 1]) <= FAST_TRIM)
        to--;
    while (to - from > 1 && fabs(weights[from]) <= FAST_TRIM)
        from++;
    for (int i = from; i < to; i++) {
        sum += (int)weights[i];
        if (i == from || weights[i] > weights[largest])
            largest = i;
    }
    weights[largest] += (1 << DG_FAST_BITS) - sum;
    span->first += from;
    span->taps = to - from;
    if (from)
        memmove(weights, weights + from, span->taps * sizeof *weights);
}

/* The span of destination sample i and its weights. */
static dg_span weigh(const dg_axis *axis, int i, double *weights)
{
    double scale = (double)(axis->end - axis->start) / axis->target;
    double wide = scale < 1.0 ? 1.0 : scale, narrow = 1.0 / wide, support = LOBES * wide;
    double center = axis->start + (i + 0.5) * scale, sum = 0.0;
    /* Rounded as a cast does, towards 0, before the ends are cut. */
    int first = (int)(center - support + 0.5), last = (int)(center + support + 0.5);
    first = first < 0 ? 0 : first;
    last = last > axis->source ? axis->source : last;
    dg_span span = {first, last - first};
    if (axis->weights == DG_WEIGHTS_FAST) {
        for (int k = 0; k < span.taps; k++)
            weights[k] = lanczos_looked_up((k + first - center + 0.5) * narrow);
        round_fast(&span, weights);
        return span;
    }
    for (int k = 0; k < span.taps; k++)
        sum += weights[k] = lanczos((k + first - center + 0.5) * narrow);
    for (int k = 0; k < span.taps && sum != 0.0; k++)
        weights[k] /= sum;
    return span;
}

/* Weights as the inner loops want them; an odd number of them is followed by 0. */
static void put(dg_pair *pairs, dg_weights kind, double *weights, int taps)
{
    weights[taps] = 0.0;
    for (int i = 0; i < taps + (taps & 1); i++) {
        dg_pair *pair = pairs + i / 2;
        int slot = i & 1;
        if (kind == DG_WEIGHTS_EXACT)
            put_exact(pair, slot, weights[i]);
        else if (kind == DG_WEIGHTS_FAST)
            pair->fast[slot][0] = pair->fast[slot][1] = (int16_t)weights[i];
        else
            pair->wide[slot] = (float)weights[i];
    }
}

static void fill(dg_axis *axis, double *weights)
{
    int end = 0;
    axis->first = axis->source;
    axis->taps = 0;
    for (int i = 0; i < axis->target; i++) {
        dg_span span = axis->spans[i] = weigh(axis, i, weights);
        put(axis->pairs + i * axis->stride, axis->weights, weights, span.taps);
        axis->first = span.first < axis->first ? span.first : axis->first;
        axis->taps = span.taps > axis->taps ? span.taps : axis->taps;
        end = span.first + span.taps > end ? span.first + span.taps : end;
    }
    axis->count = end - axis->first;
}

dg_status dg_axis_set(dg_axis *axis, int source, double start, double end, int target, dg_weights weights)
{
    if (axis->source == source && axis->target == target && axis->start == (float)start && axis->end == (float)end
        && axis->weights == weights)
        return DG_OK;
    axis->source = 0; /* not valid until all is done */
    axis->start = (float)start;
    axis->end = (float)end;
    axis->target = target;
    axis->weights = weights;
    int taps = dg_axis_taps(start, end, target);
    if (taps > source)
        taps = source;
    axis->stride = ((size_t)taps + 1) / 2;
    double *scratch = malloc(((size_t)taps + 1) * sizeof *scratch);
    if (!scratch || dg_scratch_reserve(&axis->span_memory, dg_round_up(target * sizeof(dg_span), 64)) != DG_OK
        || dg_scratch_reserve(&axis->pair_memory, dg_round_up(target * axis->stride * sizeof(dg_pair), 64)) != DG_OK) {
        free(scratch);
        return DG_NO_MEMORY;
    }
    axis->spans = (dg_span *)axis->span_memory.data;
    axis->pairs = (dg_pair *)axis->pair_memory.data;
    pthread_once(&once, fill_table);
    axis->source = source;
    fill(axis, scratch);
    free(scratch);
    /* With one sample to one, all weights but one are sin(n * pi), which rounds to 0: Pillow's result is a copy as
     * well. */
    axis->same = weights != DG_WEIGHTS_FLOAT && axis->end - axis->start == target && axis->start == floorf(axis->start);
    if (axis->same) {
        axis->first = (int)axis->start;
        axis->count = target;
        axis->taps = 1;
    }
    return DG_OK;
}

void dg_axis_free(dg_axis *axis)
{
    dg_scratch_free(&axis->span_memory);
    dg_scratch_free(&axis->pair_memory);
    memset(axis, 0, sizeof *axis);
}
