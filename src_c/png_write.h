/* Writing PNG, for speed rather than for size. One dg_png_writer per worker. */
#ifndef DG_PNG_WRITE_H
#define DG_PNG_WRITE_H

#include "image.h"

typedef struct dg_png_writer dg_png_writer;

dg_png_writer *dg_png_writer_new(dg_heap *heap); /* NULL when memory is short */
void dg_png_writer_free(dg_png_writer *writer);

/* Encodes an image of 1 to 4 channels and 8 or 16 bits as a PNG of the same colour type and depth, RGBX as RGB. On
 * DG_OK `out` holds the file in a buffer of the writer's heap, no larger than need be, and is the caller's; else it is
 * empty. */
dg_status dg_png_encode(dg_png_writer *writer, const dg_image *image, dg_buffer *out, dg_error *error);

#endif
