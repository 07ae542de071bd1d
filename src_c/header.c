#include "header.h"

#include <libdeflate.h>
#include <string.h>

enum { ORIENTATION = 0x112, SHORT = 3, LONG = 4 }; /* a TIFF tag and two of its types */

/* A stretch of bytes; all reading is checked against its end. */
typedef struct {
    const uint8_t *data;
    size_t size;
} span;

static uint32_t number(const uint8_t *at, int bytes, int big)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++)
        value = value << 8 | at[big ? i : bytes - 1 - i];
    return value;
}

static int begins_with(span span, const char *bytes, size_t count)
{
    return span.size >= count && !memcmp(span.data, bytes, count);
}

/* The orientation in a TIFF structure's first directory. A directory that is cut off counts as far as it goes. */
static int exif_orientation(span exif)
{
    while (begins_with(exif, "Exif\0\0", 6)) { /* JPEG has it once; in WebP some writers add it, some twice */
        exif.data += 6;
        exif.size -= 6;
    }
    const int big = begins_with(exif, "MM\0*", 4);
    if (exif.size < 8 || (!big && !begins_with(exif, "II*\0", 4)))
        return 1;
    size_t at = number(exif.data + 4, 4, big);
    if (at > exif.size - 2)
        return 1;
    unsigned entries = number(exif.data + at, 2, big);
    for (at += 2; entries-- && exif.size - at >= 12; at += 12) {
        const uint8_t *entry = exif.data + at;
        unsigned type = number(entry + 2, 2, big);
        if (number(entry, 2, big) != ORIENTATION)
            continue;
        if ((type != SHORT && type != LONG) || number(entry + 4, 4, big) != 1)
            return 1;
        uint32_t value = number(entry + 8, type == SHORT ? 2 : 4, big);
        return value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

/* Every kind of frame: baseline, progressive, lossless, arithmetic. DHT, JPG and DAC lie among their numbers. */
static int is_frame(int marker) { return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC; }

static void jpeg_read(span file, dg_header *header)
{
    int exif_seen = 0;
    for (size_t at = 2; at < file.size;) {
        /* To the next marker as libjpeg goes: over whatever is in between, and over fill bytes. */
        if (file.data[at++] != 0xFF)
            continue;
        while (at < file.size && file.data[at] == 0xFF)
            at++;
        if (at == file.size)
            return;
        int marker = file.data[at++];
        if (marker <= 0x01 || (marker >= 0xD0 && marker <= 0xD8)) /* no marker, TEM, RSTn, SOI: nothing follows */
            continue;
        if (marker == 0xDA || marker == 0xD9 || file.size - at < 2)
            return;
        size_t length = number(file.data + at, 2, 1);
        if (length < 2 || length > file.size - at)
            return;
        span content = {file.data + at + 2, length - 2};
        if (is_frame(marker) && content.size >= 6 && header->width == 0) {
            header->height = (int)number(content.data + 1, 2, 1);
            header->width = (int)number(content.data + 3, 2, 1);
            header->progressive = (marker & 3) == 2;
        }
        if (marker == 0xE1 && !exif_seen && begins_with(content, "Exif\0\0", 6)) {
            exif_seen = 1;
            header->orientation = exif_orientation(content);
        }
        at += length;
    }
}

static void png_read(span file, dg_header *header)
{
    if (file.size < 8 + 8 + 13 || number(file.data + 8, 4, 1) != 13 || memcmp(file.data + 12, "IHDR", 4))
        return;
    uint32_t width = number(file.data + 16, 4, 1), height = number(file.data + 20, 4, 1);
    if (width > INT32_MAX || height > INT32_MAX)
        return;
    header->width = (int)width;
    header->height = (int)height;
    for (size_t at = 8; file.size - at >= 12;) {
        const uint8_t *chunk = file.data + at;
        size_t length = number(chunk, 4, 1);
        if (length > file.size - at - 12 || !memcmp(chunk + 4, "IEND", 4))
            return;
        if (!memcmp(chunk + 4, "eXIf", 4) && libdeflate_crc32(0, chunk + 4, length + 4) == number(chunk + 8 + length, 4, 1)) {
            header->orientation = exif_orientation((span){chunk + 8, length});
            return;
        }
        at += length + 12;
    }
}

/* A key frame of VP8: three bytes of which the first says so, a start code, then 14 bits each. */
static void vp8_read(span content, dg_header *header)
{
    if (content.size < 10 || content.data[0] & 1 || memcmp(content.data + 3, "\x9D\x01\x2A", 3))
        return;
    header->width = (int)(number(content.data + 6, 2, 0) & 0x3FFF);
    header->height = (int)(number(content.data + 8, 2, 0) & 0x3FFF);
}

static void vp8l_read(span content, dg_header *header)
{
    if (content.size < 5 || content.data[0] != 0x2F)
        return;
    uint32_t sizes = number(content.data + 1, 4, 0);
    header->width = (int)(sizes & 0x3FFF) + 1;
    header->height = (int)(sizes >> 14 & 0x3FFF) + 1;
}

static void webp_read(span file, dg_header *header)
{
    enum { EXIF_FLAG = 8 };
    int extended = 0;
    if (file.size < 12 || memcmp(file.data, "RIFF", 4) || memcmp(file.data + 8, "WEBP", 4))
        return;
    size_t riff = number(file.data + 4, 4, 0), end = riff < file.size - 8 ? riff + 8 : file.size;
    for (size_t at = 12; at < end && end - at >= 8;) {
        const uint8_t *chunk = file.data + at;
        size_t length = number(chunk + 4, 4, 0), left = end - at - 8;
        span content = {chunk + 8, length < left ? length : left}; /* of a cut-off file the size may still be there */
        if (!memcmp(chunk, "VP8X", 4) && at == 12 && content.size >= 10) {
            extended = content.data[0];
            header->width = (int)number(content.data + 4, 3, 0) + 1;
            header->height = (int)number(content.data + 7, 3, 0) + 1;
        } else if (!memcmp(chunk, "VP8 ", 4) && header->width == 0) {
            vp8_read(content, header);
        } else if (!memcmp(chunk, "VP8L", 4) && header->width == 0) {
            vp8l_read(content, header);
        } else if (!memcmp(chunk, "EXIF", 4) && extended & EXIF_FLAG) {
            header->orientation = exif_orientation(content);
            return;
        }
        if (length + (length & 1) >= left)
            return;
        at += 8 + length + (length & 1);
    }
}

int dg_header_read(const uint8_t *data, size_t size, dg_format format, dg_header *header)
{
    span file = {data, size};
    *header = (dg_header){.orientation = 1};
    switch (format) {
    case DG_FORMAT_JPEG: jpeg_read(file, header); break;
    case DG_FORMAT_PNG: png_read(file, header); break;
    case DG_FORMAT_WEBP: webp_read(file, header); break;
    default: break;
    }
    if (header->width > 0 && header->height > 0)
        return 1;
    header->width = header->height = 0;
    return 0;
}
