/* Canvases: where the picture lies on one, and what shows around it. */
#include "canvas.h"
#include "check.h"

#include <string.h>

int main(void)
{
    static const uint8_t colour[3] = {200, 100, 50};
    /* 3 x 2 pixels on 6 x 4; the grey of the colour is 0.299 * 200 + 0.587 * 100 + 0.114 * 50 = 124.2 */
    static const struct {
        int channels, pixel_stride, depth, mirrored;
        const uint8_t *colour;
        int around[4], left;
    } CASES[] = {
        {1, 1, 8, 0, colour, {124}, 1},           {2, 2, 8, 1, colour, {124, 255}, 2},   {3, 3, 8, 0, colour, {200, 100, 50}, 1},
        {3, 4, 8, 1, colour, {200, 100, 50, 255}, 2}, {4, 4, 8, 0, colour, {200, 100, 50, 255}, 1}, {4, 4, 8, 0, NULL, {0}, 1},
        {3, 4, 8, 0, NULL, {0, 0, 0, 255}, 1},    {3, 3, 16, 0, colour, {200 * 257, 100 * 257, 50 * 257}, 1},
        {4, 4, 16, 1, colour, {200 * 257, 100 * 257, 50 * 257, 65535}, 2},
    };
    dg_heap *heap = dg_heap_new(0);
    dg_error error;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        dg_image image;
        int stride = CASES[i].pixel_stride, wrong = 0;
        CHECK(dg_image_alloc(heap, 3, 2, CASES[i].channels, stride, CASES[i].depth, &image) == DG_OK);
        memset(image.buffer.data, 77, image.buffer.size);
        CHECK(dg_image_on_canvas(heap, &image, (dg_part){9, 9, {0, 0}}, 0, colour, &error) == DG_OK && image.width == 3);
        CHECK(dg_image_on_canvas(heap, &image, (dg_part){1, 2, {6, 4}}, CASES[i].mirrored, CASES[i].colour, &error) == DG_OK);
        CHECK(image.width == 6 && image.height == 4 && image.buffer.size == (size_t)6 * 4 * stride * CASES[i].depth / 8);
        for (int y = 0; y < 4; y++)
            for (int x = 0; x < 6; x++)
                for (int c = 0; c < stride; c++) {
                    size_t at = (size_t)(y * 6 + x) * stride + c;
                    int level = CASES[i].depth == 8 ? image.buffer.data[at] : ((uint16_t *)image.buffer.data)[at];
                    int inside = y >= 2 && x >= CASES[i].left && x < CASES[i].left + 3;
                    wrong += level != (inside ? 77 * (CASES[i].depth == 8 ? 1 : 257) : CASES[i].around[c]);
                }
        CHECK(wrong == 0);
        dg_image_free(&image);
    }
    dg_heap_free(heap);
    return DONE();
}
