#include "canvas.h"

#include <string.h>

/* The samples of one pixel of the canvas. */
static void pixel_of(const dg_image *image, const uint8_t *colour, uint8_t *pixel)
{
    uint8_t levels[4] = {0, 0, 0, 0};
    int grey = image->channels < 3, alpha = image->channels % 2 ? -1 : image->channels - 1;
    for (int c = 0; c < image->channels && colour; c++)
        levels[c] = c == alpha ? 255
                    : grey     ? (uint8_t)((colour[0] * 19595 + colour[1] * 38470 + colour[2] * 7471 + 0x8000) >> 16)
                               : colour[c];
    if (image->pixel_stride > image->channels)
        levels[3] = 255;
    for (int i = 0; i < image->pixel_stride * image->depth / 8; i++)
        pixel[i] = levels[i / (image->depth / 8)]; /* a byte twice is its level times 257 */
}

dg_status dg_image_on_canvas(dg_heap *heap, dg_image *image, dg_part at, int mirrored, const uint8_t *colour, dg_error *error)
{
    uint8_t pixel[8];
    dg_image canvas;
    if (!at.size.width)
        return DG_OK;
    if (mirrored)
        at.x = at.size.width - at.x - image->width;
    if (dg_image_alloc(heap, at.size.width, at.size.height, image->channels, image->pixel_stride, image->depth, &canvas) != DG_OK)
        return dg_fail(error, DG_NO_MEMORY, "no memory for a canvas of %d x %d pixels", at.size.width, at.size.height);
    size_t bytes = (size_t)image->pixel_stride * image->depth / 8, from = dg_image_stride(image),
           stride = dg_image_stride(&canvas);
    uint8_t *out = canvas.buffer.data;
    pixel_of(image, colour, pixel);
    for (int x = 0; x < canvas.width; x++)
        memcpy(out + x * bytes, pixel, bytes);
    for (int y = 1; y < canvas.height; y++)
        memcpy(out + y * stride, out, stride);
    for (int y = 0; y < image->height; y++)
        memcpy(out + (size_t)(at.y + y) * stride + at.x * bytes, image->buffer.data + y * from, from);
    dg_image_free(image);
    *image = canvas;
    return DG_OK;
}
