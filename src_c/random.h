/* Random numbers that depend on what they are for, and on nothing else: Philox-4x64-10 (Salmon, Moraes, Dror, Shaw: "Parallel
 * Random Numbers: As Easy as 1, 2, 3", SC 2011). The key is (seed, epoch), the counter is (block, hash of the name, 0, 0): a sample
 * gets the same numbers whatever thread, rank or order it comes in, and there is no state to save. */
#ifndef DG_RANDOM_H
#define DG_RANDOM_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t key[2], counter[4]; /* of the block to come */
    uint64_t block[4];
    int left; /* numbers of the block not yet given out */
} dg_random;

/* The stream of the sample called `name` (any bytes) in one epoch. */
void dg_random_init(dg_random *random, uint64_t seed, uint64_t epoch, const char *name, size_t length);
/* 64 random bits. */
uint64_t dg_random_next(dg_random *random);
/* At least 0 and less than 1: a multiple of 2^-53. */
double dg_random_uniform(dg_random *random);
/* One of 0 to n - 1, each as likely as the others to n / 2^64; n must not be 0. */
uint64_t dg_random_below(dg_random *random, uint64_t n);

/* The generator's block function, and 64-bit FNV-1a (Fowler, Noll, Vo), which makes a name a number. */
void dg_philox(const uint64_t counter[4], const uint64_t key[2], uint64_t out[4]);
uint64_t dg_hash(const char *name, size_t length);

#endif
