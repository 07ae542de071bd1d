#include "gamut.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    GROUP = 8,   /* neighbouring chroma samples looked at together … */
    GAP = 32,    /* … and the distance from one group to the next */
    NEAR = 20,   /* levels from 0 or 255 within which grain is thought to reach the limit */
    BINS = 256,  /* of grain, a sixteenth of a level each */
    STEPS = 16,  /* table entries for each standard deviation … */
    FURTHEST = 4 /* … up to this many */
};

typedef struct {
    float mean[3]; /* red, green, blue; may be outside 0 to 255 */
    float grain;   /* standard deviation of the luma, without what changes slowly */
} group;

static float excess_table[STEPS * FURTHEST + 1];
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void fill_table(void)
{
    for (int i = 0; i <= STEPS * FURTHEST; i++) {
        double z = (double)i / STEPS;
        excess_table[i] = (float)(exp(-z * z / 2) / sqrt(2 * M_PI) - z * 0.5 * erfc(z / M_SQRT2));
    }
}

/* What clipping at a limit `distance` away adds to the mean. It is the same from inside and outside. */
static float excess(float distance, float deviation)
{
    float z = fabsf(distance) / deviation * STEPS;
    return z < STEPS * FURTHEST ? deviation * excess_table[(int)(z + 0.5f)] : 0;
}

void dg_gamut_begin(dg_gamut *gamut, float scale)
{
    pthread_once(&table_once, fill_table);
    gamut->near = gamut->looked_at = 0;
    gamut->scale = scale;
}

void dg_gamut_free(dg_gamut *gamut) { dg_scratch_free(&gamut->groups); }

dg_status dg_gamut_look(dg_gamut *gamut, const uint8_t *luma, int ratio, const uint8_t *blue, const uint8_t *red, int width)
{
    for (int x = 0; x + GROUP <= width; x += GAP) {
        const uint8_t *y = luma + x * ratio;
        int count = GROUP * ratio, level = 0, cb = 0, cr = 0;
        for (int i = 0; i < count; i++)
            level += y[i];
        for (int i = 0; i < GROUP; i++)
            cb += blue[x + i], cr += red[x + i];
        float mean = (float)level / count, mean_cb = (float)cb / GROUP - 128, mean_cr = (float)cr / GROUP - 128;
        group now = {{mean + 1.402f * mean_cr, mean - 0.344136f * mean_cb - 0.714136f * mean_cr, mean + 1.772f * mean_cb}, 0};
        gamut->looked_at++;
        int near = 0;
        for (int c = 0; c < 3; c++)
            near |= now.mean[c] < NEAR || now.mean[c] > 255 - NEAR;
        if (!near)
            continue;
        int squares = 0; /* of second differences, whose variance is six times that of the grain */
        for (int i = 1; i < count - 1; i++) {
            int bend = y[i - 1] - 2 * y[i] + y[i + 1];
            squares += bend * bend;
        }
        now.grain = sqrtf((float)squares / (6 * (count - 2)));
        if (dg_scratch_grow(&gamut->groups, (gamut->near + 1) * sizeof(group)) != DG_OK)
            return DG_NO_MEMORY;
        ((group *)gamut->groups.data)[gamut->near++] = now;
    }
    return DG_OK;
}

/* The median grain of the groups. */
static float median_grain(const group *groups, size_t count)
{
    size_t bins[BINS] = {0}, seen = 0;
    int bin = 0;
    for (size_t i = 0; i < count; i++) {
        int place = (int)(groups[i].grain * 16);
        bins[place < BINS ? place : BINS - 1]++;
    }
    while (bin < BINS - 1 && (seen += bins[bin]) * 2 < count)
        bin++;
    return (bin + 0.5f) / 16;
}

double dg_gamut_shift(const dg_gamut *gamut)
{
    const group *groups = (const group *)gamut->groups.data;
    double shift[3] = {0}, largest = 0;
    if (gamut->near == 0)
        return 0;
    float most = 1.5f * median_grain(groups, gamut->near); /* more than that is texture */
    for (size_t i = 0; i < gamut->near; i++) {
        float deviation = (groups[i].grain < most ? groups[i].grain : most) * gamut->scale;
        for (int c = 0; c < 3 && deviation > 0; c++)
            shift[c] += excess(groups[i].mean[c], deviation) - excess(255 - groups[i].mean[c], deviation);
    }
    for (int c = 0; c < 3; c++)
        largest = fabs(shift[c]) > largest ? fabs(shift[c]) : largest;
    return largest / (double)gamut->looked_at;
}
