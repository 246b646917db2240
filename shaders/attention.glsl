/* SPDX-License-Identifier: MIT
 *
 * What the three attention kernels share. A lane owns ROWS whole rows (queries, or keys in the key
 * pass) in registers and walks the other side in blocks of 8 rows, so no lane needs another's sums
 * and results do not depend on the subgroup's size. With SHUFFLE=1 (subgroups of at least 8 lanes)
 * lane l loads row l of a block and the rows are spread by shuffles with a constant index; with
 * SHUFFLE=0 every lane reads every row. Both give the same bits.
 */
#if SHUFFLE
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif

layout(constant_id = 1) const uint D = 64;   /* elements of a head */
layout(constant_id = 2) const uint ROWS = 1; /* rows per lane */
const uint D4 = (D + 3) / 4;
const uint BLOCK = 8;

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

/* Row j of the block: `mine` is the lane's own part, `row0` the element where row 0 of the whole
 * sequence starts, `block` the block's first row, `t` the tensor as in FROM(t). */
#if SHUFFLE
uint my_row(uint block, uint rows)
{
    return min(block + (gl_SubgroupInvocationID & (BLOCK - 1)), rows - 1);
}
#define MINE(name, t, row0, stride, block, rows)                               \
    vec4 name[D4];                                                                \
    {                                                                             \
        uint at = row0 + my_row(block, rows) * stride;                         \
        [[unroll]] for (uint d = 0; d < D4; d++) name[d] = head_load(FROM(t), at, d); \
    }
#define SPREAD(name, t, row0, stride, block, rows, j, d) subgroupShuffle(name[d], j)
#define MINE_SCALAR(name, t, row0, block, rows) \
    float name = load1(FROM(t), row0 + my_row(block, rows));
#define SPREAD_SCALAR(name, t, row0, block, rows, j) subgroupShuffle(name, j)
#else
#define MINE(name, t, row0, stride, block, rows)
#define SPREAD(name, t, row0, stride, block, rows, j, d) \
    head_load(FROM(t), row0 + min(block + j, rows - 1) * stride, d)
#define MINE_SCALAR(name, t, row0, block, rows)
#define SPREAD_SCALAR(name, t, row0, block, rows, j) \
    load1(FROM(t), row0 + min(block + j, rows - 1))
#endif
