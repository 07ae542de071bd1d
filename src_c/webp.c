#include "webp.h"

#include <string.h>
#include <webp/decode.h>

/* The decoder is shown the file in steps of this size, so that a stop is noticed; smaller ones cost time. */
enum { STEP = 256 << 10 };

static dg_status truncated(const WebPBitstreamFeatures *features, int rows, dg_error *error)
{
    return dg_fail(error, DG_TRUNCATED, "webp: the file ends after %d of %d rows", rows, features->height);
}

static dg_status header_read(const uint8_t *data, size_t size, uint64_t max_pixels, WebPBitstreamFeatures *features,
                             dg_error *error)
{
    VP8StatusCode code = WebPGetFeatures(data, size, features);
    if (code == VP8_STATUS_NOT_ENOUGH_DATA)
        return dg_fail(error, DG_TRUNCATED, "webp: the file ends within its header");
    if (code != VP8_STATUS_OK || features->width <= 0 || features->height <= 0)
        return dg_fail(error, DG_CORRUPT, "webp: damaged header");
    if (features->has_animation)
        return dg_fail(error, DG_UNSUPPORTED, "animated webp");
    if ((uint64_t)features->width * (uint64_t)features->height > max_pixels)
        return dg_fail(error, DG_TOO_LARGE, "webp: %d x %d pixels, max_pixels is %llu", features->width, features->height,
                       (unsigned long long)max_pixels);
    return DG_OK;
}

/* What a picture that ended early has no rows for. */
static void rest_clear(dg_image *image, int rows)
{
    size_t done = (size_t)rows * dg_image_stride(image);
    memset(image->buffer.data + done, 0, image->buffer.size - done);
    if (image->pixel_stride > image->channels)
        for (size_t i = done + 3; i < image->buffer.size; i += 4)
            image->buffer.data[i] = 255;
}

static dg_status rows_decode(WebPIDecoder *decoder, const uint8_t *data, size_t size, const WebPBitstreamFeatures *features,
                             const dg_decode_options *options, dg_image *image, dg_error *error)
{
    VP8StatusCode code = VP8_STATUS_SUSPENDED;
    for (size_t shown = 0; code == VP8_STATUS_SUSPENDED && shown < size;) {
        if (options->stop && *options->stop)
            return dg_fail(error, DG_CANCELLED, "%s", "");
        shown = size - shown < STEP ? size : shown + STEP;
        code = WebPIUpdate(decoder, data, shown);
    }
    int rows = 0;
    switch (code) {
    case VP8_STATUS_OK: return DG_OK;
    case VP8_STATUS_OUT_OF_MEMORY: return dg_fail(error, DG_NO_MEMORY, "webp: no memory");
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA:
        if (!WebPIDecGetRGB(decoder, &rows, NULL, NULL, NULL))
            rows = 0;
        if (!options->accept_truncated || rows <= 0) /* not one row is no picture */
            return truncated(features, rows, error);
        rest_clear(image, rows);
        return DG_OK;
    case VP8_STATUS_UNSUPPORTED_FEATURE: return dg_fail(error, DG_UNSUPPORTED, "webp: unsupported feature");
    default: return dg_fail(error, DG_CORRUPT, "webp: damaged data");
    }
}

dg_status dg_webp_decode(dg_heap *heap, const uint8_t *data, size_t size, const dg_decode_options *options, dg_image *image,
                         dg_error *error)
{
    WebPBitstreamFeatures features;
    WebPDecBuffer output;
    memset(image, 0, sizeof *image);
    dg_status status = header_read(data, size, options->max_pixels, &features, error);
    if (status != DG_OK)
        return status;
    const int channels = features.has_alpha ? 4 : 3, pixel_stride = options->rgbx ? 4 : channels;
    if (!WebPInitDecBuffer(&output))
        return dg_fail(error, DG_UNSUPPORTED, "webp: libwebp is not the one this was built for");
    if (dg_image_alloc(heap, features.width, features.height, channels, pixel_stride, 8, image) != DG_OK)
        return dg_fail(error, DG_NO_MEMORY, "webp: no memory for %d x %d pixels", features.width, features.height);
    output.colorspace = pixel_stride == 4 ? MODE_RGBA : MODE_RGB; /* A = 255 without alpha: that is RGBX */
    output.is_external_memory = 1;
    output.u.RGBA.rgba = image->buffer.data;
    output.u.RGBA.stride = (int)dg_image_stride(image);
    output.u.RGBA.size = image->buffer.size;
    WebPIDecoder *decoder = WebPINewDecoder(&output);
    if (decoder)
        status = rows_decode(decoder, data, size, &features, options, image, error);
    else
        status = dg_fail(error, DG_NO_MEMORY, "webp: no memory");
    WebPIDelete(decoder);
    if (status != DG_OK)
        dg_image_free(image);
    return status;
}
