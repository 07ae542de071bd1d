/* Buckets: the reference's lists, keys as printf writes them, and the choice. */
#include "buckets.h"
#include "check.h"

#include <locale.h>
#include <math.h>
#include <string.h>

static dg_error error;

static void check_list(int size, int ratio, double low, double high, const int (*want)[2], size_t count)
{
    dg_bucket *buckets;
    size_t found;
    CHECK(dg_buckets_build(size, ratio, low, high, &buckets, &found, &error) == DG_OK);
    CHECK(found == count);
    for (size_t i = 0; i < count; i++) {
        CHECK(buckets[i].width == want[i][0] && buckets[i].height == want[i][1]);
        CHECK(i == 0 || buckets[i - 1].thousandths < buckets[i].thousandths);
        CHECK(dg_bucket_choose(buckets, count, want[i][0], want[i][1]) == &buckets[i]);
    }
    free(buckets);
}

static dg_status status_of(int size, int ratio, double low, double high)
{
    dg_bucket *buckets;
    size_t count;
    dg_status status = dg_buckets_build(size, ratio, low, high, &buckets, &count, &error);
    CHECK((status == DG_OK) == (buckets != NULL));
    free(buckets);
    return status;
}

static void check_choice(const dg_bucket *buckets, size_t count, int width, int height, int bucket_width)
{
    CHECK(dg_bucket_choose(buckets, count, width, height)->width == bucket_width);
}

int main(void)
{
    static const int at_1024[27][2] = {
        {704, 1440}, {736, 1408}, {736, 1376}, {768, 1344}, {768, 1312}, {800, 1280},  {832, 1248},
        {832, 1216}, {864, 1184}, {896, 1152}, {928, 1120}, {960, 1088}, {992, 1056},  {1024, 1024},
        {1056, 992}, {1088, 960}, {1120, 928}, {1152, 896}, {1184, 864}, {1216, 832},  {1248, 832},
        {1280, 800}, {1312, 768}, {1344, 768}, {1376, 736}, {1408, 736}, {1440, 704}};
    static const int at_224[11][2] = {{160, 304}, {160, 288}, {176, 272}, {192, 256}, {208, 240}, {224, 224},
                                      {240, 208}, {256, 192}, {272, 176}, {288, 160}, {304, 160}};
    static const int square[1][2] = {{64, 64}};
    setlocale(LC_ALL, "de_DE.UTF-8"); /* a decimal comma, where the machine has it, changes nothing */
    check_list(1024, 32, 0.5, 2.0, at_1024, 27);
    check_list(224, 16, 0.5, 2.0, at_224, 11);
    check_list(64, 64, 1.0, 1.0, square, 1);
    check_list(64, 64, 0.1, 10.0, square, 1); /* P = 1: the other side would be 0 */
    check_list(100, 64, 0.7, 0.7, square, 0); /* nothing between the limits */

    CHECK(status_of(31, 32, 0.5, 2) == DG_UNSUPPORTED && status_of(224, 0, 0.5, 2) == DG_UNSUPPORTED);
    CHECK(status_of(-224, -16, 0.5, 2) == DG_UNSUPPORTED && status_of(224, 16, 2, 0.5) == DG_UNSUPPORTED);
    CHECK(status_of(224, 16, 0, 2) == DG_UNSUPPORTED && status_of(224, 16, -1, 2) == DG_UNSUPPORTED);
    CHECK(status_of(224, 16, NAN, 2) == DG_UNSUPPORTED && status_of(224, 16, 0.5, NAN) == DG_UNSUPPORTED);
    CHECK(status_of(224, 16, 0.5, INFINITY) == DG_UNSUPPORTED);
    CHECK(status_of(1 << 30, 1, 0.5, 2) == DG_TOO_LARGE && status_of(0x7fffffff, 0x7fffffff, 1, 1) == DG_TOO_LARGE);
    CHECK(status_of(1 << 20, 1 << 20, 1e-300, 1e300) == DG_OK && status_of(1024, 1, 0.5, 2) == DG_OK);

    dg_bucket *buckets;
    size_t count;
    CHECK(dg_buckets_build(224, 16, 0.5, 2.0, &buckets, &count, &error) == DG_OK);
    check_choice(buckets, count, 1, 1, 224);
    check_choice(buckets, count, 1, 65500, 160); /* beyond the ends: the ends */
    CHECK(dg_bucket_choose(buckets, count, 1, 65500)->height == 304);
    check_choice(buckets, count, 65500, 1, 304);
    check_choice(buckets, count, 1920, 3, 304);
    check_choice(buckets, count, 1077, 1000, 240); /* 1.077 is half-way between 1.000 and 1.154: up */
    check_choice(buckets, count, 1076, 1000, 224);
    check_choice(buckets, count, 500, 375, 256); /* 1.3333… against the key 1.333 */
    free(buckets);

    CHECK(dg_aspect_thousandths(1, 16) == 62 && dg_aspect_thousandths(3, 16) == 188); /* halves go to even */
    CHECK(dg_aspect_thousandths(1, 0x7fffffff) == 0 && dg_aspect_thousandths(0x7fffffff, 1) == 2147483647000);
    setlocale(LC_ALL, "C");
    for (unsigned i = 0, random = 1; i < 200000; i++) {
        random = random * 1664525 + 1013904223;
        int width = 1 + (random >> 8) % 5000, height = i % 3 ? 1 + (int)(i % 5000) : 8 << i % 7;
        char text[64], key[64];
        int64_t thousandths = dg_aspect_thousandths(width, height);
        snprintf(text, sizeof text, "%.3f", (double)width / height);
        snprintf(key, sizeof key, "%d.%03d", (int)(thousandths / 1000), (int)(thousandths % 1000));
        if (strcmp(text, key))
            CHECK(!"the key of an aspect");
    }
    CHECK(1);
    return DONE();
}
