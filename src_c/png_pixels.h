/* From PNG's unfiltered rows to the pixels of png.h. */
#ifndef DG_PNG_PIXELS_H
#define DG_PNG_PIXELS_H

#include "image.h"
#include "png_chunks.h"

/* Whether a pixel is kept as the file has it, but for RGB's fourth byte. dg_png_unfilter then writes it itself, after
 * which RGB with tRNS still needs dg_png_key_out; all else is expanded. */
int dg_png_is_direct(const dg_png_header *header);

/* `count` pixels of one unfiltered row to the channels, pixel_stride and depth of `image`. */
void dg_png_expand(const dg_png_header *header, const dg_image *image, const uint8_t *row, uint8_t *out, size_t count);

/* RGBA of 8 bits whose colour is the key gets alpha 0. */
void dg_png_key_out(const dg_png_header *header, uint8_t *pixels, size_t count);

/* One of the seven passes of an interlaced picture. */
typedef struct {
    size_t x, y, x_step, y_step, width, height;
} dg_png_pass;

/* Pass 0..6; its width and height are 0 if it has no pixels. */
dg_png_pass dg_png_pass_of(const dg_png_header *header, int number);
/* Puts the pass's row `row`, expanded, where it belongs. */
void dg_png_pass_place(const dg_png_pass *pass, size_t row, const uint8_t *pixels, dg_image *image);

#endif
