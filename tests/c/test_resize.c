/* The resampler against a naive one of a few lines, every instruction set against plain C, and the shapes that hurt. */
#include "check.h"
#include "resize_kernels.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

static dg_error error;

static int between(int low, int high)
{
    return low + rand() % (high - low + 1);
}

static double uniform(double low, double high)
{
    return low + (high - low) * rand() / RAND_MAX;
}

static double lanczos(double x)
{
    if (x == 0)
        return 1;
    return x >= -3 && x < 3 ? sin(x * M_PI) / (x * M_PI) * (sin(x / 3 * M_PI) / (x / 3 * M_PI)) : 0;
}

static double kernel(dg_resize_filter filter, double x)
{
    double far = fabs(x);
    switch (filter) {
    case DG_FILTER_BICUBIC: /* Keys' two cubics, multiplied out for a = -1/2 */
        return far < 1 ? 1.5 * far * far * far - 2.5 * far * far + 1 : far < 2 ? -0.5 * far * far * far + 2.5 * far * far - 4 * far + 2 : 0;
    case DG_FILTER_BILINEAR: return far < 1 ? 1 - far : 0;
    case DG_FILTER_BOX: return x > -0.5 && x <= 0.5;
    default: return lanczos(x);
    }
}

/* One pass of the naive resampler over `lines` lines: samples `step` apart, lines `jump` apart; whole pictures, no
 * tricks. */
static void naive_pass(const uint8_t *in, uint8_t *out, int source, int target, float start, float end, int lines,
                       size_t step, size_t jump, size_t out_step, size_t out_jump, dg_resize_filter filter)
{
    static const double REACH[] = {3, 2, 1, 0.5};
    double scale = (double)(end - start) / target, wide = scale < 1 ? 1 : scale, weights[4096];
    for (int i = 0; i < target; i++) {
        double center = start + (i + 0.5) * scale, sum = 0;
        double reach = filter == DG_FILTER_NEAREST ? 0 : REACH[filter] * wide;
        int first = (int)(center - reach + 0.5), last = (int)(center + reach + 0.5);
        if (filter == DG_FILTER_NEAREST) {
            double place = start + scale * 0.5;
            for (int k = 0; k < i; k++)
                place += scale;
            last = (first = (int)place < source ? (int)place : source - 1) + 1;
        }
        first = first < 0 ? 0 : first;
        last = last > source ? source : last;
        for (int k = first; k < last; k++)
            sum += weights[k - first] = filter == DG_FILTER_NEAREST ? 1 : kernel(filter, (k - center + 0.5) * (1 / wide));
        for (int line = 0; line < lines; line++) {
            int64_t level = 1 << 21;
            for (int k = first; k < last; k++) {
                double weight = weights[k - first] / sum * (1 << 22);
                level += (int64_t)(weight < 0 ? weight - 0.5 : weight + 0.5) * in[k * step + line * jump];
            }
            level >>= 22;
            out[i * out_step + line * out_jump] = (uint8_t)(level < 0 ? 0 : level > 255 ? 255 : level);
        }
    }
}

/* Rows without padding, no alpha. */
static void naive(const dg_resize_plan *plan, const uint8_t *in, uint8_t *out)
{
    int width = plan->src_width, height = plan->src_height, n = plan->channels;
    int to_width = plan->dst_width, to_height = plan->dst_height, vertical = plan->order == DG_ORDER_VERTICAL;
    const dg_box *box = &plan->box;
    size_t row = (size_t)width * n, to_row = (size_t)to_width * n;
    uint8_t *middle = malloc(vertical ? row * to_height : to_row * height);
    for (int c = 0; c < n; c++) {
        if (vertical) {
            naive_pass(in + c, middle + c, height, to_height, box->y0, box->y1, width, row, n, row, n, plan->filter);
            naive_pass(middle + c, out + c, width, to_width, box->x0, box->x1, to_height, n, row, n, to_row, plan->filter);
        } else {
            naive_pass(in + c, middle + c, width, to_width, box->x0, box->x1, height, n, row, n, to_row, plan->filter);
            naive_pass(middle + c, out + c, height, to_height, box->y0, box->y1, to_width, to_row, n, to_row, n, plan->filter);
        }
    }
    free(middle);
}

static uint8_t *noise(size_t size, int kind)
{
    uint8_t *bytes = malloc(size);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(kind == 0 ? rand() >> 5 : kind == 1 ? -(rand() >> 5 & 1) : (int)(i * 5 / 3));
    return bytes;
}

static int random_side(int most)
{
    return between(1, rand() % 3 ? most : 9);
}

static dg_resize_plan random_plan(int most)
{
    dg_resize_plan plan = {.src_width = random_side(most), .src_height = random_side(most),
                           .dst_width = random_side(most), .dst_height = random_side(most), .channels = between(1, 4),
                           .depth = 8, .order = between(0, 2), .mode = between(0, 1)};
    plan.src_pixel_stride = plan.channels == 3 ? between(3, 4) : plan.channels;
    plan.dst_pixel_stride = plan.channels == 3 ? between(3, 4) : plan.channels;
    plan.filter = (dg_resize_filter)(rand() % 2 ? DG_FILTER_LANCZOS : between(DG_FILTER_LANCZOS, DG_FILTER_NEAREST));
    int kind = rand() % 4;
    if (kind == 0) { /* a plain cut, in one direction or both */
        plan.box.x0 = between(0, plan.src_width - 1);
        plan.box.y0 = between(0, plan.src_height - 1);
        plan.box.x1 = between((int)plan.box.x0 + 1, plan.src_width);
        plan.box.y1 = between((int)plan.box.y0 + 1, plan.src_height);
        plan.dst_width = (int)(plan.box.x1 - plan.box.x0);
        if (rand() % 2)
            plan.dst_height = (int)(plan.box.y1 - plan.box.y0);
    } else if (kind == 1) {
        plan.box = dg_box_fit(plan.src_width, plan.src_height, plan.dst_width, plan.dst_height, 0.5, 0.5);
    } else if (kind == 2) {
        plan.box.x0 = uniform(0, plan.src_width);
        plan.box.y0 = uniform(0, plan.src_height);
        plan.box.x1 = uniform(plan.box.x0, plan.src_width);
        plan.box.y1 = uniform(plan.box.y0, plan.src_height);
    } else {
        plan.box = (dg_box){0, 0, plan.src_width, plan.src_height};
    }
    return plan;
}

static void check_naive(dg_resizer *resizer)
{
    for (int i = 0; i < 150; i++) {
        dg_resize_plan plan = random_plan(120);
        plan.mode = DG_RESIZE_EXACT;
        plan.order = between(1, 2);
        plan.filter = (dg_resize_filter)between(DG_FILTER_LANCZOS, DG_FILTER_NEAREST);
        plan.channels = plan.src_pixel_stride = plan.dst_pixel_stride = rand() % 2 ? 1 : 3;
        uint8_t *in = noise((size_t)plan.src_width * plan.src_height * plan.channels, i % 3);
        size_t size = (size_t)plan.dst_width * plan.dst_height * plan.channels;
        uint8_t *want = malloc(size), *got = malloc(size);
        naive(&plan, in, want);
        CHECK(dg_resize(resizer, &plan, in, (size_t)plan.src_width * plan.channels, got,
                        (size_t)plan.dst_width * plan.channels, &error) == DG_OK);
        CHECK(!memcmp(want, got, size));
        plan.mode = DG_RESIZE_FAST;
        CHECK(dg_resize(resizer, &plan, in, (size_t)plan.src_width * plan.channels, got,
                        (size_t)plan.dst_width * plan.channels, &error) == DG_OK);
        int apart = 0;
        for (size_t k = 0; k < size; k++)
            apart = abs(want[k] - got[k]) > apart ? abs(want[k] - got[k]) : apart;
        CHECK(apart <= 3);
        free(in);
        free(want);
        free(got);
    }
}

/* Pushes rows that are no longer than they need to be, one allocation each: ASAN sees a read too far. */
static void push_tight(dg_resizer *resizer, const dg_resize_plan *plan, const uint8_t *in, uint8_t *out, size_t stride)
{
    int x, columns, y, rows, done = 0;
    size_t pixel = (size_t)plan->src_pixel_stride * plan->depth / 8;
    CHECK(dg_resizer_begin(resizer, plan, out, stride, &error) == DG_OK);
    dg_resizer_source(resizer, &x, &columns, &y, &rows);
    CHECK(x >= 0 && columns > 0 && x + columns <= plan->src_width);
    CHECK(y >= 0 && rows > 0 && y + rows <= plan->src_height);
    for (int row = y; row < y + rows; row++) {
        uint8_t *copy = malloc(columns * pixel);
        memcpy(copy, in + ((size_t)row * plan->src_width + x) * pixel, columns * pixel);
        done = dg_resizer_push_row(resizer, (const uint8_t *)((uintptr_t)copy - x * pixel));
        free(copy);
    }
    CHECK(done == plan->dst_height);
    CHECK(dg_resizer_push_row(resizer, in) == done);
}

/* A part of a result is the whole one's, to the bit; and a box that is cropped first is the picture that it would be alone. */
static void check_parts(dg_resizer *resizer)
{
    for (int i = 0; i < 300; i++) {
        dg_resize_plan plan = random_plan(90), part;
        plan.depth = i % 4 ? 8 : 16;
        if (plan.depth == 16)
            plan.src_pixel_stride = plan.dst_pixel_stride = plan.channels;
        plan.crop_first = rand() % 2;
        part = plan;
        part.whole = (dg_size){plan.dst_width, plan.dst_height};
        part.dst_x = between(0, plan.dst_width - 1);
        part.dst_y = between(0, plan.dst_height - 1);
        part.dst_width = between(1, plan.dst_width - part.dst_x);
        part.dst_height = between(1, plan.dst_height - part.dst_y);
        size_t from = (size_t)plan.src_pixel_stride * plan.depth / 8, to = (size_t)plan.dst_pixel_stride * plan.depth / 8;
        size_t stride = to * plan.dst_width, part_stride = to * part.dst_width;
        uint8_t *in = noise(from * plan.src_width * plan.src_height, i % 3), *whole = malloc(stride * plan.dst_height);
        uint8_t *got = malloc(part_stride * part.dst_height);
        CHECK(dg_resize(resizer, &plan, in, from * plan.src_width, whole, stride, &error) == DG_OK);
        push_tight(resizer, &part, in, got, part_stride);
        int wrong = 0;
        for (int y = 0; y < part.dst_height; y++)
            wrong += !!memcmp(got + y * part_stride, whole + (part.dst_y + y) * stride + part.dst_x * to, part_stride);
        CHECK(wrong == 0);
        const dg_box *box = &plan.box;
        if (plan.crop_first && box->x0 == floor(box->x0) && box->y0 == floor(box->y0) && box->x1 == floor(box->x1) && box->y1 == floor(box->y1)
            && box->x1 > box->x0 && box->y1 > box->y0) {
            dg_resize_plan alone = plan;
            uint8_t *start = in + (size_t)box->y0 * from * plan.src_width + (size_t)box->x0 * from, *cut = malloc(stride * plan.dst_height);
            alone.src_width = (int)(box->x1 - box->x0);
            alone.src_height = (int)(box->y1 - box->y0);
            alone.box = (dg_box){0, 0, alone.src_width, alone.src_height};
            CHECK(dg_resize(resizer, &alone, start, from * plan.src_width, cut, stride, &error) == DG_OK);
            CHECK(!memcmp(cut, whole, stride * plan.dst_height));
            free(cut);
        }
        free(in);
        free(whole);
        free(got);
    }
}

static void check_simd(void)
{
    dg_resizer *plain = dg_resizer_new(), *other = dg_resizer_new();
    CHECK(dg_resizer_use(plain, DG_SIMD_GENERIC));
    for (int simd = 1; simd < DG_SIMD_COUNT; simd++) {
        if (!dg_resizer_use(other, simd))
            continue;
        for (int i = 0; i < 250; i++) {
            dg_resize_plan plan = random_plan(i % 20 ? 150 : 700);
            size_t stride = (size_t)plan.dst_width * plan.dst_pixel_stride + between(0, 9), size = stride * plan.dst_height;
            uint8_t *in = noise((size_t)plan.src_width * plan.src_height * plan.src_pixel_stride, i % 3);
            uint8_t *want = malloc(size), *got = malloc(size);
            memset(want, 0x5a, size);
            memset(got, 0x5a, size);
            CHECK(dg_resize(plain, &plan, in, (size_t)plan.src_width * plan.src_pixel_stride, want, stride, &error) == DG_OK);
            push_tight(other, &plan, in, got, stride);
            CHECK(!memcmp(want, got, size)); /* the gaps between rows, too */
            free(in);
            free(want);
            free(got);
        }
    }
    dg_resizer_free(plain);
    dg_resizer_free(other);
}

static void resize_row(dg_resizer *resizer, const uint8_t *in, int source, uint8_t *out, int target, int mode)
{
    dg_resize_plan plan = {source, 1, {0, 0, source, 1}, target, 1, 1, 1, 1, 8, mode, .order = 0};
    CHECK(dg_resize(resizer, &plan, in, source, out, target, &error) == DG_OK);
}

/* Small enough to check by hand: Lanczos at 1/2, 3/2 and 5/2 is 0.6079, -0.1351, 0.0243. */
static void check_by_hand(dg_resizer *resizer)
{
    static const uint8_t edge[2] = {0, 255}, step[6] = {0, 0, 0, 100, 100, 100}, dot[5] = {0, 0, 200, 0, 0};
    uint8_t out[8];
    for (int mode = 0; mode < 2; mode++) {
        resize_row(resizer, edge, 2, out, 1, mode);
        CHECK(out[0] == 128);
        resize_row(resizer, edge, 2, out, 2, mode);
        CHECK(out[0] == 0 && out[1] == 255);
        resize_row(resizer, step, 6, out, 3, mode);
        CHECK(out[0] == 0 && out[1] == 50 && out[2] == 109); /* beyond the edge there is nothing, so it rings */
        resize_row(resizer, dot, 5, out, 5, mode);
        CHECK(!memcmp(out, dot, 5));
        /* Half a pixel to the right: 200 times the weights above over their sum, 0.9942. */
        dg_resize_plan plan = {7, 1, {1.5, 0, 5.5, 1}, 4, 1, 1, 1, 1, 8, mode, .order = 0};
        static const uint8_t line[7] = {0, 0, 0, 200, 0, 0, 0};
        CHECK(dg_resize(resizer, &plan, line, 7, out, 4, &error) == DG_OK);
        CHECK(out[0] == 0 && out[1] == 122 && out[2] == 122 && out[3] == 0);
    }
}

static void check_flat(dg_resizer *resizer)
{
    static uint8_t in[90 * 70 * 4], out[200 * 200 * 4];
    for (int i = 0; i < 300; i++) {
        dg_resize_plan plan = random_plan(70);
        int level = i % 2 ? 255 : between(0, 255);
        memset(in, level, sizeof in);
        for (int k = plan.channels - 1; k < (int)sizeof in && plan.channels % 2 == 0; k += plan.channels)
            in[k] = 255;
        CHECK(dg_resize(resizer, &plan, in, (size_t)plan.src_width * plan.src_pixel_stride, out,
                        (size_t)plan.dst_width * plan.dst_pixel_stride, &error) == DG_OK);
        int wrong = 0;
        for (int k = 0; k < plan.dst_width * plan.dst_height; k++)
            for (int c = 0; c < plan.dst_pixel_stride; c++)
                wrong += out[k * plan.dst_pixel_stride + c] != (c == 3 || (plan.channels == 2 && c == 1) ? 255 : level);
        CHECK(wrong == 0);
    }
}

static void check_alpha(dg_resizer *resizer)
{
    static uint8_t in[64 * 64 * 4], out[64 * 64 * 4];
    for (int i = 0; i < 64 * 64; i++) {
        int inside = i % 64 >= 16 && i % 64 < 48 && i / 64 >= 16 && i / 64 < 48;
        memcpy(in + 4 * i, inside ? (uint8_t[]){255, 0, 0, 255} : (uint8_t[]){255, 0, 255, 0}, 4);
    }
    for (int mode = 0; mode < 2; mode++) {
        dg_resize_plan plan = {64, 64, {0, 0, 64, 64}, 23, 29, 4, 4, 4, 8, mode, .order = 0};
        CHECK(dg_resize(resizer, &plan, in, 256, out, 92, &error) == DG_OK);
        int fringe = 0, edge = 0;
        for (int i = 0; i < 23 * 29; i++) {
            fringe += out[4 * i + 3] && out[4 * i + 2] > 0;
            edge += out[4 * i + 3] > 0 && out[4 * i + 3] < 255;
        }
        CHECK(fringe == 0 && edge > 50);
        plan.dst_width = plan.dst_height = 64;
        CHECK(dg_resize(resizer, &plan, in, 256, out, 256, &error) == DG_OK);
        CHECK(!memcmp(in, out, sizeof in)); /* a copy keeps what is under alpha 0 */
    }
}

static void check_board(dg_resizer *resizer)
{
    static uint8_t in[1024 * 1024], out[100 * 100];
    for (int i = 0; i < 1024 * 1024; i++)
        in[i] = (i ^ i >> 10) & 1 ? 255 : 0;
    for (int mode = 0; mode < 2; mode++) {
        dg_resize_plan plan = {1024, 1024, {0, 0, 1024, 1024}, 100, 100, 1, 1, 1, 8, mode, .order = 0};
        CHECK(dg_resize(resizer, &plan, in, 1024, out, 100, &error) == DG_OK);
        int wrong = 0;
        for (int i = 0; i < 10000; i++)
            wrong += out[i] < 127 || out[i] > 128;
        CHECK(wrong == 0);
    }
}

static void check_shapes(dg_resizer *resizer)
{
    static const int shapes[][4] = {{1, 1, 1440, 704},     {1, 2000, 704, 1440},  {2000, 1, 1440, 704},
                                    {1920, 3, 1440, 704},  {65500, 1, 1440, 704}, {1, 65500, 704, 1440},
                                    {65500, 1, 1, 1},      {1, 65500, 1, 1},      {65500, 2, 3, 1},
                                    {3, 65500, 1, 2},      {3, 2, 2, 900}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int how = 0; how < 4; how++) { /* fast or exact, crop or squeeze */
            const int *s = shapes[i];
            dg_resize_plan plan = {s[0], s[1], {0, 0, s[0], s[1]}, s[2], s[3], 3, 3, 3, 8, how & 1, .order = 0};
            if (how & 2)
                plan.box = dg_box_fit(s[0], s[1], s[2], s[3], 0.5, 0.5);
            uint8_t *in = malloc((size_t)s[0] * s[1] * 3), *out = calloc((size_t)s[2] * s[3], 3);
            memset(in, 201, (size_t)s[0] * s[1] * 3);
            push_tight(resizer, &plan, in, out, (size_t)s[2] * 3);
            CHECK(out[0] == 201 && out[(size_t)s[2] * s[3] * 3 - 1] == 201);
            free(in);
            free(out);
        }
}

static void check_wide(dg_resizer *resizer)
{
    enum { W = 50, H = 40 };
    static uint16_t in[W * H * 4], out[W * H * 4];
    static uint8_t narrow[W * H * 4], narrow_out[W * H * 4];
    for (int i = 0; i < 60; i++) {
        dg_resize_plan plan = random_plan(40);
        plan.mode = DG_RESIZE_EXACT;
        plan.filter = DG_FILTER_LANCZOS;
        size_t size = (size_t)plan.src_width * plan.src_height * plan.src_pixel_stride;
        for (size_t k = 0; k < size; k++) {
            narrow[k] = (uint8_t)(rand() >> 5);
            if (plan.channels % 2 == 0 && k % plan.channels == (size_t)plan.channels - 1)
                narrow[k] = 255;
            in[k] = (uint16_t)(narrow[k] * 257);
        }
        CHECK(dg_resize(resizer, &plan, narrow, (size_t)plan.src_width * plan.src_pixel_stride, narrow_out,
                        (size_t)plan.dst_width * plan.dst_pixel_stride, &error) == DG_OK);
        plan.depth = 16;
        push_tight(resizer, &plan, (const uint8_t *)in, (uint8_t *)out, (size_t)plan.dst_width * plan.dst_pixel_stride * 2);
        int wrong = 0;
        for (int k = 0; k < plan.dst_width * plan.dst_height * plan.dst_pixel_stride; k++)
            wrong += fabs(out[k] / 257.0 - narrow_out[k]) > (plan.channels % 2 ? 40 : 60);
        CHECK(wrong == 0);
    }
    /* Transparent junk stays out, what is opaque keeps its level, and nothing is lost below 8 bits. */
    uint16_t pixels[8] = {1001, 65535, 60000, 0, 1001, 65535, 60000, 0}, row[4];
    dg_resize_plan plan = {4, 1, {0, 0, 4, 1}, 2, 1, 2, 2, 2, 16, 0, .order = 0};
    CHECK(dg_resize(resizer, &plan, (const uint8_t *)pixels, 16, (uint8_t *)row, 8, &error) == DG_OK);
    CHECK(abs(row[0] - 1001) <= 1 && abs(row[2] - 1001) <= 1 && row[1] > 20000 && row[1] < 50000);
}

static void check_refusals(dg_resizer *resizer)
{
    uint8_t in[64] = {0}, out[64];
    const dg_resize_plan good = {4, 4, {0, 0, 4, 4}, 2, 2, 1, 1, 1, 8, 0, .order = 0};
    dg_resize_plan bad[16];
    for (int i = 0; i < 16; i++)
        bad[i] = good;
    bad[0].src_width = 0;
    bad[1].dst_height = -1;
    bad[2].channels = 5;
    bad[3].src_pixel_stride = 2;
    bad[4].depth = 12;
    bad[5].box.x0 = -0.5;
    bad[6].box.x0 = NAN;
    bad[7].box.y1 = NAN;
    bad[8].box = (dg_box){3, 0, 2, 4};
    bad[9].box = (dg_box){5, 0, 9, 4};
    bad[10].box.y0 = INFINITY;
    bad[12].box.x1 = 4.5;
    bad[11].dst_width = 1 << 29;
    bad[13].whole = (dg_size){3, 2};
    bad[13].dst_x = 2;
    bad[14].whole = (dg_size){2, 2};
    bad[14].dst_y = -1;
    bad[15].filter = (dg_resize_filter)(DG_FILTER_NEAREST + 1);
    for (int i = 0; i < 16; i++)
        CHECK(dg_resize(resizer, &bad[i], in, 4, out, 2, &error) == (i == 11 ? DG_TOO_LARGE : DG_UNSUPPORTED));
    CHECK(dg_resize(resizer, &good, in, 4, out, 2, &error) == DG_OK);
}

static void *work(void *seed)
{
    static const uint8_t in[128 * 128 * 3];
    dg_resizer *resizer = dg_resizer_new();
    for (int i = 0; i < 20; i++) {
        int side = 20 + (i * 7 + (int)(size_t)seed) % 100;
        uint8_t *out = malloc((size_t)side * side * 3);
        dg_resize_plan plan = {128, 128, {0, 0, 128, 128}, side, side, 3, 3, 3, 8, i & 1, .order = 0};
        dg_error mine;
        if (dg_resize(resizer, &plan, in, 128 * 3, out, (size_t)side * 3, &mine) != DG_OK)
            abort();
        free(out);
    }
    dg_resizer_free(resizer);
    return NULL;
}

int main(void)
{
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) /* first, while the tables that are made once are not yet made */
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    srand(1);
    check_simd();
    for (int simd = 0; simd < DG_SIMD_COUNT; simd++) {
        dg_resizer *resizer = dg_resizer_new();
        if (dg_resizer_use(resizer, simd)) {
            check_by_hand(resizer);
            check_naive(resizer);
            check_parts(resizer);
            check_flat(resizer);
            check_alpha(resizer);
            check_board(resizer);
            check_shapes(resizer);
            check_wide(resizer);
            check_refusals(resizer);
        }
        dg_resizer_free(resizer);
    }
    dg_resizer_free(NULL);
    return DONE();
}
