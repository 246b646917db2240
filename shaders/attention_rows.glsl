/* SPDX-License-Identifier: MIT
 *
 * Declarations shared by the attention kernels for CPU drivers (paths "rows"). A lane owns ROWS
 * whole rows (queries, or keys in the key pass) in registers and walks the other side in blocks of
 * 8 rows, so no lane needs another's sums and results do not depend on the subgroup's size. Each
 * row of a block is loaded by one lane and spread by shuffles with a constant index: needs
 * subgroups of at least 4 lanes, one subgroup per workgroup.
 */
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "attention.glsl"

layout(constant_id = 2) const uint ROWS = 1; /* rows per lane */
layout(constant_id = 3) const uint PARTS = 1; /* rows that a lane loads: 2 with 4 lanes */
const uint BLOCK = 8;
const uint LOADERS = BLOCK / PARTS; /* lanes that share the loading of a block */

void head_store(uvec2 base, uint row, uint d, vec4 v)
{
#if VEC
    store4(base, row + 4 * d, v);
#else
    store4_within(base, row, 4 * d, D, v);
#endif
}
float dot_add(vec4 a, vec4 b, float sum)
{
    return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

uint my_row(uint block, uint part, uint rows)
{
    uint lane = gl_SubgroupInvocationID & (LOADERS - 1);
    return min(block + part * LOADERS + lane, rows - 1);
}
/* The lane's own part of a block. `t`: the tensor as in FROM(t); `row0`: the element at which row 0
 * of the whole sequence starts; `block`: the block's first row. */
#define MINE(name, t, row0, stride, block, rows)                       \
    vec4 name[PARTS * D4];                                             \
    [[unroll]] for (uint part = 0; part < PARTS; part++) {             \
        uint at = row0 + my_row(block, part, rows) * stride;           \
        [[unroll]] for (uint d = 0; d < D4; d++) name[part * D4 + d] = \
            head_load(FROM(t), at, d);                                 \
    }
/* Four elements of row j of the block. */
#define SPREAD(name, j, d) subgroupShuffle(name[(j) / LOADERS * D4 + d], (j) % LOADERS)
#define MINE_SCALAR(name, t, row0, block, rows)                      \
    float name[PARTS];                                               \
    [[unroll]] for (uint part = 0; part < PARTS; part++) name[part] = \
        load1_f32(FROM(t), row0 + my_row(block, part, rows));
#define SPREAD_SCALAR(name, j) subgroupShuffle(name[(j) / LOADERS], (j) % LOADERS)
