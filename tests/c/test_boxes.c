/* The box of a sample's pictures, whatever their size and however they are stored. */
#include "check.h"
#include "drawing.h"

#include <math.h>
#include <string.h>

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

static int are_apart(dg_box a, dg_box b, double most)
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
            dg_draw draw = begin(&part, 3, 0, name), other = begin(&bucket, 3, 0, name);
            dg_draw_choose(&draw, &part, width, height);
            CHECK(!are_apart(dg_frame_box(&draw.frame, width, height, 1), draw.frame.box, 0));
            dg_box box = dg_frame_box(&draw.frame, turned ? height : width, turned ? width : height, orientation);
            CHECK(!are_apart(box, stored(draw.frame.box, orientation, width, height), 0));
            /* A mask of half the size has half the box. */
            dg_box half = dg_frame_box(&draw.frame, (turned ? height : width) / 2, (turned ? width : height) / 2, orientation);
            if (width % 2 == 0)
                CHECK(!are_apart(half, (dg_box){box.x0 / 2, box.y0 / 2, box.x1 / 2, box.y1 / 2}, 1e-9));

            dg_draw_choose(&other, &bucket, width, height);
            CHECK(other.frame.target.width == dg_bucket_choose(buckets, count, width, height)->width);
            dg_box upright = dg_frame_box(&other.frame, width, height, 1);
            box = dg_box_fit(width, height, other.frame.target.width, other.frame.target.height, other.frame.across, other.frame.down);
            CHECK(!memcmp(&box, &upright, sizeof box));
            box = dg_frame_box(&other.frame, turned ? height : width, turned ? width : height, orientation);
            CHECK(!are_apart(box, stored(upright, orientation, width, height), 1e-9));
            CHECK(box.x0 >= 0 && box.y0 >= 0);
        }
    /* PIL.ImageOps.fit(…, (100, 100), centering=(0.25, 0.75)) of 400 x 200 and 200 x 400: 25 of 100 pixels, 75 of 100 */
    dg_box wide = dg_box_fit(400, 200, 100, 100, 0.25, 0.75), tall = dg_box_fit(200, 400, 100, 100, 0.25, 0.75);
    CHECK(!are_apart(wide, (dg_box){50, 0, 250, 200}, 0) && !are_apart(tall, (dg_box){0, 150, 200, 350}, 0));
}

static void check_box(int width, int height, int target_width, int target_height, dg_box want)
{
    dg_box box = dg_box_fit(width, height, target_width, target_height, 0.5, 0.5);
    CHECK(!memcmp(&box, &want, sizeof box));
}

static void check_fits(void)
{
    check_box(400, 200, 100, 100, (dg_box){100, 0, 300, 200});
    check_box(200, 400, 100, 100, (dg_box){0, 100, 200, 300});
    check_box(400, 200, 200, 100, (dg_box){0, 0, 400, 200});
    check_box(1, 65500, 704, 1440, (dg_box){0, (65500 - 1 / (704 / 1440.)) * 0.5, 1,
                                           (65500 - 1 / (704 / 1440.)) * 0.5 + 1 / (704 / 1440.)});
    check_box(500, 375, 256, 192, (dg_box){0, 0, 500, 375});
    check_box(501, 375, 224, 224, (dg_box){63, 0, 438, 375});
}

static void check_changes(void)
{
    dg_frame none = {0}, whole = {.target = {40, 30}, .across = 0.5, .down = 0.5};
    dg_frame drawn = {.target = {40, 30}, .box = {0, 0, 80, 60}, .of = {80, 60}};
    CHECK(!dg_frame_changes(&none, 40, 30));
    CHECK(!dg_frame_changes(&whole, 40, 30) && dg_frame_changes(&whole, 80, 60) && dg_frame_changes(&whole, 40, 31));
    CHECK(!dg_frame_changes(&drawn, 40, 30) && dg_frame_changes(&drawn, 80, 60));
    drawn.box.x0 = 1;
    CHECK(dg_frame_changes(&drawn, 40, 30));
}

static int is_part(dg_part part, int x, int y, int width, int height)
{
    return part.x == x && part.y == y && part.size.width == width && part.size.height == height;
}

static dg_frame follow(dg_steps steps, int width, int height)
{
    dg_frame frame = {0};
    dg_frame_follow(&frame, &steps, width, height);
    return frame;
}

/* Worked out by hand from torchvision's rules: the longer side rounded down, the corner of a cut rounded with halves to even, the
 * zeros before it rounded down; and from PIL.ImageOps.pad's, which rounds both with halves to even. */
static void check_steps(void)
{
    dg_frame frame = follow((dg_steps){.resize = {256, 0}, .center_crop = {224, 224}}, 500, 375);
    CHECK(frame.whole.width == 341 && frame.whole.height == 256 && frame.target.width == 224); /* 341.33 */
    CHECK(is_part(frame.kept, 58, 16, 224, 224) && !frame.crop.size.width && !frame.pad.size.width); /* 58.5 */
    frame = follow((dg_steps){.resize = {256, 0}, .center_crop = {224, 224}}, 375, 500);
    CHECK(is_part(frame.kept, 16, 58, 224, 224) && frame.whole.height == 341);
    frame = follow((dg_steps){.center_crop = {7, 9}}, 10, 4); /* 1.5 columns go, 2 of 5 rows of zeros come first */
    CHECK(is_part(frame.kept, 2, 0, 7, 4) && is_part(frame.crop, 0, 2, 7, 9) && frame.whole.width == 10);
    CHECK(frame.target.width == 7 && frame.target.height == 9);
    frame = follow((dg_steps){.pad = {640, 640}, .across = 0.5, .down = 0.5}, 500, 375);
    CHECK(frame.whole.width == 640 && frame.whole.height == 480 && is_part(frame.pad, 0, 80, 640, 640));
    frame = follow((dg_steps){.pad = {9, 6}, .across = 0.5, .down = 1}, 30, 24); /* 7.5 columns, then half of 1 */
    CHECK(frame.whole.width == 8 && frame.whole.height == 6 && is_part(frame.pad, 0, 0, 9, 6));
    frame = follow((dg_steps){.pad = {9, 60}, .across = 0.5, .down = 1}, 1000, 1); /* something is shown */
    CHECK(frame.whole.width == 9 && frame.whole.height == 1 && is_part(frame.pad, 0, 59, 9, 60));
    frame = follow((dg_steps){.resize = {30, 20}, .pad = {33, 20}, .across = 0, .down = 0.5}, 7, 7);
    CHECK(frame.whole.width == 30 && is_part(frame.pad, 0, 0, 33, 20) && frame.target.width == 33);
    frame = follow((dg_steps){.resize = {1 << 16, 0}}, 1, INT32_MAX); /* no int holds it; the resampler refuses it */
    CHECK(frame.whole.width == 1 << 16 && frame.whole.height == 1 << 30);

    dg_size whole, own = {40, 30};
    CHECK(!dg_frame_changes((frame = follow((dg_steps){.resize = {30, 0}}, 40, 30), &frame), 40, 30));
    CHECK(dg_frame_changes((frame = follow((dg_steps){.resize = {40, 0}}, 40, 30), &frame), 40, 30));
    CHECK(dg_frame_changes((frame = follow((dg_steps){.pad = {41, 30}}, 40, 30), &frame), 40, 30));
    CHECK(!dg_frame_changes((frame = follow((dg_steps){.center_crop = own, .pad = own}, 40, 30), &frame), 40, 30));
    CHECK(dg_frame_changes((frame = follow((dg_steps){.center_crop = {39, 30}}, 40, 30), &frame), 40, 30));

    /* A picture that is stored turned is resized and cut where it is, in its own directions. */
    frame = follow((dg_steps){.resize = {100, 80}, .center_crop = {31, 53}}, 50, 40); /* columns 34 to 65 (34.5), rows 14 to 67 (13.5) */
    CHECK(is_part(frame.kept, 34, 14, 31, 53));
    for (int orientation = 1; orientation <= 8; orientation++) {
        dg_part kept = dg_frame_kept(&frame, orientation, &whole);
        dg_box box = stored((dg_box){34, 14, 65, 67}, orientation, 100, 80);
        CHECK(is_part(kept, (int)box.x0, (int)box.y0, (int)(box.x1 - box.x0), (int)(box.y1 - box.y0)));
        CHECK(whole.width == (orientation < 5 ? 100 : 80));
        CHECK(!are_apart(dg_frame_box(&frame, 9, 5, orientation), (dg_box){0, 0, 9, 5}, 0));
    }
}

int main(void)
{
    dg_bucket *buckets;
    size_t count;
    dg_error error;
    CHECK(dg_buckets_build(64, 8, 0.5, 2.0, &buckets, &count, &error) == DG_OK);
    check_boxes(buckets, count);
    check_fits();
    check_changes();
    check_steps();
    free(buckets);
    return DONE();
}
