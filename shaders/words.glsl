/* SPDX-License-Identifier: MIT
 *
 * 16-bit elements as bits, of any float type, two in a word; included by half.glsl and by kernels
 * whose operands have their own types. Single elements may be at any index. A word at an end may
 * then have two writers, so its halves are written by atomics that leave the other half unchanged.
 */
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Pairs { uvec2 at[]; };

uint load_bits(uvec2 base, uint e)
{
    uint at = e + ((base.x >> 1) & 1u);
    uint word = Uints(uvec2(base.x & ~3u, base.y)).at[at >> 1];
    return (at & 1u) != 0 ? word >> 16 : word & 0xffffu;
}
/* bits: in the low half. */
void store_bits(uvec2 base, uint e, uint bits)
{
    uint at = e + ((base.x >> 1) & 1u), shift = 16 * (at & 1u);
    Uints words = Uints(uvec2(base.x & ~3u, base.y));
    atomicAnd(words.at[at >> 1], ~(0xffffu << shift));
    atomicOr(words.at[at >> 1], (bits & 0xffffu) << shift);
}
