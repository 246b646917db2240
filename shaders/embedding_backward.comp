#version 450
/* SPDX-License-Identifier: MIT
 *
 * dwte[token] += the rows of dout that hold the token; dwpe[t] += the rows at position t; both in
 * row order. `order` is the rows sorted by token, and by number where that is the same
 * (embedding_sort.comp): the first of a token walks its stretch. Items after rows * row_items are
 * positions, whose rows are t, t + T, t + 2T, ... GRAD_F32: the gradients are f32 in every build.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

#if GRAD_F32
#define LOAD_GRAD load_item_f32
#define STORE_GRAD store_item_f32
#else
#define LOAD_GRAD load_item
#define STORE_GRAD store_item
#endif

layout(push_constant) uniform Push {
    uvec2 dwte, dwpe, dout, tokens, order;
    uint rows, row_items, T, vocabulary;
    uint positions; /* T, or 0: no dwpe */
    uint dout_first;
} pc;
VIEW(0, dout)

uint token_of(uint row)
{
    uint token = Uints(pc.tokens).at[row];
    return token < pc.vocabulary ? token : 0;
}

void main()
{
    uint index = flat_index();
    uint owners = pc.rows + pc.positions;
    uint rows = pc.rows, row_items = pc.row_items;
    uint owner = index / row_items, column = index - owner * row_items;
    bool position = owner >= rows;
    uint place = min(position ? owner - rows : owner, rows - 1);
    uint first = Uints(pc.order).at[place], before = Uints(pc.order).at[max(place, 1) - 1];
    uint token = token_of(first);
    bool leads = place == 0 || token_of(before) != token;
    bool active_ = owner < owners && (position || leads);

    precise ITEM sum = ITEM(0.0);
    uint step = position ? pc.T : 1, at = active_ ? place : rows;
    while (at < rows) {
        uint row = position ? at : Uints(pc.order).at[at];
        if (!position && token_of(row) != token)
            break;
        sum += load_item(FROM(dout), row * row_items + column);
        at += step;
    }
    if (active_) {
        uvec2 grad = position ? pc.dwpe : pc.dwte;
        uint item = (position ? place : token) * row_items + column;
        precise ITEM total = LOAD_GRAD(grad, item) + sum;
        STORE_GRAD(grad, item, total);
    }
}
