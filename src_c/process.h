/* One picture of a sample, from bytes to what the reader asked for:
 * decode → orient → crop and resize → mirror → RGB8 → canvas → encode. */
#ifndef DG_PROCESS_H
#define DG_PROCESS_H

#include "codec.h"
#include "draws.h"
#include "resize.h"

typedef enum { DG_ROLE_IMAGE, DG_ROLE_MASK, DG_ROLE_ADDITIONAL } dg_role;

typedef struct {
    dg_decode_options decode;
    dg_crop_options crop;
    dg_resize_mode mode;
    int orient;            /* apply EXIF orientation */
    dg_resize_filter filter, mask_filter; /* masks that are labels want the nearest pixel, never a mixture */
    int rgb8;              /* all but masks become 8-bit RGB */
    uint8_t background[3]; /* what shows through alpha */
    uint8_t fill[3];       /* of the canvas that crop.steps.pad wants; that of a mask is 0 */
    dg_encoding encoding;  /* masks that are encoded are always PNG */
    int quality, chroma;   /* of JPEG: 1 to 100; 444, 422 or 420 */
} dg_process_options;

typedef struct {
    dg_image image;  /* pixels; if `encoded` their size and depth, and the file's bytes in image.buffer */
    int encoded;
    int original_width, original_height; /* as decoded and turned, before crop and resize */
    int damaged;     /* libjpeg patched something up */
} dg_picture;

/* What one worker reuses from picture to picture. NULL when memory is short.
 *
 * Libraries read the environment when their objects are made, and some when a thread calls them for the first time (libjpeg-turbo
 * keeps its choice of SIMD for each thread). While another thread changes the environment that is a crash. So a worker is made, and
 * its thread calls dg_worker_enter once, while nobody may do that; nothing else here reads the environment. */
typedef struct dg_worker dg_worker;
dg_worker *dg_worker_new(dg_heap *heap);
void dg_worker_enter(dg_worker *worker);
void dg_worker_free(dg_worker *worker);

/* Processes the picture in `data`. `draw` is the sample's, fresh from dg_draw_begin: its first picture decides (by its turned size),
 * the others follow, whatever their sizes. DG_UNSUPPORTED with `*format` other than PNG: another decoder may know it, see
 * dg_process_pixels. On DG_OK `picture` owns a buffer; else it is empty.
 *
 * A picture that is cropped or resized is so while it is decoded, where dg_process_can_fit; any other is decoded whole first. */
dg_status dg_process(dg_worker *worker, const uint8_t *data, size_t size, dg_role role, const dg_process_options *options,
                     dg_draw *draw, dg_format *format, dg_picture *picture, dg_error *error);

/* Whether dg_process crops and resizes such a picture while it decodes it. Only some formats offer that. DG_RESIZE_EXACT and
 * DG_FILTER_NEAREST want the picture turned first. */
int dg_process_can_fit(dg_format format, const dg_header *header, dg_role role, const dg_process_options *options);

/* The way from "orient" on, for pixels that another decoder made: picture->image, consumed. `orientation` is EXIF's, 1 to 8. */
dg_status dg_process_pixels(dg_worker *worker, int orientation, dg_role role, const dg_process_options *options, dg_draw *draw,
                            dg_picture *picture, dg_error *error);

#endif
