/* Weights: which source samples make a destination sample, and how much of each. The arithmetic is Pillow's, in
 * double. */
#include "resize_kernels.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOBES = 3, /* of Lanczos */
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

static double bicubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0)
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    return x < 2.0 ? (((x - 5) * x + 8) * x - 4) * a : 0.0;
}

static double bilinear(double x) { return fabs(x) < 1.0 ? 1.0 - fabs(x) : 0.0; }

static double box(double x) { return -0.5 < x && x <= 0.5 ? 1.0 : 0.0; }

/* How far a kernel reaches to either side where the picture does not shrink. */
static const double REACH[] = {[DG_FILTER_LANCZOS] = LOBES,
                               [DG_FILTER_BICUBIC] = 2,
                               [DG_FILTER_BILINEAR] = 1,
                               [DG_FILTER_BOX] = 0.5,
                               [DG_FILTER_NEAREST] = 0.5};

/* Source samples from one destination sample to the next. */
static double step(const dg_axis_plan *plan) { return (double)(plan->end - plan->start) / plan->whole; }

static double support(const dg_axis_plan *plan) { return REACH[plan->filter] * fmax(step(plan), 1.0); }

int dg_axis_taps(const dg_axis_plan *plan) { return plan->filter == DG_FILTER_NEAREST ? 1 : (int)ceil(support(plan)) * 2 + 1; }

static void put_exact(dg_pair *pair, int slot, double weight)
{
    double scaled = weight * (1 << DG_EXACT_BITS);
    int rounded = (int)(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
    int low = (int16_t)(rounded & 0xffff);
    pair->exact.low[slot] = (int16_t)low;
    pair->exact.high[slot] = pair->exact.high[2 + slot] = (int8_t)((rounded - low) >> 16);
}

/* Rounded weights must add up to 1, or a flat area would change its level: the largest takes the difference. */
static void round_fast(dg_span *span, double *weights, double total)
{
    int from = 0, to = span->taps, sum = 0, largest = 0;
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

/* The kernel at each of a span's samples, which the compiler makes a loop of its own for each kernel. Their sum. */
static inline __attribute__((always_inline)) double sample(double *weights, dg_span span, double center, double narrow,
                                                           double (*kernel)(double))
{
    double sum = 0.0;
    for (int k = 0; k < span.taps; k++)
        sum += weights[k] = kernel((k + span.first - center + 0.5) * narrow);
    return sum;
}

/* The span of destination sample i of the whole, and its weights. `scale` and `reach` are the plan's step and support. */
static dg_span weigh(const dg_axis_plan *plan, int i, double scale, double reach, double *weights)
{
    double narrow = 1.0 / (scale < 1.0 ? 1.0 : scale), center = plan->start + (i + 0.5) * scale, sum;
    /* Rounded as a cast does, towards 0, before the ends are cut. */
    int first = (int)(center - reach + 0.5), last = (int)(center + reach + 0.5);
    first = first < 0 ? 0 : first;
    last = last > plan->source ? plan->source : last;
    dg_span span = {first, last - first};
    switch (plan->filter) {
    case DG_FILTER_BICUBIC: sum = sample(weights, span, center, narrow, bicubic); break;
    case DG_FILTER_BILINEAR: sum = sample(weights, span, center, narrow, bilinear); break;
    case DG_FILTER_BOX: sum = sample(weights, span, center, narrow, box); break;
    default:
        sum = plan->weights == DG_WEIGHTS_FAST ? sample(weights, span, center, narrow, lanczos_looked_up)
                                               : sample(weights, span, center, narrow, lanczos);
    }
    if (plan->weights == DG_WEIGHTS_FAST)
        round_fast(&span, weights, sum);
    else
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
    const dg_axis_plan *plan = &axis->plan;
    int end = 0;
    double scale = step(plan), reach = support(plan);
    double nearest = plan->start + scale * 0.5; /* as in Pillow a sum, which rounds otherwise than a product */
    for (int i = 0; i < plan->from && plan->filter == DG_FILTER_NEAREST; i++)
        nearest += scale;
    axis->first = plan->offset + plan->source;
    axis->taps = 0;
    for (int i = 0; i < plan->target; i++, nearest += scale) {
        dg_span span = {nearest < plan->source ? (int)nearest : plan->source - 1, 1};
        weights[0] = plan->weights == DG_WEIGHTS_FAST ? 1 << DG_FAST_BITS : 1.0;
        if (plan->filter != DG_FILTER_NEAREST)
            span = weigh(plan, plan->from + i, scale, reach, weights);
        put(axis->pairs + i * axis->stride, plan->weights, weights, span.taps);
        span.first += plan->offset;
        axis->spans[i] = span;
        axis->first = span.first < axis->first ? span.first : axis->first;
        axis->taps = span.taps > axis->taps ? span.taps : axis->taps;
        end = span.first + span.taps > end ? span.first + span.taps : end;
    }
    axis->count = end - axis->first;
}

static int is_same(const dg_axis_plan *a, const dg_axis_plan *b)
{
    return a->offset == b->offset && a->source == b->source && a->start == b->start && a->end == b->end && a->whole == b->whole
           && a->from == b->from && a->target == b->target && a->filter == b->filter && a->weights == b->weights;
}

dg_status dg_axis_set(dg_axis *axis, const dg_axis_plan *plan)
{
    if (axis->target && is_same(&axis->plan, plan))
        return DG_OK;
    axis->plan = *plan;
    axis->target = 0; /* not valid until all is done */
    int taps = dg_axis_taps(plan);
    if (taps > plan->source)
        taps = plan->source;
    axis->stride = ((size_t)taps + 1) / 2;
    double *scratch = malloc(((size_t)taps + 1) * sizeof *scratch);
    if (!scratch || dg_scratch_reserve(&axis->span_memory, dg_round_up(plan->target * sizeof(dg_span), 64)) != DG_OK
        || dg_scratch_reserve(&axis->pair_memory, dg_round_up(plan->target * axis->stride * sizeof(dg_pair), 64)) != DG_OK) {
        free(scratch);
        return DG_NO_MEMORY;
    }
    axis->spans = (dg_span *)axis->span_memory.data;
    axis->pairs = (dg_pair *)axis->pair_memory.data;
    pthread_once(&once, fill_table);
    fill(axis, scratch);
    free(scratch);
    axis->target = plan->target;
    /* With one sample to one, all weights but one are 0, of Lanczos sin(n * pi), which rounds to 0: Pillow's result is a copy as
     * well. */
    axis->same =
        plan->weights != DG_WEIGHTS_FLOAT && plan->end - plan->start == plan->whole && plan->start == floorf(plan->start);
    if (axis->same) {
        axis->first = plan->offset + (int)plan->start + plan->from;
        axis->count = axis->target;
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
