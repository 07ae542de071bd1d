/* JPEG regions: what dg_jpeg_fit decodes of a picture to resample a box of it against decoding all of it. */
#include "check.h"
#include "jpeg.h"
#include "resize.h"

#include <jpeglib.h>
#include <string.h>

static dg_heap *heap;
static dg_jpeg *jpeg;
static dg_resizer *resizer;
static dg_error error;

static int between(int low, int high)
{
    return low + rand() % (high - low + 1);
}

typedef struct {
    int width, height, channels;   /* 1 grey, 3 YCbCr, 4 CMYK */
    int across, down;              /* sampling factors of the first component; the others have 1 … */
    int chroma_across, chroma_down; /* … or these */
    int progressive, separate, arithmetic, restart, rgb, quality;
} kind;

typedef struct {
    uint8_t *data;
    unsigned long size;
} bytes;

/* Edges, noise and slopes: no row or column is like its neighbours. */
static void paint(uint8_t *row, const kind *k, int y)
{
    for (int x = 0; x < k->width; x++)
        for (int c = 0; c < k->channels; c++) {
            int level = (x * (c + 2) / 3 + y * (3 - c)) % 256;
            level += ((x / 5 ^ y / 7) & 1) * 40 + (rand() >> 5) % 32;
            row[x * k->channels + c] = (uint8_t)(level > 255 ? 255 : level);
        }
}

static bytes encode(const kind *k)
{
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    jpeg_scan_info scans[4];
    bytes out = {NULL, 0};
    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &out.data, &out.size);
    info.image_width = (JDIMENSION)k->width;
    info.image_height = (JDIMENSION)k->height;
    info.input_components = k->channels;
    info.in_color_space = k->channels == 1 ? JCS_GRAYSCALE : k->channels == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&info);
    if (k->channels == 4)
        jpeg_set_colorspace(&info, k->rgb ? JCS_CMYK : JCS_YCCK);
    else if (k->rgb && k->channels == 3)
        jpeg_set_colorspace(&info, JCS_RGB);
    jpeg_set_quality(&info, k->quality, TRUE);
    for (int c = 0; c < k->channels; c++) {
        int like_first = c == 0 || c == 3;
        info.comp_info[c].h_samp_factor = like_first ? k->across : k->chroma_across;
        info.comp_info[c].v_samp_factor = like_first ? k->down : k->chroma_down;
    }
    info.arith_code = (boolean)k->arithmetic;
    info.restart_interval = (unsigned)k->restart;
    if (k->progressive) {
        jpeg_simple_progression(&info);
    } else if (k->separate) { /* baseline, a scan for each component */
        for (int c = 0; c < k->channels; c++)
            scans[c] = (jpeg_scan_info){1, {c}, 0, 63, 0, 0};
        info.scan_info = scans;
        info.num_scans = k->channels;
    }
    jpeg_start_compress(&info, TRUE);
    JSAMPROW row = malloc((size_t)k->width * k->channels);
    for (int y = 0; y < k->height; y++) {
        paint(row, k, y);
        jpeg_write_scanlines(&info, &row, 1);
    }
    free(row);
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    return out;
}

static kind random_kind(void)
{
    static const int SAMPLINGS[][4] = {{1, 1, 1, 1}, {2, 1, 1, 1}, {2, 2, 1, 1}, {1, 2, 1, 1}, {4, 1, 1, 1}, {4, 2, 1, 1},
                                       {2, 2, 1, 2}, {2, 2, 2, 1}, {1, 4, 1, 1}, {3, 1, 1, 1}, {4, 2, 1, 1}, {2, 4, 1, 1}};
    const int *s = SAMPLINGS[rand() % 3 ? rand() % 3 : rand() % 12];
    kind k = {between(1, rand() % 3 ? 200 : 40), between(1, rand() % 3 ? 200 : 40), (const int[]){1, 3, 3, 3, 3, 4}[rand() % 6],
              s[0], s[1], s[2], s[3], .quality = between(30, 100)};
    k.progressive = rand() % 3 == 0;
    k.separate = rand() % 5 == 0;
    k.arithmetic = rand() % 9 == 0;
    k.restart = rand() % 4 ? 0 : between(1, 9);
    k.rgb = rand() % 12 == 0;
    if (k.channels == 4) /* more blocks in an MCU than the standard allows */
        k.across = k.down = between(1, 2), k.chroma_across = k.chroma_down = 1;
    return k;
}

static dg_resize_plan random_plan(int width, int height)
{
    dg_resize_plan plan = {.src_width = width, .src_height = height, .depth = 8};
    int w = between(1, width), h = between(1, height), x = between(0, width - w), y = between(0, height - h);
    plan.box = (dg_box){x, y, x + w, y + h};
    plan.dst_width = between(1, 80);
    plan.dst_height = between(1, 80);
    if (rand() % 4 == 0) { /* a plain cut: nothing is needed around the box */
        plan.dst_width = w;
        plan.dst_height = h;
    } else if (rand() % 3 == 0) {
        plan.box.x0 += (plan.box.x1 - plan.box.x0) * 0.3;
        plan.box.y1 -= (plan.box.y1 - plan.box.y0) * 0.3;
    }
    return plan;
}

/* What dg_jpeg_fit gives is, to the last bit, the box of all the pixels resampled, whatever is left undecoded around it. */
static void check_box(const kind *k, bytes file, const dg_decode_options *options, const dg_image *whole)
{
    dg_resize_plan plan = random_plan(k->width, k->height);
    dg_image fitted;
    int damaged;
    plan.crop_first = rand() % 2; /* or the fast mode would resample planes */
    plan.mode = plan.crop_first && rand() % 2 ? DG_RESIZE_FAST : DG_RESIZE_EXACT;
    plan.filter = (dg_resize_filter)between(DG_FILTER_LANCZOS, DG_FILTER_NEAREST);
    if (rand() % 2) { /* a part of the result */
        plan.whole = (dg_size){plan.dst_width, plan.dst_height};
        plan.dst_x = between(0, plan.dst_width - 1);
        plan.dst_y = between(0, plan.dst_height - 1);
        plan.dst_width = between(1, plan.dst_width - plan.dst_x);
        plan.dst_height = between(1, plan.dst_height - plan.dst_y);
    }
    CHECK(dg_jpeg_fit(jpeg, file.data, file.size, options, &plan, &fitted, &damaged, &error) == DG_OK);
    CHECK(fitted.width == plan.dst_width && fitted.height == plan.dst_height && fitted.pixel_stride == whole->pixel_stride);
    plan.channels = whole->channels;
    plan.src_pixel_stride = plan.dst_pixel_stride = whole->pixel_stride;
    uint8_t *want = malloc(fitted.buffer.size);
    CHECK(dg_resize(resizer, &plan, whole->buffer.data, dg_image_stride(whole), want, dg_image_stride(&fitted), &error) == DG_OK);
    if (memcmp(want, fitted.buffer.data, fitted.buffer.size)) /* what failed, for whoever has to mend it */
        fprintf(stderr, "%dx%d, %d channels, %dx%d to %dx%d, progressive %d, separate %d, restart %d, box %g %g %g %g, to %dx%d\n",
                k->width, k->height, k->channels, k->across, k->down, k->chroma_across, k->chroma_down, k->progressive, k->separate,
                k->restart, plan.box.x0, plan.box.y0, plan.box.x1, plan.box.y1, plan.dst_width, plan.dst_height);
    CHECK(!memcmp(want, fitted.buffer.data, fitted.buffer.size));
    free(want);
    dg_image_free(&fitted);
}

static void check_regions(void)
{
    for (int i = 0; i < 1500; i++) {
        kind k = random_kind();
        bytes file = encode(&k);
        dg_decode_options options = {.max_pixels = 1 << 20, .rgbx = rand() % 2, .part = rand() % 4 != 0};
        dg_image whole;
        int damaged;
        CHECK(dg_jpeg_decode(jpeg, file.data, file.size, &options, &whole, &damaged, &error) == DG_OK);
        for (int j = 0; j < 6; j++)
            check_box(&k, file, &options, &whole);
        dg_image_free(&whole);
        free(file.data);
    }
}

/* A file that was cut off fails wherever the box is; where such are welcome, the box shows what the whole picture does. */
static void check_cut_off(void)
{
    for (int i = 0; i < 600; i++) {
        kind k = random_kind();
        bytes file = encode(&k), cut = file;
        dg_decode_options strict = {.max_pixels = 1 << 20, .part = 1}, lenient = strict;
        lenient.accept_truncated = lenient.accept_damaged = 1;
        dg_image whole, fitted;
        int damaged;
        cut.size = (unsigned long)between((int)file.size / 4, (int)file.size - 1);
        dg_resize_plan plan = random_plan(k.width, k.height);
        dg_status status = dg_jpeg_decode(jpeg, cut.data, cut.size, &strict, &whole, &damaged, &error);
        dg_image_free(&whole);
        CHECK(dg_jpeg_fit(jpeg, cut.data, cut.size, &strict, &plan, &fitted, &damaged, &error) == status);
        dg_image_free(&fitted);
        if (dg_jpeg_decode(jpeg, cut.data, cut.size, &lenient, &whole, &damaged, &error) == DG_OK) {
            check_box(&k, cut, &lenient, &whole);
            dg_image_free(&whole);
        }
        free(file.data);
    }
}

/* Damage below the last row that is needed is not met, unless all is to be read. */
static void check_damage(void)
{
    kind k = {160, 160, 3, 2, 2, 1, 1, .quality = 90};
    bytes file = encode(&k);
    dg_decode_options options = {.max_pixels = 1 << 20}, part = options;
    part.part = 1;
    dg_resize_plan plan = {.box = {20, 10, 90, 60}, .dst_width = 30, .dst_height = 30};
    dg_image fitted;
    int damaged;
    file.data[file.size * 9 / 10] = 0xFF; /* an end marker where rows should be, and the one at the end */
    file.data[file.size * 9 / 10 + 1] = 0xD9;
    CHECK(dg_jpeg_fit(jpeg, file.data, file.size, &options, &plan, &fitted, &damaged, &error) == DG_CORRUPT);
    CHECK(dg_jpeg_fit(jpeg, file.data, file.size, &part, &plan, &fitted, &damaged, &error) == DG_OK && !damaged);
    dg_image_free(&fitted);
    plan.box.y1 = 160;
    CHECK(dg_jpeg_fit(jpeg, file.data, file.size, &part, &plan, &fitted, &damaged, &error) == DG_CORRUPT);
    file.size--; /* no end marker at the end: it is read to see */
    plan.box.y1 = 60;
    CHECK(dg_jpeg_fit(jpeg, file.data, file.size, &part, &plan, &fitted, &damaged, &error) == DG_CORRUPT);
    free(file.data);
}

int main(void)
{
    srand(1);
    heap = dg_heap_new(0);
    jpeg = dg_jpeg_new(heap);
    resizer = dg_resizer_new();
    check_regions();
    check_cut_off();
    check_damage();
    dg_resizer_free(resizer);
    dg_jpeg_free(jpeg);
    dg_heap_free(heap);
    return DONE();
}
