/* What is drawn for a sample. */
#include "check.h"
#include "drawing.h"

#include <math.h>
#include <string.h>

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
        dg_draw draw = begin(&options, KNOWN[i].seed, KNOWN[i].epoch, KNOWN[i].name);
        dg_draw_choose(&draw, &options, KNOWN[i].width, KNOWN[i].height);
        CHECK(draw.frame.across == KNOWN[i].across && draw.frame.down == KNOWN[i].down && draw.frame.target.width == 32);
        CHECK(!memcmp(&draw.frame.box, &KNOWN[i].box, sizeof draw.frame.box));
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
        dg_draw draw = begin(&options, 1, 0, name), other = begin(&flipped, 1, 0, name);
        dg_draw_choose(&draw, &options, width, height);
        dg_draw_choose(&other, &flipped, width, height);
        const dg_box *box = &draw.frame.box;
        CHECK(!memcmp(box, &other.frame.box, sizeof *box)); /* whether samples are mirrored moves no box */
        CHECK(!draw.mirrored && draw.frame.across == 0.5 && draw.frame.down == 0.5);
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
        dg_draw_choose(&draw, &options, 64, 48); /* a second picture changes nothing */
        CHECK(!memcmp(box, &other.frame.box, sizeof *box) && draw.frame.of.width == width);
    }
    CHECK(mirrored > 2500 && mirrored < 2900);
    CHECK(fabs(left / count - 0.5) < 0.03);
    CHECK(fabs(shares / count - 0.434) < 0.02); /* evenly from 0.08 to 1 would be 0.54, but large ones often do not fit */
    dg_crop_options always = {.flip = 1}, never = {0};
    for (int i = 0; i < 100; i++) {
        CHECK(begin(&always, (uint64_t)i, 0, "").mirrored && !begin(&never, (uint64_t)i, 0, "").mirrored);
        CHECK(begin(&never, (uint64_t)i, 0, "").frame.target.width == 0);
    }
}

int main(void)
{
    check_known();
    check_draws();
    return DONE();
}
