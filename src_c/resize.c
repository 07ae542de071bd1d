/* The way of a row: load (cut, premultiply) → horizontal pass in bands → window of rows → vertical pass → store; or, if
 * the vertical pass comes first: load → window → vertical pass → bands → horizontal pass → store. A pass that would
 * only copy is left out. */
#include "resize_kernels.h"

#include <string.h>

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
        gone = gone < resizer->window_rows ? gone : resizer->window_rows; /* some rows may be nobody's */
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
