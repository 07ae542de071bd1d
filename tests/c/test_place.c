/* Placing against the formula in double, every instruction set against plain C, and every layout against a naive one. */
#include "check.h"
#include "place_kernels.h"

#include <math.h>
#include <string.h>

static dg_heap *heap;
static dg_error error;
static const double MEAN[3] = {0.485, 0.456, 0.406}, STD[3] = {0.229, 0.224, 0.225};

static int between(int low, int high)
{
    return low + rand() % (high - low + 1);
}

static float half_value(uint16_t half)
{
    int exponent = half >> 10 & 31, mantissa = half & 1023;
    double size = exponent == 31 ? INFINITY : exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return (float)(half & 0x8000 ? -size : size);
}

static float upper_half_value(uint16_t upper)
{
    uint32_t bits = (uint32_t)upper << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* One value of a batch, as a float. */
static float value_at(const void *batch, dg_dtype dtype, size_t i)
{
    switch (dtype) {
    case DG_DTYPE_UINT8: return ((const uint8_t *)batch)[i];
    case DG_DTYPE_FLOAT16: return half_value(((const uint16_t *)batch)[i]);
    case DG_DTYPE_BFLOAT16: return upper_half_value(((const uint16_t *)batch)[i]);
    default: return ((const float *)batch)[i];
    }
}

static dg_image image_new(int width, int height, int channels, int step)
{
    dg_image image;
    CHECK(dg_image_alloc(heap, width, height, channels, step, 8, &image) == DG_OK);
    for (size_t i = 0; i < image.buffer.size; i++)
        image.buffer.data[i] = (uint8_t)(rand() >> 5);
    return image;
}

/* All 256 samples, many means and deviations, against the formula in long double: 2^-24 for each of four roundings. */
static void check_formula(void)
{
    double worst = 0;
    for (int i = 0; i < 20000; i++) {
        double mean = i == 0 ? 0 : i == 1 ? 0.5 : i < 5 ? MEAN[i - 2] : i % 9 ? rand() / (RAND_MAX + 1.0) : between(-300, 300) / 7.0;
        double std = i < 2 ? 1 - 0.5 * i : i < 5 ? STD[i - 2] : exp(12.0 * rand() / RAND_MAX - 8);
        if (i % 4 == 3) /* a mean that is nearly a sample: what is left is small, and must be right all the same */
            mean = between(0, 255) / 255.0 * (1 + 1e-6);
        dg_placement placement;
        uint8_t samples[256];
        float values[256];
        for (int x = 0; x < 256; x++)
            samples[x] = (uint8_t)x;
        CHECK(dg_placement_set(&placement, DG_LAYOUT_NCHW, DG_DTYPE_FLOAT32, 1, &mean, &std, &error) == DG_OK);
        dg_place_generic.to_float32(samples, values, 256, &placement.scaling[0]);
        for (int x = 0; x < 256; x++) {
            long double wanted = ((long double)x / 255 - mean) / std;
            double off = wanted == 0 ? fabs(values[x]) : (double)fabsl((values[x] - wanted) / wanted);
            worst = off > worst ? off : worst;
        }
    }
    CHECK(worst <= 4 * 0x1p-24);
    CHECK(worst > 0x1p-24); /* else this measured nothing */
}

/* The nearest number of so many mantissa bits, halves to even, by arithmetic. */
static double nearest(double value, int bits, int least_exponent, double largest)
{
    int exponent;
    if (value == 0)
        return value;
    frexp(value, &exponent);
    exponent = exponent - bits < least_exponent ? least_exponent : exponent - bits;
    double rounded = ldexp(nearbyint(ldexp(value, -exponent)), exponent);
    return fabs(rounded) > largest ? copysign(INFINITY, rounded) : rounded;
}

/* Scales that reach every exponent, subnormal and infinite ones as well. */
static void check_narrow(const dg_place_functions *functions)
{
    for (int i = 0; i < 3000; i++) {
        double mean = rand() / (RAND_MAX + 1.0), std = ldexp(1 + rand() / (double)RAND_MAX, between(-24, 30)) * (i % 2 ? 1 : -1);
        dg_placement placement;
        uint8_t samples[48];
        uint16_t halves[48], uppers[48];
        float values[48];
        CHECK(dg_placement_set(&placement, DG_LAYOUT_NCHW, DG_DTYPE_FLOAT16, 1, &mean, &std, &error) == DG_OK);
        for (int k = 0; k < 48; k++)
            samples[k] = (uint8_t)between(0, 255);
        functions->to_float32(samples, values, 48, &placement.scaling[0]);
        functions->to_float16(samples, halves, 48, &placement.scaling[0]);
        functions->to_bfloat16(samples, uppers, 48, &placement.scaling[0]);
        int right = 1;
        for (int k = 0; k < 48; k++) {
            right &= half_value(halves[k]) == nearest(values[k], 11, -24, 65504);
            right &= upper_half_value(uppers[k]) == nearest(values[k], 8, -133, 3.3895313892515355e38);
        }
        CHECK(right);
    }
}

/* Halves of the last place, where rounding to even shows, and the last number before infinity. */
static void check_ties(const dg_place_functions *functions)
{
    for (int power = -30; power <= 16; power++) {
        dg_place_scaling scaling;
        uint8_t samples[24];
        uint16_t halves[24], uppers[24];
        for (int base = 0; base < 256; base += 8) {
            for (int i = 0; i < 24; i++) {
                samples[i] = (uint8_t)(base + i % 8);
                scaling.whole[i] = i < 8 ? -4096 : i < 16 ? -256 : -65300;
                scaling.rest[i] = 0;
                scaling.scale[i] = ldexpf(1, power);
            }
            functions->to_float16(samples, halves, 24, &scaling);
            functions->to_bfloat16(samples, uppers, 24, &scaling);
            int right = 1;
            for (int i = 0; i < 24; i++) {
                double value = ldexp(samples[i] - (double)scaling.whole[i], power);
                right &= half_value(halves[i]) == nearest(value, 11, -24, 65504);
                right &= upper_half_value(uppers[i]) == nearest(value, 8, -133, 3.3895313892515355e38);
            }
            CHECK(right);
        }
    }
}

static void check_simd(void)
{
    dg_placement interleaved, planar;
    CHECK(dg_placement_set(&interleaved, DG_LAYOUT_NHWC, DG_DTYPE_FLOAT32, 3, MEAN, STD, &error) == DG_OK);
    CHECK(dg_placement_set(&planar, DG_LAYOUT_NCHW, DG_DTYPE_FLOAT32, 3, MEAN, STD, &error) == DG_OK);
    for (int simd = 0; simd < DG_SIMD_COUNT; simd++) {
        const dg_place_functions *plain = &dg_place_generic, *other = dg_place_table(simd);
        if (!dg_simd_available(simd))
            continue;
        check_narrow(other);
        check_ties(other);
        for (size_t n = 0; n < 200; n++)
            for (int step = 3; step <= 4; step++) {
                const dg_place_scaling *scaling = step == 3 ? &interleaved.scaling[0] : &planar.scaling[n % 3];
                uint8_t *in = malloc(n * step + 1); /* as long as it must be: ASAN sees a byte too many */
                uint8_t *want = malloc(n * 4 + 1), *got = malloc(n * 4 + 1);
                for (size_t i = 0; i < n * step; i++)
                    in[i] = (uint8_t)(rand() >> 5);
                plain->split(in, step, want, want + n, want + 2 * n, n);
                other->split(in, step, got, got + n, got + 2 * n, n);
                CHECK(!memcmp(want, got, 3 * n));
                plain->to_float32(in, (float *)want, n, scaling);
                other->to_float32(in, (float *)got, n, scaling);
                CHECK(!memcmp(want, got, 4 * n));
                plain->to_float16(in, (uint16_t *)want, n, scaling);
                other->to_float16(in, (uint16_t *)got, n, scaling);
                CHECK(!memcmp(want, got, 2 * n));
                plain->to_bfloat16(in, (uint16_t *)want, n, scaling);
                other->to_bfloat16(in, (uint16_t *)got, n, scaling);
                CHECK(!memcmp(want, got, 2 * n));
                free(in);
                free(want);
                free(got);
            }
    }
}

/* A sample as the header says it: channel c of the tensor at (x, y). */
static int sample_at(const dg_image *image, int channels, int x, int y, int c)
{
    const uint8_t *pixel = image->buffer.data + y * dg_image_stride(image) + x * image->step;
    if (image->channels <= 2)
        return pixel[0];
    return channels == 3 ? pixel[c] : (int)((19595L * pixel[0] + 38470L * pixel[1] + 7471L * pixel[2] + 32768) / 65536);
}

static void check_picture(int width, int height, int channels, int step)
{
    static const double TOLERANCE[] = {0, 1 / 1024.0, 1 / 128.0, 4e-7};
    static const size_t BYTES[] = {1, 2, 2, 4};
    dg_image image = image_new(width, height, channels, step);
    for (int dtype = DG_DTYPE_UINT8; dtype <= DG_DTYPE_FLOAT32; dtype++)
        for (int kind = 0; kind < 4; kind++) {
            int layout = kind & 1, out = kind & 2 ? 1 : 3, wrong = 0;
            dg_placement placement;
            CHECK(dg_placement_set(&placement, layout, dtype, out, MEAN, STD, &error) == DG_OK);
            size_t size = dg_placement_size(&placement, width, height);
            CHECK(size == (size_t)width * height * out * BYTES[dtype]);
            void *batch = malloc(size); /* no room for a byte too many */
            memset(batch, 0x5a, size);
            CHECK(dg_place(&placement, &image, batch, &error) == DG_OK);
            for (int y = 0; y < height; y++)
                for (int x = 0; x < width; x++)
                    for (int c = 0; c < out; c++) {
                        size_t i = layout == DG_LAYOUT_NCHW ? ((size_t)c * height + y) * width + x : ((size_t)y * width + x) * out + c;
                        int sample = sample_at(&image, out, x, y, c);
                        double wanted = dtype == DG_DTYPE_UINT8 ? sample : (sample / 255.0 - MEAN[c]) / STD[c];
                        wrong += fabs(value_at(batch, dtype, i) - wanted) > TOLERANCE[dtype] * fmax(fabs(wanted), 1e-3);
                    }
            CHECK(wrong == 0);
            free(batch);
        }
    dg_image_free(&image);
}

static void check_luma(void)
{
    /* PIL.Image.new("RGB", (1, 1), colour).convert("L").getpixel((0, 0)) */
    static const uint8_t COLOURS[][4] = {{255, 0, 0, 76}, {0, 255, 0, 150}, {0, 0, 255, 29}, {255, 255, 255, 255}, {1, 2, 3, 2},
                                         {0, 0, 0, 0},    {200, 100, 50, 124}};
    dg_placement placement;
    CHECK(dg_placement_set(&placement, DG_LAYOUT_NCHW, DG_DTYPE_UINT8, 1, NULL, NULL, &error) == DG_OK);
    for (size_t i = 0; i < sizeof COLOURS / sizeof *COLOURS; i++) {
        dg_image image = image_new(1, 1, 3, 3);
        uint8_t grey;
        memcpy(image.buffer.data, COLOURS[i], 3);
        CHECK(dg_place(&placement, &image, &grey, &error) == DG_OK && grey == COLOURS[i][3]);
        dg_image_free(&image);
    }
}

static dg_status set(int channels, double mean, double std, dg_dtype dtype)
{
    dg_placement placement;
    double means[3] = {0, 0, mean}, stds[3] = {1, 1, std};
    return dg_placement_set(&placement, DG_LAYOUT_NHWC, dtype, channels, means, stds, &error);
}

static void check_refusals(void)
{
    CHECK(set(2, 0, 1, DG_DTYPE_UINT8) == DG_UNSUPPORTED && set(4, 0, 1, DG_DTYPE_FLOAT32) == DG_UNSUPPORTED);
    CHECK(set(3, 0, 0, DG_DTYPE_FLOAT32) == DG_UNSUPPORTED && set(3, 0, 0, DG_DTYPE_UINT8) == DG_OK);
    CHECK(set(3, NAN, 1, DG_DTYPE_FLOAT16) == DG_UNSUPPORTED && set(3, INFINITY, 1, DG_DTYPE_FLOAT32) == DG_UNSUPPORTED);
    CHECK(set(3, 0, NAN, DG_DTYPE_BFLOAT16) == DG_UNSUPPORTED && set(3, 0, INFINITY, DG_DTYPE_FLOAT32) == DG_UNSUPPORTED);
    CHECK(set(3, 0, 1e-42, DG_DTYPE_FLOAT32) == DG_UNSUPPORTED && set(3, 0, 1e42, DG_DTYPE_FLOAT32) == DG_UNSUPPORTED);
    CHECK(set(3, 0, -1, DG_DTYPE_FLOAT32) == DG_OK);
    dg_placement placement;
    dg_image wide;
    uint8_t batch[8] = {0};
    CHECK(dg_placement_set(&placement, DG_LAYOUT_NCHW, DG_DTYPE_UINT8, 1, NULL, NULL, &error) == DG_OK);
    CHECK(dg_image_alloc(heap, 2, 2, 1, 1, 16, &wide) == DG_OK);
    CHECK(dg_place(&placement, &wide, batch, &error) == DG_UNSUPPORTED && batch[0] == 0);
    dg_image_free(&wide);
}

int main(void)
{
    static const int SIZES[][2] = {{1, 1},  {2, 3},  {5, 4},   {7, 1},    {31, 2},   {33, 3},
                                   {34, 2}, {64, 2}, {100, 5}, {1023, 1}, {1025, 2}, {2049, 1}};
    static const int KINDS[][2] = {{1, 1}, {2, 2}, {3, 3}, {3, 4}, {4, 4}};
    srand(1);
    heap = dg_heap_new(0);
    check_formula();
    check_simd();
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        for (size_t k = 0; k < sizeof KINDS / sizeof *KINDS; k++)
            check_picture(SIZES[i][0], SIZES[i][1], KINDS[k][0], KINDS[k][1]);
    check_luma();
    check_refusals();
    dg_heap_free(heap);
    return DONE();
}
