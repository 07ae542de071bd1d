/* The way of a row: load (cut, premultiply) → horizontal pass in bands → window of rows → vertical pass → store; or, if
 * the vertical pass comes first: load → window → vertical pass → bands → horizontal pass → store. A pass that would
 * only copy is left out. */
#include "resize_kernels.h"

#include <stdlib.h>
#include <string.h>

enum { SIDE_MOST = 1 << 28 }; /* four channels of it still fit an int */

struct dg_resizer {
    const dg_resize_functions *functions;
    dg_axis x, y;
    dg_resize_plan plan;
    uint8_t *dst;
    size_t dst_stride;
    int vertical_first;
    int alpha;          /* the last channel is alpha, and there is something to resample */
    uint8_t flip;       /* 128 where the passes work on signed bytes */
    int loaded, stored; /* samples (bytes) of a row before and after the horizontal pass */
    int next;           /* the source row to come */
    int made;           /* rows that the vertical pass has made */
    int done;           /* rows that are in the destination */

    uint8_t *window; /* rows window_first … + window_rows - 1 of the vertical pass's input */
    size_t window_stride;
    int window_first, window_rows, window_room;

    uint8_t *band; /* up to DG_BAND rows for the horizontal pass */
    size_t band_stride;
    int band_rows;
    uint8_t *columns_in, *columns_out; /* the band before and after it, transposed */
    uint8_t *finished;                 /* DG_BAND rows, or one, on the way to the destination */
    size_t finished_stride;

    dg_scratch memory; /* all of the above */
};

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

/* ---- Making ready ---- */

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
    if (plan->src_width > SIDE_MOST || plan->src_height > SIDE_MOST || plan->dst_width > SIDE_MOST
        || plan->dst_height > SIDE_MOST)
        return dg_fail(error, DG_TOO_LARGE, "resize of %dx%d to %dx%d", plan->src_width, plan->src_height, plan->dst_width,
                       plan->dst_height);
    const dg_box *box = &plan->box;
    float x0 = (float)box->x0, y0 = (float)box->y0, x1 = (float)box->x1, y1 = (float)box->y1;
    if (!(x0 >= 0 && x1 >= x0 && x1 <= (float)plan->src_width && y0 >= 0 && y1 >= y0 && y1 <= (float)plan->src_height))
        return dg_fail(error, DG_UNSUPPORTED, "resize of the box %g %g %g %g of %dx%d", box->x0, box->y0, box->x1, box->y1,
                       plan->src_width, plan->src_height);
    return DG_OK;
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
    int64_t rows = (int64_t)plan->src_height - plan->dst_height, columns = (int64_t)plan->src_width - plan->dst_width;
    return rows > 0 && rows > columns * 2;
}

/* An odd number of cache lines: rows a power of two apart would all want the same places of the cache. */
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
    plan = &resizer->plan;
    dg_status status = check(plan, error);
    if (status != DG_OK)
        return status;
    const dg_box *box = &plan->box;
    dg_weights weights = plan->depth == 16 ? DG_WEIGHTS_FLOAT : DG_WEIGHTS_EXACT;
    if (plan->depth == 8 && plan->mode == DG_RESIZE_FAST && dg_axis_taps(box->x0, box->x1, plan->dst_width) <= DG_FAST_TAPS
        && dg_axis_taps(box->y0, box->y1, plan->dst_height) <= DG_FAST_TAPS)
        weights = DG_WEIGHTS_FAST;
    status = dg_axis_set(&resizer->x, plan->src_width, box->x0, box->x1, plan->dst_width, weights);
    if (status == DG_OK)
        status = dg_axis_set(&resizer->y, plan->src_height, box->y0, box->y1, plan->dst_height, weights);
    if (status == DG_OK) {
        int whole = plan->src_width == plan->dst_width && plan->src_height == plan->dst_height && box->x0 == 0 && box->y0 == 0
                    && box->x1 == plan->src_width && box->y1 == plan->src_height;
        resizer->alpha = plan->channels % 2 == 0 && !whole; /* as in Pillow, a mere copy is untouched */
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
    resizer->flip = weights == DG_WEIGHTS_FAST ? 128 : 0;
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

/* ---- The way of a row ---- */

static void load_row(const dg_resizer *resizer, uint8_t *out, const uint8_t *row)
{
    const dg_resize_plan *plan = &resizer->plan;
    size_t columns = (size_t)resizer->x.count;
    row += (size_t)resizer->x.first * plan->src_pixel_stride;
    if (plan->channels == plan->src_pixel_stride && !resizer->alpha) {
        resizer->functions->copy(out, row, resizer->loaded, resizer->flip);
        return;
    }
    if (plan->channels == 3) {
        dg_rgbx_to_rgb(row, out, columns);
    } else {
        memcpy(out, row, resizer->loaded);
        resizer->functions->premultiply(out, columns, plan->channels);
    }
    if (resizer->flip)
        resizer->functions->copy(out, out, resizer->loaded, resizer->flip);
}

static void store_row(dg_resizer *resizer, uint8_t *row)
{
    const dg_resize_plan *plan = &resizer->plan;
    uint8_t *out = resizer->dst + resizer->done++ * resizer->dst_stride;
    if (plan->channels == plan->dst_pixel_stride) {
        resizer->functions->copy(out, row, resizer->stored, resizer->flip);
        if (resizer->alpha)
            resizer->functions->unpremultiply(out, plan->dst_width, plan->channels);
        return;
    }
    if (resizer->flip)
        resizer->functions->copy(row, row, resizer->stored, resizer->flip);
    dg_rgb_to_rgbx(row, out, plan->dst_width);
}

/* Room for `rows` more rows at the end of the window; what the next row to be made does not need may go for it. */
static uint8_t *extend_window(dg_resizer *resizer, int rows)
{
    if (resizer->window_rows + rows > resizer->window_room) {
        int gone = resizer->y.spans[resizer->made].first - resizer->window_first;
        resizer->window_first += gone;
        resizer->window_rows -= gone;
        memmove(resizer->window, resizer->window + gone * resizer->window_stride, resizer->window_rows * resizer->window_stride);
    }
    return resizer->window + resizer->window_rows * resizer->window_stride;
}

/* Resamples the band and sends its rows on: to the window, or to the destination if nothing else is to be done. */
static void horizontal_pass(dg_resizer *resizer)
{
    const dg_resize_functions *functions = resizer->functions;
    functions->rows_to_columns(resizer->columns_in, resizer->band, resizer->band_stride, resizer->loaded);
    (resizer->flip ? functions->columns_fast : functions->columns_exact)(resizer->columns_out, resizer->columns_in, &resizer->x,
                                                                         resizer->plan.channels);
    if (resizer->vertical_first || resizer->y.same) {
        functions->columns_to_rows(resizer->finished, resizer->finished_stride, resizer->columns_out, resizer->stored);
        for (int i = 0; i < resizer->band_rows; i++)
            store_row(resizer, resizer->finished + i * resizer->finished_stride);
    } else {
        uint8_t *rows = extend_window(resizer, DG_BAND);
        functions->columns_to_rows(rows, resizer->window_stride, resizer->columns_out, resizer->stored);
        resizer->window_rows += resizer->band_rows;
    }
    resizer->band_rows = 0;
}

/* Makes every row that the window has all the rows for. */
static void vertical_pass(dg_resizer *resizer)
{
    const dg_axis *y = &resizer->y;
    for (; resizer->made < y->target; resizer->made++) {
        const dg_span *span = &y->spans[resizer->made];
        if (span->first + span->taps > resizer->window_first + resizer->window_rows)
            return;
        const uint8_t *rows = resizer->window + (span->first - resizer->window_first) * resizer->window_stride;
        const dg_pair *pairs = y->pairs + resizer->made * y->stride;
        if (resizer->plan.depth == 16) {
            uint16_t *out = (uint16_t *)(resizer->dst + resizer->done++ * resizer->dst_stride);
            dg_wide_vertical(out, (const float *)rows, resizer->window_stride / sizeof(float), y, resizer->made, &resizer->plan,
                             resizer->alpha, (float *)resizer->finished);
            continue;
        }
        int to_band = resizer->vertical_first && !resizer->x.same;
        uint8_t *out = to_band ? resizer->band + resizer->band_rows * resizer->band_stride : resizer->finished;
        (resizer->flip ? resizer->functions->rows_fast : resizer->functions->rows_exact)(
            out, rows, resizer->window_stride, pairs, span->taps, resizer->vertical_first ? resizer->loaded : resizer->stored);
        if (!to_band)
            store_row(resizer, out);
        else if (++resizer->band_rows == DG_BAND || resizer->made + 1 == y->target)
            horizontal_pass(resizer);
    }
}

int dg_resizer_push_row(dg_resizer *resizer, const uint8_t *row)
{
    int end = resizer->y.first + resizer->y.count;
    if (resizer->next >= end || resizer->done == resizer->plan.dst_height)
        return resizer->done;
    resizer->next++;
    if (resizer->plan.depth == 16) {
        dg_wide_horizontal((float *)extend_window(resizer, 1), (const uint16_t *)row, &resizer->x, &resizer->plan, resizer->alpha,
                           (float *)resizer->band);
        resizer->window_rows++;
    } else if (resizer->vertical_first) {
        load_row(resizer, extend_window(resizer, 1), row);
        resizer->window_rows++;
    } else if (resizer->x.same) {
        load_row(resizer, resizer->finished, row);
        store_row(resizer, resizer->finished);
    } else {
        load_row(resizer, resizer->band + resizer->band_rows++ * resizer->band_stride, row);
        if (resizer->band_rows == DG_BAND || resizer->next == end)
            horizontal_pass(resizer);
    }
    if (!resizer->y.same)
        vertical_pass(resizer);
    return resizer->done;
}

dg_status dg_resize(dg_resizer *resizer, const dg_resize_plan *plan, const uint8_t *src, size_t src_stride, uint8_t *dst,
                    size_t dst_stride, dg_error *error)
{
    dg_status status = dg_resizer_begin(resizer, plan, dst, dst_stride, error);
    if (status != DG_OK)
        return status;
    int first = resizer->y.first, end = first + resizer->y.count;
    for (int row = first; row < end; row++)
        dg_resizer_push_row(resizer, src + row * src_stride);
    return DG_OK;
}
