/* SPDX-License-Identifier: MIT
 *
 * Loads and stores of the norms' tensors; included by layernorm*.comp, after common.glsl. out and
 * dout have the build's type. x and the tensors of its type (residual, sum, dx, gamma, beta) have
 * the build's type, too, unless X_F32=1: then they are f32.
 */
#ifndef X_F32
#define X_F32 0
#endif
#if X_F32
#define load4_x load4_f32
#define load4_within_x load4_within_f32
#define store4_x store4_f32
#define store4_within_x store4_within_f32
#define load_item_x load_item_f32
#define rounded_x(v) (v)
#else
#define load4_x load4
#define load4_within_x load4_within
#define store4_x store4
#define store4_within_x store4_within
#define load_item_x load_item
#define rounded_x rounded
#endif

/* 0 if x is negative; NaN stays NaN. Tested by bits, because a compiler may make `x < 0 ? 0 : x` the
 * larger of the two, which drops NaN. */
float at_least_0(float x)
{
    return floatBitsToUint(x) - 0x80000001u < 0x7f800000u ? 0.0 : x;
}

/* For teams: four elements at column c of the row that starts at element `row` and has `limit`
 * columns. Arbitrary values past its end. */
#if !VIEWS
#if VEC
vec4 row4(uvec2 base, uint row, uint c, uint limit)
{
    return load4(base, row + min(c, limit - 4));
}
vec4 row4_x(uvec2 base, uint row, uint c, uint limit)
{
    return load4_x(base, row + min(c, limit - 4));
}
/* Writes within the row; c < limit. */
void put4(uvec2 base, uint row, uint c, uint limit, vec4 v)
{
    store4(base, row + c, v);
}
void put4_x(uvec2 base, uint row, uint c, uint limit, vec4 v)
{
    store4_x(base, row + c, v);
}
#else
vec4 row4(uvec2 base, uint row, uint c, uint limit)
{
    return load4_within(base, row, c, limit, 0.0);
}
vec4 row4_x(uvec2 base, uint row, uint c, uint limit)
{
    return load4_within_x(base, row, c, limit, 0.0);
}
void put4(uvec2 base, uint row, uint c, uint limit, vec4 v)
{
    store4_within(base, row, c, limit, v);
}
void put4_x(uvec2 base, uint row, uint c, uint limit, vec4 v)
{
    store4_within_x(base, row, c, limit, v);
}
#endif
#endif
