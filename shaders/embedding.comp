#version 450
/* SPDX-License-Identifier: MIT
 *
 * out[i] = wte[tokens[i]] + wpe[i % T]. One item of a row per invocation. PART: wte has the rows of
 * tokens from first_token on; other tokens give 0 instead of their row. PLACED: the row of wpe is
 * places[i], at most T - 1.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 1) const uint PART = 0;
layout(constant_id = 2) const uint PLACED = 0;

#include "push/embedding.h"
VIEW(0, wte)
VIEW(1, wpe)

void main()
{
    uint items = pc.rows * pc.row_items;
    uint index = flat_index();
    uint item = min(index, items - 1);
    uint row = item / pc.row_items, column = item - row * pc.row_items;
    uint token = Uints(pc.tokens).at[row];
    token = token < pc.vocabulary ? token : 0;
    uint table_row = PART != 0 ? token - pc.first_token : token;
    bool here = PART == 0 || table_row < pc.table_rows;
    ITEM v = load_item(FROM(wte), (here ? table_row : 0) * pc.row_items + column);
    v = here ? v : ITEM(0.0);
    if (pc.positions != 0) {
        uint place = PLACED != 0 ? min(Uints(pc.places).at[row], pc.T - 1) : row % pc.T;
        v += load_item(FROM(wpe), place * pc.row_items + column);
    }
    if (index < items)
        store_item(pc.out_, item, v);
}
