#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "jpeg_internal.h"

#include <jerror.h>

enum {
    ROWS_AT_ONCE = 16, /* row pointers offered in one call; libjpeg fills at most a row group of them */
    SCANS_MOST = 500,  /* a progressive file of few bytes can ask for any number of passes over the whole picture */
};

static dg_jpeg *of(j_common_ptr info) { return info->client_data; }

void dg_jpeg_give_up(dg_jpeg *jpeg, dg_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(jpeg->error->text, sizeof jpeg->error->text, format, arguments);
    va_end(arguments);
    jpeg->error->status = status;
    longjmp(jpeg->escape, 1);
}

/* What libjpeg calls an error ends the picture. Which kind it is decides whether a user mends files or waits for us. */
static void on_error(j_common_ptr info)
{
    dg_jpeg *jpeg = of(info);
    char text[JMSG_LENGTH_MAX];
    info->err->format_message(info, text);
    dg_status status = DG_CORRUPT;
    switch (info->err->msg_code) {
    case JERR_OUT_OF_MEMORY: status = DG_NO_MEMORY; break;
    case JERR_ARITH_NOTIMPL:
    case JERR_BAD_PRECISION:
    case JERR_CCIR601_NOTIMPL:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_NOT_COMPILED:
    case JERR_SOF_UNSUPPORTED: status = DG_UNSUPPORTED; break;
    default:
        if (jpeg->ended)
            status = DG_TRUNCATED;
    }
    dg_jpeg_give_up(jpeg, status, "jpeg: %s", text);
}

/* Warnings are not printed. Some of them tell that pixels are missing or wrong. */
static void on_message(j_common_ptr info, int level)
{
    if (level >= 0)
        return;
    dg_jpeg *jpeg = of(info);
    switch (info->err->msg_code) {
    case JWRN_HIT_MARKER: jpeg->starved = 1; /* fall through */
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC: jpeg->damaged = 1;
    }
}

static void ignore(j_decompress_ptr info) { (void)info; }

static boolean refill(j_decompress_ptr info)
{
    static const JOCTET end[2] = {0xFF, JPEG_EOI};
    of((j_common_ptr)info)->ended = 1;
    info->src->next_input_byte = end;
    info->src->bytes_in_buffer = 2;
    return TRUE;
}

static void skip(j_decompress_ptr info, long count)
{
    struct jpeg_source_mgr *source = info->src;
    if (count <= 0)
        return;
    if ((size_t)count > source->bytes_in_buffer) {
        refill(info);
        return;
    }
    source->next_input_byte += count;
    source->bytes_in_buffer -= (size_t)count;
}

/* libjpeg calls this between passes and rows: where stop() and the scan limit are seen. */
static void on_progress(j_common_ptr info)
{
    dg_jpeg *jpeg = of(info);
    if (jpeg->options->stop && *jpeg->options->stop)
        dg_jpeg_give_up(jpeg, DG_CANCELLED, "%s", "");
    if (jpeg->info.input_scan_number > SCANS_MOST)
        dg_jpeg_give_up(jpeg, DG_TOO_LARGE, "jpeg: more than %d scans", SCANS_MOST);
}

dg_jpeg *dg_jpeg_new(dg_heap *heap)
{
    dg_jpeg *jpeg = calloc(1, sizeof *jpeg);
    if (!jpeg)
        return NULL;
    jpeg->heap = heap;
    for (int i = 0; i < 3; i++)
        if (!(jpeg->resizers[i] = dg_resizer_new())) {
            dg_jpeg_free(jpeg);
            return NULL;
        }
    return jpeg;
}

void dg_jpeg_free(dg_jpeg *jpeg)
{
    if (!jpeg)
        return;
    dg_scratch_free(&jpeg->band);
    dg_scratch_free(&jpeg->planes);
    dg_gamut_free(&jpeg->gamut);
    for (int i = 0; i < 3; i++)
        dg_resizer_free(jpeg->resizers[i]);
    free(jpeg);
}

static void choose_output(dg_jpeg *jpeg)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    switch (info->jpeg_color_space) {
    case JCS_GRAYSCALE: info->out_color_space = JCS_GRAYSCALE; break;
    case JCS_YCbCr:
    case JCS_RGB: info->out_color_space = jpeg->options->rgbx ? JCS_EXT_RGBA : JCS_EXT_RGB; break;
    case JCS_CMYK:
    case JCS_YCCK: info->out_color_space = JCS_CMYK; break;
    default: dg_jpeg_give_up(jpeg, DG_UNSUPPORTED, "jpeg: %d components of no known colour space", info->num_components);
    }
}

/* Tables live as long as libjpeg's object does, and a file without its own would quietly be decoded with those of the
 * picture before it. So each picture gets a fresh object; that costs a few microseconds. */
void dg_jpeg_open(dg_jpeg *jpeg, const uint8_t *data, size_t size, const dg_decode_options *options, dg_error *error)
{
    jpeg->options = options;
    jpeg->error = error;
    jpeg->info.err = jpeg_std_error(&jpeg->errors);
    jpeg->errors.error_exit = on_error;
    jpeg->errors.emit_message = on_message;
    jpeg->info.client_data = jpeg;
    jpeg_create_decompress(&jpeg->info);
    jpeg->source = (struct jpeg_source_mgr){data, size, ignore, refill, skip, jpeg_resync_to_restart, ignore};
    jpeg->info.src = &jpeg->source;
    jpeg->progress.progress_monitor = on_progress;
    jpeg->info.progress = &jpeg->progress;
    jpeg->marked_end = dg_jpeg_ends(data, size);
    jpeg->ended = jpeg->starved = jpeg->damaged = 0;
    jpeg_read_header(&jpeg->info, TRUE);
    if ((uint64_t)jpeg->info.image_width * jpeg->info.image_height > options->max_pixels)
        dg_jpeg_give_up(jpeg, DG_TOO_LARGE, "jpeg: %u x %u pixels, max_pixels is %llu", jpeg->info.image_width,
                        jpeg->info.image_height, (unsigned long long)options->max_pixels);
    choose_output(jpeg);
}

void dg_jpeg_cmyk_to_rgb(const uint8_t *in, uint8_t *out, int count, int step)
{
    for (int i = 0; i < count; i++, in += 4, out += step) {
        for (int c = 0; c < 3; c++) {
            unsigned product = in[c] * in[3] + 128; /* / 255, rounded, without a division */
            out[c] = (uint8_t)((product + (product >> 8)) >> 8);
        }
        if (step == 4)
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
            dg_jpeg_cmyk_to_rgb(row, out, image->width, image->step);
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

/* Every row is out: is some of it made up? A file that lacks nothing but its end marker is whole. */
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
    memset(&jpeg->info, 0, sizeof jpeg->info);
    error->status = DG_OK;
    if (setjmp(jpeg->escape) == 0) {
        dg_jpeg_open(jpeg, data, size, options, error);
        int channels = jpeg->info.out_color_space == JCS_GRAYSCALE ? 1 : 3;
        int step = channels == 3 && options->rgbx ? 4 : channels;
        jpeg_start_decompress(&jpeg->info);
        if (dg_image_alloc(jpeg->heap, (int)jpeg->info.output_width, (int)jpeg->info.output_height, channels, step, 8, image)
            != DG_OK)
            dg_jpeg_give_up(jpeg, DG_NO_MEMORY, "no memory for the pixels");
        read_rows(jpeg, image);
        dg_jpeg_check_whole(jpeg);
        *damaged = jpeg->damaged;
    }
    jpeg_destroy_decompress(&jpeg->info);
    if (error->status != DG_OK)
        dg_image_free(image);
    return error->status;
}

dg_status dg_jpeg_check(dg_jpeg *jpeg, const uint8_t *data, size_t size, const dg_decode_options *options, int *components,
                        dg_error *error)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    memset(info, 0, sizeof *info);
    error->status = DG_OK;
    *components = 0;
    if (setjmp(jpeg->escape) == 0) {
        dg_jpeg_open(jpeg, data, size, options, error);
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
    jpeg_destroy_decompress(info);
    return error->status;
}
