#include "process.h"

#include <stdlib.h>
#include <string.h>

#include "canvas.h"
#include "color.h"
#include "encode.h"
#include "header.h"
#include "orient.h"
#include "orientation.h"

struct dg_worker {
    dg_heap *heap;
    dg_codec *codec;
    dg_resizer *resizer;
    dg_encoder *encoder;
};

dg_worker *dg_worker_new(dg_heap *heap)
{
    dg_worker *worker = calloc(1, sizeof *worker);
    if (!worker)
        return NULL;
    worker->heap = heap;
    worker->codec = dg_codec_new(heap);
    worker->resizer = dg_resizer_new();
    worker->encoder = dg_encoder_new(heap);
    if (worker->codec && worker->resizer && worker->encoder)
        return worker;
    dg_worker_free(worker);
    return NULL;
}

void dg_worker_free(dg_worker *worker)
{
    if (!worker)
        return;
    dg_codec_free(worker->codec);
    dg_resizer_free(worker->resizer);
    dg_encoder_free(worker->encoder);
    free(worker);
}

void dg_worker_enter(dg_worker *worker) { dg_encoder_enter(worker->encoder); }

/* Moves `from` into the place of `*image`. */
static void replace(dg_image *image, dg_image from)
{
    dg_image_free(image);
    *image = from;
}

static dg_status no_memory(dg_error *error, int width, int height)
{
    return dg_fail(error, DG_NO_MEMORY, "no memory for %d x %d pixels", width, height);
}

/* ---- crop and resize ---- */

static dg_resize_filter filter_for(dg_role role, const dg_process_options *options)
{
    return role == DG_ROLE_MASK ? options->mask_filter : options->filter;
}

/* What is made of a picture that is stored with width x height pixels and turned as EXIF's `orientation` says: still turned so, and
 * without the canvases. */
static dg_resize_plan plan_for(const dg_draw *draw, int width, int height, int orientation, dg_role role,
                               const dg_process_options *options)
{
    dg_resize_plan plan = {.src_width = width, .src_height = height, .mode = options->mode, .filter = filter_for(role, options)};
    dg_part kept = dg_frame_kept(&draw->frame, orientation, &plan.whole);
    plan.box = dg_frame_box(&draw->frame, width, height, orientation);
    plan.crop_first = draw->frame.of.width != 0;
    plan.dst_x = kept.x;
    plan.dst_y = kept.y;
    plan.dst_width = kept.size.width;
    plan.dst_height = kept.size.height;
    return plan;
}

static dg_status fit(dg_worker *worker, dg_role role, const dg_process_options *options, const dg_draw *draw, dg_image *image,
                     dg_error *error)
{
    dg_resize_plan plan = plan_for(draw, image->width, image->height, 1, role, options);
    dg_image fitted;
    plan.channels = image->channels;
    plan.depth = image->depth;
    plan.src_pixel_stride = image->pixel_stride;
    plan.dst_pixel_stride = image->channels == 3 && image->depth == 8 && options->decode.rgbx ? 4 : image->channels;
    if (dg_image_alloc(worker->heap, plan.dst_width, plan.dst_height, plan.channels, plan.dst_pixel_stride, plan.depth, &fitted)
        != DG_OK)
        return no_memory(error, plan.dst_width, plan.dst_height);
    dg_status status = dg_resize(worker->resizer, &plan, image->buffer.data, dg_image_stride(image), fitted.buffer.data,
                                 dg_image_stride(&fitted), error);
    if (status == DG_OK)
        replace(image, fitted);
    else
        dg_image_free(&fitted);
    return status;
}

/* Only by the shorter side can a picture become larger than anybody wants. */
static int fits_limit(const dg_draw *draw, const dg_process_options *options, dg_error *error)
{
    const dg_size *size = &draw->frame.target;
    if (!draw->frame.whole.width || (uint64_t)size->width * (uint64_t)size->height <= options->decode.max_pixels)
        return 1;
    dg_fail(error, DG_TOO_LARGE, "resized it has %d x %d pixels, more than max_pixels, %llu", size->width, size->height,
            (unsigned long long)options->decode.max_pixels);
    return 0;
}

/* ---- colours ---- */

static dg_status narrow(dg_worker *worker, dg_image *image, dg_error *error)
{
    dg_image out;
    if (dg_image_alloc(worker->heap, image->width, image->height, image->channels, image->pixel_stride, 8, &out) != DG_OK)
        return no_memory(error, image->width, image->height);
    dg_depth_16_to_8((const uint16_t *)image->buffer.data, out.buffer.data, out.buffer.size);
    replace(image, out);
    return DG_OK;
}

/* 8-bit RGB of anything; RGB stays as it is. */
static dg_status make_rgb8(dg_worker *worker, const dg_process_options *options, dg_image *image, dg_error *error)
{
    dg_image out;
    int pixel_stride = options->decode.rgbx ? 4 : 3;
    size_t count = (size_t)image->width * image->height;
    if (image->depth == 16 && narrow(worker, image, error) != DG_OK)
        return error->status;
    if (image->channels == 3)
        return DG_OK;
    if (dg_image_alloc(worker->heap, image->width, image->height, 3, pixel_stride, 8, &out) != DG_OK)
        return no_memory(error, image->width, image->height);
    if (image->channels == 1)
        dg_grey_to_rgb(image->buffer.data, out.buffer.data, count, pixel_stride);
    else
        dg_alpha_over(image->buffer.data, image->channels, options->background, out.buffer.data, count, pixel_stride);
    replace(image, out);
    return DG_OK;
}

/* ---- encode ---- */

/* Masks are always PNG, since what JPEG makes of a label is another one. */
static dg_encoding encoding_for(dg_role role, const dg_process_options *options)
{
    return options->encoding != DG_ENCODE_NOT && role == DG_ROLE_MASK ? DG_ENCODE_PNG : options->encoding;
}

static dg_status encode(dg_worker *worker, dg_encoding encoding, const dg_process_options *options, dg_picture *picture,
                        dg_error *error)
{
    dg_image *image = &picture->image;
    dg_buffer file;
    dg_status status = DG_OK;
    int plain = dg_encoding_is_plain(encoding);
    if (plain && image->depth == 16)
        status = narrow(worker, image, error);
    if (status == DG_OK && plain && (image->channels == 2 || image->channels == 4))
        status = make_rgb8(worker, options, image, error);
    if (status == DG_OK)
        status = dg_encode(worker->encoder, encoding, image, options->quality, options->chroma, &file, error);
    if (status != DG_OK)
        return status;
    dg_image_free(image);
    image->buffer = file;
    picture->encoded = 1;
    return DG_OK;
}

/* ---- the way ---- */

enum { MIRRORED = 2 }; /* the orientation that is only mirrored left to right */

/* From pixels as stored on; `fitted` if they are cut and resized already. */
static dg_status finish(dg_worker *worker, int orientation, int fitted, dg_role role, const dg_process_options *options,
                        const dg_draw *draw, dg_picture *picture, dg_error *error)
{
    dg_image *image = &picture->image;
    int mirror = draw->mirrored, turned = dg_orientations[orientation].transposed;
    int fits =
        !fitted && dg_frame_changes(&draw->frame, turned ? image->height : image->width, turned ? image->width : image->height);
    dg_status status =
        dg_image_orient(worker->heap, image, mirror && !fits ? dg_orientation_mirrored(orientation) : orientation, error);
    if (status == DG_OK && fits)
        status = fit(worker, role, options, draw, image, error);
    if (status == DG_OK && fits && mirror)
        status = dg_image_orient(worker->heap, image, MIRRORED, error);
    if (status == DG_OK && options->rgb8 && role != DG_ROLE_MASK)
        status = make_rgb8(worker, options, image, error);
    if (status == DG_OK)
        status = dg_image_on_canvas(worker->heap, image, draw->frame.crop, mirror, NULL, error);
    if (status == DG_OK)
        status =
            dg_image_on_canvas(worker->heap, image, draw->frame.pad, mirror, role == DG_ROLE_MASK ? NULL : options->fill, error);
    if (status == DG_OK && options->encoding != DG_ENCODE_NOT)
        status = encode(worker, encoding_for(role, options), options, picture, error);
    if (status != DG_OK)
        dg_image_free(image);
    return status;
}

dg_status dg_process_pixels(dg_worker *worker, int orientation, dg_role role, const dg_process_options *options, dg_draw *draw,
                            dg_picture *picture, dg_error *error)
{
    const dg_image *image = &picture->image;
    if (!options->orient || orientation < 1 || orientation > 8)
        orientation = 1;
    int turned = dg_orientations[orientation].transposed;
    picture->original_width = turned ? image->height : image->width;
    picture->original_height = turned ? image->width : image->height;
    dg_draw_choose(draw, &options->crop, picture->original_width, picture->original_height);
    if (!fits_limit(draw, options, error)) {
        dg_image_free(&picture->image);
        return error->status;
    }
    return finish(worker, orientation, 0, role, options, draw, picture, error);
}

/* A file that would only be decoded to be encoded again in its own format is the result itself, if it is without fault. What is not,
 * is refused, or patched up and encoded, as everywhere. */
static int passes_through(dg_worker *worker, const uint8_t *data, size_t size, dg_format format, const dg_header *header,
                          const dg_process_options *options, dg_picture *picture, dg_error *error)
{
    int channels;
    if (dg_codec_check(worker->codec, data, size, format, &options->decode, &channels, error) != DG_OK)
        return 0;
    if (channels != 3 && (channels != 1 || options->rgb8))
        return 0;
    if (dg_buffer_alloc(worker->heap, size, &picture->image.buffer) != DG_OK)
        return 0;
    memcpy(picture->image.buffer.data, data, size);
    picture->image.width = picture->original_width = header->width;
    picture->image.height = picture->original_height = header->height;
    picture->image.depth = 8;
    picture->encoded = 1;
    return 1;
}

int dg_process_can_fit(dg_format format, const dg_header *header, dg_role role, const dg_process_options *options)
{
    int turned = options->orient && header->orientation != 1;
    int upright_first = options->mode == DG_RESIZE_EXACT || filter_for(role, options) == DG_FILTER_NEAREST;
    return dg_decoder_of(format)->fit && !header->lossless && !(upright_first && turned);
}

/* A picture whose header is known, by a shorter way than decoding all of it. 0 if there is none; `error` says whether it failed. */
static int takes_shortcut(dg_worker *worker, const uint8_t *data, size_t size, dg_format format, const dg_header *header,
                          dg_role role, const dg_process_options *options, dg_draw *draw, dg_picture *picture, dg_error *error)
{
    const dg_decoder *decoder = dg_decoder_of(format);
    int orientation = options->orient ? header->orientation : 1, turned = dg_orientations[orientation].transposed;
    int width = turned ? header->height : header->width, height = turned ? header->width : header->height;
    if (!decoder->fit && !decoder->check)
        return 0;
    dg_draw_choose(draw, &options->crop, width, height);
    int fitted = dg_frame_changes(&draw->frame, width, height);
    if (!fits_limit(draw, options, error))
        return 1;
    if (decoder->check && decoder->encoding == encoding_for(role, options) && orientation == 1 && !fitted && !draw->mirrored
        && passes_through(worker, data, size, format, header, options, picture, error))
        return 1;
    if (error->status == DG_TOO_LARGE || error->status == DG_CANCELLED)
        return 1;
    if (!fitted || !dg_process_can_fit(format, header, role, options))
        return 0;
    dg_decode_options decode = options->decode;
    dg_resize_plan plan = plan_for(draw, header->width, header->height, orientation, role, options);
    decode.part = plan.crop_first || plan.dst_height < plan.whole.height;
    picture->original_width = width;
    picture->original_height = height;
    error->status = dg_codec_fit(worker->codec, data, size, format, &decode, &plan, &picture->image, &picture->damaged, error);
    if (error->status == DG_OK)
        error->status = finish(worker, orientation, 1, role, options, draw, picture, error);
    return 1;
}

dg_status dg_process(dg_worker *worker, const uint8_t *data, size_t size, dg_role role, const dg_process_options *options,
                     dg_draw *draw, dg_format *format, dg_picture *picture, dg_error *error)
{
    dg_header header;
    dg_process_options own = *options;
    memset(picture, 0, sizeof *picture);
    error->status = DG_OK;
    *format = dg_format_sniff(data, size);
    if (own.encoding != DG_ENCODE_NOT)
        own.decode.rgbx = 0;
    if (dg_header_read(data, size, *format, &header)
        && takes_shortcut(worker, data, size, *format, &header, role, &own, draw, picture, error))
        return error->status;
    dg_status status =
        dg_codec_decode(worker->codec, data, size, *format, &own.decode, &picture->image, &picture->damaged, error);
    return status != DG_OK ? status : dg_process_pixels(worker, header.orientation, role, &own, draw, picture, error);
}
