/* JPEG through the libjpeg API: one decompress object per worker, straight into the buffer that Python will see. */
#ifndef DG_JPEG_H
#define DG_JPEG_H

#include "codec.h"

typedef struct dg_jpeg dg_jpeg;

dg_jpeg *dg_jpeg_new(dg_heap *heap); /* NULL when memory is short */
void dg_jpeg_free(dg_jpeg *jpeg);

/* Decodes `data` (which starts with SOI) as libjpeg does by default: grey stays one channel; YCbCr and RGB give RGB;
 * CMYK and YCCK give RGB by R = C * K / 255 on the inverted samples that Adobe writes, whether the Adobe marker is there
 * or not (as Pillow reads them). RGB has step 4, X = 255, if options->rgbx. A file that ends before its picture is
 * DG_TRUNCATED unless only the end marker is missing. */
dg_status dg_jpeg_decode(dg_jpeg *jpeg, const uint8_t *data, size_t size, const dg_decode_options *options,
                         dg_image *image, dg_error *error);

#endif
