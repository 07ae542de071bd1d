/* What EXIF and XMP say of how a viewer has to turn a picture, by the rules of PIL.ImageOps.exif_transpose: its answer is ours wherever
 * it gives one. Metadata that is damaged says nothing; it is never an error. */
#ifndef DG_EXIF_H
#define DG_EXIF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A stretch of bytes; `data` is NULL where there is none. */
typedef struct {
    const uint8_t *data;
    size_t size;
} dg_span;

/* The number in `count` bytes, 1 to 8, at `at`, big-endian or not. */
uint64_t dg_number(const uint8_t *at, int count, int big);
/* The same of up to 4 bytes. */
static inline uint32_t dg_number32(const uint8_t *at, int count, int big) { return (uint32_t)dg_number(at, count, big); }

static inline int dg_span_begins(dg_span span, const char *bytes, size_t count)
{
    return span.size >= count && !memcmp(span.data, bytes, count);
}

/* The orientation that the first directory of a TIFF structure states, with or without "Exif\0\0" before the structure.
 *
 * Returns 1 to 8; 1 where the entry has another value, or the bytes are no TIFF structure; 0 where there is no entry, so that the caller
 * asks XMP. The first entry whose value is there counts; its type may be SHORT, LONG or any other number. A directory that is cut off
 * counts as far as it goes. `more` is how many bytes of the structure lie in further segments, so that offsets may reach so far. */
int dg_exif_orientation(dg_span exif, size_t more);

/* The same of EXIF in hexadecimal, as ImageMagick and exiftool write it into text chunks of PNG, after a line of its own for the kind
 * and one for the length. More than a mebibyte of text is not looked at. */
int dg_exif_of_text(dg_span text);

/* The first digit of tiff:Orientation in XMP, as an attribute or an element: 1 to 8, 1 for 0 and 9, and 0 where there is none. */
int dg_xmp_orientation(dg_span xmp);

#endif
