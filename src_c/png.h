/* PNG, every colour type and depth, interlaced too. */
#ifndef DG_PNG_H
#define DG_PNG_H

#include "decoder.h"

typedef struct dg_png dg_png;

dg_png *dg_png_new(dg_heap *heap); /* NULL when memory is short */
void dg_png_free(dg_png *png);

/* Decodes `data` (which starts with PNG's signature) to
 *   grey 1, 2, 4, 8 bits -> 1 channel of 8 bits     grey + alpha, or grey + tRNS -> 2 channels
 *   palette or RGB       -> 3 channels of 8 bits    RGBA, or palette or RGB + tRNS -> 4 channels
 * and 16-bit sources to the same with 16-bit samples in native byte order. RGB of 8 bits has pixel stride 4, X = 255, if
 * options->rgbx. Gamma, ICC and background chunks are ignored. Damage in chunks other than IHDR, PLTE, tRNS and IDAT is
 * ignored, as are bytes after IEND and a missing IEND once every row is there; an IDAT stream that ends early is
 * DG_TRUNCATED (or, with options->accept_truncated and a row's worth of bytes, delivered with the missing rows zero).
 * A wrong Adler-32 behind the pixels is DG_CORRUPT. CRCs of IDAT say nothing more and are not looked at, nor is what
 * follows the last row; a palette index beyond PLTE is black. Of an animated PNG this is the default picture. Inflating is one step: `stop`
 * is looked at after it, and every few rows. */
dg_status dg_png_decode(dg_png *png, const uint8_t *data, size_t size, const dg_decode_options *options, dg_image *image,
                        dg_error *error);

#endif
