/* A PNG file's chunks: what the picture is, and where its compressed pixels are. */
#ifndef DG_PNG_CHUNKS_H
#define DG_PNG_CHUNKS_H

#include "status.h"

#include <stddef.h>
#include <stdint.h>

enum { DG_PNG_GREY = 0, DG_PNG_RGB = 2, DG_PNG_PALETTE = 3, DG_PNG_GREY_ALPHA = 4, DG_PNG_RGB_ALPHA = 6 };

typedef struct {
    uint32_t width, height;
    int depth, colour, interlaced;
    int samples;             /* of a pixel in the file: 1 to 4 */
    int transparency;        /* there is a tRNS that applies */
    uint16_t key[3];         /* grey or RGB with tRNS: the transparent colour, in the file's depth */
    uint8_t palette[256][4]; /* palette pictures only: RGBA, opaque black where PLTE and tRNS say nothing */
    const uint8_t *idat;     /* the first IDAT chunk that is not empty; NULL if none is */
    size_t idat_size;        /* bytes of content in all IDAT chunks, as far as the file has them */
} dg_png_header;

/* Reads up to the last of the first run of IDATs. The bytes stay the caller's; `header` points into them. */
dg_status dg_png_header_read(const uint8_t *data, size_t size, uint64_t max_pixels, dg_png_header *header, dg_error *error);

/* The whole compressed stream: in place if one chunk holds it, else copied to `joined`, which has room for idat_size
 * bytes. */
int dg_png_idat_is_one(const dg_png_header *header);
const uint8_t *dg_png_idat_join(const dg_png_header *header, uint8_t *joined);

#endif
