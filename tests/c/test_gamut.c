/* The expected shift of colours: none far from the limits, the textbook's value for grain at a limit. */
#include "check.h"
#include "gamut.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 4096 };

/* Grain of deviation `deviation` around `level`, as a sum of twelve uniform numbers. */
static void grain(uint8_t *row, double level, double deviation)
{
    for (int i = 0; i < WIDTH; i++) {
        double sum = -6;
        for (int k = 0; k < 12; k++)
            sum += rand() / (RAND_MAX + 1.0);
        double value = level + deviation * sum;
        row[i] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value + 0.5);
    }
}

static double shift(dg_gamut *gamut, double level, double deviation, int blue_level, float scale)
{
    static uint8_t luma[WIDTH], blue[WIDTH], red[WIDTH];
    memset(blue, blue_level, WIDTH);
    memset(red, 128, WIDTH);
    srand(7);
    dg_gamut_begin(gamut, scale);
    for (int row = 0; row < 40; row++) {
        grain(luma, level, deviation);
        CHECK(dg_gamut_look(gamut, luma, 1, blue, red, WIDTH) == DG_OK);
    }
    return dg_gamut_shift(gamut);
}

int main(void)
{
    dg_gamut gamut = {0};
    dg_gamut_begin(&gamut, 2);
    CHECK(dg_gamut_shift(&gamut) == 0);
    CHECK(shift(&gamut, 128, 9, 128, 2) == 0); /* grey in the middle */
    /* Blue at 100 + 1.772 * (72 - 128) = 0.8, deviation 8: 8 * (phi(0.1) - 0.1 * (1 - Phi(0.1))) = 2.81, less what the means of
     * eight still scatter. */
    double here = shift(&gamut, 100, 8, 72, 1);
    CHECK(here > 1.8 && here < 2.81);
    double half = shift(&gamut, 100, 4, 72, 2); /* half the grain, seen at half the size: the means scatter less */
    CHECK(half > here && half < 2.81);
    CHECK(fabs(shift(&gamut, 155, 8, 184, 1) - here) < 0.1); /* 255.2: the same at the other end */
    CHECK(shift(&gamut, 118, 8, 72, 1) < 0.1); /* 32.8 from the limit */
    dg_gamut_look(&gamut, (const uint8_t *)"", 1, (const uint8_t *)"", (const uint8_t *)"", 0);
    dg_gamut_free(&gamut);
    return DONE();
}
