/* JPEG's entry in the table of decoders, and what a JPEG's segments say before its pixels. */
#include "jpeg.h"

enum {
    COEFFICIENTS = 6, /* bytes of a pixel that libjpeg keeps of a progressive file, not subsampled */
    BAND = 64,        /* rows on their way through a resampler */
};

/* Every kind of frame: baseline, progressive, lossless, arithmetic. DHT, JPG and DAC lie among their numbers. */
static int is_frame(int marker) { return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC; }

static void read_header(dg_reader *file, dg_header *header, dg_metadata *found)
{
    static const char XMP[] = "http://ns.adobe.com/xap/1.0/";
    for (size_t at = 2; at < file->size && dg_reader_need(file, at, 1);) {
        /* To the next marker as libjpeg goes: over whatever is in between, and over fill bytes. */
        if (file->data[at++] != 0xFF)
            continue;
        while (at < file->size && dg_reader_need(file, at, 1) && file->data[at] == 0xFF)
            at++;
        if (at >= file->known)
            return;
        int marker = file->data[at++];
        if (marker <= 0x01 || (marker >= 0xD0 && marker <= 0xD8)) /* no marker, TEM, RSTn, SOI: nothing follows */
            continue;
        if (marker == 0xDA || marker == 0xD9 || file->size - at < 2 || !dg_reader_need(file, at, 2))
            return;
        size_t length = dg_number32(file->data + at, 2, 1);
        if (length < 2 || length > file->size - at)
            return;
        if ((is_frame(marker) || marker == 0xE1) && !dg_reader_need(file, at, length))
            return;
        dg_span content = {file->data + at + 2, length - 2};
        if (is_frame(marker) && content.size >= 6 && header->width == 0) {
            header->height = (int)dg_number32(content.data + 1, 2, 1);
            header->width = (int)dg_number32(content.data + 3, 2, 1);
            header->progressive = (marker & 3) == 2;
            header->lossless = (marker & 3) == 3;
        }
        if (marker == 0xE1 && dg_span_begins(content, "Exif\0\0", 6)) { /* what does not fit into one goes on in the next */
            found->exif_more += found->exif.size > 6 ? content.size - 6 : 0;
            found->exif = found->exif.size > 6 ? found->exif : content;
        }
        if (marker == 0xE1 && dg_span_begins(content, XMP, sizeof XMP))
            found->xmp = (dg_span){content.data + sizeof XMP, content.size - sizeof XMP};
        at += length;
    }
}

static uint64_t cost(const dg_header *header, int fitted)
{
    uint64_t rows = fitted ? header->width * dg_header_pixel(header) * BAND : dg_header_bytes(header);
    return rows + (header->progressive ? (uint64_t)header->width * header->height * COEFFICIENTS : 0);
}

static void *create(dg_heap *heap) { return dg_jpeg_new(heap); }

static void destroy(void *state) { dg_jpeg_free(state); }

static dg_status decode(void *state, const uint8_t *data, size_t size, const dg_decode_options *options, dg_image *image,
                        int *damaged, dg_error *error)
{
    return dg_jpeg_decode(state, data, size, options, image, damaged, error);
}

static dg_status fit(void *state, const uint8_t *data, size_t size, const dg_decode_options *options, const dg_resize_plan *plan,
                     dg_image *image, int *damaged, dg_error *error)
{
    return dg_jpeg_fit(state, data, size, options, plan, image, damaged, error);
}

static dg_status check(void *state, const uint8_t *data, size_t size, const dg_decode_options *options, int *channels,
                       dg_error *error)
{
    return dg_jpeg_check(state, data, size, options, channels, error);
}

const dg_decoder dg_jpeg_decoder = {
    .name = "jpeg",
    .signatures = {{0, 3, "\xFF\xD8\xFF"}},
    .encoding = DG_ENCODE_JPEG,
    .create = create,
    .destroy = destroy,
    .header = read_header,
    .cost = cost,
    .decode = decode,
    .fit = fit,
    .check = check,
};
