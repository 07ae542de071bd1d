/* PNG in four stages: png_chunks.c finds the compressed rows, this file inflates them in one go, png_rows.c undoes
 * their filters and png_pixels.c makes pixels of them. 8-bit pictures are unfiltered straight into their buffer. */
#include "png.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "png_chunks.h"
#include "png_pixels.h"
#include "png_rows.h"

enum {
    BAND = 16,            /* rows unfiltered at a time: still in the cache when they are expanded; a multiple of four */
    SLACK = 64,           /* what dg_png_unfilter may read around its rows */
    MAX_KEPT = 16 << 20, /* a larger scratch buffer goes back to the heap after its picture */
    MAX_INFLATION = 1032, /* deflate cannot make more of a byte: 258 bytes from two bits */
};

struct dg_png {
    dg_heap *heap;
    struct libdeflate_decompressor *inflater;
    dg_buffer joined; /* the compressed stream, if it comes in several chunks */
    dg_buffer rows;   /* a picture's zeros, spare and filtered, one after the other */
    int simd;
};

/* One picture on its way. */
typedef struct {
    dg_png_header header;
    const dg_decode_options *options;
    dg_error *error;
    size_t bits;       /* per pixel in the file */
    size_t row_size;   /* bytes of a row in the file, without its filter byte */
    size_t need;       /* bytes that all rows inflate to */
    size_t have;       /* bytes that the file has of them */
    uint8_t *zeros;    /* what is above the first row */
    uint8_t *spare;    /* unfiltered rows that are to be expanded; of interlaced pictures, an expanded one */
    uint8_t *filtered; /* the inflated rows */
    int simd;
} picture;

dg_png *dg_png_new(dg_heap *heap)
{
    dg_png *png = calloc(1, sizeof *png);
    if (!png)
        return NULL;
    png->heap = heap;
    png->simd = dg_png_simd();
    png->inflater = libdeflate_alloc_decompressor();
    if (png->inflater)
        return png;
    dg_png_free(png);
    return NULL;
}

void dg_png_free(dg_png *png)
{
    if (!png)
        return;
    libdeflate_free_decompressor(png->inflater);
    dg_buffer_free(&png->joined);
    dg_buffer_free(&png->rows);
    free(png);
}

static size_t row_bytes(const picture *picture, size_t width) { return (width * picture->bits + 7) / 8; }

/* Sizes of rows, with and without interlacing; DG_NO_MEMORY where they are more than a size_t can say. */
static dg_status rows_measure(picture *picture)
{
    const dg_png_header *header = &picture->header;
    picture->bits = (size_t)header->samples * header->depth;
    picture->row_size = row_bytes(picture, header->width);
    if (picture->row_size >= SIZE_MAX / 8 / header->height) /* filter bytes and passes add to it, but not 8 times */
        return dg_fail(picture->error, DG_NO_MEMORY, "png: %u x %u pixels", header->width, header->height);
    picture->need = (picture->row_size + 1) * header->height;
    if (header->interlaced) {
        picture->need = 0;
        for (int i = 0; i < 7; i++) {
            dg_png_pass pass = dg_png_pass_of(header, i);
            if (pass.width)
                picture->need += (row_bytes(picture, pass.width) + 1) * pass.height;
        }
    }
    return DG_OK;
}

/* Inflates a stream that ends early, is longer than the picture or is broken: libdeflate says no more than that
 * something is wrong, and wants room for all of it. zlib stops where the rows are complete. */
static dg_status inflate_carefully(picture *picture, const uint8_t *stream, size_t size)
{
    const uInt portion = 1 << 30; /* zlib counts in 32 bits */
    z_stream z = {.next_in = (Bytef *)stream, .next_out = picture->filtered};
    size_t left = picture->need;
    int result = Z_OK;
    if (inflateInit2(&z, -15) != Z_OK)
        return dg_fail(picture->error, DG_NO_MEMORY, "png: no memory to inflate with");
    while (result == Z_OK && left > 0) {
        uInt in = size < portion ? size : portion, out = left < portion ? left : portion;
        z.avail_in = in;
        z.avail_out = out;
        result = inflate(&z, Z_NO_FLUSH);
        size -= in - z.avail_in;
        left -= out - z.avail_out;
    }
    picture->have = picture->need - left;
    if (result == Z_DATA_ERROR)
        dg_fail(picture->error, DG_CORRUPT, "png: %s after %zu of %zu bytes", z.msg ? z.msg : "bad deflate data", picture->have,
                picture->need);
    inflateEnd(&z);
    if (result == Z_MEM_ERROR)
        return dg_fail(picture->error, DG_NO_MEMORY, "png: no memory to inflate with");
    return result == Z_DATA_ERROR ? DG_CORRUPT : DG_OK;
}

/* The zlib container is taken off here rather than by libdeflate, which would refuse a picture whose rows are all there
 * for want of the Adler-32 behind them. Where that is there it must be right: a flipped bit often inflates. */
static dg_status rows_inflate(dg_png *png, picture *picture)
{
    const dg_png_header *header = &picture->header;
    size_t size = header->idat_size, taken, inflated;
    if (!picture->options->accept_truncated && picture->need / MAX_INFLATION > size)
        return dg_fail(picture->error, DG_TRUNCATED, "png: %zu bytes cannot hold %u x %u pixels", size, header->width,
                       header->height); /* before memory is asked for */
    const size_t zeros = (size_t)header->width * (header->depth == 16 ? 8 : 4) + SLACK; /* for the longest pixels */
    const size_t band_rows = header->height < BAND ? header->height : BAND;
    const size_t spare = header->interlaced ? zeros : dg_png_is_direct(header) ? 0 : band_rows * picture->row_size;
    if (dg_buffer_reserve(png->heap, &png->rows, zeros + spare + picture->need + SLACK) != DG_OK
        || (!dg_png_idat_is_one(header) && dg_buffer_reserve(png->heap, &png->joined, size) != DG_OK))
        return dg_fail(picture->error, DG_NO_MEMORY, "png: no memory for %u x %u pixels", header->width, header->height);
    picture->zeros = png->rows.data;
    picture->spare = picture->zeros + zeros;
    picture->filtered = picture->spare + spare;
    memset(picture->zeros, 0, zeros);
    const uint8_t *stream = dg_png_idat_join(header, png->joined.data);
    picture->have = 0;
    if (size < 2)
        return DG_OK;
    if ((stream[0] & 15) != 8 || (stream[0] << 8 | stream[1]) % 31 || stream[1] & 32)
        return dg_fail(picture->error, DG_CORRUPT, "png: IDAT does not begin as zlib data does");
    enum libdeflate_result result = libdeflate_deflate_decompress_ex(png->inflater, stream + 2, size - 2, picture->filtered,
                                                                     picture->need, &taken, &inflated);
    if (result != LIBDEFLATE_SUCCESS || inflated < picture->need)
        return inflate_carefully(picture, stream + 2, size - 2);
    picture->have = picture->need;
    const uint8_t *sum = stream + 2 + taken;
    if (size - 2 - taken >= 4
        && libdeflate_adler32(1, picture->filtered, picture->need)
               != ((uint32_t)sum[0] << 24 | (uint32_t)sum[1] << 16 | (uint32_t)sum[2] << 8 | sum[3]))
        return dg_fail(picture->error, DG_CORRUPT, "png: the checksum of the pixels is wrong");
    return DG_OK;
}

static dg_status image_prepare(dg_png *png, const picture *picture, dg_image *image)
{
    const dg_png_header *header = &picture->header;
    int colours = header->colour == DG_PNG_PALETTE ? 3 : header->samples;
    int channels = colours + header->transparency, depth = header->depth == 16 ? 16 : 8;
    int pixel_stride = channels == 3 && depth == 8 && picture->options->rgbx ? 4 : channels;
    if (dg_image_alloc(png->heap, header->width, header->height, channels, pixel_stride, depth, image) != DG_OK)
        return dg_fail(picture->error, DG_NO_MEMORY, "png: no memory for %u x %u pixels", header->width, header->height);
    if (picture->have < picture->need) {
        memset(image->buffer.data, 0, image->buffer.size);
        if (pixel_stride > channels)
            for (size_t i = 3; i < image->buffer.size; i += 4)
                image->buffer.data[i] = 255;
    }
    return DG_OK;
}

static int is_stopped(const picture *picture) { return picture->options->stop && *picture->options->stop; }

static dg_status filter_is_bad(const picture *picture, size_t row, const uint8_t *filter)
{
    return dg_fail(picture->error, DG_CORRUPT, "png: row %zu has filter %d", row, *filter);
}

/* Rows of a picture that is not interlaced, as many as there are. */
static dg_status rows_finish(const picture *picture, dg_image *image)
{
    const dg_png_header *header = &picture->header;
    const size_t stride = dg_image_stride(image), raw_stride = picture->row_size + 1, rows = picture->have / raw_stride;
    const int direct = dg_png_is_direct(header), bytes = picture->bits < 8 ? 1 : picture->bits / 8;
    dg_png_band band = {.raw_stride = raw_stride, .bytes = bytes, .above = picture->zeros};
    band.pixels = picture->row_size / bytes;
    band.pixel_stride = direct ? image->pixel_stride : bytes;
    band.out_stride = direct ? stride : picture->row_size;
    for (size_t row = 0; row < rows; row += band.rows) {
        const uint8_t *raw = picture->filtered + row * raw_stride;
        uint8_t *out = image->buffer.data + row * stride;
        if (is_stopped(picture))
            return dg_fail(picture->error, DG_CANCELLED, "%s", "");
        band.raw = raw;
        band.out = direct ? out : picture->spare;
        band.rows = rows - row < BAND ? rows - row : BAND;
        int legal = dg_png_unfilter(&band, picture->simd);
        if (legal < band.rows)
            return filter_is_bad(picture, row + legal, raw + legal * raw_stride);
        if (!direct)
            for (int i = 0; i < band.rows; i++)
                dg_png_expand(header, image, band.out + i * band.out_stride, out + i * stride, header->width);
        else if (header->transparency)
            dg_png_key_out(header, out, (size_t)band.rows * header->width);
        band.above = band.out + (band.rows - 1) * band.out_stride; /* in `spare` the last row to be overwritten */
    }
    return DG_OK;
}

/* Rows of an interlaced picture: in each pass the rows are those of a smaller picture. */
static dg_status passes_finish(const picture *picture, dg_image *image)
{
    const int bytes = picture->bits < 8 ? 1 : picture->bits / 8;
    uint8_t *raw = picture->filtered, *end = raw + picture->have;
    for (int number = 0; number < 7; number++) {
        dg_png_pass pass = dg_png_pass_of(&picture->header, number);
        size_t size = row_bytes(picture, pass.width);
        dg_png_band band = {.above = picture->zeros, .pixels = size / bytes, .bytes = bytes, .pixel_stride = bytes, .rows = 1};
        if (pass.width == 0)
            continue;
        for (size_t row = 0; row < pass.height; row++, raw += size + 1) {
            if (is_stopped(picture))
                return dg_fail(picture->error, DG_CANCELLED, "%s", "");
            if ((size_t)(end - raw) < size + 1)
                return DG_OK;
            band.raw = raw;
            band.out = raw + 1;
            if (!dg_png_unfilter(&band, picture->simd))
                return filter_is_bad(picture, row, raw);
            band.above = band.out;
            dg_png_expand(&picture->header, image, band.out, picture->spare, pass.width);
            dg_png_pass_place(&pass, row, picture->spare, image);
        }
    }
    return DG_OK;
}

static dg_status picture_decode(dg_png *png, picture *picture, const uint8_t *data, size_t size, dg_image *image)
{
    dg_status status = dg_png_header_read(data, size, picture->options->max_pixels, &picture->header, picture->error);
    if (status == DG_OK)
        status = rows_measure(picture);
    if (status == DG_OK)
        status = rows_inflate(png, picture);
    if (status != DG_OK)
        return status;
    /* Not one row is no picture, even for a caller that takes what there is. */
    if (picture->have < picture->need && (!picture->options->accept_truncated || picture->have <= picture->row_size))
        return dg_fail(picture->error, DG_TRUNCATED, "png: pixels end after %zu of %zu bytes", picture->have, picture->need);
    status = image_prepare(png, picture, image);
    if (status == DG_OK)
        status = picture->header.interlaced ? passes_finish(picture, image) : rows_finish(picture, image);
    if (status != DG_OK)
        dg_image_free(image);
    return status;
}

dg_status dg_png_decode(dg_png *png, const uint8_t *data, size_t size, const dg_decode_options *options, dg_image *image,
                        dg_error *error)
{
    picture picture;
    picture.options = options;
    picture.error = error;
    picture.simd = png->simd;
    memset(image, 0, sizeof *image);
    dg_status status = picture_decode(png, &picture, data, size, image);
    dg_buffer_trim(&png->rows, MAX_KEPT);
    dg_buffer_trim(&png->joined, MAX_KEPT);
    return status;
}
