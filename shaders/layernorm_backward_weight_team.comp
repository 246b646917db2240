#version 450
/* SPDX-License-Identifier: MIT
 *
 * layernorm_backward_weight.comp for GPUs: 32 columns of a block belong to PARTS * 32 lanes. Each
 * lane sums ROWS / PARTS rows, and their sums are joined as a binary tree.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "layernorm.glsl"

layout(constant_id = 1) const uint RMS = 0;

const uint ROWS = 32;    /* ROW_BLOCK of layernorm.c */
const uint COLUMNS = 32; /* COLUMNS of layernorm.c */
const uint PARTS = 4;    /* COLUMNS * PARTS = RF_TEAM_LANES */
const uint EACH = ROWS / PARTS;

#include "push/layernorm_backward_weight.h"

shared ITEM sums[2][PARTS * COLUMNS]; /* dgamma, dbeta */

void main()
{
    uint lane = gl_LocalInvocationID.x, part = lane / COLUMNS, group = flat_group();
    uint rows = pc.rows, row_items = pc.row_items;
    uint across = (row_items + COLUMNS - 1) / COLUMNS;
    uint block = group / across, column = group % across * COLUMNS + lane % COLUMNS;
    bool live = block < pc.blocks && column < row_items;
    uint item = min(column, row_items - 1);
    uint first = min(block, pc.blocks - 1) * ROWS + part * EACH;

    ITEM d[EACH], x[EACH]; /* all are read before the first is used */
    [[unroll]] for (uint r = 0; r < EACH; r++) {
        uint row = min(first + r, rows - 1);
        d[r] = load_item(pc.dout, row * row_items + item);
        x[r] = load_item_x(pc.x, row * row_items + item);
    }
    precise ITEM dgamma = ITEM(0.0), dbeta = ITEM(0.0);
    [[unroll]] for (uint r = 0; r < EACH; r++) {
        uint row = min(first + r, rows - 1);
        float mean = 0.0, rstd = Floats(pc.rstd).at[row];
        if (RMS == 0)
            mean = Floats(pc.mean).at[row];
        precise ITEM h = (x[r] - mean) * rstd, dh = d[r] * h;
        bool inside = first + r < rows;
        dgamma += inside ? dh : ITEM(0.0);
        dbeta += inside ? d[r] : ITEM(0.0);
    }
    sums[0][lane] = dgamma;
    sums[1][lane] = dbeta;
    barrier();
    if (part > 1 || !live)
        return;
    uint at = lane % COLUMNS;
    precise ITEM sum = (sums[part][at] + sums[part][at + COLUMNS]) +
                       (sums[part][at + 2 * COLUMNS] + sums[part][at + 3 * COLUMNS]);
    store_item_f32(pc.partial, (2 * block + part) * row_items + column, sum);
}
