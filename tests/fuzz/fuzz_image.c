/* libFuzzer over dg_process: a picture's bytes, then OPTIONS bytes that say what is asked of it. (At the end, so that a seed
 * still opens as the picture it is.) The sanitizers watch memory and arithmetic; REQUIRE holds what process.h and image.h
 * promise, that an encoded picture decodes to its pixels, that a used worker gives what a fresh one does, and that plain C gives
 * what SIMD does. Pixels are placed too, where no byte too many fits.
 *
 * Sums and compression keep a plain mutator out of PNG, so the one below repairs CRCs, or mutates the inflated rows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "header.h"
#include "place.h"
#include "process.h"

enum {
    OPTIONS = 6,
    PIXELS_MOST = 1 << 18,
    ROWS_MOST = 1 << 18, /* inflated bytes the mutator works on */
    BUCKET_LISTS = 8,
};

#define REQUIRE(condition)                                                                   \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            fprintf(stderr, "%s:%d: REQUIRE(%s) failed\n", __FILE__, __LINE__, #condition);  \
            abort();                                                                         \
        }                                                                                    \
    } while (0)

typedef struct {
    const uint8_t *data;
    size_t size;
} bytes;

static struct { dg_bucket *list; size_t count; } buckets[BUCKET_LISTS];
static dg_heap *heap;
static int plain;   /* workers made now use plain C */
uint8_t tight_fill; /* see tight.c */

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

/* The linker puts these in place of src_c's own (-Wl,--wrap). */
dg_simd __real_dg_simd_choice(void);
int __real_dg_png_simd(void);
dg_simd __wrap_dg_simd_choice(void) { return plain ? DG_SIMD_GENERIC : __real_dg_simd_choice(); }
int __wrap_dg_png_simd(void) { return plain ? 0 : __real_dg_png_simd(); }

/* Freed memory is mostly kept by the sanitizer to find its late users; more than this is but page faults. */
const char *__asan_default_options(void) { return "quarantine_size_mb=16"; }

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const struct { int size, ratio; double least, most; } LISTS[BUCKET_LISTS] = {
        {1, 1, 0.5, 2}, {7, 1, 0.1, 10}, {16, 16, 1, 1}, {32, 8, 0.5, 2}, {48, 3, 0.25, 4}, {64, 32, 0.5, 2}, {96, 16, 0.2, 5},
        {224, 32, 0.5, 2},
    };
    dg_error error;
    (void)argc, (void)argv;
    heap = dg_heap_new(0); /* keeps nothing, so that every buffer is the sanitizer's to watch */
    for (int i = 0; i < BUCKET_LISTS; i++)
        REQUIRE(dg_buckets_build(LISTS[i].size, LISTS[i].ratio, LISTS[i].least, LISTS[i].most, &buckets[i].list,
                                 &buckets[i].count, &error) == DG_OK && buckets[i].count);
    return 0;
}

static dg_process_options options_read(const uint8_t *from, const atomic_int *stop)
{
    dg_process_options options = {
        .decode = {.max_pixels = PIXELS_MOST, .rgbx = from[0] & 1, .accept_truncated = from[0] >> 1 & 1,
                   .accept_damaged = from[0] >> 2 & 1, .stop = stop},
        .mode = from[0] & 8 ? DG_RESIZE_EXACT : DG_RESIZE_FAST,
        .orient = from[0] >> 4 & 1,
        .filter = (from[1] >> 2 & 15) % (DG_FILTER_NEAREST + 1),
        .mask_filter = from[0] >> 5 & 1 ? DG_FILTER_NEAREST : DG_FILTER_LANCZOS,
        .fill = {from[4], from[3], 77},
        .rgb8 = from[0] >> 6 & 1,
        .background = {from[3], 128, from[4]},
        .encoding = (from[1] & 3) % 3,
        .quality = 1 + from[2] % 100,
        .chroma = (const int[]){420, 422, 444, 444}[from[1] >> 6],
    };
    int list = from[3] % (BUCKET_LISTS + 3), side = 1 + from[4] % 40;
    if (list < BUCKET_LISTS) {
        options.crop.buckets = buckets[list].list;
        options.crop.bucket_count = buckets[list].count;
    } else if (list == BUCKET_LISTS + 1) {
        options.crop.resized = (dg_size){1 + from[2] % 40, side};
        options.crop.scale[0] = 0.01, options.crop.scale[1] = 1;
        options.crop.ratio[0] = 0.5, options.crop.ratio[1] = 3;
    } else if (list == BUCKET_LISTS + 2) { /* every step and every two of them that go together; the canvas is the largest */
        dg_steps *steps = &options.crop.steps;
        steps->across = from[5] >> 6 & 1, steps->down = 0.5;
        if (from[2] & 1)
            steps->center_crop = (dg_size){side, 1 + from[2] % 40};
        if (from[2] & 2)
            steps->resize = (dg_size){side, steps->center_crop.width ? 0 : from[2] % 40};
        if (from[2] & 4 && (steps->center_crop.width || !steps->resize.width || steps->resize.height))
            steps->pad = (dg_size){40 + side, 80};
    }
    options.crop.random_position = from[5] >> 4 & 1;
    options.crop.flip = from[5] >> 5 & 1;
    return options;
}

/* A sample's draw: the same again for the same options. */
static dg_draw draw_for(const dg_process_options *options)
{
    dg_draw draw;
    dg_draw_begin(&draw, &options->crop, options->background[0], options->background[2], "", 0);
    return draw;
}

/* What Pillow would do in datago: the pixels of a format that we have no decoder for. Here they are the bytes themselves. */
static void pixels_make_up(bytes file, dg_image *image)
{
    const uint8_t *shape = file.data;
    int channels = 1 + shape[4] % 4, depth = shape[5] & 1 ? 16 : 8;
    int pixel_stride = channels == 3 && depth == 8 && shape[5] & 2 ? 4 : channels;
    REQUIRE(dg_image_alloc(heap, 1 + shape[6], 1 + shape[7], channels, pixel_stride, depth, image) == DG_OK);
    for (size_t i = 0; i < image->buffer.size; i++)
        image->buffer.data[i] = pixel_stride > channels && i % 4 == 3 ? 255 : shape[i % file.size];
}

static void image_check(const dg_image *image)
{
    REQUIRE(image->channels >= 1 && image->channels <= 4);
    REQUIRE(image->pixel_stride == image->channels || (image->pixel_stride == 4 && image->channels == 3 && image->depth == 8));
    REQUIRE(image->buffer.size == dg_image_stride(image) * image->height);
    if (image->pixel_stride > image->channels)
        for (size_t i = 3; i < image->buffer.size; i += 4)
            REQUIRE(image->buffer.data[i] == 255);
}

static void picture_check(const dg_picture *picture, const dg_process_options *options, dg_role role, const dg_draw *draw)
{
    const dg_image *image = &picture->image;
    REQUIRE(image->width > 0 && image->height > 0 && (image->depth == 8 || image->depth == 16));
    REQUIRE(image->buffer.data && image->buffer.size && image->buffer.size <= image->buffer.capacity);
    REQUIRE(picture->original_width > 0 && picture->original_height > 0);
    REQUIRE(picture->encoded == (options->encoding != DG_ENCODE_NOT));
    if (draw->frame.target.width)
        REQUIRE(image->width == draw->frame.target.width && image->height == draw->frame.target.height);
    else
        REQUIRE(image->width == picture->original_width && image->height == picture->original_height);
    if (!picture->encoded) {
        image_check(image);
        if (options->rgb8 && role != DG_ROLE_MASK)
            REQUIRE(image->channels == 3 && image->depth == 8);
    }
}

/* One picture through the whole of it. The result is empty unless the status is DG_OK. */
static dg_status process(dg_worker *worker, bytes file, dg_role role, const dg_process_options *options, dg_draw *draw,
                         dg_picture *picture)
{
    dg_format format;
    dg_error error;
    memset(&error, 0xA5, sizeof error);
    dg_status status = dg_process(worker, file.data, file.size, role, options, draw, &format, picture, &error);
    if (status == DG_UNSUPPORTED && format > DG_FORMAT_WEBP && file.size >= 9) {
        REQUIRE(!picture->image.buffer.data);
        pixels_make_up(file, &picture->image);
        status = dg_process_pixels(worker, file.data[8] % 10, role, options, draw, picture, &error);
    }
    if (status == DG_OK) {
        picture_check(picture, options, role, draw);
        return status;
    }
    REQUIRE(status > DG_OK && status < DG_STATUS_COUNT && error.status == status);
    REQUIRE(memchr(error.text, 0, sizeof error.text));
    REQUIRE(!picture->image.buffer.data && !picture->image.buffer.heap);
    REQUIRE(status != DG_NO_MEMORY && status != DG_NOT_FOUND && status != DG_NOT_A_FILE && status != DG_IO);
    REQUIRE(status != DG_CANCELLED || *options->decode.stop);
    return status;
}

static int same(const dg_picture *a, const dg_picture *b)
{
    return a->image.buffer.size == b->image.buffer.size && a->image.width == b->image.width
           && a->image.height == b->image.height && a->encoded == b->encoded && a->damaged == b->damaged
           && !memcmp(a->image.buffer.data, b->image.buffer.data, a->image.buffer.size);
}

/* An encoded picture is one that decodes: a PNG to the very pixels, a JPEG (unless it is the source itself) to its size. */
static void encoded_check(dg_worker *worker, bytes file, dg_role role, const dg_process_options *options,
                          const dg_picture *encoded)
{
    const dg_buffer *result = &encoded->image.buffer;
    dg_process_options raw = *options, whole = {.decode.max_pixels = UINT64_MAX};
    dg_picture decoded, pixels;
    dg_draw draw = draw_for(options), none = draw_for(&whole);
    int png = options->encoding == DG_ENCODE_PNG || role == DG_ROLE_MASK;
    if (result->size == file.size && !memcmp(result->data, file.data, file.size))
        return;
    REQUIRE(process(worker, (bytes){result->data, result->size}, role, &whole, &none, &decoded) == DG_OK);
    REQUIRE(decoded.image.width == encoded->image.width && decoded.image.height == encoded->image.height);
    if (png) {
        raw.encoding = DG_ENCODE_NOT;
        raw.decode.rgbx = 0;
        REQUIRE(process(worker, file, role, &raw, &draw, &pixels) == DG_OK);
        REQUIRE(pixels.image.channels == decoded.image.channels && pixels.image.depth == decoded.image.depth);
        if (pixels.image.pixel_stride == pixels.image.channels)
            REQUIRE(pixels.image.buffer.size == decoded.image.buffer.size
                    && !memcmp(pixels.image.buffer.data, decoded.image.buffer.data, pixels.image.buffer.size));
        dg_image_free(&pixels.image);
    }
    dg_image_free(&decoded.image);
}

static void place(const dg_picture *picture, uint8_t how)
{
    static const double MEAN[3] = {0.5, 0, 0.25}, STD[3] = {0.25, 1, -0.5};
    dg_placement placement;
    dg_error error;
    REQUIRE(dg_placement_set(&placement, how & 1, how >> 1 & 3, how & 8 ? 1 : 3, MEAN, STD, &error) == DG_OK);
    void *batch = malloc(dg_placement_size(&placement, picture->image.width, picture->image.height));
    dg_status status = dg_place(&placement, &picture->image, batch, &error);
    REQUIRE(status == (picture->image.depth == 8 ? DG_OK : DG_UNSUPPORTED));
    free(batch);
}

/* A copy that ends where the sanitizer sees it. */
static bytes copy(const uint8_t *data, size_t size)
{
    uint8_t *own = malloc(size ? size : 1);
    memcpy(own, data, size);
    return (bytes){own, size};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const dg_role ROLES[4] = {DG_ROLE_IMAGE, DG_ROLE_MASK, DG_ROLE_ADDITIONAL, DG_ROLE_IMAGE};
    if (size < OPTIONS)
        return -1;
    const uint8_t *wish = data + size - OPTIONS;
    atomic_int stop = wish[5] == 255;
    dg_process_options options = options_read(wish, &stop);
    dg_role role = ROLES[wish[1] >> 2 & 3], other = ROLES[wish[1] >> 4 & 3];
    bytes file = copy(data, size - OPTIONS), part = copy(data, file.size * wish[4] / 256);
    dg_worker *worker = dg_worker_new(heap);
    dg_draw draw = draw_for(&options), again = draw;
    dg_picture first, second;
    tight_fill = 0x3C;
    dg_status status = process(worker, file, role, &options, &draw, &first);
    tight_fill = 0xC3;
    if (status == DG_OK && first.encoded && wish[5] & 1)
        encoded_check(worker, file, role, &options, &first);
    if (status == DG_OK && !first.encoded)
        place(&first, wish[2]);
    /* Another picture of the sample, cut off, has the same draw. */
    if (wish[5] & 2 && process(worker, part, other, &options, &draw, &second) == DG_OK)
        dg_image_free(&second.image);
    if (wish[5] & 12) {
        if (wish[5] & 8) {
            dg_worker_free(worker);
            plain = 1;
            worker = dg_worker_new(heap);
            plain = 0;
        }
        REQUIRE(process(worker, file, role, &options, &again, &second) == status);
        if (status == DG_OK) {
            REQUIRE(same(&first, &second));
            dg_image_free(&second.image);
        }
    }
    if (status == DG_OK)
        dg_image_free(&first.image);
    dg_worker_free(worker);
    free((void *)file.data);
    free((void *)part.data);
    return 0;
}

/* ---- PNG for the mutator ---- */

static uint32_t big_endian(const uint8_t *at) { return (uint32_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3]; }

static void put(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (24 - 8 * i));
}

static void chunk_finish(uint8_t *chunk, uint32_t length)
{
    put(chunk, length);
    put(chunk + 8 + length, (uint32_t)crc32(0, chunk + 4, length + 4));
}

/* The content's length of the chunk at `at`; -1 if it is not all there. */
static int64_t chunk_length(const uint8_t *data, size_t size, size_t at)
{
    return at + 12 <= size && big_endian(data + at) <= size - at - 12 ? (int64_t)big_endian(data + at) : -1;
}

static void sums_repair(uint8_t *data, size_t size)
{
    size_t at = 8;
    for (int64_t length; (length = chunk_length(data, size, at)) >= 0; at += 12 + (size_t)length)
        chunk_finish(data + at, (uint32_t)length);
}

/* Mutates the rows that all IDATs together hold and puts them back as one. 0 if there are none or there is no room. */
static size_t rows_mutate(uint8_t *data, size_t size, size_t max_size, int level)
{
    static uint8_t rows[ROWS_MOST], packed[ROWS_MOST * 2];
    size_t at = 8, start = 0, joined = 0;
    for (int64_t length; (length = chunk_length(data, size, at)) >= 0; at += 12 + (size_t)length) {
        if (memcmp(data + at + 4, "IDAT", 4)) {
            if (start)
                break;
            continue;
        }
        start = start ? start : at;
        if (joined + (size_t)length > sizeof packed)
            return 0;
        memcpy(packed + joined, data + at + 8, (size_t)length);
        joined += (size_t)length;
    }
    uLongf count = sizeof rows, room = sizeof packed;
    if (!start || uncompress(rows, &count, packed, joined) != Z_OK || !count)
        return 0;
    count = LLVMFuzzerMutate(rows, count, sizeof rows);
    if (compress2(packed, &room, rows, count, level) != Z_OK || start + 12 + room + (size - at) > max_size)
        return 0;
    memmove(data + start + 12 + room, data + at, size - at);
    memcpy(data + start + 4, "IDAT", 4);
    memcpy(data + start + 8, packed, room);
    chunk_finish(data + start, (uint32_t)room);
    return start + 12 + room + (size - at);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    int png = size > 8 && !memcmp(data, "\x89PNG", 4);
    if (png && seed % 4 == 0) {
        size_t now = rows_mutate(data, size, max_size, (int)(seed / 4 % 3 * 3)); /* zlib's levels 0, 3 and 6 */
        if (now)
            return now;
    }
    size_t now = LLVMFuzzerMutate(data, size, max_size);
    if (png && seed % 4 < 3)
        sums_repair(data, now);
    return now;
}
