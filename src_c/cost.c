#include "cost.h"

#include "header.h"

enum {
    PIXEL = 4,        /* bytes: RGBA, or RGB for a reader of PIL images */
    WIDE_PIXEL = 8,   /* the same of 16 bits */
    COEFFICIENTS = 6, /* bytes of a pixel that libjpeg keeps of a progressive file, not subsampled */
    BAND = 64,        /* rows on their way through a resampler */
};

/* Pixels of what becomes of a picture. */
static uint64_t result_pixels(const dg_process_options *options, int width, int height)
{
    if (options->crop.resized.width)
        return (uint64_t)options->crop.resized.width * options->crop.resized.height;
    if (!options->crop.bucket_count)
        return (uint64_t)width * height;
    const dg_bucket *bucket = dg_bucket_choose(options->crop.buckets, options->crop.bucket_count, width, height);
    return (uint64_t)bucket->width * bucket->height;
}

uint64_t dg_process_cost(const uint8_t *data, size_t size, dg_role role, const dg_process_options *options)
{
    dg_header header;
    dg_format format = dg_format_sniff(data, size);
    if (!dg_header_read(data, size, format, &header))
        return format == DG_FORMAT_JPEG || format == DG_FORMAT_PNG || format == DG_FORMAT_WEBP || format == DG_FORMAT_HTML;
    uint64_t pixels = (uint64_t)header.width * header.height, out = result_pixels(options, header.width, header.height);
    if (pixels > options->decode.max_pixels)
        return 1;
    int turned = options->orient && header.orientation != 1, jpeg = format == DG_FORMAT_JPEG;
    int unit = format == DG_FORMAT_PNG && data[24] == 16 ? WIDE_PIXEL : PIXEL; /* the depth stands behind the size in IHDR */
    int whole =
        (role == DG_ROLE_MASK && options->nearest_masks) || (options->mode == DG_RESIZE_EXACT && turned) || header.lossless;
    uint64_t cost = pixels * unit;
    if (jpeg && out != pixels && !whole)
        cost = (uint64_t)header.width * PIXEL * BAND; /* it is resampled while it is decoded */
    else if (!jpeg)
        cost *= 2; /* rows inflated, or the decoder's own planes, beside the pixels */
    if (jpeg && header.progressive)
        cost += pixels * COEFFICIENTS;
    if (turned && (whole || !jpeg || out == pixels))
        cost += pixels * unit;
    return cost + 2 * out * unit; /* the result, and what it was made of or is encoded to */
}

uint64_t dg_pillow_cost(int width, int height, size_t size, const dg_process_options *options)
{
    uint64_t pixels = (uint64_t)width * height, out = result_pixels(options, width, height);
    if (pixels > options->decode.max_pixels)
        return 1;
    return 2 * size + pixels * DG_PILLOW_PIXEL + (out != pixels ? 2 * out * PIXEL : 0);
}
