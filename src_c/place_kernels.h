/* The table behind place.h: one set of functions for each instruction set, equal to the last bit. For place*.c and tests. */
#ifndef DG_PLACE_KERNELS_H
#define DG_PLACE_KERNELS_H

#include "color.h"
#include "place.h"

/* Nothing outside the n pixels or values is read or written, and out does not overlap in. */
typedef struct {
    /* n pixels of RGB (step 3) or RGBX, RGBA (step 4) to a row of each colour. */
    void (*split)(const uint8_t *in, int step, uint8_t *red, uint8_t *green, uint8_t *blue, size_t n);
    /* n values; scaling's entries are taken in turn. */
    void (*to_float32)(const uint8_t *in, float *out, size_t n, const dg_place_scaling *scaling);
    void (*to_float16)(const uint8_t *in, uint16_t *out, size_t n, const dg_place_scaling *scaling);
    void (*to_bfloat16)(const uint8_t *in, uint16_t *out, size_t n, const dg_place_scaling *scaling);
} dg_place_functions;

extern const dg_place_functions dg_place_generic;
#ifdef __x86_64__
extern const dg_place_functions dg_place_avx2; /* needs F16C too */
#endif
#ifdef __aarch64__
extern const dg_place_functions dg_place_neon;
#endif

/* The functions of `simd`, or the plain ones where this machine lacks something that they need. */
const dg_place_functions *dg_place_table(dg_simd simd);

#endif
