/* The generator against its authors' vectors and numpy's, and what is drawn from it against what chance allows. */
#include "check.h"
#include "random.h"

#include <string.h>

/* Random123, tests/kat_vectors: philox4x64, 10 rounds. Digits of pi are the third. */
static void check_vectors(void)
{
    static const uint64_t VECTORS[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x16554d9eca36314c, 0xdb20fe9d672d0fdc, 0xd7e772cee186176b, 0x7e68b68aec7ba23b},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX,
         0x87b092c3013fe90b, 0x438c3c67be8d0224, 0x9cc7d7c69cd777b6, 0xa09caebf594f0ba0},
        {0x243f6a8885a308d3, 0x13198a2e03707344, 0xa4093822299f31d0, 0x082efa98ec4e6c89, 0x452821e638d01377, 0xbe5466cf34e90c6c,
         0xa528f45403e61d95, 0x38c72dbd566e9788, 0xa5a1610e72fd18b5, 0x57bd43b5e52b7fe6},
    };
    for (int i = 0; i < 3; i++) {
        uint64_t out[4];
        dg_philox(VECTORS[i], VECTORS[i] + 4, out);
        CHECK(!memcmp(out, VECTORS[i] + 6, sizeof out));
    }
    /* The authors' test program of FNV, 64 bits, 1a. */
    CHECK(dg_hash("", 0) == 0xcbf29ce484222325 && dg_hash("a", 1) == 0xaf63dc4c8601ec8c && dg_hash("foobar", 6) == 0x85944171f73967e8);
}

/* numpy.random.Philox(key=[1234, 5], counter=(hash << 64) - 1), which counts before it makes a block: random_raw(6), random(6). */
static void check_stream(void)
{
    static const char NAME[] = "shard/000001.jpg";
    static const uint64_t RAW[6] = {0x9d7370f4eaa41b56, 0x33200ed8bd02becd, 0xeb2a8b9591b78e19,
                                    0x91f2b892c3825234, 0x63efc4c0f9e79dc3, 0x93234970f03811a1};
    static const double UNIFORM[6] = {0.6150427434864841, 0.19970791617835004, 0.9186179390105434,
                                      0.5701098783788521, 0.390377328027084,   0.5747571850517661};
    dg_random a, b;
    dg_random_init(&a, 1234, 5, NAME, strlen(NAME));
    dg_random_init(&b, 1234, 5, NAME, strlen(NAME));
    for (int i = 0; i < 6; i++) {
        CHECK(dg_random_next(&a) == RAW[i]);
        CHECK(dg_random_uniform(&b) == UNIFORM[i]);
    }
    dg_random_init(&b, 1235, 5, NAME, strlen(NAME));
    CHECK(dg_random_next(&b) != RAW[0]);
    dg_random_init(&b, 1234, 6, NAME, strlen(NAME));
    CHECK(dg_random_next(&b) != RAW[0]);
    dg_random_init(&b, 1234, 5, NAME, strlen(NAME) - 1);
    CHECK(dg_random_next(&b) != RAW[0]);
}

/* First numbers of neighbouring names, seeds and epochs fall evenly into 64 bins: chi-square of 63 degrees of freedom is between 30 and
 * 113 but for one time in ten thousand on either side. */
static void check_evenness(void)
{
    enum { BINS = 64, COUNT = 64000 };
    for (int kind = 0; kind < 3; kind++) {
        int bins[BINS] = {0};
        dg_random random;
        for (int i = 0; i < COUNT; i++) {
            char name[32];
            int length = snprintf(name, sizeof name, "%08d.jpg", kind == 0 ? i : 7);
            dg_random_init(&random, kind == 1 ? (uint64_t)i : 3, kind == 2 ? (uint64_t)i : 0, name, (size_t)length);
            double u = dg_random_uniform(&random);
            CHECK(u >= 0 && u < 1);
            bins[(int)(u * BINS)]++;
        }
        double square = 0, expected = (double)COUNT / BINS;
        for (int i = 0; i < BINS; i++)
            square += (bins[i] - expected) * (bins[i] - expected) / expected;
        CHECK(square > 30 && square < 113);
    }
    dg_random random;
    int seen[7] = {0};
    dg_random_init(&random, 0, 0, "", 0);
    for (int i = 0; i < 7000; i++)
        seen[dg_random_below(&random, 7)]++;
    for (int i = 0; i < 7; i++)
        CHECK(abs(seen[i] - 1000) < 150);
    for (int i = 0; i < 100; i++)
        CHECK(dg_random_below(&random, 1) == 0);
}

int main(void)
{
    check_vectors();
    check_stream();
    check_evenness();
    return DONE();
}
