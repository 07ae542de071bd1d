#include "codec.h"

#include <stdlib.h>
#include <string.h>

#include "jpeg.h"
#include "png.h"
#include "webp.h"

struct dg_codec {
    dg_heap *heap;
    dg_jpeg *jpeg;
    dg_png *png;
};

static const char *const NAMES[DG_FORMAT_COUNT] = {
    [DG_FORMAT_UNKNOWN] = "unknown",
    [DG_FORMAT_JPEG] = "jpeg",
    [DG_FORMAT_PNG] = "png",
    [DG_FORMAT_WEBP] = "webp",
    [DG_FORMAT_GIF] = "gif",
    [DG_FORMAT_BMP] = "bmp",
    [DG_FORMAT_TIFF] = "tiff",
    [DG_FORMAT_AVIF] = "avif",
    [DG_FORMAT_HEIF] = "heif",
    [DG_FORMAT_JPEG_XL] = "jpeg xl",
    [DG_FORMAT_JPEG_2000] = "jpeg 2000",
    [DG_FORMAT_HTML] = "html",
};

/* A picture's first bytes, after `offset`. The registrations are those of the formats' own specifications. */
static const struct {
    dg_format format;
    unsigned offset, size;
    const char *bytes;
} SIGNATURES[] = {
    {DG_FORMAT_JPEG, 0, 3, "\xFF\xD8\xFF"},
    {DG_FORMAT_PNG, 0, 8, "\x89PNG\r\n\x1A\n"},
    {DG_FORMAT_WEBP, 8, 4, "WEBP"},
    {DG_FORMAT_GIF, 0, 4, "GIF8"},
    {DG_FORMAT_TIFF, 0, 4, "II*\0"},
    {DG_FORMAT_TIFF, 0, 4, "MM\0*"},
    {DG_FORMAT_TIFF, 0, 4, "II+\0"},
    {DG_FORMAT_TIFF, 0, 4, "MM\0+"},
    {DG_FORMAT_AVIF, 4, 8, "ftypavif"},
    {DG_FORMAT_AVIF, 4, 8, "ftypavis"},
    {DG_FORMAT_HEIF, 4, 7, "ftyphei"},
    {DG_FORMAT_HEIF, 4, 8, "ftypmif1"},
    {DG_FORMAT_JPEG_XL, 0, 2, "\xFF\x0A"},
    {DG_FORMAT_JPEG_XL, 4, 8, "JXL \r\n\x87\n"},
    {DG_FORMAT_JPEG_2000, 4, 8, "jP  \r\n\x87\n"},
    {DG_FORMAT_JPEG_2000, 0, 4, "\xFF\x4F\xFF\x51"},
    {DG_FORMAT_BMP, 0, 2, "BM"},
    {DG_FORMAT_HTML, 0, 5, "<html"},
    {DG_FORMAT_HTML, 0, 5, "<HTML"},
    {DG_FORMAT_HTML, 0, 2, "<!"},
};

dg_format dg_format_sniff(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < sizeof SIGNATURES / sizeof *SIGNATURES; i++)
        if (size >= SIGNATURES[i].offset + SIGNATURES[i].size
            && !memcmp(data + SIGNATURES[i].offset, SIGNATURES[i].bytes, SIGNATURES[i].size))
            return SIGNATURES[i].format;
    return DG_FORMAT_UNKNOWN;
}

const char *dg_format_name(dg_format format)
{
    return (unsigned)format < DG_FORMAT_COUNT ? NAMES[format] : NAMES[DG_FORMAT_UNKNOWN];
}

dg_codec *dg_codec_new(dg_heap *heap)
{
    dg_codec *codec = calloc(1, sizeof *codec);
    if (!codec)
        return NULL;
    codec->heap = heap;
    codec->jpeg = dg_jpeg_new(heap);
    codec->png = dg_png_new(heap);
    if (codec->jpeg && codec->png)
        return codec;
    dg_codec_free(codec);
    return NULL;
}

void dg_codec_free(dg_codec *codec)
{
    if (!codec)
        return;
    dg_jpeg_free(codec->jpeg);
    dg_png_free(codec->png);
    free(codec);
}

dg_status dg_codec_decode(dg_codec *codec, const uint8_t *data, size_t size, dg_format format, const dg_decode_options *options,
                          dg_image *image, int *damaged, dg_error *error)
{
    memset(image, 0, sizeof *image);
    *damaged = 0;
    if (size == 0)
        return dg_fail(error, DG_EMPTY, "no bytes");
    switch (format) {
    case DG_FORMAT_JPEG: return dg_jpeg_decode(codec->jpeg, data, size, options, image, damaged, error);
    case DG_FORMAT_PNG: return dg_png_decode(codec->png, data, size, options, image, error);
    case DG_FORMAT_WEBP: return dg_webp_decode(codec->heap, data, size, options, image, error);
    case DG_FORMAT_UNKNOWN:
        return dg_fail(error, DG_UNSUPPORTED, "no image format begins with the bytes %02x %02x %02x %02x", data[0],
                       size > 1 ? data[1] : 0, size > 2 ? data[2] : 0, size > 3 ? data[3] : 0);
    default: return dg_fail(error, DG_UNSUPPORTED, "unsupported format: %s", dg_format_name(format));
    }
}

dg_status dg_codec_fit(dg_codec *codec, const uint8_t *data, size_t size, const dg_decode_options *options,
                       const dg_resize_plan *plan, dg_image *image, int *damaged, dg_error *error)
{
    return dg_jpeg_fit(codec->jpeg, data, size, options, plan, image, damaged, error);
}

dg_status dg_codec_jpeg_check(dg_codec *codec, const uint8_t *data, size_t size, const dg_decode_options *options,
                              int *components, dg_error *error)
{
    return dg_jpeg_check(codec->jpeg, data, size, options, components, error);
}
