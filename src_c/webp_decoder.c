/* WebP's entry in the table of decoders, and what a WebP's chunks say besides the pixels. */
#include <string.h>

#include "webp.h"

/* A key frame of VP8: three bytes of which the first says so, a start code, then 14 bits each. */
static void vp8_read(dg_span content, dg_header *header)
{
    if (content.size < 10 || content.data[0] & 1 || memcmp(content.data + 3, "\x9D\x01\x2A", 3))
        return;
    header->width = (int)(dg_number32(content.data + 6, 2, 0) & 0x3FFF);
    header->height = (int)(dg_number32(content.data + 8, 2, 0) & 0x3FFF);
}

static void vp8l_read(dg_span content, dg_header *header)
{
    if (content.size < 5 || content.data[0] != 0x2F)
        return;
    uint32_t sizes = dg_number32(content.data + 1, 4, 0);
    header->width = (int)(sizes & 0x3FFF) + 1;
    header->height = (int)(sizes >> 14 & 0x3FFF) + 1;
}

static void read_header(dg_reader *file, dg_header *header, dg_metadata *found)
{
    enum { XMP_FLAG = 4, EXIF_FLAG = 8, SIZES = 10 }; /* the bytes in which a chunk of pixels has said its size */
    int extended = 0;
    const uint8_t *data = file->data;
    if (file->size < 12 || !dg_reader_need(file, 0, 12) || memcmp(data, "RIFF", 4) || memcmp(data + 8, "WEBP", 4))
        return;
    size_t riff = dg_number32(data + 4, 4, 0), end = riff < file->size - 8 ? riff + 8 : file->size;
    for (size_t at = 12; at < end && end - at >= 8 && dg_reader_need(file, at, 8);) {
        const uint8_t *chunk = data + at;
        size_t length = dg_number32(chunk + 4, 4, 0), left = end - at - 8;
        dg_span content = {chunk + 8, length < left ? length : left}; /* of a cut-off file the size may still be there */
        int is_metadata = !memcmp(chunk, "EXIF", 4) || !memcmp(chunk, "XMP ", 4);
        if (!dg_reader_need(file, at + 8, is_metadata || content.size < SIZES ? content.size : SIZES))
            return;
        if (!memcmp(chunk, "VP8X", 4) && at == 12 && content.size >= 10) {
            extended = content.data[0];
            header->width = (int)dg_number32(content.data + 4, 3, 0) + 1;
            header->height = (int)dg_number32(content.data + 7, 3, 0) + 1;
        } else if (!memcmp(chunk, "VP8 ", 4) && header->width == 0) {
            vp8_read(content, header);
        } else if (!memcmp(chunk, "VP8L", 4) && header->width == 0) {
            vp8l_read(content, header);
        } else if (!memcmp(chunk, "EXIF", 4) && extended & EXIF_FLAG && !found->exif.data) {
            found->exif = content;
        } else if (!memcmp(chunk, "XMP ", 4) && extended & XMP_FLAG && !found->xmp.data) {
            found->xmp = content;
        }
        if (length + (length & 1) >= left || (header->width && !(extended & (XMP_FLAG | EXIF_FLAG))))
            return;
        at += 8 + length + (length & 1);
    }
}

/* The decoder's own planes lie beside the pixels. */
static uint64_t cost(const dg_header *header, int fitted)
{
    (void)fitted;
    return 2 * dg_header_bytes(header);
}

/* libwebp keeps nothing from picture to picture, so the heap is all that a worker needs. */
static void *create(dg_heap *heap) { return heap; }

static dg_status decode(void *state, const uint8_t *data, size_t size, const dg_decode_options *options, dg_image *image,
                        int *damaged, dg_error *error)
{
    (void)damaged;
    return dg_webp_decode(state, data, size, options, image, error);
}

const dg_decoder dg_webp_decoder = {
    .name = "webp",
    .signatures = {{8, 4, "WEBP"}},
    .create = create,
    .header = read_header,
    .cost = cost,
    .decode = decode,
};
