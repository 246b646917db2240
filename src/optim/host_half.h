/* SPDX-License-Identifier: MIT
 *
 * Converts blocks of 64 elements between memory and f32, without branches, so that the loops
 * vectorise. The conversions have the same operations as shaders/convert.glsl and round.glsl.
 * Included by host_block.h and host_squares.c.
 */
#ifndef RF_OPTIM_HOST_HALF_H
#define RF_OPTIM_HOST_HALF_H

#include <math.h>
#include <string.h>

#include "host.h"

enum { GRAIN = 64 };       /* elements of a block, of a decay word, and of a division unit */
enum { SPAN = 8 * GRAIN }; /* most elements processed at once: they fit in the L1 cache */

/* Callers' arrays may have any alignment and any declared type. */
typedef float f32_place __attribute__((aligned(1), may_alias));
typedef uint16_t u16_place __attribute__((aligned(1), may_alias));

RF_LOOPS uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

RF_LOOPS float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

RF_LOOPS float f16_to_f32(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const int32_t rest = half & 0x7fff;
    const uint32_t normal = ((uint32_t)rest << 13) + 0x38000000u;
    const uint32_t special = (uint32_t)rest << 13 | 0x7f800000u;
    const uint32_t small = bits_of((float)rest * 0x1p-24f);
    const uint32_t finite = rest < 0x400 ? small : normal;
    return float_of((rest >= 0x7c00 ? special : finite) | sign);
}

RF_LOOPS uint16_t f32_to_bf16(float x)
{
    const uint32_t u = bits_of(x);
    const uint32_t rounded = u + 0x7fffu + (u >> 16 & 1u);
    return (uint16_t)(((int32_t)(u & 0x7fffffffu) > 0x7f800000 ? u | 0x400000u : rounded) >> 16);
}

RF_LOOPS uint16_t f32_to_f16(float x)
{
    const uint32_t u = bits_of(x), sign = u >> 16 & 0x8000u;
    const int32_t a = (int32_t)(u & 0x7fffffffu);
    const uint32_t shifted = (uint32_t)a - 0x38000000u;
    const uint32_t normal = (shifted + 0xfffu + (shifted >> 13 & 1u)) >> 13;
    /* Next to 1/2 the last bit of an f32 is 2^-24, f16's smallest step, so the addition rounds. */
    const uint32_t below = (uint32_t)(a < 0x38800000 ? a : 0x38800000);
    const uint32_t small = bits_of(float_of(below) + 0.5f) - 0x3f000000u;
    const uint32_t nan = 0x7e00u | ((uint32_t)a >> 13 & 0x1ffu);
    const uint32_t special = a > 0x7f800000 ? nan : 0x7c00u;
    const uint32_t finite = a < 0x38800000 ? small : normal;
    return (uint16_t)((a >= 0x47800000 ? special : finite) | sign);
}

/* Rounds up with the probability given by the dropped bits. */
RF_LOOPS uint16_t f32_to_bf16_random(float x, uint32_t random)
{
    const uint32_t u = bits_of(x), nearest = f32_to_bf16(x);
    const bool finite = (int32_t)(u & 0x7fffffffu) < 0x7f800000;
    return (uint16_t)(finite ? (u + (random >> 16)) >> 16 : nearest);
}

RF_LOOPS uint16_t f32_to_f16_random(float x, uint32_t random)
{
    const uint32_t u = bits_of(x), sign = u >> 16 & 0x8000u, nearest = f32_to_f16(x);
    const int32_t a = (int32_t)(u & 0x7fffffffu);
    const uint32_t normal = ((uint32_t)a + (random >> 19) - 0x38000000u) >> 13;
    /* Subnormal f16 numbers are multiples of 2^-24. */
    const float count = float_of((uint32_t)a) * 0x1p24f;
    const float most = count < 2048.0f ? count : 2048.0f;
    const int32_t whole = (int32_t)most;
    const float chance = (float)(int32_t)(random >> 8) * 0x1p-24f;
    const uint32_t small = (uint32_t)(whole + (chance < count - (float)whole ? 1 : 0));
    const uint32_t finite = (a < 0x38800000 ? small : normal) | sign;
    return (uint16_t)(a >= 0x47800000 ? nearest : finite);
}

/* The number of blocks in n elements, the last one possibly partial. */
RF_LOOPS int blocks_of(int64_t n)
{
    return (int)((n + GRAIN - 1) / GRAIN);
}

/* Elements i to i + n - 1 of an array as blocks: in place, or for a partial block in `buffer`,
 * padded with zeros. */
RF_LOOPS void *reach(void *array, size_t size, int64_t i, int64_t n, void *buffer)
{
    char *at = (char *)array + (size_t)i * size;
    if (n % GRAIN == 0)
        return at;
    memset(buffer, 0, GRAIN * size);
    memcpy(buffer, at, (size_t)n * size);
    return buffer;
}

/* Copies elements that were processed in `buffer` back to the array. */
RF_LOOPS void bring_back(void *array, size_t size, int64_t i, int64_t n, const void *buffer)
{
    if (n % GRAIN != 0)
        memcpy((char *)array + (size_t)i * size, buffer, (size_t)n * size);
}

RF_LOOPS void widen(float *restrict to, const u16_place *restrict from, enum rf_dtype type,
                    int blocks)
{
    if (type == RF_F16)
        for (int e = 0; e < blocks * GRAIN; e++)
            to[e] = f16_to_f32(from[e]);
    else
        for (int e = 0; e < blocks * GRAIN; e++)
            to[e] = float_of((uint32_t)from[e] << 16);
}

/* random: a word for each element; NULL: rounds to nearest. */
RF_LOOPS void narrow(u16_place *restrict to, const f32_place *restrict from, enum rf_dtype type,
                     int blocks, const uint32_t *restrict random)
{
    const int count = blocks * GRAIN;
    if (random && type == RF_F16)
        for (int e = 0; e < count; e++)
            to[e] = f32_to_f16_random(from[e], random[e]);
    else if (random)
        for (int e = 0; e < count; e++)
            to[e] = f32_to_bf16_random(from[e], random[e]);
    else if (type == RF_F16)
        for (int e = 0; e < count; e++)
            to[e] = f32_to_f16(from[e]);
    else
        for (int e = 0; e < count; e++)
            to[e] = f32_to_bf16(from[e]);
}

/* Elements of an f32, f16 or bf16 array as f32: whole blocks, or a partial one. */
RF_LOOPS f32_place *take(void *array, enum rf_dtype type, int64_t i, int64_t n, float *buffer)
{
    uint16_t half[GRAIN];
    if (type == RF_F32)
        return reach(array, sizeof(float), i, n, buffer);
    widen(buffer, reach(array, sizeof(*half), i, n, half), type, blocks_of(n));
    return buffer;
}

/* Writes elements back from `from`. */
RF_LOOPS void put(void *array, enum rf_dtype type, int64_t i, int64_t n, const f32_place *from,
                  const uint32_t *random)
{
    uint16_t half[GRAIN];
    if (type == RF_F32) {
        bring_back(array, sizeof(float), i, n, from);
    } else {
        u16_place *to = n % GRAIN == 0 ? (u16_place *)array + i : half;
        narrow(to, from, type, blocks_of(n), random);
        bring_back(array, sizeof(*half), i, n, half);
    }
}

#endif
