/* SPDX-License-Identifier: MIT
 *
 * Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3; 2011):
 * random numbers as a function of (seed, site, index). They do not depend on how data is
 * distributed over ranks.
 */
#include <math.h>

#include "base.h"

void rf_philox(uint64_t seed, uint64_t counter_low, uint64_t counter_high, uint32_t out[4])
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t c0 = (uint32_t)counter_low, c1 = (uint32_t)(counter_low >> 32);
    uint32_t c2 = (uint32_t)counter_high, c3 = (uint32_t)(counter_high >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

float rf_philox_normal(uint64_t seed, uint64_t site, uint64_t index)
{
    uint32_t r[4];
    rf_philox(seed, index, site, r);
    /* Box-Muller on 32-bit uniforms in (0,1]; in double, so that every libm gives the same float */
    double u = ((double)r[0] + 1.0) / 4294967296.0, v = (double)r[1] / 4294967296.0;
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}

uint64_t rf_philox_below(uint64_t seed, uint64_t site, uint64_t index, uint64_t bound)
{
    uint32_t r[4];
    rf_philox(seed, index, site, r);
    uint64_t word = (uint64_t)r[0] << 32 | r[1];
    return (uint64_t)(((unsigned __int128)word * bound) >> 64);
}
