/* SPDX-License-Identifier: MIT
 *
 * Four elements at a time of f32, f16 or bf16, for the matrix products, whose type is a constant in
 * the shader and not of its build. 16-bit elements are packed in words, so every device can use
 * them. SHORTS: the device has 16-bit storage. LONGS: accesses 64 bits at a time, for CPU drivers
 * (see matmul_subgroup.comp). VIEWS: texels() reads f32 through a view.
 */
#define TYPE_F32 0
#define TYPE_F16 1
#define TYPE_BF16 2
#include "convert.glsl"

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words { uint at[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Pairs { uvec2 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Quads { vec4 at[]; };

/* Four adjacent indices from `first` on, clamped to `last`. */
uvec4 four(uint first, uint last)
{
    return min(uvec4(first, first + 1, first + 2, first + 3), uvec4(last));
}

#ifdef LONGS /* 64 bits at a time: see matmul_subgroup.comp */
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Longs { uint64_t at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer LongPairs { u64vec2 at[]; };
vec4 f32_quad(uvec2 address, uint i)
{
    u64vec2 x = LongPairs(address).at[i];
    return vec4(uintBitsToFloat(unpackUint2x32(x.x)), uintBitsToFloat(unpackUint2x32(x.y)));
}
void set_f32_quad(uvec2 address, uint i, vec4 x)
{
    LongPairs(address).at[i] = u64vec2(packUint2x32(floatBitsToUint(x.xy)),
                                       packUint2x32(floatBitsToUint(x.zw)));
}
uvec2 word_pair(uvec2 address, uint i)
{
    return unpackUint2x32(Longs(address).at[i]);
}
void set_word_pair(uvec2 address, uint i, uvec2 x)
{
    Longs(address).at[i] = packUint2x32(x);
}
#else
vec4 f32_quad(uvec2 address, uint i)
{
    return Quads(address).at[i];
}
void set_f32_quad(uvec2 address, uint i, vec4 x)
{
    Quads(address).at[i] = x;
}
uvec2 word_pair(uvec2 address, uint i)
{
    return Pairs(address).at[i];
}
void set_word_pair(uvec2 address, uint i, uvec2 x)
{
    Pairs(address).at[i] = x;
}
#endif

vec2 unpack_as(uint type, uint word)
{
    return type == TYPE_F16 ? from_f16(word) : from_bf16(word);
}
uint pack_as(uint type, vec2 x)
{
    return type == TYPE_F16 ? to_f16(x) : to_bf16(x);
}

/* The 16-bit element `i`, in the low half of a word. */
#ifdef SHORTS /* on devices with 16-bit storage */
layout(buffer_reference, std430, buffer_reference_align = 2) buffer Shorts { uint16_t at[]; };
uint half_word(uvec2 address, uint i)
{
    return uint(Shorts(address).at[i]);
}
void set_half_word(uvec2 address, uint i, uint x)
{
    Shorts(address).at[i] = uint16_t(x);
}
#else /* the tensor may start inside a word that it shares with others */
uint half_word(uvec2 address, uint i)
{
    const uint at = i + (address.x >> 1 & 1);
    return Words(uvec2(address.x & ~3u, address.y)).at[at >> 1] >> 16 * (at & 1) & 0xffff;
}
void set_half_word(uvec2 address, uint i, uint x)
{
    const uint at = i + (address.x >> 1 & 1), shift = 16 * (at & 1);
    Words words = Words(uvec2(address.x & ~3u, address.y));
    atomicAnd(words.at[at >> 1], ~(0xffffu << shift));
    atomicOr(words.at[at >> 1], x << shift);
}
#endif

float load_one(uvec2 address, uint type, uint i)
{
    return type == TYPE_F32 ? Floats(address).at[i] : unpack_as(type, half_word(address, i)).x;
}
void store_one(uvec2 address, uint type, uint i, float x)
{
    if (type == TYPE_F32)
        Floats(address).at[i] = x;
    else
        set_half_word(address, i, pack_as(type, vec2(x, 0)) & 0xffff);
}

/* Four elements: quad `quad` if rows consist of whole quads (`wide`), otherwise those at `at`. */
vec4 load_four(uvec2 address, uint type, bool wide, uint quad, uvec4 at)
{
    if (type == TYPE_F32)
        return wide ? f32_quad(address, quad)
                    : vec4(Floats(address).at[at.x], Floats(address).at[at.y],
                           Floats(address).at[at.z], Floats(address).at[at.w]);
    if (wide) {
        const uvec2 words = word_pair(address, quad);
        return vec4(unpack_as(type, words.x), unpack_as(type, words.y));
    }
    return vec4(unpack_as(type, half_word(address, at.x) | half_word(address, at.y) << 16),
                unpack_as(type, half_word(address, at.z) | half_word(address, at.w) << 16));
}
#ifdef VIEWS /* the same for f32, through a view */
vec4 texels(samplerBuffer view, uint first, bool wide, uint quad, uvec4 at)
{
    if (wide)
        return texelFetch(view, int(first + quad));
    return vec4(texelFetch(view, int(first + at.x)).x, texelFetch(view, int(first + at.y)).x,
                texelFetch(view, int(first + at.z)).x, texelFetch(view, int(first + at.w)).x);
}
#endif
