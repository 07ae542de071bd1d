/* PNG in three stages: rows in the file's byte order, the filter that leaves the smallest differences, and libdeflate.
 * On photographs Average and Paeth cost time and make the file no smaller than None, Sub and Up alone do. */
#include "png_write.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "color.h"

enum {
    NONE,
    SUB,
    UP,
    FILTERS,
    LEVEL = 1,            /* libdeflate's; level 2 takes half as long again for two per cent */
    MAX_KEPT = 16 << 20, /* a larger scratch buffer goes back to the heap after its picture */
    AROUND = 12,          /* bytes a chunk has around its content: length and type before, CRC after */
    IHDR = 13,
    MAX_CHUNK = 0x7fffffff,
};

struct dg_png_writer {
    dg_heap *heap;
    struct libdeflate_compressor *deflater;
    dg_buffer rows;   /* zeros, two rows that had to be rearranged, and all filtered rows, one after the other */
    dg_buffer packed; /* the compressed rows: room for the worst case, which is not what a caller should have to keep */
};

dg_png_writer *dg_png_writer_new(dg_heap *heap)
{
    dg_png_writer *writer = calloc(1, sizeof *writer);
    if (!writer)
        return NULL;
    writer->heap = heap;
    writer->deflater = libdeflate_alloc_compressor(LEVEL);
    if (writer->deflater)
        return writer;
    dg_png_writer_free(writer);
    return NULL;
}

void dg_png_writer_free(dg_png_writer *writer)
{
    if (!writer)
        return;
    libdeflate_free_compressor(writer->deflater);
    dg_buffer_free(&writer->rows);
    dg_buffer_free(&writer->packed);
    free(writer);
}

static size_t row_bytes(const dg_image *image) { return (size_t)image->width * image->channels * (image->depth / 8); }

/* A row as PNG has it: big-endian, and RGB without X. In place where the image has it so, else in `spare`. */
static const uint8_t *row_take(const dg_image *image, size_t y, uint8_t *spare)
{
    const uint8_t *row = image->buffer.data + y * dg_image_stride(image);
    const uint16_t *deep = (const uint16_t *)row;
    const size_t width = (size_t)image->width, channels = (size_t)image->channels, pixel_stride = (size_t)image->pixel_stride;
    if (image->depth == 8 && pixel_stride == channels)
        return row;
    if (image->depth == 8) {
        dg_rgbx_to_rgb(row, spare, width);
        return spare;
    }
    for (size_t x = 0, at = 0; x < width; x++, deep += pixel_stride)
        for (size_t c = 0; c < channels; c++, at += 2) {
            spare[at] = deep[c] >> 8;
            spare[at + 1] = deep[c] & 255;
        }
    return spare;
}

/* The sum of differences, which compilers know how to make of one instruction. */
static uint64_t distance(const uint8_t *a, const uint8_t *b, size_t size)
{
    uint64_t total = 0;
    for (size_t done = 0; done < size;) {
        size_t end = size - done < 1 << 20 ? size : done + (1 << 20);
        uint32_t sum = 0;
        for (; done < end; done++)
            sum += (uint32_t)abs(a[done] - b[done]);
        total += sum;
    }
    return total;
}

static void subtract(const uint8_t *a, const uint8_t *b, size_t size, uint8_t *out)
{
    for (size_t i = 0; i < size; i++)
        out[i] = a[i] - b[i];
}

/* Each of the filters subtracts a row from the row: zeros, the row itself one pixel earlier, or the row above. */
static void row_filter(const uint8_t *row, const uint8_t *above, const uint8_t *zeros, size_t size, size_t pixel, uint8_t *out)
{
    const uint64_t costs[FILTERS] = {
        [NONE] = distance(row, zeros, size),
        [SUB] = distance(row, zeros, pixel) + distance(row + pixel, row, size - pixel),
        [UP] = distance(row, above, size),
    };
    int best = costs[SUB] < costs[NONE] ? SUB : NONE;
    best = costs[UP] < costs[best] ? UP : best;
    *out++ = (uint8_t)best;
    if (best == UP) {
        subtract(row, above, size, out);
    } else {
        size_t first = best == NONE ? size : pixel;
        memcpy(out, row, first);
        subtract(row + first, row, size - first, out + first);
    }
}

/* Filters all rows; where they are is returned. */
static const uint8_t *rows_filter(dg_png_writer *writer, const dg_image *image)
{
    const size_t size = row_bytes(image), pixel = (size_t)image->channels * (image->depth / 8);
    uint8_t *zeros = writer->rows.data, *spare = zeros + size, *filtered = spare + 2 * size;
    const uint8_t *above = zeros;
    memset(zeros, 0, size);
    for (size_t y = 0; y < (size_t)image->height; y++) {
        const uint8_t *row = row_take(image, y, spare + (y & 1) * size);
        row_filter(row, above, zeros, size, pixel, filtered + y * (size + 1));
        above = row;
    }
    return filtered;
}

static uint8_t *put(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (24 - 8 * i));
    return at + 4;
}

static uint8_t *chunk_put(uint8_t *at, const char *type, const void *content, size_t size)
{
    uint8_t *start = put(at, (uint32_t)size);
    memcpy(start, type, 4);
    if (size)
        memcpy(start + 4, content, size);
    return put(start + 4 + size, libdeflate_crc32(0, start, size + 4));
}

static dg_status file_put(dg_png_writer *writer, const dg_image *image, size_t packed, dg_buffer *out)
{
    static const uint8_t COLOUR[5] = {[1] = 0, [2] = 4, [3] = 2, [4] = 6};
    uint8_t ihdr[IHDR] = {[8] = (uint8_t)image->depth, [9] = COLOUR[image->channels]};
    put(ihdr, (uint32_t)image->width);
    put(ihdr + 4, (uint32_t)image->height);
    dg_status status = dg_buffer_alloc(writer->heap, 8 + AROUND + IHDR + AROUND + packed + AROUND, out);
    if (status != DG_OK)
        return status;
    memcpy(out->data, "\x89PNG\r\n\x1a\n", 8);
    uint8_t *at = chunk_put(out->data + 8, "IHDR", ihdr, IHDR);
    at = chunk_put(at, "IDAT", writer->packed.data, packed);
    chunk_put(at, "IEND", NULL, 0);
    return DG_OK;
}

static dg_status no_memory(const dg_image *image, dg_error *error)
{
    return dg_fail(error, DG_NO_MEMORY, "png encoder: no memory for %d x %d pixels", image->width, image->height);
}

static dg_status image_encode(dg_png_writer *writer, const dg_image *image, dg_buffer *out, dg_error *error)
{
    size_t size, scratch, around = 3 * row_bytes(image);
    if (__builtin_mul_overflow(row_bytes(image) + 1, (size_t)image->height, &size)
        || __builtin_add_overflow(size, around, &scratch) || size > SIZE_MAX / 2
        || dg_buffer_reserve(writer->heap, &writer->rows, scratch) != DG_OK)
        return no_memory(image, error);
    size_t bound = libdeflate_zlib_compress_bound(writer->deflater, size);
    if (dg_buffer_reserve(writer->heap, &writer->packed, bound) != DG_OK)
        return no_memory(image, error);
    const uint8_t *filtered = rows_filter(writer, image);
    size_t packed = libdeflate_zlib_compress(writer->deflater, filtered, size, writer->packed.data, bound);
    if (packed == 0 || packed > MAX_CHUNK)
        return dg_fail(error, DG_TOO_LARGE, "png encoder: %d x %d pixels", image->width, image->height);
    return file_put(writer, image, packed, out) == DG_OK ? DG_OK : no_memory(image, error);
}

dg_status dg_png_encode(dg_png_writer *writer, const dg_image *image, dg_buffer *out, dg_error *error)
{
    memset(out, 0, sizeof *out);
    dg_status status = image_encode(writer, image, out, error);
    dg_buffer_trim(&writer->rows, MAX_KEPT);
    dg_buffer_trim(&writer->packed, MAX_KEPT);
    return status;
}
