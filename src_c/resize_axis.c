/* Weights: which source samples make a destination sample, and how much of each. The arithmetic is Pillow's, in double. */
#include "resize_kernels.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOBES = 3,
    TABLE_STEPS = 512, /* per sample; straight lines between them are within 1e-5 of the curve, a sixth of a fast weight */
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

static double lanczos(double x)
{
    return -LOBES <= x && x < LOBES ? sinc(x) * sinc(x / LOBES) : 0.0;
}

static void fill_table(void)
{
    for (int i = 0; i < LOBES * TABLE_STEPS; i++)
        table[i] = (float)lanczos((double)i / TABLE_STEPS);
}

/* Two sines a weight are a millisecond a picture; the fast path looks them up. */
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

int dg_axis_taps(double start, double end, int target)
{
    return (int)ceil(LOBES * widened(start, end, target)) * 2 + 1;
}

/* Keeps the larger of what there is and what is needed. The old content may go. */
static int make_room(void **memory, size_t *room, size_t size)
{
    if (*room >= size)
        return 1;
    free(*memory);
    *memory = NULL;
    *room = 0;
    if (posix_memalign(memory, 64, dg_round_up(size, 64)))
        return 0;
    *room = size;
    return 1;
}

static void put_exact(dg_pair *pairs, const double *weights, int taps)
{
    for (int i = 0; i < taps + (taps & 1); i++) {
        double scaled = i < taps ? weights[i] * (1 << DG_EXACT_BITS) : 0.0;
        int weight = (int)(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
        int low = (int16_t)(weight & 0xffff);
        pairs[i / 2].exact.low[i & 1] = (int16_t)low;
        pairs[i / 2].exact.high[i & 1] = pairs[i / 2].exact.high[2 + (i & 1)] = (int8_t)((weight - low) >> 16);
    }
}

static void put_wide(dg_pair *pairs, const double *weights, int taps)
{
    for (int i = 0; i < taps + (taps & 1); i++)
        pairs[i / 2].wide[i & 1] = i < taps ? (float)weights[i] : 0.0f;
}

/* Rounded weights must add up to 1, or a flat area would change its level: the largest takes the difference. */
static void put_fast(dg_pair *pairs, dg_span *span, const double *weights)
{
    int16_t rounded[DG_FAST_TAPS];
    int from = 0, to = span->taps, sum = 0, largest = 0;
    for (int i = 0; i < span->taps; i++)
        rounded[i] = (int16_t)floor(weights[i] * (1 << DG_FAST_BITS) + 0.5);
    while (to - from > 1 && abs(rounded[to - 1]) <= FAST_TRIM)
        to--;
    while (to - from > 1 && abs(rounded[from]) <= FAST_TRIM)
        from++;
    for (int i = from; i < to; i++) {
        sum += rounded[i];
        if (i == from || rounded[i] > rounded[largest])
            largest = i;
    }
    rounded[largest] = (int16_t)(rounded[largest] + (1 << DG_FAST_BITS) - sum);
    span->first += from;
    span->taps = to - from;
    for (int i = 0; i < span->taps + (span->taps & 1); i++) {
        int16_t weight = i < span->taps ? rounded[from + i] : 0;
        pairs[i / 2].fast[i & 1][0] = pairs[i / 2].fast[i & 1][1] = weight;
    }
}

static void fill(dg_axis *axis, double *weights)
{
    double scale = (double)(axis->end - axis->start) / axis->target;
    double wide = scale < 1.0 ? 1.0 : scale, narrow = 1.0 / wide, support = LOBES * wide;
    double (*filter)(double) = axis->weights == DG_WEIGHTS_FAST ? lanczos_looked_up : lanczos;
    for (int i = 0; i < axis->target; i++) {
        double center = axis->start + (i + 0.5) * scale, sum = 0.0;
        /* Rounded as a cast does, towards 0, before the ends are cut. */
        int first = (int)(center - support + 0.5), last = (int)(center + support + 0.5);
        first = first < 0 ? 0 : first;
        last = last > axis->source ? axis->source : last;
        dg_span *span = &axis->spans[i];
        dg_pair *pairs = axis->pairs + i * axis->stride;
        *span = (dg_span){first, last - first};
        for (int k = 0; k < span->taps; k++)
            sum += weights[k] = filter((k + first - center + 0.5) * narrow);
        for (int k = 0; k < span->taps && sum != 0.0; k++)
            weights[k] /= sum;
        if (axis->weights == DG_WEIGHTS_EXACT)
            put_exact(pairs, weights, span->taps);
        else if (axis->weights == DG_WEIGHTS_FAST)
            put_fast(pairs, span, weights);
        else
            put_wide(pairs, weights, span->taps);
    }
}

dg_status dg_axis_set(dg_axis *axis, int source, double start, double end, int target, dg_weights weights)
{
    if (axis->source == source && axis->target == target && axis->start == (float)start && axis->end == (float)end &&
        axis->weights == weights)
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
    double *scratch = malloc((size_t)taps * sizeof *scratch);
    if (!scratch || !make_room((void **)&axis->spans, &axis->spans_room, target * sizeof(dg_span)) ||
        !make_room((void **)&axis->pairs, &axis->pairs_room, target * axis->stride * sizeof(dg_pair))) {
        free(scratch);
        return DG_NO_MEMORY;
    }
    pthread_once(&once, fill_table);
    axis->source = source;
    fill(axis, scratch);
    free(scratch);
    /* With one sample to one, all weights but one are sin(n * pi), which rounds to 0: Pillow's result is a copy as well. */
    axis->same = axis->end - axis->start == target && axis->start == floorf(axis->start);
    axis->first = axis->same ? (int)axis->start : axis->source;
    int end_of_all = axis->same ? axis->first + target : 0;
    axis->taps = 1;
    for (int i = 0; i < target && !axis->same; i++) {
        const dg_span *span = &axis->spans[i];
        axis->first = span->first < axis->first ? span->first : axis->first;
        end_of_all = span->first + span->taps > end_of_all ? span->first + span->taps : end_of_all;
        axis->taps = span->taps > axis->taps ? span->taps : axis->taps;
    }
    axis->count = end_of_all - axis->first;
    return DG_OK;
}

void dg_axis_free(dg_axis *axis)
{
    free(axis->spans);
    free(axis->pairs);
    memset(axis, 0, sizeof *axis);
}
