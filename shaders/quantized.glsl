/* SPDX-License-Identifier: MIT
 *
 * Elements of a quantised matrix; the layout is that of ringforge/quantize.h. The includer defines
 * PACKED, its words; PACKED_BLOCKS, the offset in words of the blocks' numbers; and for NF4
 * PACKED_LARGEST, the offset of the numbers of groups of blocks, PACKED_OFFSET, and if the matrix is
 * part of a larger one PACKED_FIRST, its first block, and PACKED_GAP, the number of blocks between
 * the end of a row and the next. Functions take blocks_before(row) as `before`. Multiplied and
 * added as on the host, in f32. LEVELS: the subgroup's invocations, 4 to 16, which then keep the
 * levels in registers. CHUNKS_OF: the type of 16-bit elements, for those that are unpacked by eight.
 */
const uint BLOCK = 64, GROUP = 256;

uint blocks_before(uint row)
{
#if defined(QUANTIZED_NF4) && defined(PACKED_FIRST)
    return PACKED_FIRST + row * PACKED_GAP;
#else
    return 0;
#endif
}

#ifdef CHUNKS_OF
/* Rounds finite numbers. In f16 by the device's instruction, which rounds to nearest on known
 * drivers; the one of convert.glsl takes longer than the product. */
uint pack_finite(vec2 x)
{
#if CHUNKS_OF == TYPE_F16
    return packFloat2x16(f16vec2(x));
#else
    uvec2 u = floatBitsToUint(x);
    u += 0x7fffu + (u >> 16 & 1u);
    return u.x >> 16 | (u.y & 0xffff0000u);
#endif
}
#endif

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
#elif defined(CHUNKS_OF)
shared vec2 pairs[256]; /* the levels of each byte */
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
#ifdef CHUNKS_OF
        pairs[i] = vec2(level_values[i / 16], level_values[i % 16]);
#elif !defined(LEVELS)
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

#ifdef CHUNKS_OF
/* Eight elements of a block, as they lie in memory; and unpacked and rounded, which waits for them. */
uvec3 packed_chunk(uint chunk, uint before)
{
    const uint block = chunk / (BLOCK / 8) + before;
    return uvec3(PACKED.at[chunk], PACKED.at[PACKED_BLOCKS + block / 4] >> 8 * (block % 4),
                 PACKED.at[PACKED_LARGEST + block / GROUP]);
}
uvec4 unpacked_chunk(uvec3 x, float offset)
{
    precise const float part = codes[x.y & 255] * uintBitsToFloat(x.z);
    precise const float scale = part + offset;
    uvec4 words;
    [[unroll]] for (uint i = 0; i < 4; i++)
        words[i] = pack_finite(pairs[bitfieldExtract(x.x, int(8 * i), 8)] * scale);
    return words;
}
float packed_offset()
{
    return uintBitsToFloat(PACKED.at[PACKED_OFFSET]);
}
#else
/* Without the block's scale: a quad of the two in a word. */
vec4 unscaled_half(uint word, uint quad)
{
    const uint x = word >> 16 * (quad % 2);
    return vec4(level(x >> 4 & 15), level(x & 15), level(x >> 12 & 15), level(x >> 8 & 15));
}

vec4 unscaled_quad(uint quad)
{
    return unscaled_half(PACKED.at[quad / 2], quad);
}

float quantized_one(uint i, uint before)
{
    const uint x = PACKED.at[i / 8] >> 8 * (i / 2 % 4);
    return level(x >> 4 * (1 - i % 2) & 15) * block_scale(i / BLOCK + before);
}
#endif
#else
void fill_tables(uint id, uint lanes)
{
}

float block_scale(uint block)
{
    return uintBitsToFloat(PACKED.at[PACKED_BLOCKS + block]);
}

#ifdef CHUNKS_OF
uvec3 packed_chunk(uint chunk, uint before)
{
    return uvec3(PACKED.at[2 * chunk], PACKED.at[2 * chunk + 1],
                 PACKED.at[PACKED_BLOCKS + chunk / (BLOCK / 8)]);
}
uvec4 unpacked_chunk(uvec3 x, float offset)
{
    const float scale = uintBitsToFloat(x.z);
    uvec4 words;
    [[unroll]] for (uint i = 0; i < 4; i++) {
        const int word = int(x[i / 2]), at = 16 * int(i % 2);
        const vec2 pair = vec2(bitfieldExtract(word, at, 8), bitfieldExtract(word, at + 8, 8));
        words[i] = pack_finite(pair * scale);
    }
    return words;
}
float packed_offset()
{
    return 0;
}
#else
vec4 unscaled_quad(uint quad)
{
    const int x = int(PACKED.at[quad]);
    return vec4(bitfieldExtract(x, 0, 8), bitfieldExtract(x, 8, 8), bitfieldExtract(x, 16, 8),
                bitfieldExtract(x, 24, 8));
}

float quantized_one(uint i, uint before)
{
    const int x = int(PACKED.at[i / 4]);
    return float(bitfieldExtract(x, int(8 * (i % 4)), 8)) * block_scale(i / BLOCK);
}
#endif
#endif

#ifndef CHUNKS_OF
vec4 quantized_quad(uint quad, uint before)
{
    return unscaled_quad(quad) * block_scale(quad / (BLOCK / 4) + before);
}

vec4 quantized_four(uvec4 at, uint before)
{
    return vec4(quantized_one(at.x, before), quantized_one(at.y, before),
                quantized_one(at.z, before), quantized_one(at.w, before));
}
#endif
