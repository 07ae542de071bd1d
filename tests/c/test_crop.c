/* What is drawn for a sample, and that every picture of it, stored whichever way, shows just that. */
#include "check.h"
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

static dg_crop begin(const dg_crop_options *options, uint64_t seed, uint64_t epoch, const char *name)
{
    dg_crop crop;
    dg_crop_begin(&crop, options, seed, epoch, name, strlen(name));
    return crop;
}

static dg_crop_options resized(double scale_least, double scale_most, double ratio_least, double ratio_most)
{
    return (dg_crop_options){.resized = {32, 24}, .scale = {scale_least, scale_most}, .ratio = {ratio_least, ratio_most}};
}

/* The same written in Python: torchvision's get_params with numpy.random.Philox instead of torch's generator. */
static void check_known(void)
{
    static const struct {
        const char *name;
        uint64_t seed, epoch;
        int width, height;
        double options[4], across, down;
        dg_box box;
    } KNOWN[] = {
        {"a.jpg", 0, 0, 500, 375, {0.08, 1, 0.75, 4 / 3.}, 0.2551514347348215, 0.44794445580654696, {37, 76, 372, 328}},
        {"b/c.jpg", 7, 2, 2048, 1365, {0.08, 1, 0.75, 4 / 3.}, 0.2959386381905854, 0.8994256790875216, {61, 31, 918, 989}},
        {"x", UINT64_MAX, 3, 301, 299, {0.5, 1, 1, 1}, 0.3443495959682624, 0.9746805909260032, {6, 6, 287, 287}},
        {"long", 1, 1, 2000, 100, {0.9, 1, 0.75, 4 / 3.}, 0.5985433119368408, 0.1776754869213747, {933, 0, 1066, 100}},
        {"tall", 1, 1, 33, 1001, {1, 1, 0.5, 2}, 0.18153953278603852, 0.6073981541434725, {0, 467, 33, 533}},
        {"half", 5, 0, 64, 64, {0.9999, 1, 1, 1}, 0.2961489490685234, 0.22076907460426742, {0, 0, 64, 64}},
    };
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
        const double *o = KNOWN[i].options;
        dg_crop_options options = resized(o[0], o[1], o[2], o[3]);
        options.random_position = 1;
        dg_crop crop = begin(&options, KNOWN[i].seed, KNOWN[i].epoch, KNOWN[i].name);
        dg_crop_choose(&crop, &options, KNOWN[i].width, KNOWN[i].height);
        CHECK(crop.across == KNOWN[i].across && crop.down == KNOWN[i].down && crop.target.width == 32);
        CHECK(!memcmp(&crop.box, &KNOWN[i].box, sizeof crop.box));
    }
}

static void check_draws(void)
{
    static const int SIZES[][2] = {{500, 375}, {375, 500}, {2000, 1500}, {40, 40}, {7, 5}, {1, 1}, {1, 300}, {300, 1}, {3000, 100}};
    int mirrored = 0, count = 0;
    double shares = 0, left = 0;
    for (int i = 0; i < 9000; i++) {
        char name[32];
        snprintf(name, sizeof name, "%d", i);
        int width = SIZES[i % 9][0], height = SIZES[i % 9][1];
        dg_crop_options options = resized(0.08, 1, 0.75, 4 / 3.), flipped = options;
        flipped.flip = 0.3;
        dg_crop crop = begin(&options, 1, 0, name), other = begin(&flipped, 1, 0, name);
        dg_crop_choose(&crop, &options, width, height);
        dg_crop_choose(&other, &flipped, width, height);
        const dg_box *box = &crop.box;
        CHECK(!memcmp(box, &other.box, sizeof *box)); /* whether samples are mirrored moves no box */
        CHECK(!crop.mirrored && crop.across == 0.5 && crop.down == 0.5);
        mirrored += other.mirrored;
        double w = box->x1 - box->x0, h = box->y1 - box->y0;
        CHECK(box->x0 >= 0 && box->y0 >= 0 && w >= 1 && h >= 1 && box->x1 <= width && box->y1 <= height);
        CHECK(box->x0 == floor(box->x0) && box->y0 == floor(box->y0) && w == floor(w) && h == floor(h));
        if (i % 9 < 3) { /* large enough for sides rounded to a pixel to keep to the limits */
            CHECK(w / h > 0.74 && w / h < 1.35 && w * h > 0.079 * width * height);
            shares += w * h / width / height;
            left += w < width ? box->x0 / (width - w) : 0.5;
            count++;
        }
        dg_crop_choose(&crop, &options, 64, 48); /* a second picture changes nothing */
        CHECK(!memcmp(box, &other.box, sizeof *box) && crop.of.width == width);
    }
    CHECK(mirrored > 2500 && mirrored < 2900);
    CHECK(fabs(left / count - 0.5) < 0.03);
    CHECK(fabs(shares / count - 0.434) < 0.02); /* evenly from 0.08 to 1 would be 0.54, but large ones often do not fit */
    dg_crop_options always = {.flip = 1}, never = {0};
    for (int i = 0; i < 100; i++) {
        CHECK(begin(&always, (uint64_t)i, 0, "").mirrored && !begin(&never, (uint64_t)i, 0, "").mirrored);
        CHECK(begin(&never, (uint64_t)i, 0, "").target.width == 0);
    }
}

/* A box of the upright picture, as the stored one has it, by its corners: in the words of the EXIF specification. */
static dg_box stored(dg_box box, int orientation, double width, double height)
{
    double x0 = box.x0, x1 = box.x1, y0 = box.y0, y1 = box.y1, right0 = width - x1, right1 = width - x0, bottom0 = height - y1,
           bottom1 = height - y0;
    switch (orientation) {
    case 1: return (dg_box){x0, y0, x1, y1};
    case 2: return (dg_box){right0, y0, right1, y1};
    case 3: return (dg_box){right0, bottom0, right1, bottom1};
    case 4: return (dg_box){x0, bottom0, x1, bottom1};
    case 5: return (dg_box){y0, x0, y1, x1};
    case 6: return (dg_box){y0, right0, y1, right1};
    case 7: return (dg_box){bottom0, right0, bottom1, right1};
    default: return (dg_box){bottom0, x0, bottom1, x1};
    }
}

static int apart(dg_box a, dg_box b, double most)
{
    return fabs(a.x0 - b.x0) > most || fabs(a.y0 - b.y0) > most || fabs(a.x1 - b.x1) > most || fabs(a.y1 - b.y1) > most;
}

static void check_boxes(const dg_bucket *buckets, size_t count)
{
    for (int i = 0; i < 400; i++)
        for (int orientation = 1; orientation <= 8; orientation++) {
            int turned = orientation >= 5, width = 100 + i * 3, height = 900 - i * 2;
            dg_crop_options part = resized(0.08, 1, 0.75, 4 / 3.);
            dg_crop_options bucket = {.buckets = buckets, .bucket_count = count, .random_position = 1};
            char name[16];
            snprintf(name, sizeof name, "%d", i);
            dg_crop crop = begin(&part, 3, 0, name), other = begin(&bucket, 3, 0, name);
            dg_crop_choose(&crop, &part, width, height);
            CHECK(!apart(dg_crop_box(&crop, width, height, 1), crop.box, 0));
            dg_box box = dg_crop_box(&crop, turned ? height : width, turned ? width : height, orientation);
            CHECK(!apart(box, stored(crop.box, orientation, width, height), 0));
            /* A mask of half the size has half the box. */
            dg_box half = dg_crop_box(&crop, (turned ? height : width) / 2, (turned ? width : height) / 2, orientation);
            if (width % 2 == 0)
                CHECK(!apart(half, (dg_box){box.x0 / 2, box.y0 / 2, box.x1 / 2, box.y1 / 2}, 1e-9));

            dg_crop_choose(&other, &bucket, width, height);
            CHECK(other.target.width == dg_bucket_choose(buckets, count, width, height)->width);
            dg_box upright = dg_crop_box(&other, width, height, 1);
            box = dg_box_fit(width, height, other.target.width, other.target.height, other.across, other.down);
            CHECK(!memcmp(&box, &upright, sizeof box));
            box = dg_crop_box(&other, turned ? height : width, turned ? width : height, orientation);
            CHECK(!apart(box, stored(upright, orientation, width, height), 1e-9));
            CHECK(box.x0 >= 0 && box.y0 >= 0);
        }
    /* PIL.ImageOps.fit(…, (100, 100), centering=(0.25, 0.75)) of 400 x 200 and 200 x 400: 25 of 100 pixels, 75 of 100 */
    dg_box wide = dg_box_fit(400, 200, 100, 100, 0.25, 0.75), tall = dg_box_fit(200, 400, 100, 100, 0.25, 0.75);
    CHECK(!apart(wide, (dg_box){50, 0, 250, 200}, 0) && !apart(tall, (dg_box){0, 150, 200, 350}, 0));
}

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

static dg_picture process(const dg_buffer *file, dg_role role, const dg_process_options *options, dg_crop *crop)
{
    dg_picture picture;
    dg_format format;
    dg_status status = dg_process(worker, file->data, file->size, role, options, crop, &format, &picture, &error);
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
            const uint8_t *pixel = image->buffer.data + (size_t)y * dg_image_stride(image) + x * image->step;
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
        .decode = {.max_pixels = 1 << 20}, .crop = *crop_options, .mode = mode, .orient = 1, .nearest_masks = 1};
    char text[16];
    snprintf(text, sizeof text, "%d", name);
    dg_crop crop = begin(crop_options, 11, 0, text);
    dg_picture first = process(&image, DG_ROLE_IMAGE, &options, &crop), mask = process(&small, DG_ROLE_MASK, &options, &crop);
    dg_picture second = process(&again, DG_ROLE_ADDITIONAL, &options, &crop);
    CHECK(first.original_width == W && first.original_height == H && mask.original_width == W / 2);
    dg_box box = crop.target.width ? dg_crop_box(&crop, W, H, 1) : (dg_box){0, 0, W, H};
    dg_size size = crop.target.width ? crop.target : (dg_size){W, H};
    CHECK(first.image.width == size.width && first.image.height == size.height);
    box = (dg_box){box.x0 / W, box.y0 / H, box.x1 / W, box.y1 / H};
    check_shown(&first.image, box, crop.mirrored, 4);
    check_shown(&mask.image, box, crop.mirrored, 3); /* the nearest pixel is up to half of one away, which is 1.6 levels */
    check_shown(&second.image, box, crop.mirrored, 4);

    /* The way of formats that another decoder knows. */
    dg_picture other = {.image = slope(W, H)};
    CHECK(dg_image_orient(heap, &other.image, BACK[orientation], &error) == DG_OK);
    CHECK(dg_process_pixels(worker, orientation, DG_ROLE_IMAGE, &options, &crop, &other, &error) == DG_OK);
    check_shown(&other.image, box, crop.mirrored, 2);
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
        dg_crop crop = begin(&options.crop, 0, 0, "");
        dg_picture picture = process(&file, DG_ROLE_IMAGE, &options, &crop);
        CHECK(picture.encoded);
        dg_buffer bytes = picture.image.buffer;
        CHECK((bytes.size == file.size && !memcmp(bytes.data, file.data, bytes.size)) == !crop.mirrored);
        dg_process_options plain = {.decode = {.max_pixels = 1 << 20}};
        dg_crop none = begin(&plain.crop, 0, 0, "");
        dg_picture pixels = process(&bytes, DG_ROLE_IMAGE, &plain, &none);
        check_shown(&pixels.image, (dg_box){0, 0, 1, 1}, crop.mirrored, 5);
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
    check_known();
    check_draws();
    check_boxes(buckets, count);
    dg_crop_options part = resized(0.08, 1, 0.75, 4 / 3.);
    dg_crop_options bucket = {.buckets = buckets, .bucket_count = count, .random_position = 1};
    dg_bucket narrow = {48, 96, 500};
    dg_crop_options slack = {.buckets = &narrow, .bucket_count = 1, .random_position = 1, .flip = 0.5}, turn = {.flip = 1};
    part.flip = bucket.flip = 0.5;
    for (int orientation = 1; orientation <= 8; orientation++)
        for (int mode = 0; mode < 2; mode++)
            for (int name = 0; name < 6; name++) {
                check_sample(&part, orientation, mode, name);
                check_sample(&bucket, orientation, mode, name);
                check_sample(&slack, orientation, mode, name);
                if (name == 0)
                    check_sample(&turn, orientation, mode, name);
            }
    check_passing_through();
    free(buckets);
    dg_worker_free(worker);
    dg_heap_free(heap);
    return DONE();
}
