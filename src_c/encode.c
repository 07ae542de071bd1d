#include "encode.h"

#include <stdlib.h>
#include <string.h>

#include "jpeg.h"
#include "png_write.h"

struct dg_encoder {
    dg_heap *heap;
    dg_png_writer *png;
    dg_jpeg_writer *jpeg;
};

dg_encoder *dg_encoder_new(dg_heap *heap)
{
    dg_encoder *encoder = calloc(1, sizeof *encoder);
    if (!encoder)
        return NULL;
    encoder->heap = heap;
    encoder->png = dg_png_writer_new(heap);
    encoder->jpeg = dg_jpeg_writer_new(heap);
    if (encoder->png && encoder->jpeg)
        return encoder;
    dg_encoder_free(encoder);
    return NULL;
}

void dg_encoder_free(dg_encoder *encoder)
{
    if (!encoder)
        return;
    dg_png_writer_free(encoder->png);
    dg_jpeg_writer_free(encoder->jpeg);
    free(encoder);
}

void dg_encoder_enter(dg_encoder *encoder)
{
    dg_image image = {0};
    dg_buffer file = {0};
    dg_error error;
    if (dg_image_alloc(encoder->heap, 8, 8, 1, 1, 8, &image) != DG_OK)
        return;
    memset(image.buffer.data, 0, image.buffer.size);
    dg_jpeg_encode(encoder->jpeg, &image, 90, 444, &file, &error);
    dg_buffer_free(&file);
    dg_image_free(&image);
}

int dg_encoding_is_plain(dg_encoding encoding) { return encoding == DG_ENCODE_JPEG; }

dg_status dg_encode(dg_encoder *encoder, dg_encoding encoding, const dg_image *image, int quality, int chroma, dg_buffer *out,
                    dg_error *error)
{
    if (encoding == DG_ENCODE_JPEG)
        return dg_jpeg_encode(encoder->jpeg, image, quality, chroma, out, error);
    return dg_png_encode(encoder->png, image, out, error);
}
