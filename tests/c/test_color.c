/* Colour: libjpeg's numbers, the values of the contract, and every instruction set equal to plain C at every length. */
#include "check.h"
#include "color_kernels.h"

#include <math.h>
#include <string.h>

enum { MOST = 300, GUARD = 0xa5 };

static uint8_t in[3][MOST * 4], want[MOST * 4 + 64], got[MOST * 4 + 64];

/* Both buffers have their guards before; the same bytes and the same guards after. */
static void begin(void)
{
    memset(want, GUARD, sizeof want);
    memset(got, GUARD, sizeof got);
}

static void compare(size_t bytes)
{
    CHECK(!memcmp(want, got, sizeof want));
    for (size_t i = bytes; i < sizeof got; i++)
        if (got[i] != GUARD)
            CHECK(!"nothing is written behind the row");
}

/* The inputs end where their buffers end, so that ASAN sees a read too far. */
static const void *last(const uint8_t *row, size_t bytes)
{
    static uint8_t *copies[8];
    static int next;
    next = (next + 1) % 8;
    free(copies[next]);
    copies[next] = malloc(bytes ? bytes : 1);
    return memcpy(copies[next], row, bytes);
}

static void check_table(const dg_color_functions *table)
{
    const dg_color_functions *plain = &dg_color_generic;
    static const uint8_t background[3] = {128, 7, 255};
    for (size_t n = 0; n < MOST; n += n < 80 ? 1 : 37) {
        for (int i = 0; i < 3; i++)
            for (size_t k = 0; k < sizeof in[i]; k++)
                in[i][k] = (uint8_t)(rand() >> 7);
        for (int pixel_stride = 3; pixel_stride <= 4; pixel_stride++) {
            const uint8_t *y = last(in[0], n), *cb = last(in[1], n), *cr = last(in[2], n), *rgba = last(in[0], 4 * n);
            begin();
            plain->ycc_to_rgb(y, cb, cr, want, n, pixel_stride);
            table->ycc_to_rgb(y, cb, cr, got, n, pixel_stride);
            compare(n * pixel_stride);
            begin();
            plain->rgba_over(rgba, background, want, n, pixel_stride);
            table->rgba_over(rgba, background, got, n, pixel_stride);
            compare(n * pixel_stride);
            begin();
            plain->grey_to_rgb(y, want, n, pixel_stride);
            table->grey_to_rgb(y, got, n, pixel_stride);
            compare(n * pixel_stride);
        }
        const uint8_t *rgb = last(in[0], 3 * n), *rgbx = last(in[1], 4 * n);
        begin();
        plain->rgb_to_rgbx(rgb, want, n);
        table->rgb_to_rgbx(rgb, got, n);
        compare(4 * n);
        begin();
        plain->rgbx_to_rgb(rgbx, want, n);
        table->rgbx_to_rgb(rgbx, got, n);
        compare(3 * n);
        const uint16_t *wide = last(in[2], 2 * n);
        begin();
        plain->depth_16_to_8(wide, want, n);
        table->depth_16_to_8(wide, got, n);
        compare(n);
    }
}

/* Every pair of chroma values against the formula in double, with coefficients to 16 bits as libjpeg has them (1.772 *
 * -125 is a half, and goes down for that reason). */
static void check_ycc(const dg_color_functions *table)
{
    enum { Y = 5 };
    static const uint8_t levels[Y] = {0, 1, 100, 200, 255};
    uint8_t cb[256], cr[256], y[256], rgb[256 * 3];
    int far = 0;
    for (int i = 0; i < 256; i++)
        cr[i] = (uint8_t)i;
    for (int b = 0; b < 256; b++)
        for (int l = 0; l < Y; l++) {
            memset(cb, b, sizeof cb);
            memset(y, levels[l], sizeof y);
            table->ycc_to_rgb(y, cb, cr, rgb, 256, 3);
            for (int r = 0; r < 256; r++) {
                double red = levels[l] + floor(91881 / 65536.0 * (r - 128) + 0.5);
                double blue = levels[l] + floor(116130 / 65536.0 * (b - 128) + 0.5);
                double green = levels[l] - 0.344136 * (b - 128) - 0.714136 * (r - 128);
                red = red < 0 ? 0 : red > 255 ? 255 : red;
                blue = blue < 0 ? 0 : blue > 255 ? 255 : blue;
                green = green < 0 ? 0 : green > 255 ? 255 : green;
                far += rgb[3 * r] != red || rgb[3 * r + 2] != blue || fabs(rgb[3 * r + 1] - green) > 0.51;
            }
        }
    CHECK(far == 0);
}

static void check_over(void)
{
    static const uint8_t grey[3] = {128, 128, 128}, white[3] = {255, 255, 255};
    static const uint8_t pixels[4][4] = {{255, 0, 0, 0}, {0, 255, 0, 128}, {200, 100, 50, 128}, {9, 8, 7, 255}};
    uint8_t rgb[12], la[65536 * 2];
    dg_alpha_over(pixels[0], 4, grey, rgb, 4, 3);
    static const uint8_t on_grey[12] = {128, 128, 128, 64, 192, 64, 164, 114, 89, 9, 8, 7};
    CHECK(!memcmp(rgb, on_grey, 12));
    dg_alpha_over(pixels[0], 4, white, rgb, 4, 3);
    CHECK(rgb[0] == 255 && rgb[1] == 255 && rgb[2] == 255 && rgb[3] == 127 && rgb[4] == 255 && rgb[5] == 127);
    static uint8_t out[65536 * 3], out_4[65536 * 4], rgba[65536 * 4];
    for (int i = 0; i < 65536; i++) {
        la[2 * i] = rgba[4 * i] = rgba[4 * i + 1] = rgba[4 * i + 2] = (uint8_t)(i >> 8);
        la[2 * i + 1] = rgba[4 * i + 3] = (uint8_t)i;
    }
    dg_alpha_over(la, 2, grey, out, 65536, 3);
    dg_alpha_over(rgba, 4, grey, out_4, 65536, 4);
    int wrong = 0;
    for (int i = 0; i < 65536; i++) {
        double alpha = (i & 255) / 255.0;
        wrong += out[3 * i] != floor((i >> 8) * alpha + 128 * (1 - alpha) + 0.5) || out[3 * i + 2] != out[3 * i] ||
                 out_4[4 * i + 1] != out[3 * i] || out_4[4 * i + 3] != 255;
    }
    CHECK(wrong == 0);
}

int main(void)
{
    srand(1);
    for (int simd = 0; simd < DG_SIMD_COUNT; simd++)
        if (dg_simd_available(simd)) {
            check_table(dg_color_table(simd));
            check_ycc(dg_color_table(simd));
        }
    CHECK(dg_simd_available(DG_SIMD_GENERIC) && dg_simd_available(dg_simd_choice()));
    CHECK(!dg_simd_available(DG_SIMD_COUNT));
    const char *wanted = getenv("DATAGO_SIMD");
    CHECK(!wanted || strcmp(wanted, "generic") || dg_simd_choice() == DG_SIMD_GENERIC);
    check_over();
    uint16_t wide[3] = {0x00ff, 0xff00, 0x1234};
    uint8_t bytes[4], pixel[3] = {1, 2, 3}, grey = 9;
    dg_depth_16_to_8(wide, bytes, 3);
    CHECK(bytes[0] == 0 && bytes[1] == 0xff && bytes[2] == 0x12);
    dg_rgb_to_rgbx(pixel, bytes, 1);
    CHECK(bytes[0] == 1 && bytes[1] == 2 && bytes[2] == 3 && bytes[3] == 255);
    dg_grey_to_rgb(&grey, bytes, 1, 4);
    CHECK(bytes[0] == 9 && bytes[1] == 9 && bytes[2] == 9 && bytes[3] == 255);
    dg_rgbx_to_rgb(bytes, pixel, 1);
    CHECK(pixel[0] == 9 && pixel[2] == 9);
    return DONE();
}
