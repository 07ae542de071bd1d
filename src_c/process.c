#include "process.h"

#include <stdlib.h>
#include <string.h>

#include "color.h"
#include "header.h"
#include "jpeg.h"
#include "orient.h"
#include "png_write.h"

struct dg_worker {
    dg_heap *heap;
    dg_codec *codec;
    dg_resizer *resizer;
    dg_png_writer *png_writer;
    dg_jpeg_writer *jpeg_writer;
};

dg_worker *dg_worker_new(dg_heap *heap)
{
    dg_worker *worker = calloc(1, sizeof *worker);
    if (!worker)
        return NULL;
    worker->heap = heap;
    worker->codec = dg_codec_new(heap);
    worker->resizer = dg_resizer_new();
    worker->png_writer = dg_png_writer_new(heap);
    worker->jpeg_writer = dg_jpeg_writer_new(heap);
    if (worker->codec && worker->resizer && worker->png_writer && worker->jpeg_writer)
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
    dg_png_writer_free(worker->png_writer);
    dg_jpeg_writer_free(worker->jpeg_writer);
    free(worker);
}

void dg_worker_enter(dg_worker *worker)
{
    dg_image image = {0};
    dg_buffer file = {0};
    dg_error error;
    if (dg_image_alloc(worker->heap, 8, 8, 1, 1, 8, &image) != DG_OK)
        return;
    memset(image.buffer.data, 0, image.buffer.size);
    dg_jpeg_encode(worker->jpeg_writer, &image, 90, 444, &file, &error);
    dg_buffer_free(&file);
    dg_image_free(&image);
}

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

static void resize_nearest(const dg_image *from, dg_box box, dg_image *to)
{
    size_t pixel = (size_t)from->step * (from->depth / 8);
    double dx = (box.x1 - box.x0) / to->width, dy = (box.y1 - box.y0) / to->height;
    for (int y = 0; y < to->height; y++) {
        int row = (int)(box.y0 + (y + 0.5) * dy);
        const uint8_t *in = from->buffer.data + (size_t)(row < from->height ? row : from->height - 1) * dg_image_stride(from);
        uint8_t *out = to->buffer.data + (size_t)y * dg_image_stride(to);
        for (int x = 0; x < to->width; x++) {
            int column = (int)(box.x0 + (x + 0.5) * dx);
            memcpy(out + x * pixel, in + (size_t)(column < from->width ? column : from->width - 1) * pixel, pixel);
        }
    }
}

/* Whether an upright picture is to be cut or resized. */
static int is_fitted(const dg_crop *crop, int width, int height)
{
    if (crop->target.width == 0)
        return 0;
    dg_box box = dg_crop_box(crop, width, height, 1);
    return crop->target.width != width || crop->target.height != height || box.x0 != 0 || box.y0 != 0 || box.x1 != width
           || box.y1 != height;
}

static dg_status fit(dg_worker *worker, dg_role role, const dg_process_options *options, const dg_crop *crop, dg_image *image,
                     dg_error *error)
{
    dg_size size = crop->target;
    dg_image fitted;
    int nearest = role == DG_ROLE_MASK && options->nearest_masks;
    int wide = image->channels == 3 && image->depth == 8 && options->decode.rgbx;
    int step = nearest ? image->step : wide ? 4 : image->channels;
    dg_box box = dg_crop_box(crop, image->width, image->height, 1);
    if (dg_image_alloc(worker->heap, size.width, size.height, image->channels, step, image->depth, &fitted) != DG_OK)
        return no_memory(error, size.width, size.height);
    dg_status status = DG_OK;
    if (nearest) {
        resize_nearest(image, box, &fitted);
    } else {
        dg_resize_plan plan = {image->width, image->height, box,          size.width,    size.height,  image->channels,
                               image->step,  step,          image->depth, options->mode, DG_ORDER_AUTO};
        status = dg_resize(worker->resizer, &plan, image->buffer.data, dg_image_stride(image), fitted.buffer.data,
                           dg_image_stride(&fitted), error);
    }
    if (status == DG_OK)
        replace(image, fitted);
    else
        dg_image_free(&fitted);
    return status;
}

/* ---- colours ---- */

static dg_status narrow(dg_worker *worker, dg_image *image, dg_error *error)
{
    dg_image out;
    if (dg_image_alloc(worker->heap, image->width, image->height, image->channels, image->step, 8, &out) != DG_OK)
        return no_memory(error, image->width, image->height);
    dg_depth_16_to_8((const uint16_t *)image->buffer.data, out.buffer.data, out.buffer.size);
    replace(image, out);
    return DG_OK;
}

/* 8-bit RGB of anything; RGB stays as it is. */
static dg_status make_rgb8(dg_worker *worker, const dg_process_options *options, dg_image *image, dg_error *error)
{
    dg_image out;
    int step = options->decode.rgbx ? 4 : 3;
    size_t count = (size_t)image->width * image->height;
    if (image->depth == 16 && narrow(worker, image, error) != DG_OK)
        return error->status;
    if (image->channels == 3)
        return DG_OK;
    if (dg_image_alloc(worker->heap, image->width, image->height, 3, step, 8, &out) != DG_OK)
        return no_memory(error, image->width, image->height);
    if (image->channels == 1)
        dg_grey_to_rgb(image->buffer.data, out.buffer.data, count, step);
    else
        dg_alpha_over(image->buffer.data, image->channels, options->background, out.buffer.data, count, step);
    replace(image, out);
    return DG_OK;
}

/* ---- encode ---- */

static dg_status encode(dg_worker *worker, dg_role role, const dg_process_options *options, dg_picture *picture, dg_error *error)
{
    dg_image *image = &picture->image;
    dg_buffer file;
    dg_status status = DG_OK;
    if (options->encoding == DG_ENCODE_JPEG && role != DG_ROLE_MASK) {
        if (image->depth == 16)
            status = narrow(worker, image, error);
        if (status == DG_OK && (image->channels == 2 || image->channels == 4))
            status = make_rgb8(worker, options, image, error); /* JPEG has no alpha */
        if (status == DG_OK)
            status = dg_jpeg_encode(worker->jpeg_writer, image, options->quality, options->chroma, &file, error);
    } else {
        status = dg_png_encode(worker->png_writer, image, &file, error);
    }
    if (status != DG_OK)
        return status;
    dg_image_free(image);
    image->buffer = file;
    picture->encoded = 1;
    return DG_OK;
}

/* ---- the way ---- */

enum { MIRRORED = 2 };

/* The orientation that mirrors, left to right, what `orientation` turns upright: 1 and 2, 3 and 4 … are such pairs. */
static int mirrored(int orientation) { return ((orientation - 1) ^ 1) + 1; }

/* From pixels as stored on; `fitted` if they are cut and resized already. */
static dg_status finish(dg_worker *worker, int orientation, int fitted, dg_role role, const dg_process_options *options,
                        const dg_crop *crop, dg_picture *picture, dg_error *error)
{
    dg_image *image = &picture->image;
    int mirror = crop->mirrored, turned = orientation >= 5;
    int fits = !fitted && is_fitted(crop, turned ? image->height : image->width, turned ? image->width : image->height);
    dg_status status = dg_image_orient(worker->heap, image, mirror && !fits ? mirrored(orientation) : orientation, error);
    if (status == DG_OK && fits)
        status = fit(worker, role, options, crop, image, error);
    if (status == DG_OK && fits && mirror)
        status = dg_image_orient(worker->heap, image, MIRRORED, error);
    if (status == DG_OK && options->rgb8 && role != DG_ROLE_MASK)
        status = make_rgb8(worker, options, image, error);
    if (status == DG_OK && options->encoding != DG_ENCODE_NOT)
        status = encode(worker, role, options, picture, error);
    if (status != DG_OK)
        dg_image_free(image);
    return status;
}

dg_status dg_process_pixels(dg_worker *worker, int orientation, dg_role role, const dg_process_options *options, dg_crop *crop,
                            dg_picture *picture, dg_error *error)
{
    const dg_image *image = &picture->image;
    if (!options->orient || orientation < 1 || orientation > 8)
        orientation = 1;
    picture->original_width = orientation >= 5 ? image->height : image->width;
    picture->original_height = orientation >= 5 ? image->width : image->height;
    dg_crop_choose(crop, &options->crop, picture->original_width, picture->original_height);
    return finish(worker, orientation, 0, role, options, crop, picture, error);
}

/* A JPEG that would only be decoded to be encoded again: the file itself is the result, if it is without fault. What is not, is
 * refused, or patched up and encoded, as everywhere. */
static int passes_through(dg_worker *worker, const uint8_t *data, size_t size, const dg_header *header,
                          const dg_process_options *options, dg_picture *picture, dg_error *error)
{
    int components;
    if (dg_codec_jpeg_check(worker->codec, data, size, &options->decode, &components, error) != DG_OK)
        return 0;
    if (components != 3 && (components != 1 || options->rgb8))
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

dg_status dg_process(dg_worker *worker, const uint8_t *data, size_t size, dg_role role, const dg_process_options *options,
                     dg_crop *crop, dg_format *format, dg_picture *picture, dg_error *error)
{
    dg_header header = {.orientation = 1};
    dg_status status;
    dg_process_options own = *options;
    memset(picture, 0, sizeof *picture);
    error->status = DG_OK;
    *format = dg_format_sniff(data, size);
    int known = dg_header_read(data, size, *format, &header);
    int orientation = own.orient ? header.orientation : 1, turned = orientation >= 5;
    if (own.encoding != DG_ENCODE_NOT)
        own.decode.rgbx = 0;
    if (known && *format == DG_FORMAT_JPEG) {
        int width = turned ? header.height : header.width, height = turned ? header.width : header.height;
        dg_crop_choose(crop, &own.crop, width, height);
        int fitted = is_fitted(crop, width, height);
        if (own.encoding == DG_ENCODE_JPEG && role != DG_ROLE_MASK && orientation == 1 && !fitted && !crop->mirrored
            && passes_through(worker, data, size, &header, &own, picture, error))
            return DG_OK;
        if (error->status == DG_TOO_LARGE || error->status == DG_CANCELLED)
            return error->status;
        /* Labels want every pixel as it is, and exactness the picture turned first. */
        int whole =
            (role == DG_ROLE_MASK && own.nearest_masks) || (own.mode == DG_RESIZE_EXACT && orientation != 1) || header.lossless;
        if (fitted && !whole) {
            dg_resize_plan plan = {.mode = own.mode};
            plan.dst_width = turned ? crop->target.height : crop->target.width;
            plan.dst_height = turned ? crop->target.width : crop->target.height;
            plan.box = dg_crop_box(crop, header.width, header.height, orientation);
            own.decode.part = own.crop.resized.width != 0;
            picture->original_width = width;
            picture->original_height = height;
            status = dg_codec_fit(worker->codec, data, size, &own.decode, &plan, &picture->image, &picture->damaged, error);
            return status != DG_OK ? status : finish(worker, orientation, 1, role, &own, crop, picture, error);
        }
    }
    status = dg_codec_decode(worker->codec, data, size, *format, &own.decode, &picture->image, &picture->damaged, error);
    return status != DG_OK ? status : dg_process_pixels(worker, orientation, role, &own, crop, picture, error);
}
