/* From encoded bytes to pixels: what the bytes are, and the format's own decoder for them.
 *
 * A dg_codec holds what one worker reuses from picture to picture (decoder objects, scratch memory); it is not shared
 * between threads. */
#ifndef DG_CODEC_H
#define DG_CODEC_H

#include "decoder.h"

typedef struct dg_codec dg_codec;

dg_codec *dg_codec_new(dg_heap *heap); /* NULL when memory is short */
void dg_codec_free(dg_codec *codec);

/* What the bytes are, whatever their name says. */
dg_format dg_format_sniff(const uint8_t *data, size_t size);

/* The functions of dg_decoder for a file that was sniffed as `format`, with the worker's own objects. Decoding a format that has no
 * decoder, or no bytes, fails as it should; `fit` and `check` may be asked only of a format that has them. */
dg_status dg_codec_decode(dg_codec *codec, const uint8_t *data, size_t size, dg_format format, const dg_decode_options *options,
                          dg_image *image, int *damaged, dg_error *error);
dg_status dg_codec_fit(dg_codec *codec, const uint8_t *data, size_t size, dg_format format, const dg_decode_options *options,
                       const dg_resize_plan *plan, dg_image *image, int *damaged, dg_error *error);
dg_status dg_codec_check(dg_codec *codec, const uint8_t *data, size_t size, dg_format format, const dg_decode_options *options,
                         int *channels, dg_error *error);

#endif
