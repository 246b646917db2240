#version 450
/* SPDX-License-Identifier: MIT
 *
 * layernorm_fold.comp for GPUs: 8 columns belong to SLICES * 8 lanes. Slice s adds blocks s, s +
 * SLICES, ..., and the slices are then added in order.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

const uint COLUMNS = 8; /* FOLDED of layernorm.c */
const uint SLICES = 16; /* COLUMNS * SLICES = RF_TEAM_LANES */
const uint AT_ONCE = 4; /* blocks that a lane reads before it adds them */

#include "push/layernorm_fold.h"

shared ITEM sums[SLICES * COLUMNS];

void main()
{
    uint lane = gl_LocalInvocationID.x, slice = lane / COLUMNS;
    uint row_items = pc.row_items, blocks = pc.blocks, items = pc.parts * row_items;
    uint index = flat_group() * COLUMNS + lane % COLUMNS, item = min(index, items - 1);
    precise ITEM sum = ITEM(0.0);
    for (uint block = slice; block < blocks; block += AT_ONCE * SLICES) {
        ITEM v[AT_ONCE];
        [[unroll]] for (uint k = 0; k < AT_ONCE; k++) {
            uint at = min(block + k * SLICES, blocks - 1);
            v[k] = load_item_f32(pc.partial, 2 * at * row_items + item);
        }
        [[unroll]] for (uint k = 0; k < AT_ONCE; k++)
            sum += block + k * SLICES < blocks ? v[k] : ITEM(0.0);
    }
    sums[lane] = sum;
    barrier();
    if (slice != 0 || index >= items)
        return;
    [[unroll]] for (uint k = 1; k < SLICES; k++)
        sum += sums[k * COLUMNS + lane];
    bool second = item >= row_items;
    uvec2 target = second ? pc.dbeta : pc.dgamma;
    uint at = second ? item - row_items : item;
    precise ITEM total = load_item(target, at) + sum;
    store_item(target, at, total);
}
