#version 450
/* SPDX-License-Identifier: MIT
 *
 * LayerNorm and RMSNorm (with a mean of zero), gradients of gamma and beta over one block of ROWS
 * rows. An invocation sums some columns. partial is (blocks, 2, channels): first dgamma, then
 * dbeta.
 */
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "layernorm.glsl"

layout(constant_id = 1) const uint RMS = 0;

const uint ROWS = 32; /* ROW_BLOCK of layernorm.c */

#include "push/layernorm_backward_weight.h"
VIEW(0, dout)
VIEW(1, x)
VIEW(2, mean)
VIEW(3, rstd)

void main()
{
    uint items = pc.blocks * pc.row_items;
    uint index = flat_index();
    uint item = min(index, items - 1);
    uint rows = pc.rows, row_items = pc.row_items;
    uint block = item / row_items, column = item - block * row_items;
    uint end = min((block + 1) * ROWS, rows);

    precise ITEM dgamma = ITEM(0.0), dbeta = ITEM(0.0);
    for (uint row = block * ROWS; row < end; row++) {
        float mean = 0.0, rstd = load1_f32(FROM(rstd), row);
        if (RMS == 0)
            mean = load1_f32(FROM(mean), row);
        ITEM d = load_item(FROM(dout), row * row_items + column);
        precise ITEM h = (load_item_x(FROM(x), row * row_items + column) - mean) * rstd;
        dgamma += d * h;
        dbeta += d;
    }
    if (index < items) {
        store_item_f32(pc.partial, 2 * block * row_items + column, dgamma);
        store_item_f32(pc.partial, (2 * block + 1) * row_items + column, dbeta);
    }
}
