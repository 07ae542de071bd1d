/* The plain functions, which are the reference, and the way of a picture: in pieces that stay in the first cache. */
#include "place_kernels.h"

#include <math.h>
#include <string.h>

#ifdef __x86_64__
#include <cpuid.h>
#endif

enum { PIECE = 960 }; /* pixels worked on at once: a multiple of what the fast loops take, which leaves them no rest */

/* ---- plain functions ---- */

static void split(const uint8_t *in, int step, uint8_t *red, uint8_t *green, uint8_t *blue, size_t n)
{
    for (size_t i = 0; i < n; i++, in += step) {
        red[i] = in[0];
        green[i] = in[1];
        blue[i] = in[2];
    }
}

static inline float scaled(uint8_t sample, const dg_place_scaling *scaling, size_t i)
{
    float from_whole = (float)sample - scaling->whole[i], distance = from_whole - scaling->rest[i];
    return distance * scaling->scale[i];
}

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline uint16_t half(float value)
{
    uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size >= 0x477ff000) /* 65520, half-way between the largest number and what would be next */
        return (uint16_t)(sign | 0x7c00);
    if (size < 0x38800000) /* 2^-14: below, steps are those of 0.5 in float32, which rounds by being added */
        return (uint16_t)(sign | (bits_of(fabsf(value) + 0.5f) - 0x3f000000));
    return (uint16_t)(sign | (size + 0xfff + (size >> 13 & 1) - 0x38000000) >> 13);
}

static inline uint16_t upper_half(float value)
{
    uint32_t bits = bits_of(value);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void to_float32(const uint8_t *in, float *out, size_t n, const dg_place_scaling *scaling)
{
    for (size_t i = 0; i < n; i++)
        out[i] = scaled(in[i], scaling, i % DG_PLACE_PATTERN);
}

static void to_float16(const uint8_t *in, uint16_t *out, size_t n, const dg_place_scaling *scaling)
{
    for (size_t i = 0; i < n; i++)
        out[i] = half(scaled(in[i], scaling, i % DG_PLACE_PATTERN));
}

static void to_bfloat16(const uint8_t *in, uint16_t *out, size_t n, const dg_place_scaling *scaling)
{
    for (size_t i = 0; i < n; i++)
        out[i] = upper_half(scaled(in[i], scaling, i % DG_PLACE_PATTERN));
}

const dg_place_functions dg_place_generic = {split, to_float32, to_float16, to_bfloat16};

const dg_place_functions *dg_place_table(dg_simd simd)
{
#ifdef __x86_64__
    unsigned a, b, c, d;
    if (simd == DG_SIMD_AVX2 && __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C)
        return &dg_place_avx2;
#endif
#ifdef __aarch64__
    if (simd == DG_SIMD_NEON)
        return &dg_place_neon;
#endif
    (void)simd;
    return &dg_place_generic;
}

/* ---- the way of a picture ---- */

static size_t value_size(dg_dtype dtype) { return dtype == DG_DTYPE_UINT8 ? 1 : dtype == DG_DTYPE_FLOAT32 ? 4 : 2; }

dg_status dg_placement_set(dg_placement *placement, dg_layout layout, dg_dtype dtype, int channels, const double *mean,
                           const double *std, dg_error *error)
{
    *placement = (dg_placement){.layout = layout, .dtype = dtype, .channels = channels};
    if (channels != 1 && channels != 3)
        return dg_fail(error, DG_UNSUPPORTED, "%d channels: pictures are placed with 1 or 3", channels);
    for (int c = 0; c < channels && dtype != DG_DTYPE_UINT8; c++) {
        double whole = rint(255 * mean[c]), rest = 255 * mean[c] - whole, scale = 1 / (255 * std[c]);
        if (!isfinite((float)whole) || !isnormal((float)scale))
            return dg_fail(error, DG_UNSUPPORTED, "mean %g and std %g make no finite values", mean[c], std[c]);
        int interleaved = layout == DG_LAYOUT_NHWC && channels == 3;
        dg_place_scaling *scaling = &placement->scaling[interleaved ? 0 : c];
        for (int i = interleaved ? c : 0; i < DG_PLACE_PATTERN; i += interleaved ? 3 : 1) {
            scaling->whole[i] = (float)whole;
            scaling->rest[i] = (float)rest;
            scaling->scale[i] = (float)scale;
        }
    }
    return DG_OK;
}

size_t dg_placement_size(const dg_placement *placement, int width, int height)
{
    return (size_t)width * height * placement->channels * value_size(placement->dtype);
}

static void put(const dg_place_functions *functions, const dg_placement *placement, int c, const uint8_t *in, uint8_t *out,
                size_t n)
{
    const dg_place_scaling *scaling = &placement->scaling[c];
    switch (placement->dtype) {
    case DG_DTYPE_UINT8: memcpy(out, in, n); break;
    case DG_DTYPE_FLOAT16: functions->to_float16(in, (uint16_t *)out, n, scaling); break;
    case DG_DTYPE_BFLOAT16: functions->to_bfloat16(in, (uint16_t *)out, n, scaling); break;
    case DG_DTYPE_FLOAT32: functions->to_float32(in, (float *)out, n, scaling); break;
    }
}

/* n samples of `out` from n pixels of `in`: the first channel of each. */
static void pick(const uint8_t *in, int step, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = in[i * step];
}

static void luma(const uint8_t *red, const uint8_t *green, const uint8_t *blue, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)((19595u * red[i] + 38470u * green[i] + 7471u * blue[i] + 32768) >> 16);
}

/* n pixels, whose places are `plane` bytes apart from channel to channel. */
static void place_planes(const dg_place_functions *functions, const dg_placement *placement, const dg_image *image,
                         const uint8_t *in, uint8_t *out, size_t plane, size_t n)
{
    uint8_t rows[3][PIECE];
    int grey = image->channels <= 2;
    if (grey)
        pick(in, image->step, rows[0], n);
    else
        functions->split(in, image->step, rows[0], rows[1], rows[2], n);
    if (!grey && placement->channels == 1)
        luma(rows[0], rows[1], rows[2], rows[0], n);
    for (int c = 0; c < placement->channels; c++, out += plane)
        put(functions, placement, c, rows[grey ? 0 : c], out, n);
}

static void place_pixels(const dg_place_functions *functions, const dg_placement *placement, const dg_image *image,
                         const uint8_t *in, uint8_t *out, size_t n)
{
    uint8_t grey[PIECE], row[3 * PIECE];
    if (image->channels <= 2) {
        pick(in, image->step, grey, n);
        dg_grey_to_rgb(grey, row, n, 3);
        in = row;
    } else if (image->step == 4) {
        dg_rgbx_to_rgb(in, row, n);
        in = row;
    }
    put(functions, placement, 0, in, out, 3 * n);
}

dg_status dg_place(const dg_placement *placement, const dg_image *image, void *destination, dg_error *error)
{
    const dg_place_functions *functions = dg_place_table(dg_simd_choice());
    size_t count = (size_t)image->width * image->height, size = value_size(placement->dtype); /* there is nothing between rows */
    int planes = placement->layout == DG_LAYOUT_NCHW || placement->channels == 1;
    const uint8_t *in = image->buffer.data;
    uint8_t *out = destination;
    if (image->depth != 8)
        return dg_fail(error, DG_UNSUPPORTED, "%d-bit samples have no place in a batch", image->depth);
    for (size_t x = 0, n; x < count; x += n, in += n * image->step, out += n * (planes ? size : 3 * size)) {
        n = count - x < PIECE ? count - x : PIECE;
        if (planes)
            place_planes(functions, placement, image, in, out, count * size, n);
        else
            place_pixels(functions, placement, image, in, out, n);
    }
    return DG_OK;
}
