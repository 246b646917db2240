#version 450
/* SPDX-License-Identifier: MIT
 *
 * dwte[token] += the rows of dout that hold the token; dwpe[t] += the rows at position t; both in
 * row order. The first row of a chain (embedding_links.comp) walks it; items after rows *
 * row_items are positions, whose chain is row t, t + T, t + 2T, ...
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(push_constant) uniform Push {
    uvec2 dwte, dwpe, dout, tokens, next, has_previous;
    uint rows, row_items, T, vocabulary;
    uint positions; /* T, or 0: no dwpe */
    uint dout_first;
} pc;
VIEW(0, dout)

void main()
{
    uint index = flat_index();
    uint owners = pc.rows + pc.positions;
    uint rows = pc.rows, stride = pc.T, row_items = pc.row_items;
    uint owner = index / row_items, column = index - owner * row_items;
    bool position = owner >= rows;
    uint first = min(position ? owner - rows : owner, rows - 1);
    bool active_ = owner < owners && (position || Uints(pc.has_previous).at[first] == 0);
    uint token = Uints(pc.tokens).at[first];
    token = token < pc.vocabulary ? token : 0;

    precise ITEM sum = ITEM(0.0);
    /* END is larger than any row. */
    for (uint row = active_ ? first : rows; row < rows;) {
        sum += load_item(FROM(dout), row * row_items + column);
        row = position ? row + stride : Uints(pc.next).at[row];
    }
    if (active_) {
        if (position) {
            uint item = first * row_items + column;
            precise ITEM total = load_item(pc.dwpe, item) + sum;
            store_item(pc.dwpe, item, total);
        } else {
            uint item = token * row_items + column;
            precise ITEM total = load_item(pc.dwte, item) + sum;
            store_item(pc.dwte, item, total);
        }
    }
}
