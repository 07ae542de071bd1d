/* Turning: a table a person can read, every kind of pixel against the definition, and turning back. */
#include "check.h"
#include "orient.h"

#include <string.h>

static dg_heap *heap;
static dg_error error;

static dg_image image_new(int width, int height, int channels, int pixel_stride, int depth)
{
    dg_image image;
    CHECK(dg_image_alloc(heap, width, height, channels, pixel_stride, depth, &image) == DG_OK);
    for (size_t i = 0; i < image.buffer.size; i++)
        image.buffer.data[i] = (uint8_t)(i * 2654435761u >> 13);
    return image;
}

/* The letter F as a viewer should see it, and as a camera stores it under each orientation. */
static void test_letter(void)
{
    static const char *const STORED[9] = {
        [1] = "##" "#." "##" "#.", [2] = "##" ".#" "##" ".#", [3] = ".#" "##" ".#" "##", [4] = "#." "##" "#." "##",
        [5] = "####" "#.#.",       [6] = "#.#." "####",       [7] = ".#.#" "####",       [8] = "####" ".#.#",
    };
    for (int orientation = 1; orientation <= 8; orientation++) {
        int turned = orientation >= 5;
        dg_image image = image_new(turned ? 4 : 2, turned ? 2 : 4, 1, 1, 8);
        memcpy(image.buffer.data, STORED[orientation], 8);
        CHECK(dg_image_orient(heap, &image, orientation, &error) == DG_OK);
        CHECK(image.width == 2 && image.height == 4 && !memcmp(image.buffer.data, STORED[1], 8));
        dg_image_free(&image);
    }
}

/* Where the pixel at (x, y) of the upright picture is stored, in words of the EXIF specification: orientation says what
 * row 0 and column 0 of the file are. */
static void stored_at(int orientation, int width, int height, int x, int y, int *stored_x, int *stored_y)
{
    int right = width - 1 - x, bottom = height - 1 - y; /* of the upright picture */
    switch (orientation) {
    case 1: *stored_y = y, *stored_x = x; break;           /* top, left */
    case 2: *stored_y = y, *stored_x = right; break;       /* top, right */
    case 3: *stored_y = bottom, *stored_x = right; break;  /* bottom, right */
    case 4: *stored_y = bottom, *stored_x = x; break;      /* bottom, left */
    case 5: *stored_y = x, *stored_x = y; break;           /* left, top */
    case 6: *stored_y = right, *stored_x = y; break;       /* right, top */
    case 7: *stored_y = right, *stored_x = bottom; break;  /* right, bottom */
    default: *stored_y = x, *stored_x = bottom; break;     /* left, bottom */
    }
}

static void check_turn(int width, int height, int channels, int pixel_stride, int depth, int orientation)
{
    static const int BACK[9] = {0, 1, 2, 3, 4, 5, 8, 7, 6};
    dg_image before = image_new(width, height, channels, pixel_stride, depth);
    dg_image image = image_new(width, height, channels, pixel_stride, depth);
    const size_t bytes = (size_t)pixel_stride * depth / 8;
    int x, y, right = 1;
    CHECK(dg_image_orient(heap, &image, orientation, &error) == DG_OK);
    CHECK(image.width == (orientation >= 5 ? height : width) && image.height == (orientation >= 5 ? width : height));
    CHECK(image.channels == channels && image.pixel_stride == pixel_stride && image.depth == depth);
    CHECK(image.buffer.size == before.buffer.size);
    for (int row = 0; row < image.height; row++)
        for (int column = 0; column < image.width; column++) {
            stored_at(orientation, image.width, image.height, column, row, &x, &y);
            right &= !memcmp(image.buffer.data + ((size_t)row * image.width + column) * bytes,
                             before.buffer.data + ((size_t)y * width + x) * bytes, bytes);
        }
    CHECK(right);
    CHECK(dg_image_orient(heap, &image, BACK[orientation], &error) == DG_OK);
    CHECK(!memcmp(image.buffer.data, before.buffer.data, before.buffer.size));
    dg_image_free(&before);
    dg_image_free(&image);
}

int main(void)
{
    static const int SIZES[][2] = {{1, 1},   {1, 300},  {300, 1},  {7, 5},    {64, 64},
                                   {65, 63}, {128, 64}, {33, 129}, {131, 257}};
    static const int KINDS[][3] = {{1, 1, 8}, {2, 2, 8}, {3, 3, 8}, {3, 4, 8}, {4, 4, 8},
                                   {1, 1, 16}, {2, 2, 16}, {3, 3, 16}, {4, 4, 16}};
    heap = dg_heap_new(0); /* nothing is kept: a read or write beyond an end is seen */
    test_letter();
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        for (size_t k = 0; k < sizeof KINDS / sizeof *KINDS; k++)
            for (int orientation = 1; orientation <= 8; orientation++)
                check_turn(SIZES[i][0], SIZES[i][1], KINDS[k][0], KINDS[k][1], KINDS[k][2], orientation);
    check_turn(64, 64, 1, 1, 8, 6);  /* 4096 bytes: the whole of their allocation */
    check_turn(4096, 1, 3, 3, 8, 6);

    dg_image image = image_new(20, 10, 3, 3, 8);
    uint8_t *data = image.buffer.data;
    for (int orientation = -1; orientation <= 9; orientation += orientation == 1 ? 8 : 1)
        CHECK(dg_image_orient(heap, &image, orientation, &error) == DG_OK && image.buffer.data == data);
    CHECK(image.width == 20 && image.height == 10);
    dg_image_free(&image);
    dg_heap_free(heap);
    return DONE();
}
