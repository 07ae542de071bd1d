/* WebP: equal to libwebp's own answer, and limits, animation, truncation at every byte, damage. */
#include "check.h"
#include "webp.h"

#include <string.h>
#include <webp/decode.h>
#include <webp/encode.h>

static dg_heap *heap;
static dg_decode_options options = {.max_pixels = 1 << 20};
static dg_image image;
static dg_error error;

/* A gradient with some noise; alpha has every value. */
static uint8_t *pixels_new(int width, int height, int channels)
{
    uint8_t *pixels = malloc((size_t)width * height * channels);
    uint32_t state = 1;
    for (int y = 0, at = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < channels; c++, at++) {
                state = state * 1664525 + 1013904223;
                pixels[at] = c == 3 ? x * y : x * 2 + y * c + (int)(state >> 28);
            }
    return pixels;
}

static size_t encode(int width, int height, int channels, int lossless, uint8_t **file)
{
    uint8_t *pixels = pixels_new(width, height, channels);
    int stride = width * channels;
    size_t size;
    if (lossless)
        size = (channels == 4 ? WebPEncodeLosslessRGBA : WebPEncodeLosslessRGB)(pixels, width, height, stride, file);
    else
        size = (channels == 4 ? WebPEncodeRGBA : WebPEncodeRGB)(pixels, width, height, stride, 80, file);
    CHECK(size > 0);
    free(pixels);
    return size;
}

/* From memory that ends where the file does, for ASAN's sake. */
static dg_status decode(const uint8_t *file, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1);
    memcpy(exact, file, size);
    dg_image_free(&image);
    error.text[0] = 0;
    dg_status status = dg_webp_decode(heap, exact, size, &options, &image, &error);
    CHECK(status == DG_OK ? image.buffer.data != NULL : !image.buffer.data && error.status == status);
    free(exact);
    return status;
}

/* Rows that equal those of `whole`, from the top; all others must be what a missing row is. */
static int rows_alike(const uint8_t *whole)
{
    const size_t stride = dg_image_stride(&image);
    int rows = 0;
    while (rows < image.height && !memcmp(image.buffer.data + rows * stride, whole + rows * stride, stride))
        rows++;
    for (size_t i = rows * stride; i < image.buffer.size; i++)
        if (image.buffer.data[i] != (image.pixel_stride > image.channels && i % 4 == 3 ? 255 : 0))
            return -1;
    return rows;
}

static void check_kind(int width, int height, int channels, int lossless, int rgbx)
{
    uint8_t *file;
    size_t size = encode(width, height, channels, lossless, &file);
    const int pixel_stride = rgbx || channels == 4 ? 4 : 3;
    int w, h, last = 0;
    uint8_t *expected = (pixel_stride == 4 ? WebPDecodeRGBA : WebPDecodeRGB)(file, size, &w, &h);
    options.rgbx = rgbx;
    CHECK(decode(file, size) == DG_OK);
    CHECK(image.width == width && image.height == height && image.channels == channels && image.pixel_stride == pixel_stride);
    CHECK(image.depth == 8 && image.buffer.size == (size_t)width * height * pixel_stride);
    CHECK(!memcmp(image.buffer.data, expected, image.buffer.size));
    for (size_t cut = 0; cut < size; cut += 1 + size / 97) {
        options.accept_truncated = 0;
        dg_status status = decode(file, cut);
        CHECK(status == DG_TRUNCATED || status == DG_OK);
        options.accept_truncated = 1;
        dg_status accepted = decode(file, cut);
        CHECK(accepted == DG_OK || accepted == DG_TRUNCATED);
        if (accepted == DG_OK) {
            int rows = rows_alike(expected);
            CHECK(rows >= last && rows > 0 && (status == DG_OK) == (rows == height));
            last = rows;
        }
    }
    CHECK(last > 0 || height < 32);
    options.accept_truncated = 0;
    for (int n = 0; n < 60; n++) { /* damage: any answer but a crash */
        uint8_t kept = file[n * 7 % size];
        file[n * 7 % size] ^= 1 << n % 8;
        decode(file, size);
        file[n * 7 % size] = kept;
    }
    free(expected);
    WebPFree(file);
}

int main(void)
{
    static const int SIZES[][2] = {{1, 1}, {3, 2}, {17, 33}, {200, 150}};
    static const uint8_t ANIMATED[] = "RIFF\x2A\0\0\0WEBPVP8X\x0A\0\0\0\2\0\0\0\7\0\0\7\0\0"
                                      "ANIM\6\0\0\0\0\0\0\0\0\0ANMF\0\0\0\0";
    heap = dg_heap_new(1 << 22);
    for (int i = 0; i < 4; i++)
        for (int channels = 3; channels <= 4; channels++)
            for (int lossless = 0; lossless < 2; lossless++)
                for (int rgbx = 0; rgbx < 2; rgbx++)
                    check_kind(SIZES[i][0], SIZES[i][1], channels, lossless, rgbx);

    uint8_t *file;
    atomic_int stop = 0;
    size_t size = encode(600, 500, 3, 1, &file); /* more than one step */
    CHECK(size > 256 << 10 && decode(file, size) == DG_OK);
    options.max_pixels = 600 * 500 - 1;
    CHECK(decode(file, size) == DG_TOO_LARGE);
    options.max_pixels = 600 * 500;
    options.stop = &stop;
    CHECK(decode(file, size) == DG_OK);
    stop = 1;
    CHECK(decode(file, size) == DG_CANCELLED);
    stop = 0;
    CHECK(decode(ANIMATED, sizeof ANIMATED - 1) == DG_UNSUPPORTED && !strcmp(error.text, "animated webp"));
    file[20] = 'x'; /* the signature of VP8L */
    CHECK(decode(file, size) == DG_CORRUPT);
    CHECK(decode((const uint8_t *)"RIFF\x40\0\0\0WEBP", 12) == DG_TRUNCATED);
    CHECK(decode((const uint8_t *)"RIFX\4\0\0\0WEBPxxxxxxxxxxxxxxxxxxxxx", 33) == DG_CORRUPT);
    CHECK(decode(file, 0) == DG_TRUNCATED);
    WebPFree(file);
    dg_image_free(&image);
    dg_heap_free(heap);
    return DONE();
}
