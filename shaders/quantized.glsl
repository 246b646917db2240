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
#if defined(QUANTIZED_NF4) || defined(QUANTIZED_FP4)
#define NIBBLES /* two levels a byte */
#endif
#ifdef QUANTIZED_FP4
layout(constant_id = 20) const bool NVFP4 = false; /* or MXFP4 */
const uint EVERY = NVFP4 ? 16 : 32; /* elements that share a scale */
#else
const uint EVERY = BLOCK;
#endif

uint blocks_before(uint row)
{
#if defined(NIBBLES) && defined(PACKED_FIRST)
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

/* The value of a code of 8 bits that is not NaN. */
float e4m3(uint x)
{
    const uint size = x & 0x7f, exponent = size >> 3;
    const float digits = float(exponent == 0 ? size : 8 + (size & 7));
    const float y = digits * uintBitsToFloat(max(exponent, 1) + 117 << 23);
    return uintBitsToFloat(floatBitsToUint(y) | (x & 0x80) << 24);
}

#ifdef NIBBLES
#ifdef QUANTIZED_NF4
shared float codes[256]; /* the value of each */
#endif
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
#ifdef QUANTIZED_NF4
    const float level_values[16] = float[16](
#include "nf4_levels.h"
    );
    const float code_values[128] = float[128](
#include "dynamic_map.h"
    );
#else
    const float level_values[16] = float[16](0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5,
                                             -1.0, -1.5, -2.0, -3.0, -4.0, -6.0);
#endif
#if defined(QUANTIZED_NF4) || !defined(LEVELS)
    for (uint i = id; i < 256; i += lanes) {
#ifdef QUANTIZED_NF4
        const float x = code_values[i > 127 ? i - 128 : 126 - min(i, 126)];
        codes[i] = i > 127 ? x : i == 127 ? 0 : -x;
#endif
#ifdef CHUNKS_OF
        const vec2 pair = vec2(level_values[i / 16], level_values[i % 16]);
#ifdef QUANTIZED_NF4
        pairs[i] = pair;
#else
        pairs[i] = pair.yx;
#endif
#elif !defined(LEVELS)
        if (i < 16)
            levels[i] = level_values[i];
#endif
    }
#endif
#ifdef LEVELS
    [[unroll]] for (uint r = 0; r < 16 / LEVELS; r++)
        kept_levels[r] = level_values[r * LEVELS + id];
#endif
}

#ifdef QUANTIZED_FP4
/* `code`: the low bits; tensor: the tensor's scale. */
float fp4_scale(uint code, float tensor)
{
    if (!NVFP4)
        return uintBitsToFloat(max((code & 255) << 23, 0x400000));
    precise const float scale = e4m3(code & 255) * tensor;
    return scale;
}

float packed_offset()
{
    return NVFP4 ? uintBitsToFloat(PACKED.at[PACKED_OFFSET]) : 0;
}

/* That of EVERY elements. */
float block_scale(uint block)
{
    return fp4_scale(PACKED.at[PACKED_BLOCKS + block / 4] >> 8 * (block % 4), packed_offset());
}

#ifdef CHUNKS_OF
uvec3 packed_chunk(uint chunk, uint before)
{
    const uint block = chunk / (EVERY / 8) + before * (BLOCK / EVERY);
    return uvec3(PACKED.at[chunk], PACKED.at[PACKED_BLOCKS + block / 4] >> 8 * (block % 4), 0);
}
uvec4 unpacked_chunk(uvec3 x, float offset)
{
    const float scale = fp4_scale(x.y, offset);
    uvec4 words;
    [[unroll]] for (uint i = 0; i < 4; i++)
        words[i] = pack_finite(pairs[bitfieldExtract(x.x, int(8 * i), 8)] * scale);
    return words;
}
#else
vec4 unscaled_half(uint word, uint quad)
{
    const uint x = word >> 16 * (quad % 2);
    return vec4(level(x & 15), level(x >> 4 & 15), level(x >> 8 & 15), level(x >> 12 & 15));
}

float unscaled_one(uint i)
{
    return level(PACKED.at[i / 8] >> 4 * (i % 8) & 15);
}
#endif
#else
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

float unscaled_one(uint i)
{
    const uint x = PACKED.at[i / 8] >> 8 * (i / 2 % 4);
    return level(x >> 4 * (1 - i % 2) & 15);
}
#endif
#endif
#ifndef CHUNKS_OF
vec4 unscaled_quad(uint quad)
{
    return unscaled_half(PACKED.at[quad / 2], quad);
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
#ifdef QUANTIZED_FP8
        const vec2 pair = vec2(e4m3(word >> at), e4m3(word >> at + 8));
#else
        const vec2 pair = vec2(bitfieldExtract(word, at, 8), bitfieldExtract(word, at + 8, 8));
#endif
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
#ifdef QUANTIZED_FP8
    const uint x = PACKED.at[quad];
    return vec4(e4m3(x), e4m3(x >> 8), e4m3(x >> 16), e4m3(x >> 24));
#else
    const int x = int(PACKED.at[quad]);
    return vec4(bitfieldExtract(x, 0, 8), bitfieldExtract(x, 8, 8), bitfieldExtract(x, 16, 8),
                bitfieldExtract(x, 24, 8));
#endif
}

float unscaled_one(uint i)
{
    const int x = int(PACKED.at[i / 4]);
#ifdef QUANTIZED_FP8
    return e4m3(x >> 8 * (i % 4));
#else
    return float(bitfieldExtract(x, int(8 * (i % 4)), 8));
#endif
}
#endif
#endif

#ifndef CHUNKS_OF
/* The scale of a quad's elements. */
float scale_of(uint quad, uint before)
{
    return block_scale(quad / (EVERY / 4) + before * (BLOCK / EVERY));
}

vec4 quantized_quad(uint quad, uint before)
{
    return unscaled_quad(quad) * scale_of(quad, before);
}

float quantized_one(uint i, uint before)
{
    return unscaled_one(i) * scale_of(i / 4, before);
}

vec4 quantized_four(uvec4 at, uint before)
{
    return vec4(quantized_one(at.x, before), quantized_one(at.y, before),
                quantized_one(at.z, before), quantized_one(at.w, before));
}
#endif
