#include "png_chunks.h"

#include <libdeflate.h>
#include <string.h>

enum {
    SIGNATURE = 8,
    IHDR = 13,       /* bytes in an IHDR chunk */
    AROUND = 12,     /* bytes a chunk has around its content: length and type before, CRC after */
    MAX_CHUNK = 0x7fffffff,
};

static uint32_t big_endian(const uint8_t *at) { return (uint32_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3]; }

static int is_type(const uint8_t *chunk, const char *type) { return !memcmp(chunk + 4, type, 4); }

static int is_sound(const uint8_t *chunk, uint32_t length)
{
    return libdeflate_crc32(0, chunk + 4, length + 4) == big_endian(chunk + 8 + length);
}

static int is_letters(const uint8_t *type)
{
    for (int i = 0; i < 4; i++)
        if ((type[i] | 32) < 'a' || (type[i] | 32) > 'z')
            return 0;
    return 1;
}

/* Bit d is set where depth d goes with the colour type. */
static int depth_is_legal(int colour, int depth)
{
    static const uint32_t LEGAL[7] = {
        [DG_PNG_GREY] = 1 << 1 | 1 << 2 | 1 << 4 | 1 << 8 | 1 << 16,
        [DG_PNG_RGB] = 1 << 8 | 1 << 16,
        [DG_PNG_PALETTE] = 1 << 1 | 1 << 2 | 1 << 4 | 1 << 8,
        [DG_PNG_GREY_ALPHA] = 1 << 8 | 1 << 16,
        [DG_PNG_RGB_ALPHA] = 1 << 8 | 1 << 16,
    };
    return colour < 7 && depth <= 16 && LEGAL[colour] >> depth & 1;
}

/* The CRC comes last: a size beyond the limit is reported as such even if the header is damaged besides. */
static dg_status ihdr_read(const uint8_t *data, size_t size, uint64_t max_pixels, dg_png_header *header, dg_error *error)
{
    static const uint8_t SAMPLES[7] = {1, 0, 3, 1, 2, 0, 4};
    const uint8_t *chunk = data + SIGNATURE, *ihdr = chunk + 8;
    if (size < SIGNATURE + AROUND + IHDR)
        return dg_fail(error, DG_TRUNCATED, "png: the file ends within its header");
    if (memcmp(data, "\x89PNG\r\n\x1a\n", SIGNATURE))
        return dg_fail(error, DG_CORRUPT, "png: no PNG signature");
    if (is_type(chunk, "CgBI"))
        return dg_fail(error, DG_UNSUPPORTED, "png: Apple's CgBI variant");
    if (!is_type(chunk, "IHDR") || big_endian(chunk) != IHDR)
        return dg_fail(error, DG_CORRUPT, "png: the first chunk is no IHDR");
    header->width = big_endian(ihdr);
    header->height = big_endian(ihdr + 4);
    header->depth = ihdr[8];
    header->colour = ihdr[9];
    header->interlaced = ihdr[12];
    if (header->width - 1 >= 0x7fffffff || header->height - 1 >= 0x7fffffff)
        return dg_fail(error, DG_CORRUPT, "png: illegal size %u x %u", header->width, header->height);
    if (!depth_is_legal(header->colour, header->depth))
        return dg_fail(error, DG_CORRUPT, "png: illegal colour type %d with %d bits", header->colour, header->depth);
    if (ihdr[10] || ihdr[11] || ihdr[12] > 1)
        return dg_fail(error, DG_CORRUPT, "png: unknown compression %d, filter %d or interlace %d", ihdr[10], ihdr[11], ihdr[12]);
    if ((uint64_t)header->width * header->height > max_pixels)
        return dg_fail(error, DG_TOO_LARGE, "png: %u x %u pixels, max_pixels is %llu", header->width, header->height,
                       (unsigned long long)max_pixels);
    if (!is_sound(chunk, IHDR))
        return dg_fail(error, DG_CORRUPT, "png: IHDR has a wrong CRC");
    header->samples = SAMPLES[header->colour];
    return DG_OK;
}

static dg_status plte_read(const uint8_t *chunk, uint32_t length, dg_png_header *header, dg_error *error)
{
    if (header->colour != DG_PNG_PALETTE)
        return DG_OK; /* a suggestion for poor displays */
    if (length == 0 || length > 3 * 256 || length % 3)
        return dg_fail(error, DG_CORRUPT, "png: PLTE of %u bytes", length);
    if (!is_sound(chunk, length))
        return dg_fail(error, DG_CORRUPT, "png: PLTE has a wrong CRC");
    for (uint32_t i = 0; i < length / 3; i++)
        memcpy(header->palette[i], chunk + 8 + 3 * i, 3);
    return DG_OK;
}

/* A tRNS for pictures that have alpha anyway is ignored; one with more entries than the palette is taken as it is, one
 * with none says nothing. */
static dg_status trns_read(const uint8_t *chunk, uint32_t length, dg_png_header *header, dg_error *error)
{
    const uint8_t *trns = chunk + 8;
    int legal = header->colour == DG_PNG_PALETTE ? length <= 256 : length == 2u * header->samples;
    if (header->colour == DG_PNG_GREY_ALPHA || header->colour == DG_PNG_RGB_ALPHA)
        return DG_OK;
    if (!legal)
        return dg_fail(error, DG_CORRUPT, "png: tRNS of %u bytes", length);
    if (!is_sound(chunk, length))
        return dg_fail(error, DG_CORRUPT, "png: tRNS has a wrong CRC");
    header->transparency = length > 0;
    if (header->colour == DG_PNG_PALETTE)
        for (uint32_t i = 0; i < length; i++)
            header->palette[i][3] = trns[i];
    else
        for (int i = 0; i < header->samples; i++) /* depths below 16 use the low bits only */
            header->key[i] = (trns[2 * i] << 8 | trns[2 * i + 1]) & ((1 << header->depth) - 1);
    return DG_OK;
}

dg_status dg_png_header_read(const uint8_t *data, size_t size, uint64_t max_pixels, dg_png_header *header, dg_error *error)
{
    int idat_seen = 0, plte_seen = 0, trns_seen = 0;
    size_t at = SIGNATURE + AROUND + IHDR;
    dg_status status = ihdr_read(data, size, max_pixels, header, error);
    if (status != DG_OK)
        return status;
    header->transparency = 0;
    header->idat = NULL;
    header->idat_size = 0;
    if (header->colour == DG_PNG_PALETTE)
        for (int i = 0; i < 256; i++)
            memcpy(header->palette[i], "\0\0\0\xff", 4);
    while (size - at >= AROUND - 4) {
        const uint8_t *chunk = data + at;
        uint32_t length = big_endian(chunk);
        size_t left = size - at - 8; /* bytes from the content's beginning to the file's end */
        int is_idat = is_type(chunk, "IDAT");
        if (idat_seen && (!is_idat || length > MAX_CHUNK))
            break; /* what comes after the IDATs, damaged or not, does not matter */
        if (!is_letters(chunk + 4) || length > MAX_CHUNK)
            return dg_fail(error, DG_CORRUPT, "png: no chunk at byte %zu", at);
        if (is_idat) {
            idat_seen = 1;
            if (!header->idat && length)
                header->idat = chunk;
            header->idat_size += length < left ? length : left;
        }
        if (is_type(chunk, "IEND"))
            return dg_fail(error, DG_CORRUPT, "png: no IDAT chunk");
        if (left < (size_t)length + 4) {
            at = size;
            break;
        }
        if (is_type(chunk, "PLTE") && !plte_seen++)
            status = plte_read(chunk, length, header, error);
        if (is_type(chunk, "tRNS") && !trns_seen++)
            status = trns_read(chunk, length, header, error);
        if (status != DG_OK)
            return status;
        at += AROUND + (size_t)length;
    }
    if (!idat_seen)
        return dg_fail(error, DG_TRUNCATED, "png: the file ends before its pixels");
    if (header->colour == DG_PNG_PALETTE && !plte_seen)
        return dg_fail(error, DG_CORRUPT, "png: palette picture without PLTE");
    return DG_OK;
}

int dg_png_idat_is_one(const dg_png_header *header) { return !header->idat || big_endian(header->idat) >= header->idat_size; }

const uint8_t *dg_png_idat_join(const dg_png_header *header, uint8_t *joined)
{
    const uint8_t *chunk = header->idat;
    if (dg_png_idat_is_one(header))
        return chunk ? chunk + 8 : NULL;
    for (size_t done = 0; done < header->idat_size;) {
        size_t length = big_endian(chunk), wanted = header->idat_size - done;
        memcpy(joined + done, chunk + 8, length < wanted ? length : wanted);
        done += length < wanted ? length : wanted;
        chunk += AROUND + length;
    }
    return joined;
}
