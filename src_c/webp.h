/* WebP, still pictures, lossy and lossless, through libwebp. */
#ifndef DG_WEBP_H
#define DG_WEBP_H

#include "decoder.h"

/* Decodes `data` straight into the image's buffer: 3 channels (pixel stride 4, X = 255, if options->rgbx), or 4, not
 * premultiplied, if the file says that it has alpha. The pixels are those of WebPDecodeRGB and WebPDecodeRGBA.
 * An animation is DG_UNSUPPORTED with the text "animated webp". A file that ends before its last row is DG_TRUNCATED
 * (or, with options->accept_truncated and at least one row, delivered with the missing rows zero); what lies behind the
 * pixels may be missing. `stop` is looked at every 256 kB of the file. */
dg_status dg_webp_decode(dg_heap *heap, const uint8_t *data, size_t size, const dg_decode_options *options, dg_image *image,
                         dg_error *error);

#endif
