/* PNG's entry in the table of decoders, and what a PNG's chunks say besides the pixels. */
#include <libdeflate.h>
#include <string.h>

#include "png.h"

/* tEXt, zTXt and iTXt: a keyword, 0, then what tells them apart, then text. Of chunks with the same keyword the last one counts. */
static void text_read(const uint8_t *type, dg_span content, dg_metadata *found)
{
    const uint8_t *end = content.size ? memchr(content.data, 0, content.size) : NULL;
    dg_span key = {content.data, end ? (size_t)(end - content.data) : content.size};
    dg_span text = {end ? end + 1 : content.data + content.size, content.size - key.size - (end != NULL)};
    int packed = *type == 'z', is_profile = key.size == 21 && dg_span_begins(key, "Raw profile type exif", 21);
    if (*type == 't' && key.size == 4 && dg_span_begins(key, "exif", 4))
        found->exif = text;
    if (!is_profile && !(key.size == 17 && dg_span_begins(key, "XML:com.adobe.xmp", 17)))
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

static void read_header(dg_reader *file, dg_header *header, dg_metadata *found)
{
    const uint8_t *data = file->data;
    if (file->size < 8 + 8 + 13 || !dg_reader_need(file, 8, 8 + 13) || dg_number32(data + 8, 4, 1) != 13
        || memcmp(data + 12, "IHDR", 4))
        return;
    uint32_t width = dg_number32(data + 16, 4, 1), height = dg_number32(data + 20, 4, 1);
    if (width > INT32_MAX || height > INT32_MAX)
        return;
    header->width = (int)width;
    header->height = (int)height;
    header->depth = data[24] == 16 ? 16 : 8;
    int idat_seen = 0;
    for (size_t at = 8; file->size - at >= 12 && dg_reader_need(file, at, 8);) {
        const uint8_t *chunk = data + at, *type = chunk + 4;
        size_t length = dg_number32(chunk, 4, 1);
        if (length > file->size - at - 12 || !memcmp(type, "IEND", 4))
            return;
        int is_exif = !memcmp(type, "eXIf", 4), is_text = !memcmp(type + 1, "TXt", 3) && (*type == 'z' || *type == 'i');
        if ((is_exif || is_text || !memcmp(type, "tEXt", 4)) && dg_reader_need(file, at, length + 12)
            && (idat_seen || libdeflate_crc32(0, type, length + 4) == dg_number32(chunk + 8 + length, 4, 1))) {
            if (is_exif)
                found->exif = (dg_span){chunk + 8, length};
            else
                text_read(type, (dg_span){chunk + 8, length}, found);
        }
        idat_seen |= !memcmp(type, "IDAT", 4);
        at += length + 12;
    }
}

/* Rows as they are inflated lie beside the pixels. */
static uint64_t cost(const dg_header *header, int fitted)
{
    (void)fitted;
    return 2 * dg_header_bytes(header);
}

static void *create(dg_heap *heap) { return dg_png_new(heap); }

static void destroy(void *state) { dg_png_free(state); }

static dg_status decode(void *state, const uint8_t *data, size_t size, const dg_decode_options *options, dg_image *image,
                        int *damaged, dg_error *error)
{
    (void)damaged;
    return dg_png_decode(state, data, size, options, image, error);
}

const dg_decoder dg_png_decoder = {
    .name = "png",
    .signatures = {{0, 8, "\x89PNG\r\n\x1A\n"}},
    .encoding = DG_ENCODE_PNG,
    .create = create,
    .destroy = destroy,
    .header = read_header,
    .cost = cost,
    .decode = decode,
};
