/* JPEG through the libjpeg API, one dg_jpeg per worker. */
#ifndef DG_JPEG_H
#define DG_JPEG_H

#include "decoder.h"
#include "resize.h"

typedef struct dg_jpeg dg_jpeg;

dg_jpeg *dg_jpeg_new(dg_heap *heap); /* NULL when memory is short */
void dg_jpeg_free(dg_jpeg *jpeg);

/* Decodes `data` (which starts with SOI) as libjpeg does by default, straight into the image's buffer: grey stays one
 * channel; YCbCr and RGB give RGB; CMYK and YCCK give RGB by R = C * K / 255 on the inverted samples that Adobe writes,
 * whether the Adobe marker is there or not (as Pillow reads them). RGB has pixel stride 4, X = 255, if options->rgbx. A file that
 * ends before its picture is DG_TRUNCATED unless only the end marker is missing. `*damaged` tells that libjpeg met data
 * which cannot be right and went on; without options->accept_damaged that is DG_CORRUPT. A file whose scans ask for more passes over
 * the picture than its bytes pay for is DG_TOO_LARGE: it would take seconds and show nothing. Sound files that libjpeg does not
 * read are DG_UNSUPPORTED. */
dg_status dg_jpeg_decode(dg_jpeg *jpeg, const uint8_t *data, size_t size, const dg_decode_options *options, dg_image *image,
                         int *damaged, dg_error *error);

/* Whether the file's last bytes are an end marker: it is whole, then, for all that can be known without decoding it. */
static inline int dg_jpeg_ends(const uint8_t *data, size_t size)
{
    return size >= 2 && data[size - 2] == 0xFF && data[size - 1] == 0xD9;
}

/* Decodes and resamples the box `plan->box` of the picture to plan->dst_width x plan->dst_height, row by row: the whole
 * picture is never in memory. Only box, dst_width, dst_height and mode of the plan are read; the rest follows from the
 * file. EXACT resamples the pixels that dg_jpeg_decode gives, to the last bit. FAST takes what a JPEG offers: the inverse
 * DCT at the smallest of 1/8, 1/4, 1/2 and 1 that still covers the target with DG_DCT_MARGIN to spare, and luma and chroma
 * resampled as they are stored, turned into RGB at the target's size; where nothing smaller covers it, and with
 * options->part, it resamples the same pixels as EXACT.
 *
 * Those pixels are decoded only where they are needed: the box, what the kernel takes from around it, DG_JPEG_MARGIN
 * columns and rows more, since upsampling takes the region's ends for the picture's, and whatever completes a block or a
 * row of them. But entropy-coded data has no index: all of it is read, from the first row to the last one needed if
 * options->part is set and the file ends with an end marker (damage below that row goes unnoticed), else to the end. */
dg_status dg_jpeg_fit(dg_jpeg *jpeg, const uint8_t *data, size_t size, const dg_decode_options *options,
                      const dg_resize_plan *plan, dg_image *image, int *damaged, dg_error *error);

/* Decodes the whole file at an eighth of its size, and keeps no pixel. `*components` is how many components it has, or 0 where anything is
 * missing (be it the end marker alone) or cannot be right, whatever the options accept. */
dg_status dg_jpeg_check(dg_jpeg *jpeg, const uint8_t *data, size_t size, const dg_decode_options *options, int *components,
                        dg_error *error);

/* What one worker reuses from picture to picture to encode them. */
typedef struct dg_jpeg_writer dg_jpeg_writer;
dg_jpeg_writer *dg_jpeg_writer_new(dg_heap *heap); /* NULL when memory is short */
void dg_jpeg_writer_free(dg_jpeg_writer *writer);

/* Encodes 8-bit grey or RGB (pixel stride 3 or 4) as a baseline JPEG. `chroma` is 444, 422 or 420; quality 1 to 100. */
dg_status dg_jpeg_encode(dg_jpeg_writer *writer, const dg_image *image, int quality, int chroma, dg_buffer *out, dg_error *error);

#endif
