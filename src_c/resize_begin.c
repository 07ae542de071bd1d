/* How a resizer begins a picture: it checks the plan, computes the weights, and lays out its memory. */
#include "resize_kernels.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_SIDE = 1 << 28 }; /* four channels of it still fit an int */

dg_resizer *dg_resizer_new(void)
{
    dg_resizer *resizer = calloc(1, sizeof *resizer);
    if (resizer)
        dg_resizer_use(resizer, dg_simd_choice());
    return resizer;
}

void dg_resizer_free(dg_resizer *resizer)
{
    if (!resizer)
        return;
    dg_axis_free(&resizer->x);
    dg_axis_free(&resizer->y);
    dg_scratch_free(&resizer->memory);
    free(resizer);
}

int dg_resizer_use(dg_resizer *resizer, dg_simd simd)
{
    if (!dg_simd_available(simd))
        return 0;
    resizer->functions = &dg_resize_generic;
#ifdef __x86_64__
    if (simd == DG_SIMD_AVX2)
        resizer->functions = &dg_resize_avx2;
#endif
#ifdef __aarch64__
    if (simd == DG_SIMD_NEON)
        resizer->functions = &dg_resize_neon;
#endif
    return 1;
}

static dg_status check(const dg_resize_plan *plan, dg_error *error)
{
    if (plan->src_width <= 0 || plan->src_height <= 0 || plan->dst_width <= 0 || plan->dst_height <= 0 || plan->channels < 1
        || plan->channels > 4 || (plan->depth != 8 && plan->depth != 16))
        return dg_fail(error, DG_UNSUPPORTED, "resize of %dx%d to %dx%d, %d channels of %d bits", plan->src_width,
                       plan->src_height, plan->dst_width, plan->dst_height, plan->channels, plan->depth);
    int wider = plan->channels == 3 ? 4 : plan->channels;
    if ((plan->src_pixel_stride != plan->channels && plan->src_pixel_stride != wider)
        || (plan->dst_pixel_stride != plan->channels && plan->dst_pixel_stride != wider))
        return dg_fail(error, DG_UNSUPPORTED, "resize of %d channels with pixel strides %d and %d", plan->channels,
                       plan->src_pixel_stride, plan->dst_pixel_stride);
    if (plan->src_width > MAX_SIDE || plan->src_height > MAX_SIDE || plan->whole.width > MAX_SIDE
        || plan->whole.height > MAX_SIDE)
        return dg_fail(error, DG_TOO_LARGE, "resize of %dx%d to %dx%d", plan->src_width, plan->src_height, plan->whole.width,
                       plan->whole.height);
    if (plan->dst_x < 0 || plan->dst_y < 0 || plan->dst_width > plan->whole.width - plan->dst_x
        || plan->dst_height > plan->whole.height - plan->dst_y || plan->filter > DG_FILTER_NEAREST)
        return dg_fail(error, DG_UNSUPPORTED, "resize by filter %d to the part %d %d %d %d of %dx%d", plan->filter, plan->dst_x,
                       plan->dst_y, plan->dst_width, plan->dst_height, plan->whole.width, plan->whole.height);
    const dg_box *box = &plan->box;
    float x0 = (float)box->x0, y0 = (float)box->y0, x1 = (float)box->x1, y1 = (float)box->y1;
    if (!(x0 >= 0 && x1 >= x0 && x1 <= (float)plan->src_width && y0 >= 0 && y1 >= y0 && y1 <= (float)plan->src_height))
        return dg_fail(error, DG_UNSUPPORTED, "resize of the box %g %g %g %g of %dx%d", box->x0, box->y0, box->x1, box->y1,
                       plan->src_width, plan->src_height);
    return DG_OK;
}

/* One direction: a box from start to end of `size` samples. */
static dg_axis_plan axis_plan(const dg_resize_plan *plan, int size, double start, double end, int whole, int from, int target)
{
    int offset = plan->crop_first ? (int)start : 0, stop = plan->crop_first ? (int)ceil(end) : size;
    if (stop == offset) /* an empty box */
        offset = 0, stop = size;
    return (dg_axis_plan){offset,
                          stop - offset,
                          (float)(start - offset),
                          (float)(end - offset),
                          whole,
                          from,
                          target,
                          plan->filter,
                          plan->depth == 16 ? DG_WEIGHTS_FLOAT : DG_WEIGHTS_EXACT};
}

/* Whether all that may be looked at is what all of the result is made of, one to one. */
static int is_copy(const dg_axis_plan *plan)
{
    return plan->start == 0 && plan->end == (float)plan->source && plan->source == plan->whole;
}

/* Pillow 13 takes the vertical pass first when it removes more than twice as many rows as columns are removed, which is
 * the cheaper way then. The fast mode does the same: either way costs it about as much, and so it stays nearer to the
 * exact one. */
static int vertical_pass_first(const dg_resizer *resizer)
{
    const dg_resize_plan *plan = &resizer->plan;
    if (plan->depth == 16 || resizer->y.same)
        return 0;
    if (resizer->x.same)
        return 1;
    if (plan->order != DG_ORDER_AUTO)
        return plan->order == DG_ORDER_VERTICAL;
    const dg_axis_plan *x = &resizer->x.plan, *y = &resizer->y.plan;
    int64_t rows = (int64_t)y->source - y->whole, columns = (int64_t)x->source - x->whole;
    return rows > 0 && rows > columns * 2;
}

/* Rows are an odd number of cache lines apart, since rows a power of two apart would all compete for the same sets of the cache. */
static size_t spread(size_t bytes) { return (dg_round_up(bytes, 64) / 64 | 1) * 64; }

static int lay_out(dg_resizer *resizer)
{
    const dg_axis *x = &resizer->x, *y = &resizer->y;
    size_t sample = resizer->plan.depth == 16 ? sizeof(float) : 1;
    size_t before = spread(resizer->loaded * sample), after = spread(resizer->stored * sample);
    resizer->window_stride = resizer->vertical_first ? before : after;
    resizer->band_stride = before;
    resizer->finished_stride = after;
    /* Twice the longest span, so that moving what is still needed to the front costs at most one more copy a row. */
    int64_t room = 2 * (int64_t)y->taps + 2 * DG_BAND, all = (int64_t)y->count + DG_BAND;
    resizer->window_room = (int)(room < all ? room : all);
    size_t window = (resizer->window_room + 1) * resizer->window_stride; /* one for an odd span's zero weight */
    size_t band = DG_BAND * before, finished = DG_BAND * after;
    size_t columns_in = (dg_round_up(resizer->loaded, 16) + 16) * DG_BAND; /* here it is a pixel, 4 columns at most */
    size_t columns_out = dg_round_up(resizer->stored, 16) * DG_BAND;
    if (y->same)
        window = 0;
    if (x->same || sample > 1)
        columns_in = columns_out = 0;
    if (dg_scratch_reserve(&resizer->memory, dg_round_up(window + band + columns_in + columns_out + finished, 64)) != DG_OK)
        return 0;
    resizer->window = resizer->memory.data;
    resizer->band = resizer->window + window;
    resizer->columns_in = resizer->band + band;
    resizer->columns_out = resizer->columns_in + columns_in;
    resizer->finished = resizer->columns_out + columns_out;
    return 1;
}

dg_status dg_resizer_begin(dg_resizer *resizer, const dg_resize_plan *plan, uint8_t *dst, size_t dst_stride, dg_error *error)
{
    resizer->plan = *plan;
    if (plan->whole.width == 0)
        resizer->plan.whole = (dg_size){plan->dst_width, plan->dst_height};
    plan = &resizer->plan;
    dg_status status = check(plan, error);
    if (status != DG_OK)
        return status;
    const dg_box *box = &plan->box;
    dg_axis_plan x = axis_plan(plan, plan->src_width, box->x0, box->x1, plan->whole.width, plan->dst_x, plan->dst_width);
    dg_axis_plan y = axis_plan(plan, plan->src_height, box->y0, box->y1, plan->whole.height, plan->dst_y, plan->dst_height);
    int fast =
        plan->depth == 8 && plan->mode == DG_RESIZE_FAST && dg_axis_taps(&x) <= DG_FAST_TAPS && dg_axis_taps(&y) <= DG_FAST_TAPS;
    if (fast)
        x.weights = y.weights = DG_WEIGHTS_FAST;
    status = dg_axis_set(&resizer->x, &x);
    if (status == DG_OK)
        status = dg_axis_set(&resizer->y, &y);
    if (status == DG_OK) {
        /* As in Pillow, a mere copy is untouched, and so is what the nearest pixel says. */
        resizer->alpha = plan->channels % 2 == 0 && plan->filter != DG_FILTER_NEAREST && !(is_copy(&x) && is_copy(&y));
        resizer->loaded = resizer->x.count * plan->channels;
        resizer->stored = plan->dst_width * plan->channels;
        resizer->vertical_first = vertical_pass_first(resizer);
        if (!lay_out(resizer))
            status = DG_NO_MEMORY;
    }
    if (status != DG_OK)
        return dg_fail(error, status, "no memory to resize %dx%d to %dx%d", plan->src_width, plan->src_height, plan->dst_width,
                       plan->dst_height);
    resizer->dst = dst;
    resizer->dst_stride = dst_stride;
    resizer->flip = fast ? 128 : 0;
    resizer->next = resizer->window_first = resizer->y.first;
    resizer->made = resizer->done = resizer->window_rows = resizer->band_rows = 0;
    return DG_OK;
}

void dg_resizer_source(const dg_resizer *resizer, int *x, int *columns, int *y, int *rows)
{
    *x = resizer->x.first;
    *columns = resizer->x.count;
    *y = resizer->y.first;
    *rows = resizer->y.count;
}
