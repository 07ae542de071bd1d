/* What can be known of a picture without decoding it: its size, and how a viewer has to turn it. */
#ifndef DG_HEADER_H
#define DG_HEADER_H

#include "codec.h"

typedef struct {
    int width, height; /* pixels as stored, before any turning */
    int orientation;   /* EXIF's, 1 to 8; 1 where the file says nothing, or nothing that makes sense */
    int progressive;   /* of JPEG: every pixel is known only when all have been read */
} dg_header;

/* Reads `data`, which is of `format`. 1 when the size is known; 0 when it is not, because the file is damaged or of a
 * format other than JPEG, PNG and WebP. `header` is filled either way, with zeros and orientation 1 if need be.
 *
 * The size is the one the file states (SOFn, IHDR, or the first of VP8X, VP8 and VP8L), not checked against a limit.
 * Orientation is that of IFD0 in the first EXIF block: of JPEG the first APP1 "Exif" segment before the scan, of PNG
 * an eXIf chunk (with a right CRC) anywhere before IEND, of WebP an EXIF chunk that VP8X announces. Orientation in XMP
 * or in text chunks is not looked for. Damage in EXIF is never an error. */
int dg_header_read(const uint8_t *data, size_t size, dg_format format, dg_header *header);

#endif
