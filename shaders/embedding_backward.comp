#version 450
/* SPDX-License-Identifier: MIT
 *
 * dwte[token] += the rows of dout with this token; dwpe[t] += the rows at position t; both in the
 * order of rows. `order` has the rows sorted by token, and by number if the tokens are equal
 * (embedding_sort.comp): the invocation of a token's first row adds all of them. Items after rows *
 * row_items are positions, whose rows are t, t + T, t + 2T, ... GRAD_F32: the gradients are f32 in
 * every build. PART: dwte has the rows of tokens from first_token on; the other tokens have no row
 * and are last in `order`. Positions add some_rows rows, from first_row on.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(constant_id = 1) const uint PART = 0;

#if GRAD_F32
#define LOAD_GRAD load_item_f32
#define STORE_GRAD store_item_f32
#else
#define LOAD_GRAD load_item
#define STORE_GRAD store_item
#endif

#include "push/embedding_backward.h"
VIEW(0, dout)

/* The row of the table. PART: table_rows for a token without a row. */
uint table_row_of(uint row)
{
    uint token = Uints(pc.tokens).at[row];
    token = token < pc.vocabulary ? token : 0;
    return PART != 0 ? min(token - pc.first_token, pc.table_rows) : token;
}

/* The first row at or after `first` with position `place`. */
uint row_at(uint place, uint first)
{
    return first + (place + pc.T - first % pc.T) % pc.T;
}

void main()
{
    uint index = flat_index();
    uint owners = pc.rows + pc.positions;
    uint rows = pc.rows, row_items = pc.row_items;
    uint owner = index / row_items, column = index - owner * row_items;
    owner += pc.words != 0 ? 0 : rows;
    bool position = owner >= rows;
    uint place = min(position ? owner - rows : owner, rows - 1);
    uint table_row = 0;
    bool leads = false;
    if (pc.words != 0) {
        uint first = Uints(pc.order).at[place], before = Uints(pc.order).at[max(place, 1) - 1];
        table_row = table_row_of(first);
        leads = place == 0 || table_row_of(before) != table_row;
        leads = leads && (PART == 0 || table_row < pc.table_rows);
    }
    bool active_ = owner < owners && (position || leads);

    precise ITEM sum = ITEM(0.0);
    uint step = position ? pc.T : 1, at = place, end = rows;
    if (PART != 0 && position) {
        at = row_at(place, pc.first_row);
        end = pc.first_row + pc.some_rows;
    }
    at = active_ ? at : end;
    while (at < end) {
        uint row = position ? at : Uints(pc.order).at[at];
        if (!position && table_row_of(row) != table_row)
            break;
        sum += load_item(FROM(dout), row * row_items + column);
        at += step;
    }
    if (active_) {
        uvec2 grad = position ? pc.dwpe : pc.dwte;
        uint item = (position ? place : table_row) * row_items + column;
        precise ITEM total = LOAD_GRAD(grad, item) + sum;
        STORE_GRAD(grad, item, total);
    }
}
