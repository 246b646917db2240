/* SPDX-License-Identifier: MIT
 *
 * What the three attention kernels share. A lane owns ROWS whole rows (queries, or keys in the key
 * pass) in registers and walks the other side in blocks of 8 rows, so no lane needs another's sums
 * and results do not depend on the subgroup's size. With SHUFFLE=1 (subgroups of at least 4 lanes)
 * each row of a block is loaded by one lane, and the rows are spread by shuffles with a constant
 * index; with SHUFFLE=0 every lane reads every row. Both give the same bits.
 */
#if SHUFFLE
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif

layout(constant_id = 1) const uint D = 64;   /* elements of a head */
layout(constant_id = 2) const uint ROWS = 1; /* rows per lane */
layout(constant_id = 3) const uint PARTS = 1; /* rows of a block that a lane loads: 2 of 4 lanes */
const uint D4 = (D + 3) / 4;
const uint BLOCK = 8;
const uint LOADERS = BLOCK / PARTS; /* lanes that share the loading of a block */

/* Four elements of a head's row that starts at element `row`, zero beyond D. */
vec4 head_load(SOURCE, uint row, uint d)
{
#if VEC
    return load4(THIS, row + 4 * d);
#else
    return load4_within(THIS, row, 4 * d, D, 0.0);
#endif
}
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

/* Row j of the block: `name` is the lane's own part, `row0` the element where row 0 of the whole
 * sequence starts, `block` the block's first row, `t` the tensor as in FROM(t). */
#if SHUFFLE
uint my_row(uint block, uint part, uint rows)
{
    uint lane = gl_SubgroupInvocationID & (LOADERS - 1);
    return min(block + part * LOADERS + lane, rows - 1);
}
#define MINE(name, t, row0, stride, block, rows)                         \
    vec4 name[PARTS * D4];                                               \
    [[unroll]] for (uint part = 0; part < PARTS; part++) {               \
        uint at = row0 + my_row(block, part, rows) * stride;             \
        [[unroll]] for (uint d = 0; d < D4; d++) name[part * D4 + d] =   \
            head_load(FROM(t), at, d);                                   \
    }
#define SPREAD(name, t, row0, stride, block, rows, j, d) \
    subgroupShuffle(name[(j) / LOADERS * D4 + d], (j) % LOADERS)
#define MINE_SCALAR(name, t, row0, block, rows)                      \
    float name[PARTS];                                               \
    [[unroll]] for (uint part = 0; part < PARTS; part++) name[part] = \
        load1(FROM(t), row0 + my_row(block, part, rows));
#define SPREAD_SCALAR(name, t, row0, block, rows, j) \
    subgroupShuffle(name[(j) / LOADERS], (j) % LOADERS)
#else
#define MINE(name, t, row0, stride, block, rows)
#define SPREAD(name, t, row0, stride, block, rows, j, d) \
    head_load(FROM(t), row0 + min(block + j, rows - 1) * stride, d)
#define MINE_SCALAR(name, t, row0, block, rows)
#define SPREAD_SCALAR(name, t, row0, block, rows, j) \
    load1(FROM(t), row0 + min(block + j, rows - 1))
#endif
