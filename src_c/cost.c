#include "cost.h"

#include "header.h"

enum { PIXEL = 4 }; /* bytes of a pixel that Pillow decoded: RGBA, or RGB for a reader of PIL images */

/* Pixels of what becomes of a picture. */
static uint64_t result_pixels(const dg_process_options *options, int width, int height)
{
    dg_size size = dg_crop_target(&options->crop, width, height);
    return size.width ? (uint64_t)size.width * size.height : (uint64_t)width * height;
}

uint64_t dg_process_cost(const uint8_t *data, size_t size, dg_role role, const dg_process_options *options)
{
    dg_header header;
    dg_format format = dg_format_sniff(data, size);
    const dg_decoder *decoder = dg_decoder_of(format);
    if (!dg_header_read(data, size, format, &header))
        return decoder->decode || decoder->no_picture;
    uint64_t pixels = (uint64_t)header.width * header.height, out = result_pixels(options, header.width, header.height);
    if (pixels > options->decode.max_pixels)
        return 1;
    int turned = options->orient && header.orientation != 1;
    int fitted = out != pixels && dg_process_can_fit(format, &header, role, options);
    uint64_t cost = decoder->cost(&header, fitted);
    if (turned && !fitted)
        cost += dg_header_bytes(&header);
    return cost + 2 * out * dg_header_pixel(&header); /* the result, and what it was made of or is encoded to */
}

uint64_t dg_pillow_cost(int width, int height, size_t size, const dg_process_options *options)
{
    uint64_t pixels = (uint64_t)width * height, out = result_pixels(options, width, height);
    if (pixels > options->decode.max_pixels)
        return 1;
    return 2 * size + pixels * DG_PILLOW_PIXEL + (out != pixels ? 2 * out * PIXEL : 0);
}
