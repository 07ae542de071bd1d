#include "header.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "exif.h"

enum { TEXT_MOST = 1 << 20 }; /* bytes that a text chunk may inflate to, as in Pillow */

/* What may say how the picture is to be turned, in that order. `exif_more`: bytes of EXIF in further segments. */
typedef struct {
    dg_span exif, profile, xmp;
    size_t exif_more;
    int profile_packed, xmp_packed; /* deflated */
} metadata;

static uint32_t number(const uint8_t *at, int bytes, int big) { return (uint32_t)dg_number(at, bytes, big); }

static int begins_with(dg_span span, const char *bytes, size_t count)
{
    return span.size >= count && !memcmp(span.data, bytes, count);
}

/* What `of` says of a text; of a deflated one that is whole, or cut off, and no longer than TEXT_MOST. */
static int orientation_of(dg_span text, int packed, int (*of)(dg_span))
{
    if (!text.data || !packed)
        return text.data ? of(text) : 0;
    z_stream z = {.next_in = (Bytef *)text.data, .avail_in = text.size < TEXT_MOST ? (uInt)text.size : TEXT_MOST};
    int orientation = 0;
    uint8_t *inflated = malloc(TEXT_MOST);
    if (inflated && inflateInit(&z) == Z_OK) {
        z.next_out = inflated;
        z.avail_out = TEXT_MOST;
        int result = inflate(&z, Z_SYNC_FLUSH);
        if (result == Z_STREAM_END || (result == Z_OK && z.avail_in == 0) || result == Z_BUF_ERROR)
            orientation = of((dg_span){inflated, z.total_out});
        inflateEnd(&z);
    }
    free(inflated);
    return orientation;
}

static int orientation_in(const metadata *found)
{
    int orientation = found->exif.data ? dg_exif_orientation(found->exif, found->exif_more)
                                       : orientation_of(found->profile, found->profile_packed, dg_exif_of_text);
    if (orientation == 0)
        orientation = orientation_of(found->xmp, found->xmp_packed, dg_xmp_orientation);
    return orientation ? orientation : 1;
}

/* Every kind of frame: baseline, progressive, lossless, arithmetic. DHT, JPG and DAC lie among their numbers. */
static int is_frame(int marker) { return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC; }

static void jpeg_read(dg_span file, dg_header *header, metadata *found)
{
    static const char XMP[] = "http://ns.adobe.com/xap/1.0/";
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
        dg_span content = {file.data + at + 2, length - 2};
        if (is_frame(marker) && content.size >= 6 && header->width == 0) {
            header->height = (int)number(content.data + 1, 2, 1);
            header->width = (int)number(content.data + 3, 2, 1);
            header->progressive = (marker & 3) == 2;
            header->lossless = (marker & 3) == 3;
        }
        if (marker == 0xE1 && begins_with(content, "Exif\0\0", 6)) { /* what does not fit into one goes on in the next */
            found->exif_more += found->exif.size > 6 ? content.size - 6 : 0;
            found->exif = found->exif.size > 6 ? found->exif : content;
        }
        if (marker == 0xE1 && begins_with(content, XMP, sizeof XMP))
            found->xmp = (dg_span){content.data + sizeof XMP, content.size - sizeof XMP};
        at += length;
    }
}

/* tEXt, zTXt and iTXt: a keyword, 0, then what tells them apart, then text. Of chunks with the same keyword the last one counts. */
static void text_read(const uint8_t *type, dg_span content, metadata *found)
{
    const uint8_t *end = content.size ? memchr(content.data, 0, content.size) : NULL;
    dg_span key = {content.data, end ? (size_t)(end - content.data) : content.size};
    dg_span text = {end ? end + 1 : content.data + content.size, content.size - key.size - (end != NULL)};
    int packed = *type == 'z', is_profile = key.size == 21 && begins_with(key, "Raw profile type exif", 21);
    if (*type == 't' && key.size == 4 && begins_with(key, "exif", 4))
        found->exif = text;
    if (!is_profile && !(key.size == 17 && begins_with(key, "XML:com.adobe.xmp", 17)))
        return;
    if (*type == 'i') { /* whether it is deflated, how, a language, 0, the keyword in that language, 0 */
        if (text.size < 2 || (text.data[0] && text.data[1]))
            return;
        packed = text.data[0] != 0;
        text = (dg_span){text.data + 2, text.size - 2};
        for (int i = 0; i < 2; i++) {
            end = text.size ? memchr(text.data, 0, text.size) : NULL;
            if (!end)
                return;
            text.size -= (size_t)(end + 1 - text.data);
            text.data = end + 1;
        }
    } else if (packed) { /* how */
        if (text.size < 1 || text.data[0])
            return;
        text = (dg_span){text.data + 1, text.size - 1};
    }
    *(is_profile ? &found->profile : &found->xmp) = text;
    *(is_profile ? &found->profile_packed : &found->xmp_packed) = packed;
}

static void png_read(dg_span file, dg_header *header, metadata *found)
{
    if (file.size < 8 + 8 + 13 || number(file.data + 8, 4, 1) != 13 || memcmp(file.data + 12, "IHDR", 4))
        return;
    uint32_t width = number(file.data + 16, 4, 1), height = number(file.data + 20, 4, 1);
    if (width > INT32_MAX || height > INT32_MAX)
        return;
    header->width = (int)width;
    header->height = (int)height;
    int idat_seen = 0;
    for (size_t at = 8; file.size - at >= 12;) {
        const uint8_t *chunk = file.data + at, *type = chunk + 4;
        size_t length = number(chunk, 4, 1);
        if (length > file.size - at - 12 || !memcmp(type, "IEND", 4))
            return;
        int is_exif = !memcmp(type, "eXIf", 4), is_text = !memcmp(type + 1, "TXt", 3) && (*type == 'z' || *type == 'i');
        if ((is_exif || is_text || !memcmp(type, "tEXt", 4))
            && (idat_seen || libdeflate_crc32(0, type, length + 4) == number(chunk + 8 + length, 4, 1))) {
            if (is_exif)
                found->exif = (dg_span){chunk + 8, length};
            else
                text_read(type, (dg_span){chunk + 8, length}, found);
        }
        idat_seen |= !memcmp(type, "IDAT", 4);
        at += length + 12;
    }
}

/* A key frame of VP8: three bytes of which the first says so, a start code, then 14 bits each. */
static void vp8_read(dg_span content, dg_header *header)
{
    if (content.size < 10 || content.data[0] & 1 || memcmp(content.data + 3, "\x9D\x01\x2A", 3))
        return;
    header->width = (int)(number(content.data + 6, 2, 0) & 0x3FFF);
    header->height = (int)(number(content.data + 8, 2, 0) & 0x3FFF);
}

static void vp8l_read(dg_span content, dg_header *header)
{
    if (content.size < 5 || content.data[0] != 0x2F)
        return;
    uint32_t sizes = number(content.data + 1, 4, 0);
    header->width = (int)(sizes & 0x3FFF) + 1;
    header->height = (int)(sizes >> 14 & 0x3FFF) + 1;
}

static void webp_read(dg_span file, dg_header *header, metadata *found)
{
    enum { XMP_FLAG = 4, EXIF_FLAG = 8 };
    int extended = 0;
    if (file.size < 12 || memcmp(file.data, "RIFF", 4) || memcmp(file.data + 8, "WEBP", 4))
        return;
    size_t riff = number(file.data + 4, 4, 0), end = riff < file.size - 8 ? riff + 8 : file.size;
    for (size_t at = 12; at < end && end - at >= 8;) {
        const uint8_t *chunk = file.data + at;
        size_t length = number(chunk + 4, 4, 0), left = end - at - 8;
        dg_span content = {chunk + 8, length < left ? length : left}; /* of a cut-off file the size may still be there */
        if (!memcmp(chunk, "VP8X", 4) && at == 12 && content.size >= 10) {
            extended = content.data[0];
            header->width = (int)number(content.data + 4, 3, 0) + 1;
            header->height = (int)number(content.data + 7, 3, 0) + 1;
        } else if (!memcmp(chunk, "VP8 ", 4) && header->width == 0) {
            vp8_read(content, header);
        } else if (!memcmp(chunk, "VP8L", 4) && header->width == 0) {
            vp8l_read(content, header);
        } else if (!memcmp(chunk, "EXIF", 4) && extended & EXIF_FLAG && !found->exif.data) {
            found->exif = content;
        } else if (!memcmp(chunk, "XMP ", 4) && extended & XMP_FLAG && !found->xmp.data) {
            found->xmp = content;
        }
        if (length + (length & 1) >= left)
            return;
        at += 8 + length + (length & 1);
    }
}

int dg_header_read(const uint8_t *data, size_t size, dg_format format, dg_header *header)
{
    dg_span file = {data, size};
    metadata found = {0};
    *header = (dg_header){.orientation = 1};
    switch (format) {
    case DG_FORMAT_JPEG: jpeg_read(file, header, &found); break;
    case DG_FORMAT_PNG: png_read(file, header, &found); break;
    case DG_FORMAT_WEBP: webp_read(file, header, &found); break;
    default: break;
    }
    header->orientation = orientation_in(&found);
    if (header->width > 0 && header->height > 0)
        return 1;
    header->width = header->height = 0;
    return 0;
}
