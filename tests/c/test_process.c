/* That every picture of a sample, stored whichever way, shows just what was drawn for it. */
#include "check.h"
#include "drawing.h"
#include "jpeg.h"
#include "orient.h"
#include "png_write.h"
#include "process.h"

#include <math.h>
#include <string.h>

static dg_heap *heap;
static dg_worker *worker;
static dg_error error;
static const int BACK[9] = {0, 1, 2, 3, 4, 5, 8, 7, 6}; /* the orientation that undoes another */

/* ---- whole pictures: red grows to the right, green downwards ---- */

static dg_image slope(int width, int height)
{
    dg_image image;
    CHECK(dg_image_alloc(heap, width, height, 3, 3, 8, &image) == DG_OK);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            uint8_t *pixel = image.buffer.data + 3 * ((size_t)y * width + x);
            pixel[0] = (uint8_t)lround(30 + 190.0 * (x + 0.5) / width);
            pixel[1] = (uint8_t)lround(30 + 190.0 * (y + 0.5) / height);
            pixel[2] = 128;
        }
    return image;
}

/* The upright image's file as a camera stores it. */
static dg_buffer jpeg_of(dg_image image, int orientation)
{
    uint8_t exif[] = {0xFF, 0xE1, 0, 34, 'E', 'x', 'i', 'f', 0, 0, 'M', 'M', 0, '*', 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0,
                      (uint8_t)orientation, 0, 0, 0, 0, 0, 0};
    dg_buffer plain, file;
    CHECK(dg_image_orient(heap, &image, BACK[orientation], &error) == DG_OK);
    dg_jpeg_writer *writer = dg_jpeg_writer_new(heap);
    CHECK(dg_jpeg_encode(writer, &image, 97, 444, &plain, &error) == DG_OK);
    dg_jpeg_writer_free(writer);
    CHECK(dg_buffer_alloc(heap, plain.size + sizeof exif, &file) == DG_OK);
    memcpy(file.data, plain.data, 2);
    memcpy(file.data + 2, exif, sizeof exif);
    memcpy(file.data + 2 + sizeof exif, plain.data + 2, plain.size - 2);
    dg_buffer_free(&plain);
    dg_image_free(&image);
    return file;
}

static dg_buffer png_of(dg_image image)
{
    dg_png_writer *writer = dg_png_writer_new(heap);
    dg_buffer file;
    CHECK(dg_png_encode(writer, &image, &file, &error) == DG_OK);
    dg_png_writer_free(writer);
    dg_image_free(&image);
    return file;
}

static dg_picture process(const dg_buffer *file, dg_role role, const dg_process_options *options, dg_draw *draw)
{
    dg_picture picture;
    dg_format format;
    dg_status status = dg_process(worker, file->data, file->size, role, options, draw, &format, &picture, &error);
    if (status != DG_OK)
        fprintf(stderr, "%s\n", error.text);
    CHECK(status == DG_OK);
    return picture;
}

/* Every pixel shows what is at its place: `box` of the upright picture, in shares of it. */
static void check_shown(const dg_image *image, dg_box box, int mirrored, int tolerance)
{
    int wrong = 0;
    for (int y = 0; y < image->height; y++)
        for (int x = 0; x < image->width; x++) {
            const uint8_t *pixel = image->buffer.data + (size_t)y * dg_image_stride(image) + x * image->pixel_stride;
            double across = (x + 0.5) / image->width, down = (y + 0.5) / image->height;
            across = box.x0 + (mirrored ? 1 - across : across) * (box.x1 - box.x0);
            down = box.y0 + down * (box.y1 - box.y0);
            wrong += fabs(pixel[0] - (30 + 190 * across)) > tolerance || fabs(pixel[1] - (30 + 190 * down)) > tolerance;
        }
    CHECK(wrong == 0);
}

/* Image, mask and additional image of one sample. */
static void check_sample(const dg_crop_options *crop_options, int orientation, int mode, int name)
{
    enum { W = 240, H = 168 };
    dg_buffer image = jpeg_of(slope(W, H), orientation), small = png_of(slope(W / 2, H / 2)), again = jpeg_of(slope(W, H), 1);
    dg_process_options options = {
        .decode = {.max_pixels = 1 << 20}, .crop = *crop_options, .mode = mode, .orient = 1, .mask_filter = DG_FILTER_NEAREST};
    char text[16];
    snprintf(text, sizeof text, "%d", name);
    dg_draw draw = begin(crop_options, 11, 0, text);
    dg_picture first = process(&image, DG_ROLE_IMAGE, &options, &draw), mask = process(&small, DG_ROLE_MASK, &options, &draw);
    dg_picture second = process(&again, DG_ROLE_ADDITIONAL, &options, &draw);
    CHECK(first.original_width == W && first.original_height == H && mask.original_width == W / 2);
    dg_box box = draw.frame.target.width ? dg_frame_box(&draw.frame, W, H, 1) : (dg_box){0, 0, W, H};
    dg_size size = draw.frame.target.width ? draw.frame.target : (dg_size){W, H};
    CHECK(first.image.width == size.width && first.image.height == size.height);
    if (draw.frame.whole.width) { /* what is kept of the whole picture, resized */
        const dg_part *kept = &draw.frame.kept;
        double sx = (double)W / draw.frame.whole.width, sy = (double)H / draw.frame.whole.height;
        box = (dg_box){kept->x * sx, kept->y * sy, (kept->x + kept->size.width) * sx, (kept->y + kept->size.height) * sy};
    }
    box = (dg_box){box.x0 / W, box.y0 / H, box.x1 / W, box.y1 / H};
    check_shown(&first.image, box, draw.mirrored, 4);
    check_shown(&mask.image, box, draw.mirrored, 3); /* the nearest pixel is up to half of one away, which is 1.6 levels */
    check_shown(&second.image, box, draw.mirrored, 4);

    /* The way of formats that another decoder knows. */
    dg_picture other = {.image = slope(W, H)};
    CHECK(dg_image_orient(heap, &other.image, BACK[orientation], &error) == DG_OK);
    CHECK(dg_process_pixels(worker, orientation, DG_ROLE_IMAGE, &options, &draw, &other, &error) == DG_OK);
    check_shown(&other.image, box, draw.mirrored, 2);
    dg_image_free(&first.image);
    dg_image_free(&mask.image);
    dg_image_free(&second.image);
    dg_image_free(&other.image);
    dg_buffer_free(&image);
    dg_buffer_free(&small);
    dg_buffer_free(&again);
}

/* A JPEG that would come out as it is passes through; mirrored it must not. */
static void check_passing_through(void)
{
    dg_buffer file = jpeg_of(slope(64, 48), 1);
    dg_process_options options = {.decode = {.max_pixels = 1 << 20}, .encoding = DG_ENCODE_JPEG, .quality = 97, .chroma = 444};
    for (options.crop.flip = 0; options.crop.flip <= 1; options.crop.flip++) {
        dg_draw draw = begin(&options.crop, 0, 0, "");
        dg_picture picture = process(&file, DG_ROLE_IMAGE, &options, &draw);
        CHECK(picture.encoded);
        dg_buffer bytes = picture.image.buffer;
        CHECK((bytes.size == file.size && !memcmp(bytes.data, file.data, bytes.size)) == !draw.mirrored);
        dg_process_options plain = {.decode = {.max_pixels = 1 << 20}};
        dg_draw none = begin(&plain.crop, 0, 0, "");
        dg_picture pixels = process(&bytes, DG_ROLE_IMAGE, &plain, &none);
        check_shown(&pixels.image, (dg_box){0, 0, 1, 1}, draw.mirrored, 5);
        dg_image_free(&pixels.image);
        dg_buffer_free(&bytes);
    }
    dg_buffer_free(&file);
}

int main(void)
{
    dg_bucket *buckets;
    size_t count;
    heap = dg_heap_new(0);
    worker = dg_worker_new(heap);
    CHECK(dg_buckets_build(64, 8, 0.5, 2.0, &buckets, &count, &error) == DG_OK);
    dg_crop_options part = resized(0.08, 1, 0.75, 4 / 3.);
    dg_crop_options bucket = {.buckets = buckets, .bucket_count = count, .random_position = 1};
    dg_bucket narrow = {48, 96, 500};
    dg_crop_options slack = {.buckets = &narrow, .bucket_count = 1, .random_position = 1, .flip = 0.5}, turn = {.flip = 1};
    dg_crop_options steps = {.steps = {.resize = {96, 0}, .center_crop = {90, 71}}, .flip = 0.5};
    dg_crop_options squeezed = {.steps = {.resize = {70, 81}}, .flip = 0.5};
    part.flip = bucket.flip = 0.5;
    for (int orientation = 1; orientation <= 8; orientation++)
        for (int mode = 0; mode < 2; mode++)
            for (int name = 0; name < 6; name++) {
                check_sample(&part, orientation, mode, name);
                check_sample(&bucket, orientation, mode, name);
                check_sample(&slack, orientation, mode, name);
                check_sample(&steps, orientation, mode, name);
                check_sample(&squeezed, orientation, mode, name);
                if (name == 0)
                    check_sample(&turn, orientation, mode, name);
            }
    check_passing_through();
    free(buckets);
    dg_worker_free(worker);
    dg_heap_free(heap);
    return DONE();
}
