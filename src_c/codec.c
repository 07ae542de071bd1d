#include "codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct dg_codec {
    void *states[DG_FORMAT_COUNT]; /* of each decoder that has one */
};

static const dg_decoder UNKNOWN = {.name = "unknown"};
static const dg_decoder GIF = {.name = "gif", .signatures = {{0, 4, "GIF8"}}};
static const dg_decoder TIFF = {.name = "tiff",
                                .signatures = {{0, 4, "II*\0"}, {0, 4, "MM\0*"}, {0, 4, "II+\0"}, {0, 4, "MM\0+"}}};
static const dg_decoder AVIF = {.name = "avif", .signatures = {{4, 8, "ftypavif"}, {4, 8, "ftypavis"}}};
static const dg_decoder HEIF = {.name = "heif", .signatures = {{4, 7, "ftyphei"}, {4, 8, "ftypmif1"}}};
static const dg_decoder JPEG_XL = {.name = "jpeg xl", .signatures = {{0, 2, "\xFF\x0A"}, {4, 8, "JXL \r\n\x87\n"}}};
static const dg_decoder JPEG_2000 = {.name = "jpeg 2000", .signatures = {{4, 8, "jP  \r\n\x87\n"}, {0, 4, "\xFF\x4F\xFF\x51"}}};
static const dg_decoder BMP = {.name = "bmp", .signatures = {{0, 2, "BM"}}};
static const dg_decoder HTML = {.name = "html", .signatures = {{0, 5, "<html"}, {0, 5, "<HTML"}, {0, 2, "<!"}}, .no_picture = 1};

static const dg_decoder *const DECODERS[DG_FORMAT_COUNT] = {
    [DG_FORMAT_UNKNOWN] = &UNKNOWN,
    [DG_FORMAT_JPEG] = &dg_jpeg_decoder,
    [DG_FORMAT_PNG] = &dg_png_decoder,
    [DG_FORMAT_WEBP] = &dg_webp_decoder,
    [DG_FORMAT_GIF] = &GIF,
    [DG_FORMAT_TIFF] = &TIFF,
    [DG_FORMAT_AVIF] = &AVIF,
    [DG_FORMAT_HEIF] = &HEIF,
    [DG_FORMAT_JPEG_XL] = &JPEG_XL,
    [DG_FORMAT_JPEG_2000] = &JPEG_2000,
    [DG_FORMAT_BMP] = &BMP,
    [DG_FORMAT_HTML] = &HTML,
};

const dg_decoder *dg_decoder_of(dg_format format) { return DECODERS[(unsigned)format < DG_FORMAT_COUNT ? format : 0]; }

dg_format dg_format_sniff(const uint8_t *data, size_t size)
{
    for (int format = 0; format < DG_FORMAT_COUNT; format++)
        for (int i = 0; i < DG_MAX_SIGNATURES; i++) {
            dg_signature signature = DECODERS[format]->signatures[i];
            if (signature.size && size >= signature.offset + signature.size
                && !memcmp(data + signature.offset, signature.bytes, signature.size))
                return (dg_format)format;
        }
    return DG_FORMAT_UNKNOWN;
}

dg_codec *dg_codec_new(dg_heap *heap)
{
    dg_codec *codec = calloc(1, sizeof *codec);
    int complete = codec != NULL;
    for (int format = 0; complete && format < DG_FORMAT_COUNT; format++)
        if (DECODERS[format]->create)
            complete = (codec->states[format] = DECODERS[format]->create(heap)) != NULL;
    if (complete)
        return codec;
    dg_codec_free(codec);
    return NULL;
}

void dg_codec_free(dg_codec *codec)
{
    for (int format = 0; codec && format < DG_FORMAT_COUNT; format++)
        if (DECODERS[format]->destroy)
            DECODERS[format]->destroy(codec->states[format]);
    free(codec);
}

dg_status dg_codec_decode(dg_codec *codec, const uint8_t *data, size_t size, dg_format format, const dg_decode_options *options,
                          dg_image *image, int *damaged, dg_error *error)
{
    const dg_decoder *decoder = dg_decoder_of(format);
    memset(image, 0, sizeof *image);
    *damaged = 0;
    if (size == 0)
        return dg_fail(error, DG_EMPTY, "no bytes");
    if (decoder->decode)
        return decoder->decode(codec->states[format], data, size, options, image, damaged, error);
    if (decoder == &UNKNOWN) {
        char bytes[sizeof "00 00 00 00"] = "";
        for (size_t i = 0; i < size && i < 4; i++)
            snprintf(bytes + 3 * i, sizeof bytes - 3 * i, "%02x ", data[i]);
        bytes[3 * (size < 4 ? size : 4) - 1] = '\0';
        return dg_fail(error, DG_UNSUPPORTED, "unrecognised signature: %s", bytes);
    }
    return dg_fail(error, DG_UNSUPPORTED, "unsupported format: %s", decoder->name);
}

dg_status dg_codec_fit(dg_codec *codec, const uint8_t *data, size_t size, dg_format format, const dg_decode_options *options,
                       const dg_resize_plan *plan, dg_image *image, int *damaged, dg_error *error)
{
    return dg_decoder_of(format)->fit(codec->states[format], data, size, options, plan, image, damaged, error);
}

dg_status dg_codec_check(dg_codec *codec, const uint8_t *data, size_t size, dg_format format, const dg_decode_options *options,
                         int *channels, dg_error *error)
{
    return dg_decoder_of(format)->check(codec->states[format], data, size, options, channels, error);
}
