#version 450
/* SPDX-License-Identifier: MIT
 *
 * Adds the row blocks of layernorm_backward_weight.comp, in the order of blocks, to dgamma and
 * dbeta; with parts = 1 only to dgamma.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

#include "push/layernorm_fold.h"
VIEW(0, partial)

void main()
{
    uint index = flat_index();
    uint row_items = pc.row_items, blocks = pc.blocks, items = pc.parts * row_items;
    uint item = min(index, items - 1);
    precise ITEM sum = load_item_f32(FROM(partial), item);
    for (uint block = 1; block < blocks; block++)
        sum += load_item_f32(FROM(partial), 2 * block * row_items + item);
    bool second = item >= row_items;
    uvec2 target = second ? pc.dbeta : pc.dgamma;
    uint at = second ? item - row_items : item;
    precise ITEM total = load_item(target, at) + sum;
    if (index < items)
        store_item(target, at, total);
}
