/* Writing PNG: what is written is what is read, for every kind of image; the file's form; memory. */
#include "check.h"
#include "png.h"
#include "png_write.h"

#include <pthread.h>
#include <string.h>
#include <zlib.h>

static dg_heap *heap;

static dg_image image_new(int width, int height, const int kind[3], int pattern)
{
    dg_image image;
    uint32_t state = 7;
    if (dg_image_alloc(heap, width, height, kind[0], kind[1], kind[2], &image) != DG_OK)
        abort();
    for (size_t i = 0; i < image.buffer.size; i++) {
        state = state * 1664525 + 1013904223;
        image.buffer.data[i] = pattern == 0 ? 0 : pattern == 1 ? state >> 24 : (i / 4) + (state >> 30);
    }
    if (kind[1] > kind[0] && kind[2] == 8)
        for (size_t i = 3; i < image.buffer.size; i += 4)
            image.buffer.data[i] = 255;
    return image;
}

static uint32_t number(const uint8_t *at) { return (uint32_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3]; }

/* Three chunks with right sizes and CRCs, and nothing else. Returns the filter of each row as a set of bits. */
static int check_form(const dg_image *image, const dg_buffer *out)
{
    static const char *const TYPES[] = {"IHDR", "IDAT", "IEND"};
    const size_t row_size = (size_t)image->width * image->channels * image->depth / 8;
    const uint8_t *at = out->data + 8, *end = out->data + out->size;
    uLongf have = (row_size + 1) * image->height;
    uint8_t *rows = malloc(have);
    int filters = 0;
    CHECK(!memcmp(out->data, "\x89PNG\r\n\x1a\n", 8));
    for (int i = 0; i < 3; i++, at += number(at) + 12) {
        CHECK(end - at >= 12 && number(at) <= (size_t)(end - at) - 12 && !memcmp(at + 4, TYPES[i], 4));
        CHECK(crc32(0, at + 4, number(at) + 4) == number(at + 8 + number(at)));
        if (i == 1)
            CHECK(uncompress(rows, &have, at + 8, number(at)) == Z_OK && have == (row_size + 1) * image->height);
    }
    CHECK(at == end);
    for (int y = 0; y < image->height; y++)
        filters |= 1 << rows[y * (row_size + 1)];
    free(rows);
    return filters;
}

static int check_roundtrip(dg_png_writer *writer, dg_png *png, int width, int height, const int kind[3], int pattern)
{
    dg_decode_options options = {.max_pixels = 1 << 24, .rgbx = kind[1] > kind[0] && kind[2] == 8};
    dg_image image = image_new(width, height, kind, pattern), back;
    dg_buffer out;
    dg_error error;
    if (dg_png_encode(writer, &image, &out, &error) != DG_OK
        || dg_png_decode(png, out.data, out.size, &options, &back, &error) != DG_OK)
        abort();
    int same = back.width == width && back.height == height && back.channels == kind[0] && back.depth == kind[2];
    if (back.pixel_stride == image.pixel_stride)
        same = same && !memcmp(back.buffer.data, image.buffer.data, image.buffer.size);
    else /* 16 bits with a fourth sample that is none */
        for (size_t i = 0; i < (size_t)width * height; i++)
            same &= !memcmp((uint16_t *)back.buffer.data + 3 * i, (uint16_t *)image.buffer.data + 4 * i, 6);
    dg_image_free(&back);
    int filters = same ? check_form(&image, &out) : 0;
    dg_buffer_free(&out);
    dg_image_free(&image);
    return filters;
}

static void *write_many(void *unused)
{
    dg_png_writer *writer = dg_png_writer_new(heap);
    dg_image image = image_new(50, 40, (int[]){3, 3, 8}, 2);
    (void)unused;
    for (int i = 0; i < 50; i++) {
        dg_buffer out;
        dg_error error;
        if (dg_png_encode(writer, &image, &out, &error) != DG_OK)
            abort();
        dg_buffer_free(&out);
    }
    dg_image_free(&image);
    dg_png_writer_free(writer);
    return NULL;
}

int main(void)
{
    static const int KINDS[][3] = {{1, 1, 8},  {2, 2, 8},  {3, 3, 8},  {3, 4, 8},  {4, 4, 8},
                                   {1, 1, 16}, {2, 2, 16}, {3, 3, 16}, {3, 4, 16}, {4, 4, 16}};
    static const int SIZES[][2] = {{1, 1}, {1, 9}, {9, 1}, {17, 5}, {64, 64}, {333, 100}};
    heap = dg_heap_new(1 << 22);
    dg_png_writer *writer = dg_png_writer_new(heap);
    dg_png *png = dg_png_new(heap);
    for (size_t k = 0; k < sizeof KINDS / sizeof *KINDS; k++)
        for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
            for (int pattern = 0; pattern < 3; pattern++)
                CHECK(check_roundtrip(writer, png, SIZES[i][0], SIZES[i][1], KINDS[k], pattern));

    /* Filters: zeros need none, a slope that starts anew in each row needs the row above, grey steps the left one. */
    dg_image image = image_new(100, 4, KINDS[0], 0);
    dg_error error;
    dg_buffer out;
    CHECK(dg_png_encode(writer, &image, &out, &error) == DG_OK && check_form(&image, &out) == 1 << 0);
    dg_buffer_free(&out);
    for (int i = 0; i < 400; i++)
        image.buffer.data[i] = (uint8_t)(i % 100 * 77 + 9);
    image.buffer.data[0] = image.buffer.data[1] = 200;
    CHECK(dg_png_encode(writer, &image, &out, &error) == DG_OK && check_form(&image, &out) & 1 << 2);
    dg_buffer_free(&out);
    for (int i = 0; i < 400; i++)
        image.buffer.data[i] = (uint8_t)(150 + i / 100 * 40 * (i / 100 % 2) + i % 100 / 2);
    CHECK(dg_png_encode(writer, &image, &out, &error) == DG_OK && check_form(&image, &out) == 1 << 1);
    CHECK(out.size < 200);
    dg_buffer_free(&out);
    dg_image_free(&image);

    CHECK(check_roundtrip(writer, png, 3000, 2000, KINDS[2], 2)); /* scratch that is not kept */
    image = (dg_image){.width = 0x7fffffff, .height = 0x7fffffff, .channels = 4, .pixel_stride = 4, .depth = 16};
    CHECK(dg_png_encode(writer, &image, &out, &error) == DG_NO_MEMORY && !out.data && error.text[0]);
    CHECK(check_roundtrip(writer, png, 9, 9, KINDS[2], 1)); /* and goes on */

    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, write_many, NULL);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    dg_png_writer_free(writer);
    dg_png_writer_free(NULL);
    dg_png_free(png);
    dg_heap_free(heap);
    return DONE();
}
