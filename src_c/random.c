#include "random.h"

#include <string.h>

enum { ROUNDS = 10 };

void dg_philox(const uint64_t counter[4], const uint64_t key[2], uint64_t out[4])
{
    uint64_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < ROUNDS; round++) {
        unsigned __int128 first = (unsigned __int128)c0 * UINT64_C(0xD2E7470EE14C6C93);
        unsigned __int128 second = (unsigned __int128)c2 * UINT64_C(0xCA5A826395121157);
        c0 = (uint64_t)(second >> 64) ^ c1 ^ k0;
        c1 = (uint64_t)second;
        c2 = (uint64_t)(first >> 64) ^ c3 ^ k1;
        c3 = (uint64_t)first;
        k0 += UINT64_C(0x9E3779B97F4A7C15); /* the golden ratio, and the square root of 3, less 1 */
        k1 += UINT64_C(0xBB67AE8584CAA73B);
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

uint64_t dg_hash(const char *name, size_t length)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (uint8_t)name[i]) * UINT64_C(0x100000001B3);
    return hash;
}

void dg_random_init(dg_random *random, uint64_t seed, uint64_t epoch, const char *name, size_t length)
{
    memset(random, 0, sizeof *random);
    random->key[0] = seed;
    random->key[1] = epoch;
    random->counter[1] = dg_hash(name, length);
}

uint64_t dg_random_next(dg_random *random)
{
    if (random->left == 0) {
        dg_philox(random->counter, random->key, random->block);
        random->counter[0]++;
        random->left = 4;
    }
    return random->block[4 - random->left--];
}

double dg_random_uniform(dg_random *random) { return (double)(dg_random_next(random) >> 11) * 0x1p-53; }

uint64_t dg_random_below(dg_random *random, uint64_t n)
{
    return (uint64_t)((unsigned __int128)dg_random_next(random) * n >> 64);
}
