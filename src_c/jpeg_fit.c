#include <math.h>
#include <string.h>

#include "jpeg_internal.h"

#if JPEG_LIB_VERSION >= 70
#define DCT_SIZE(component) ((component)->DCT_h_scaled_size)
#else
#define DCT_SIZE(component) ((component)->DCT_scaled_size)
#endif

/* libjpeg-turbo writes rows that begin at a multiple of 16 bytes past the caches, and the resizer would have to fetch them from memory
 * again. So no row of the band begins at such an address: dg_scratch memory is aligned to ROW_GRAIN, rows are a multiple of it apart, and
 * the first one begins OFF_GRAIN bytes behind its beginning. */
enum { ROWS_AT_ONCE = 16, ROW_GRAIN = 64, OFF_GRAIN = 8 };

/* How much larger than the target the picture is decoded at least. bench/quality.py has what it costs and gives. */
#define DG_DCT_MARGIN 1.25

/* Pixels on either side of what is needed that are decoded too. Fancy upsampling mixes a chroma sample with its neighbours, and thinks
 * that there are none beyond the columns, and above the rows, that it is given: 4:2:0 needs one pixel. It also wants no fewer than
 * three columns of chroma, or it is done otherwise. */
#define DG_JPEG_MARGIN 4

/* The ratio of grain at full size to grain at a reduced size, as a power of the reduction. It would be 1 for white noise that the coder
 * left as it was. */
#define GRAIN_POWER 0.9f

/* Levels by which a channel's mean may be expected to shift before a picture is decoded to RGB instead. */
#define MAX_SHIFT 0.33

/* The others take a source sample or leave it, so that the fewer there are, the further from its place each thing is shown. */
static int is_smooth(dg_resize_filter filter) { return filter != DG_FILTER_BOX && filter != DG_FILTER_NEAREST; }

/* Eighths of the full size at which to decode: only those that libjpeg-turbo has SIMD code for. */
static int choose_scale(const dg_resize_plan *plan)
{
    dg_size whole = plan->whole.width ? plan->whole : (dg_size){plan->dst_width, plan->dst_height};
    double width = plan->box.x1 - plan->box.x0, height = plan->box.y1 - plan->box.y0;
    for (int eighths = 1; eighths < 8; eighths *= 2)
        if (width * eighths / 8 >= whole.width * DG_DCT_MARGIN && height * eighths / 8 >= whole.height * DG_DCT_MARGIN)
            return eighths;
    return 8;
}

static void begin(dg_jpeg *jpeg, dg_resizer *resizer, const dg_resize_plan *plan, uint8_t *out, size_t stride)
{
    if (dg_resizer_begin(resizer, plan, out, stride, jpeg->error) != DG_OK)
        longjmp(jpeg->escape, 1);
}

/* Tells libjpeg which columns and rows are needed. Returns the column at which its rows begin from now on. */
static int cut(dg_jpeg *jpeg, const dg_resizer *resizer)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    int x, columns, y, rows;
    dg_resizer_source(resizer, &x, &columns, &y, &rows);
    int right = x + columns + DG_JPEG_MARGIN, width = (int)info->output_width;
    JDIMENSION left = x > DG_JPEG_MARGIN ? (JDIMENSION)(x - DG_JPEG_MARGIN) : 0;
    JDIMENSION kept = (JDIMENSION)(right < width ? right : width) - left;
    if (dg_jpeg_is_smoothed(jpeg))
        return 0; /* that looks at blocks further away */
    jpeg_crop_scanline(info, &left, &kept);
    if (y > DG_JPEG_MARGIN)
        jpeg_skip_scanlines(info, (JDIMENSION)(y - DG_JPEG_MARGIN));
    return (int)left;
}

/* Pushes row `y` of the decoded picture, if the resizer needs it. Returns how many destination rows are complete. */
static int push(dg_resizer *resizer, int y, const uint8_t *row)
{
    int first_column, columns, first, rows;
    dg_resizer_source(resizer, &first_column, &columns, &first, &rows);
    return y >= first && y < first + rows ? dg_resizer_push_row(resizer, row) : 0;
}

/* Pixels as dg_jpeg_decode gives them, a few rows at a time. */
static void fit_rows(dg_jpeg *jpeg, const dg_resize_plan *wanted, dg_image *image)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    dg_resize_plan plan = *wanted;
    dg_resizer *resizer = jpeg->resizers[0];
    JSAMPROW rows[ROWS_AT_ONCE];
    int cmyk = info->out_color_space == JCS_CMYK;
    if (info->out_color_space == JCS_EXT_RGBA)
        info->out_color_space = JCS_EXT_RGB; /* three channels are less to resample than four */
    jpeg_start_decompress(info);
    plan.src_width = (int)info->output_width;
    plan.src_height = (int)info->output_height;
    plan.channels = plan.src_pixel_stride = image->channels;
    plan.dst_pixel_stride = image->pixel_stride;
    plan.depth = 8;
    begin(jpeg, resizer, &plan, image->buffer.data, dg_image_stride(image));
    size_t before = (size_t)cut(jpeg, resizer) * plan.src_pixel_stride,
           bytes = (size_t)info->output_width * (cmyk ? 4 : plan.src_pixel_stride),
           stride = (bytes + ROW_GRAIN - 1) / ROW_GRAIN * ROW_GRAIN;
    uint8_t *band = dg_jpeg_reserve(jpeg, &jpeg->band, stride * (ROWS_AT_ONCE + 1) + OFF_GRAIN) + OFF_GRAIN;
    uint8_t *rgb = band + stride * ROWS_AT_ONCE;
    for (int i = 0; i < ROWS_AT_ONCE; i++)
        rows[i] = band + i * stride;
    int enough = jpeg->options->part && jpeg->marked_end ? plan.dst_height : plan.dst_height + 1;
    for (int done = 0; info->output_scanline < info->output_height && done < enough;) {
        int y = (int)info->output_scanline, count = (int)jpeg_read_scanlines(info, rows, ROWS_AT_ONCE);
        for (int i = 0; i < count; i++) {
            if (cmyk)
                dg_jpeg_cmyk_to_rgb(rows[i], rgb, (int)info->output_width, 3);
            int now = push(resizer, y + i, (cmyk ? rgb : rows[i]) - before);
            done = now > done ? now : done;
        }
    }
}

/* Whether luma has a whole number of samples for each of chroma. The standard allows other ratios, which no known encoder writes. */
static int planes_divide(const dg_jpeg *jpeg)
{
    const jpeg_component_info *c = jpeg->info.comp_info;
    return c[0].h_samp_factor % c[1].h_samp_factor == 0 && c[0].v_samp_factor % c[1].v_samp_factor == 0
           && c[1].h_samp_factor == c[2].h_samp_factor && c[1].v_samp_factor == c[2].v_samp_factor;
}

/* Whether the band may go on to be resampled as planes. Colours are judged after a quarter and a half of the picture too, since
 * to begin again is dearer the later it is; the less was seen, the surer it has to be. */
static int colours_hold(dg_jpeg *jpeg, JSAMPROW (*rows)[MAX_SAMP_FACTOR * 16], int band)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    jpeg_component_info *luma = &info->comp_info[0], *chroma = &info->comp_info[1];
    int ratio = luma->h_samp_factor * DCT_SIZE(luma) / (chroma->h_samp_factor * DCT_SIZE(chroma));
    int bands = (int)info->total_iMCU_rows, width = (int)luma->downsampled_width / ratio;
    if (dg_gamut_look(&jpeg->gamut, rows[0][0], ratio, rows[1][0], rows[2][0],
                      width < (int)chroma->downsampled_width ? width : (int)chroma->downsampled_width)
        != DG_OK)
        dg_jpeg_give_up(jpeg, DG_NO_MEMORY, "%s", "no memory to look at colours");
    double margin = band + 1 == bands ? 1 : band + 1 == bands / 2 ? 1.2 : band + 1 == bands / 4 ? 1.5 : 0;
    return margin == 0 || dg_gamut_shift(&jpeg->gamut) < MAX_SHIFT * margin;
}

/* Resamples luma and chroma as they are stored, each with its own scale. Returns 0 if that would shift the colours. */
static int fit_planes(dg_jpeg *jpeg, const dg_resize_plan *wanted, dg_image *image)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    int count = info->num_components, done = 0, band = 0, y[3] = {0}, complete[3] = {0};
    size_t plane = (size_t)wanted->dst_width * wanted->dst_height, size = 0;
    JSAMPROW rows[3][MAX_SAMP_FACTOR * 16];
    JSAMPARRAY bands[3] = {rows[0], rows[1], rows[2]};
    info->raw_data_out = TRUE;
    info->out_color_space = info->jpeg_color_space;
    info->scale_num = (unsigned)choose_scale(wanted);
    info->scale_denom = 8;
    jpeg_start_decompress(info);
    dg_gamut_begin(&jpeg->gamut, powf(8.0f / (float)info->scale_num, GRAIN_POWER));
    uint8_t *planes = count == 1 ? image->buffer.data : dg_jpeg_reserve(jpeg, &jpeg->planes, 3 * plane);
    for (int c = 0; c < count; c++) {
        jpeg_component_info *component = &info->comp_info[c];
        int dct = DCT_SIZE(component);
        dg_resize_plan plan = *wanted;
        double sx = (double)component->h_samp_factor * dct / (info->max_h_samp_factor * 8);
        double sy = (double)component->v_samp_factor * dct / (info->max_v_samp_factor * 8);
        plan.box = (dg_box){wanted->box.x0 * sx, wanted->box.y0 * sy, wanted->box.x1 * sx, wanted->box.y1 * sy};
        plan.src_width = (int)component->downsampled_width;
        plan.src_height = (int)component->downsampled_height;
        plan.channels = plan.src_pixel_stride = plan.dst_pixel_stride = 1;
        plan.depth = 8;
        begin(jpeg, jpeg->resizers[c], &plan, planes + c * plane, (size_t)wanted->dst_width);
        size += (size_t)component->width_in_blocks * dct * component->v_samp_factor * dct;
    }
    uint8_t *row = dg_jpeg_reserve(jpeg, &jpeg->band, size);
    for (int c = 0; c < count; c++) {
        jpeg_component_info *component = &info->comp_info[c];
        for (int i = 0; i < component->v_samp_factor * DCT_SIZE(component);
             i++, row += component->width_in_blocks * DCT_SIZE(component))
            rows[c][i] = row;
    }
    while (info->output_scanline < info->output_height) {
        jpeg_read_raw_data(info, bands, (JDIMENSION)info->max_v_samp_factor * 16);
        if (count == 3 && !colours_hold(jpeg, rows, band++))
            return 0;
        for (int c = 0; c < count; c++) {
            jpeg_component_info *component = &info->comp_info[c];
            for (int i = 0; i < component->v_samp_factor * DCT_SIZE(component); i++)
                if (y[c] < (int)component->downsampled_height) {
                    int now = push(jpeg->resizers[c], y[c]++, rows[c][i]);
                    complete[c] = now > complete[c] ? now : complete[c];
                }
        }
        for (; count == 3 && done < complete[0] && done < complete[1] && done < complete[2]; done++) {
            const uint8_t *luma = planes + (size_t)done * wanted->dst_width;
            dg_ycc_to_rgb(luma, luma + plane, luma + 2 * plane, image->buffer.data + done * dg_image_stride(image),
                          (size_t)wanted->dst_width, image->pixel_stride);
        }
    }
    return 1;
}

dg_status dg_jpeg_fit(dg_jpeg *jpeg, const uint8_t *data, size_t size, const dg_decode_options *options,
                      const dg_resize_plan *plan, dg_image *image, int *damaged, dg_error *error)
{
    memset(image, 0, sizeof *image);
    dg_jpeg_begin(jpeg, options, error);
    if (setjmp(jpeg->escape) == 0) {
        dg_jpeg_open(jpeg, data, size);
        int channels = jpeg->info.out_color_space == JCS_GRAYSCALE ? 1 : 3;
        int pixel_stride = channels == 3 && options->rgbx ? 4 : channels;
        if (dg_image_alloc(jpeg->heap, plan->dst_width, plan->dst_height, channels, pixel_stride, 8, image) != DG_OK)
            dg_jpeg_give_up(jpeg, DG_NO_MEMORY, "no memory for the pixels");
        J_COLOR_SPACE stored = jpeg->info.jpeg_color_space;
        /* At full size planes save a tenth, which restarts for the colours' sake would eat; grey has no colours. Of a box most of the
         * time goes into entropy decoding: a reduced size would save a fifth, and restarts cost more than that. */
        int planes = plan->mode == DG_RESIZE_FAST && !plan->crop_first && is_smooth(plan->filter)
                     && (stored == JCS_GRAYSCALE || (stored == JCS_YCbCr && choose_scale(plan) < 8 && planes_divide(jpeg)));
        if (planes && !fit_planes(jpeg, plan, image)) {
            dg_jpeg_close(jpeg);
            dg_jpeg_open(jpeg, data, size);
            planes = 0;
        }
        if (!planes)
            fit_rows(jpeg, plan, image);
        dg_jpeg_check_whole(jpeg);
        *damaged = jpeg->damaged;
    }
    dg_jpeg_close(jpeg);
    if (error->status != DG_OK)
        dg_image_free(image);
    return error->status;
}
