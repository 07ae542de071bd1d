/* One libjpeg object for many files: its errors, its source, its limits. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "jpeg_internal.h"

#include <jerror.h>

enum { MAX_SCANS = 500 }; /* each has tables and a setup of its own, however small the picture */

/* A file of few bytes can ask for any number of passes over a picture of any size. So a file of several scans has a credit, of blocks to
 * look at, that grows with its bytes. Where a scan says of many blocks at once that nothing is new, a block costs some 5 ns of a 2020
 * core. It costs up to FINE times that in a scan that refines, which looks at all 64 coefficients, with arithmetic coding, which has no
 * such runs, and with restarts. CREDIT is a quarter of a second. It alone is enough for the ten usual scans of 100 megapixels of one
 * colour, and a real picture has many more bytes than it needs: some 30 scans of 100 megapixels take three megabytes. */
enum { CREDIT = 40 << 20, CREDIT_OF_BYTE = 64, FINE = 6 };

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
    case JERR_COMPONENT_COUNT:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_NOTIMPL:
    case JERR_NOT_COMPILED:
    case JERR_SOF_UNSUPPORTED: status = DG_UNSUPPORTED; break;
    case JERR_IMAGE_TOO_BIG: status = DG_TOO_LARGE; break;
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

/* Called when a scan begins: takes what it costs from the credit, and gives up where that is not enough. */
static void pay_scan(dg_jpeg *jpeg)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    size_t left = jpeg->ended ? 0 : info->src->bytes_in_buffer;
    int64_t blocks = (int64_t)info->MCUs_per_row * info->MCU_rows_in_scan * info->blocks_in_MCU;
    int fine = info->arith_code || info->restart_interval || (info->progressive_mode && info->Ah > 0 && info->Ss > 0);
    jpeg->credit += (int64_t)(jpeg->unpaid - left) * CREDIT_OF_BYTE - blocks * (fine ? FINE : 1);
    jpeg->unpaid = left;
    jpeg->scan = info->input_scan_number;
    if (jpeg->scan > MAX_SCANS)
        dg_jpeg_give_up(jpeg, DG_TOO_LARGE, "jpeg: more than %d scans", MAX_SCANS);
    if (jpeg->credit < 0)
        dg_jpeg_give_up(jpeg, DG_TOO_LARGE, "jpeg: %d scans of %u x %u pixels in %zu bytes are more work than a picture makes",
                        jpeg->scan, info->image_width, info->image_height, jpeg->size);
}

/* libjpeg calls this between passes and rows, so this is where a stop is noticed and scans are paid for. */
static void on_progress(j_common_ptr common)
{
    dg_jpeg *jpeg = of(common);
    if (jpeg->options->stop && *jpeg->options->stop)
        dg_jpeg_give_up(jpeg, DG_CANCELLED, "%s", "");
    if (jpeg->info.input_scan_number != jpeg->scan && jpeg_has_multiple_scans(&jpeg->info))
        pay_scan(jpeg);
}

/* Tables live as long as libjpeg's object does, and a file without its own would quietly be decoded with those of the picture before
 * it. So what libjpeg would keep goes where it puts what belongs to a picture, and dg_jpeg_close forgets it. */
static void *allocate(j_common_ptr info, int pool, size_t size)
{
    (void)pool;
    return of(info)->allocate(info, JPOOL_IMAGE, size);
}

static int create(dg_jpeg *jpeg)
{
    dg_error error;
    jpeg->error = &error;
    jpeg->info.err = jpeg_std_error(&jpeg->errors);
    jpeg->errors.error_exit = on_error;
    jpeg->errors.emit_message = on_message;
    jpeg->info.client_data = jpeg;
    if (setjmp(jpeg->escape) != 0)
        return 0;
    jpeg_create_decompress(&jpeg->info);
    jpeg->allocate = jpeg->info.mem->alloc_small;
    jpeg->info.mem->alloc_small = allocate;
    jpeg->info.src = &jpeg->source;
    jpeg->progress.progress_monitor = on_progress;
    jpeg->info.progress = &jpeg->progress;
    return 1;
}

dg_jpeg *dg_jpeg_new(dg_heap *heap)
{
    dg_jpeg *jpeg = calloc(1, sizeof *jpeg);
    if (!jpeg)
        return NULL;
    jpeg->heap = heap;
    int made = create(jpeg);
    for (int i = 0; i < 3; i++)
        made &= (jpeg->resizers[i] = dg_resizer_new()) != NULL;
    if (made)
        return jpeg;
    dg_jpeg_free(jpeg);
    return NULL;
}

void dg_jpeg_free(dg_jpeg *jpeg)
{
    if (!jpeg)
        return;
    jpeg_destroy_decompress(&jpeg->info);
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

void dg_jpeg_begin(dg_jpeg *jpeg, const dg_decode_options *options, dg_error *error)
{
    jpeg->options = options;
    jpeg->error = error;
    jpeg->credit = CREDIT;
    error->status = DG_OK;
}

void dg_jpeg_open(dg_jpeg *jpeg, const uint8_t *data, size_t size)
{
    const dg_decode_options *options = jpeg->options;
    jpeg->source = (struct jpeg_source_mgr){data, size, ignore, refill, skip, jpeg_resync_to_restart, ignore};
    jpeg->size = jpeg->unpaid = size;
    jpeg->scan = 0;
    jpeg->marked_end = dg_jpeg_ends(data, size);
    jpeg->ended = jpeg->starved = jpeg->damaged = 0;
    jpeg_read_header(&jpeg->info, TRUE);
    if ((uint64_t)jpeg->info.image_width * jpeg->info.image_height > options->max_pixels)
        dg_jpeg_give_up(jpeg, DG_TOO_LARGE, "jpeg: %u x %u pixels, max_pixels is %llu", jpeg->info.image_width,
                        jpeg->info.image_height, (unsigned long long)options->max_pixels);
    if (jpeg->info.data_precision != 8) /* a newer libjpeg-turbo reads some of them by other functions, or as they are */
        dg_jpeg_give_up(jpeg, DG_UNSUPPORTED, "jpeg: %d-bit samples", jpeg->info.data_precision);
    choose_output(jpeg);
}

void dg_jpeg_close(dg_jpeg *jpeg)
{
    struct jpeg_decompress_struct *info = &jpeg->info;
    jpeg_abort_decompress(info);
    memset(info->quant_tbl_ptrs, 0, sizeof info->quant_tbl_ptrs);
    memset(info->dc_huff_tbl_ptrs, 0, sizeof info->dc_huff_tbl_ptrs);
    memset(info->ac_huff_tbl_ptrs, 0, sizeof info->ac_huff_tbl_ptrs);
}
