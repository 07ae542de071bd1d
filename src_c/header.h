/* What can be known of a picture without decoding it: its size, and how a viewer has to turn it. */
#ifndef DG_HEADER_H
#define DG_HEADER_H

#include "codec.h"

/* Reads `data`, which is of `format`. 1 when the size is known; 0 when it is not, because the file is damaged or of a
 * format that has no decoder here. `header` is filled either way, with zeros, orientation 1 and depth 8 if need be.
 *
 * The size is the one the file states (SOFn, IHDR, or the first of VP8X, VP8 and VP8L), not checked against a limit.
 * The orientation is the one that PIL.ImageOps.exif_transpose goes by. It comes from EXIF, or from XMP's tiff:Orientation where EXIF has no
 * entry for it:
 *   JPEG: the APP1 "Exif" segments before the scan, taken together; the last APP1 segment of XMP.
 *   PNG:  the last eXIf chunk before IEND, else the last text chunk "Raw profile type exif"; the last text chunk "XML:com.adobe.xmp".
 *   WebP: the first EXIF chunk; the first XMP chunk; each only if VP8X announces it.
 * A PNG chunk before the pixels counts if its CRC is right, and deflated text if it inflates to no more than a mebibyte. Damage in
 * metadata is never an error. */
int dg_header_read(const uint8_t *data, size_t size, dg_format format, dg_header *header);

/* The same of a file that is read as far as this takes: of JPEG up to the scan, of PNG the heads of all chunks, since metadata may stand
 * behind the pixels, of WebP the heads of all chunks if VP8X announces metadata, else the first. Metadata is read whole, pixels and
 * profiles are not read. */
int dg_header_read_from(dg_reader *reader, dg_format format, dg_header *header);

#endif
