#include "png_pixels.h"

#include <string.h>

int dg_png_is_direct(const dg_png_header *header)
{
    return header->depth == 8 && header->colour != DG_PNG_PALETTE && !(header->colour == DG_PNG_GREY && header->transparency);
}

/* Sample i of a row of 1, 2, 4 or 8 bits per sample; the leftmost is in the highest bits. */
static inline unsigned sample(const uint8_t *row, size_t i, int depth)
{
    size_t bit = i * depth;
    return row[bit >> 3] >> (8 - depth - (bit & 7)) & ((1 << depth) - 1);
}

static void expand_palette(const dg_png_header *header, const uint8_t *row, int pixel_stride, uint8_t *out, size_t count)
{
    const int depth = header->depth;
    for (size_t i = 0; i < count; i++, out += pixel_stride) {
        const uint8_t *colour = header->palette[depth == 8 ? row[i] : sample(row, i, depth)];
        memcpy(out, colour, 3);
        if (pixel_stride == 4)
            out[3] = colour[3]; /* 255 where there is no tRNS, as X should be */
    }
}

static void expand_grey(const dg_png_header *header, const uint8_t *row, uint8_t *out, size_t count)
{
    const int depth = header->depth, scale = 255 / ((1 << depth) - 1);
    for (size_t i = 0; i < count; i++) {
        unsigned grey = sample(row, i, depth);
        *out++ = grey * scale;
        if (header->transparency)
            *out++ = grey == header->key[0] ? 0 : 255;
    }
}

/* RGB that an interlaced picture could not have written in place: with a fourth byte or without. */
static void expand_rgb(const uint8_t *row, int pixel_stride, uint8_t *out, size_t count)
{
    for (size_t i = 0; i < count; i++, out += pixel_stride) {
        memcpy(out, row + 3 * i, 3);
        if (pixel_stride == 4)
            out[3] = 255;
    }
}

/* From big-endian to native order. */
static void swap_16(const uint8_t *row, uint8_t *out, size_t samples)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const uint64_t low = 0x00ff00ff00ff00ff;
    size_t i = 0;
    for (; i + 4 <= samples; i += 4) {
        uint64_t four;
        memcpy(&four, row + 2 * i, 8);
        four = (four >> 8 & low) | (four & low) << 8;
        memcpy(out + 2 * i, &four, 8);
    }
    for (; i < samples; i++) {
        out[2 * i] = row[2 * i + 1];
        out[2 * i + 1] = row[2 * i];
    }
#else
    memcpy(out, row, 2 * samples);
#endif
}

/* Grey or RGB of 16 bits with a transparent colour. */
static void expand_16_keyed(const dg_png_header *header, const uint8_t *row, uint8_t *out, size_t count)
{
    const int samples = header->samples;
    for (size_t i = 0; i < count; i++) {
        uint16_t pixel[4], alpha = 0;
        for (int j = 0; j < samples; j++, row += 2) {
            pixel[j] = row[0] << 8 | row[1];
            if (pixel[j] != header->key[j])
                alpha = 0xffff;
        }
        pixel[samples] = alpha;
        memcpy(out, pixel, 2 * (samples + 1));
        out += 2 * (samples + 1);
    }
}

void dg_png_expand(const dg_png_header *header, const dg_image *image, const uint8_t *row, uint8_t *out, size_t count)
{
    if (header->depth == 16 && header->transparency)
        expand_16_keyed(header, row, out, count);
    else if (header->depth == 16)
        swap_16(row, out, count * header->samples);
    else if (header->colour == DG_PNG_PALETTE)
        expand_palette(header, row, image->pixel_stride, out, count);
    else if (header->colour == DG_PNG_RGB) {
        expand_rgb(row, image->pixel_stride, out, count);
        if (header->transparency)
            dg_png_key_out(header, out, count);
    } else if (header->colour == DG_PNG_GREY)
        expand_grey(header, row, out, count);
    else
        memcpy(out, row, count * header->samples);
}

void dg_png_key_out(const dg_png_header *header, uint8_t *pixels, size_t count)
{
    const uint8_t key[3] = {header->key[0], header->key[1], header->key[2]};
    for (size_t i = 0; i < count; i++, pixels += 4)
        if (pixels[0] == key[0] && pixels[1] == key[1] && pixels[2] == key[2])
            pixels[3] = 0;
}

dg_png_pass dg_png_pass_of(const dg_png_header *header, int number)
{
    static const struct {
        uint8_t x, y, x_step, y_step;
    } PASSES[7] = {
        {0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4}, {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2},
    };
    dg_png_pass pass = {PASSES[number].x, PASSES[number].y, PASSES[number].x_step, PASSES[number].y_step, 0, 0};
    if (header->width > pass.x && header->height > pass.y) {
        pass.width = (header->width - pass.x + pass.x_step - 1) / pass.x_step;
        pass.height = (header->height - pass.y + pass.y_step - 1) / pass.y_step;
    }
    return pass;
}

void dg_png_pass_place(const dg_png_pass *pass, size_t row, const uint8_t *pixels, dg_image *image)
{
    size_t size = (size_t)image->pixel_stride * (image->depth / 8);
    uint8_t *out = image->buffer.data + (pass->y + row * pass->y_step) * dg_image_stride(image) + pass->x * size;
    for (size_t i = 0; i < pass->width; i++, pixels += size, out += size * pass->x_step)
        for (size_t j = 0; j < size; j++)
            out[j] = pixels[j];
}
