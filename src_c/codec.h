/* From encoded bytes to pixels: sniff the content, route to the format's file, apply the limits.
 *
 * A dg_codec holds what one worker reuses from picture to picture (decoder objects, scratch memory); it is not shared
 * between threads. Each format's file offers the functions declared below and nothing else. */
#ifndef DG_CODEC_H
#define DG_CODEC_H

#include <stdatomic.h>

#include "image.h"
#include "resize.h"

typedef enum {
    DG_FORMAT_UNKNOWN = 0,
    DG_FORMAT_JPEG,
    DG_FORMAT_PNG,
    DG_FORMAT_WEBP,
    DG_FORMAT_GIF,
    DG_FORMAT_BMP,
    DG_FORMAT_TIFF,
    DG_FORMAT_AVIF,
    DG_FORMAT_HEIF,
    DG_FORMAT_JPEG_XL,
    DG_FORMAT_JPEG_2000,
    DG_FORMAT_HTML,
    DG_FORMAT_COUNT
} dg_format;

typedef struct {
    uint64_t max_pixels;      /* width x height beyond which a picture is refused */
    int rgbx;                 /* RGB as RGBX (step 4), for a reader that wants PIL images */
    int accept_truncated;     /* deliver what there is of a picture that ends early */
    int accept_damaged;       /* deliver a JPEG whose entropy-coded data cannot be right, as libjpeg patches it up */
    int part;                 /* of dg_codec_fit: only the box counts, and what lies below it need not be read */
    const atomic_int *stop;   /* decoders look at it between rows and return DG_CANCELLED once it is not 0; may be NULL */
} dg_decode_options;

typedef struct dg_codec dg_codec;

dg_codec *dg_codec_new(dg_heap *heap); /* NULL when memory is short */
void dg_codec_free(dg_codec *codec);

/* What the bytes are, whatever their name says. */
dg_format dg_format_sniff(const uint8_t *data, size_t size);
const char *dg_format_name(dg_format format); /* e.g. "jpeg", "webp", "unknown" */

/* Decodes one picture of a format that was sniffed. `*damaged`: see dg_jpeg_decode. On DG_OK `image` owns a buffer of the
 * codec's heap; else it is empty and `error` says why. */
dg_status dg_codec_decode(dg_codec *codec, const uint8_t *data, size_t size, dg_format format, const dg_decode_options *options,
                          dg_image *image, int *damaged, dg_error *error);

/* Decodes a JPEG and resamples a box of it on the way: see dg_jpeg_fit. */
dg_status dg_codec_fit(dg_codec *codec, const uint8_t *data, size_t size, const dg_decode_options *options,
                       const dg_resize_plan *plan, dg_image *image, int *damaged, dg_error *error);

/* How many components a JPEG without fault has: see dg_jpeg_check. */
dg_status dg_codec_jpeg_check(dg_codec *codec, const uint8_t *data, size_t size, const dg_decode_options *options,
                              int *components, dg_error *error);

#endif
