#include <string.h>

#include "jpeg_internal.h"

enum { ROWS_AT_ONCE = 16 }; /* row pointers offered in one call; libjpeg fills at most a row group of them */

void dg_jpeg_cmyk_to_rgb(const uint8_t *in, uint8_t *out, int count, int pixel_stride)
{
    for (int i = 0; i < count; i++, in += 4, out += pixel_stride) {
        for (int c = 0; c < 3; c++) {
            unsigned product = in[c] * in[3] + 128; /* / 255, rounded, without a division */
            out[c] = (uint8_t)((product + (product >> 8)) >> 8);
        }
        if (pixel_stride == 4)
            out[3] = 255;
    }
}

uint8_t *dg_jpeg_reserve(dg_jpeg *jpeg, dg_scratch *scratch, size_t size)
{
    if (dg_scratch_reserve(scratch, size) != DG_OK)
        dg_jpeg_give_up(jpeg, DG_NO_MEMORY, "no memory for %zu bytes of rows", size);
    return scratch->data;
}

static void read_rows(dg_jpeg *jpeg, dg_image *image)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    size_t stride = dg_image_stride(image);
    uint8_t *data = image->buffer.data;
    if (info->out_color_space == JCS_CMYK) {
        JSAMPROW row = dg_jpeg_reserve(jpeg, &jpeg->band, (size_t)info->output_width * 4);
        while (info->output_scanline < info->output_height) {
            uint8_t *out = data + info->output_scanline * stride;
            jpeg_read_scanlines(info, &row, 1);
            dg_jpeg_cmyk_to_rgb(row, out, image->width, image->pixel_stride);
        }
        return;
    }
    while (info->output_scanline < info->output_height) {
        JSAMPROW rows[ROWS_AT_ONCE];
        JDIMENSION left = info->output_height - info->output_scanline, count = left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE;
        for (JDIMENSION i = 0; i < count; i++)
            rows[i] = data + (info->output_scanline + i) * stride;
        jpeg_read_scanlines(info, rows, count);
    }
}

int dg_jpeg_is_smoothed(const dg_jpeg *jpeg)
{
    const struct jpeg_decompress_struct *info = &jpeg->info;
    for (int c = 0; info->progressive_mode && info->coef_bits && c < info->num_components; c++)
        for (int k = 0; k < DCTSIZE2; k++)
            if (info->coef_bits[c][k] != 0)
                return 1;
    return 0;
}

/* Called when every row is out: gives up if libjpeg made some of them up. A file that lacks nothing but its end marker is whole. */
static int is_truncated(const dg_jpeg *jpeg)
{
    const struct jpeg_decompress_struct *info = &jpeg->info;
    if (!jpeg->ended)
        return 0;
    if (jpeg->starved)
        return 1;
    if (!info->progressive_mode || !info->coef_bits)
        return jpeg_has_multiple_scans((j_decompress_ptr)info);
    return dg_jpeg_is_smoothed(jpeg);
}

void dg_jpeg_check_whole(dg_jpeg *jpeg)
{
    if (!jpeg->options->accept_truncated && is_truncated(jpeg))
        dg_jpeg_give_up(jpeg, DG_TRUNCATED, "jpeg: the file ends before its picture does");
    if (!jpeg->options->accept_damaged && jpeg->damaged && !jpeg->ended)
        dg_jpeg_give_up(jpeg, DG_CORRUPT, "jpeg: entropy-coded data is damaged");
}

dg_status dg_jpeg_decode(dg_jpeg *jpeg, const uint8_t *data, size_t size, const dg_decode_options *options, dg_image *image,
                         int *damaged, dg_error *error)
{
    memset(image, 0, sizeof *image);
    dg_jpeg_begin(jpeg, options, error);
    if (setjmp(jpeg->escape) == 0) {
        dg_jpeg_open(jpeg, data, size);
        int channels = jpeg->info.out_color_space == JCS_GRAYSCALE ? 1 : 3;
        int pixel_stride = channels == 3 && options->rgbx ? 4 : channels;
        jpeg_start_decompress(&jpeg->info);
        if (dg_image_alloc(jpeg->heap, (int)jpeg->info.output_width, (int)jpeg->info.output_height, channels, pixel_stride, 8,
                           image)
            != DG_OK)
            dg_jpeg_give_up(jpeg, DG_NO_MEMORY, "no memory for the pixels");
        read_rows(jpeg, image);
        dg_jpeg_check_whole(jpeg);
        *damaged = jpeg->damaged;
    }
    dg_jpeg_close(jpeg);
    if (error->status != DG_OK)
        dg_image_free(image);
    return error->status;
}

dg_status dg_jpeg_check(dg_jpeg *jpeg, const uint8_t *data, size_t size, const dg_decode_options *options, int *components,
                        dg_error *error)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    dg_jpeg_begin(jpeg, options, error);
    *components = 0;
    if (setjmp(jpeg->escape) == 0) {
        dg_jpeg_open(jpeg, data, size);
        info->scale_denom = 8;
        info->out_color_space = info->jpeg_color_space;
        jpeg_start_decompress(info);
        JSAMPROW row = dg_jpeg_reserve(jpeg, &jpeg->band, (size_t)info->output_width * (size_t)info->output_components);
        while (info->output_scanline < info->output_height)
            jpeg_read_scanlines(info, &row, 1);
        jpeg_finish_decompress(info); /* reads on to the end marker */
        if (!jpeg->ended && !jpeg->damaged)
            *components = info->num_components;
    }
    dg_jpeg_close(jpeg);
    return error->status;
}
