/* SPDX-License-Identifier: MIT
 *
 * Tables of the dynamic maps, and codes of blocks as loops that vectorise; see codes.h.
 */
#include "codes.h"

#include "host_half.h"

#define LEVEL_FUNCTION static
#define EXACT
#include "shaders/dynamic_level.h"

void rf_codes_make(bool has_signs, struct rf_codes *out)
{
    const int count = has_signs ? 129 : 256; /* levels from 0 upwards */
    float up[256];
    for (int n = 0; n < count; n++)
        up[n] = dynamic_level(has_signs ? 1 : 2, (float)n);
    for (int c = 0; c < 256; c++)
        out->levels[c] = !has_signs ? up[c] : c < 127 ? -up[127 - c] : up[c - 127];
    out->has_signs = has_signs;
    out->first = (bits_of((up[0] + up[1]) / 2) >> 16) - 1;
    uint32_t cell = 0;
    for (int n = 0; n < count; n++) {
        const uint32_t border = n + 1 < count ? bits_of((up[n] + up[n + 1]) / 2) : 0;
        const uint32_t end = n + 1 < count ? (border >> 16) - out->first : RF_CODE_CELLS;
        for (; cell < end; cell++)
            out->cells[cell] = (uint32_t)n << 16;
        if (n + 1 < count)
            out->cells[cell++] = ((uint32_t)n << 16) + 0xffffu - (border & 0xffffu);
    }
}

/* ---- a block -------------------------------------------------------------------------------- */

RF_LOOPS void decode_block(const struct rf_codes *codes, const uint8_t *restrict block,
                           float *restrict values)
{
    float scale;
    memcpy(&scale, block + RF_STATE_BLOCK, sizeof(scale));
    for (int e = 0; e < RF_STATE_BLOCK; e++)
        values[e] = codes->levels[block[e]] * scale;
}

/* The largest magnitude, as bits: their order is that of the magnitudes. */
RF_LOOPS uint32_t largest_of(const float *restrict values)
{
    uint32_t largest = 0;
    for (int e = 0; e < RF_STATE_BLOCK; e++) {
        const uint32_t bits = bits_of(values[e]) & 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

/* Two equally near levels: the lower one has the smaller magnitude for x > 0, and the larger for x
 * < 0, whose bits are therefore increased by one. */
RF_LOOPS void encode_block(const struct rf_codes *codes, const float *restrict values,
                           uint8_t *restrict block)
{
    const uint32_t one = 0x3f800000u, least = codes->first << 16, bits = largest_of(values);
    const float scale = float_of(bits);
    const float inverse = 1 / (scale > 0x1p-126f ? scale : 0x1p-126f);
    const int32_t lowest = codes->has_signs ? 127 : 0;
    for (int e = 0; e < RF_STATE_BLOCK; e++) {
        const uint32_t x = bits_of(values[e] * inverse), sign = x >> 31;
        uint32_t size = x & 0x7fffffffu;
        size = size < one ? size : one;
        size = (size > least ? size : least) - least + sign;
        const uint32_t cell = codes->cells[(int32_t)(size >> 16)];
        const int32_t number = (int32_t)((cell + (size & 0xffffu)) >> 16);
        const int32_t code = lowest + ((number ^ -(int32_t)sign) + (int32_t)sign);
        block[e] = (uint8_t)(code > 0 ? code : 0);
    }
    memcpy(block + RF_STATE_BLOCK, &bits, sizeof(bits));
}

#define LOOPS(name, on)                                                                            \
    on static void write_##name(const struct rf_codes *codes, const float *values, void *block)    \
    {                                                                                              \
        encode_block(codes, values, block);                                                        \
    }                                                                                              \
    on static void read_##name(const struct rf_codes *codes, const void *block, float *values)     \
    {                                                                                              \
        decode_block(codes, block, values);                                                        \
    }
LOOPS(plain, )
LOOPS(avx2, RF_TABLES_ON_AVX2)
LOOPS(avx512, RF_TABLES_ON_AVX512)

const struct rf_code_loops rf_code_loops[RF_HOST_PATHS] = {
    {write_plain, read_plain}, {write_avx2, read_avx2}, {write_avx512, read_avx512}};

void rf_codes_write(const struct rf_codes *codes, const float *values, int count, void *block)
{
    float all[RF_STATE_BLOCK] = {0};
    memcpy(all, values, (size_t)count * sizeof(*all));
    rf_code_loops[RF_HOST_PLAIN].write(codes, all, block);
}

void rf_codes_read(const struct rf_codes *codes, const void *block, int count, float *values)
{
    float all[RF_STATE_BLOCK];
    rf_code_loops[RF_HOST_PLAIN].read(codes, block, all);
    memcpy(values, all, (size_t)count * sizeof(*all));
}
