/* SPDX-License-Identifier: MIT
 *
 * Elements of a quantised matrix; the layout is that of ringforge/quantize.h. The includer defines
 * PACKED, its words; PACKED_BLOCKS, the offset in words of the blocks' numbers; and for NF4
 * PACKED_LARGEST, the offset of the numbers of groups of blocks, and PACKED_OFFSET. Multiplied and
 * added as on the host, in f32. LEVELS: the subgroup's invocations, 4 to 16, which then keep the
 * levels in registers.
 */
const uint BLOCK = 64, GROUP = 256;

#ifdef QUANTIZED_NF4
shared float codes[256]; /* the value of each */
#ifdef LEVELS
/* Invocation i has levels i, i + LEVELS, ... CPU drivers read memory lane by lane; a shuffle is one
 * instruction of the CPU. */
float kept_levels[16 / LEVELS];
float level(uint i)
{
    float x = subgroupShuffle(kept_levels[0], i % LEVELS);
    [[unroll]] for (uint r = 1; r < 16 / LEVELS; r++) {
        const float other = subgroupShuffle(kept_levels[r], i % LEVELS);
        x = i / LEVELS == r ? other : x;
    }
    return x;
}
#else
shared float levels[16];
float level(uint i)
{
    return levels[i];
}
#endif

void fill_tables(uint id, uint lanes)
{
    const float level_values[16] = float[16](
#include "nf4_levels.h"
    );
    const float code_values[128] = float[128](
#include "dynamic_map.h"
    );
    for (uint i = id; i < 256; i += lanes) {
        const float x = code_values[i > 127 ? i - 128 : 126 - min(i, 126)];
        codes[i] = i > 127 ? x : i == 127 ? 0 : -x;
#ifndef LEVELS
        if (i < 16)
            levels[i] = level_values[i];
#endif
    }
#ifdef LEVELS
    [[unroll]] for (uint r = 0; r < 16 / LEVELS; r++)
        kept_levels[r] = level_values[r * LEVELS + id];
#endif
}

float block_scale(uint block)
{
    const uint code = PACKED.at[PACKED_BLOCKS + block / 4] >> 8 * (block % 4) & 255;
    precise const float part =
        codes[code] * uintBitsToFloat(PACKED.at[PACKED_LARGEST + block / GROUP]);
    precise const float scale = part + uintBitsToFloat(PACKED.at[PACKED_OFFSET]);
    return scale;
}

/* Without the block's scale. */
vec4 unscaled_quad(uint quad)
{
    const uint x = PACKED.at[quad / 2] >> 16 * (quad % 2);
    return vec4(level(x >> 4 & 15), level(x & 15), level(x >> 12 & 15), level(x >> 8 & 15));
}

float quantized_one(uint i)
{
    const uint x = PACKED.at[i / 8] >> 8 * (i / 2 % 4);
    return level(x >> 4 * (1 - i % 2) & 15) * block_scale(i / BLOCK);
}
#else
void fill_tables(uint id, uint lanes)
{
}

float block_scale(uint block)
{
    return uintBitsToFloat(PACKED.at[PACKED_BLOCKS + block]);
}

vec4 unscaled_quad(uint quad)
{
    const int x = int(PACKED.at[quad]);
    return vec4(bitfieldExtract(x, 0, 8), bitfieldExtract(x, 8, 8), bitfieldExtract(x, 16, 8),
                bitfieldExtract(x, 24, 8));
}

float quantized_one(uint i)
{
    const int x = int(PACKED.at[i / 4]);
    return float(bitfieldExtract(x, int(8 * (i % 4)), 8)) * block_scale(i / BLOCK);
}
#endif

vec4 quantized_quad(uint quad)
{
    return unscaled_quad(quad) * block_scale(quad / (BLOCK / 4));
}

vec4 quantized_four(uvec4 at)
{
    return vec4(quantized_one(at.x), quantized_one(at.y), quantized_one(at.z),
                quantized_one(at.w));
}
