#version 450
/* SPDX-License-Identifier: MIT
 *
 * out = x w' + bias + residual for few rows of x: each workgroup reads its rows of w once for ROWS
 * rows of x. A team of 32 lanes computes COLUMNS columns. Lane l adds the products of quads l, l +
 * 32, ... of four terms, in order; the sums of the lanes are then added in order. Neither ROWS nor
 * the other rows of x take part in this, so a row has the same bits in any call. QUANTIZED: w is in
 * 8 bits, or with QUANTIZED_NF4 in 4.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 1) const uint ROWS = 1; /* 1, 2, 4 or 8 */
const uint COLUMNS = 4, TEAM = 32, TEAMS = 2; /* TEAMS * TEAM lanes; ROWS * COLUMNS <= TEAM */

#include "push/gemv.h"
VIEW(0, x)
VIEW(1, w)

/* Bias is of the build's type. With OUT_F32, out and residual are f32. */
#if TYPE == TYPE_F32
#define LOAD(base, e) Floats(base).at[e]
#else
#define LOAD(base, e) load1(base, e)
#endif
#ifdef OUT_F32
#define LOAD_OUT(base, e) Floats(base).at[e]
#define STORE_OUT store1_f32
#else
#define LOAD_OUT LOAD
#define STORE_OUT store1
#endif

shared float parts[TEAMS * TEAM * (TEAM + 1)];

#ifdef QUANTIZED
#define PACKED Uints(pc.w)
#define PACKED_BLOCKS pc.blocks
#define PACKED_LARGEST pc.largest
#define PACKED_OFFSET pc.offset_
#include "quantized.glsl"

vec4 four_of_w(uint row, uint term)
{
    uint first = row * pc.terms + term;
#if VEC
    return quantized_quad(first / 4, 0);
#else
    uvec4 ahead = min(uvec4(0, 1, 2, 3), uvec4(pc.terms - 1 - term));
    return quantized_four(first + ahead, 0); /* x is 0 beyond the end */
#endif
}
#else
#define four_of_w(row, term) four(FROM(w), row, term)
#endif

/* Four terms of a row; beyond its end they are 0. */
vec4 four(SOURCE, uint row, uint term)
{
#if VEC
    return load4(THIS, row * pc.terms + term);
#else
    return load4_within(THIS, row * pc.terms, term, pc.terms, 0.0);
#endif
}

void main()
{
    uint lane = gl_LocalInvocationID.x % TEAM, team = gl_LocalInvocationID.x / TEAM;
    uint across = (pc.columns + TEAMS * COLUMNS - 1) / (TEAMS * COLUMNS), group = flat_group();
    uint first_row = group / across * ROWS;
    uint first = (group % across * TEAMS + team) * COLUMNS;
    if (first_row >= pc.rows)
        return;
#ifdef QUANTIZED
    fill_tables(gl_LocalInvocationID.x, TEAM * TEAMS);
    barrier();
#endif
    precise float sum[8 * COLUMNS];
    [[unroll]] for (uint i = 0; i < ROWS * COLUMNS; i++)
        sum[i] = 0.0;
    for (uint term = 4 * lane; term < pc.terms; term += 4 * TEAM) {
        vec4 w[COLUMNS];
        [[unroll]] for (uint c = 0; c < COLUMNS; c++)
            w[c] = four_of_w(min(first + c, pc.columns - 1), term);
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            vec4 x = four(FROM(x), min(first_row + r, pc.rows - 1), term);
            [[unroll]] for (uint c = 0; c < COLUMNS; c++) {
                precise float s = sum[r * COLUMNS + c];
                s = fma(x.x, w[c].x, s);
                s = fma(x.y, w[c].y, s);
                s = fma(x.z, w[c].z, s);
                s = fma(x.w, w[c].w, s);
                sum[r * COLUMNS + c] = s;
            }
        }
    }
    uint base = team * TEAM * (TEAM + 1);
    [[unroll]] for (uint i = 0; i < ROWS * COLUMNS; i++)
        parts[base + i * (TEAM + 1) + lane] = sum[i];
    barrier();

    uint row = first_row + lane / COLUMNS, column = first + lane % COLUMNS;
    if (lane >= ROWS * COLUMNS || row >= pc.rows || column >= pc.columns)
        return;
    precise float total = 0.0;
    for (uint i = 0; i < TEAM; i++)
        total += parts[base + lane * (TEAM + 1) + i];
    uint at = row * pc.columns + column;
    if (pc.bias != uvec2(0))
        total += LOAD(pc.bias, column);
    if (pc.residual != uvec2(0))
        total += LOAD_OUT(pc.residual, at);
    STORE_OUT(pc.out_, at, total);
}
