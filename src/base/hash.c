/* SPDX-License-Identifier: MIT
 *
 * A 32-bit hash for contracts and checksums: FNV-1a with the final mix of MurmurHash3. It detects
 * accidental changes, not attacks.
 */
#include "base.h"

uint32_t rf_hash32(const void *data, size_t bytes, uint32_t seed)
{
    const uint8_t *p = data;
    uint32_t h = 2166136261u ^ seed;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ p[i]) * 16777619u;
    h ^= h >> 16;
    h *= 0x85ebca6bu;
    h ^= h >> 13;
    h *= 0xc2b2ae35u;
    return h ^ (h >> 16);
}
