/* From pixels to the bytes of a file. */
#ifndef DG_ENCODE_H
#define DG_ENCODE_H

#include "decoder.h"

/* What one worker reuses from picture to picture. NULL when memory is short. */
typedef struct dg_encoder dg_encoder;
dg_encoder *dg_encoder_new(dg_heap *heap);
void dg_encoder_free(dg_encoder *encoder);

/* To be called once by the thread that uses the encoder, while nobody changes the environment: see dg_worker_enter. */
void dg_encoder_enter(dg_encoder *encoder);

/* Whether files of this kind have neither alpha nor 16 bits, so that a picture must have neither. */
int dg_encoding_is_plain(dg_encoding encoding);

/* Encodes `image`, which stays as it is. `quality` is 1 to 100, `chroma` 444, 422 or 420; PNG looks at neither. On DG_OK `out` owns
 * a buffer of the heap. */
dg_status dg_encode(dg_encoder *encoder, dg_encoding encoding, const dg_image *image, int quality, int chroma, dg_buffer *out,
                    dg_error *error);

#endif
