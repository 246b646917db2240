/* SPDX-License-Identifier: MIT
 *
 * What the list of a layer's operations says about each of them; see layer_call.h.
 */
#include "layer_call.h"

static int64_t columns_of(const struct layer *l, int op, enum layer_columns columns)
{
    switch (columns) {
    case LAYER_CHANNELS:
        return l->m.channels;
    case LAYER_QUERIES:
        return l->heads * l->size;
    case LAYER_KEYS:
        return l->keys * l->size;
    case LAYER_HIDDEN:
        return layer_hidden(l->g, op) / l->m.part.ranks;
    default:
        return 0;
    }
}

int64_t layer_columns(const struct layer *l, int op)
{
    const struct layer_op *o = &l->g->ops[op];
    int64_t columns = 0;
    switch (o->kind) {
    case LAYER_COLUMN_LINEAR:
    case LAYER_ROW_LINEAR:
        for (int k = 0; k < LORA_MODULES; k++)
            columns += columns_of(l, op, o->columns[k]);
        return columns;
    case LAYER_ATTEND:
        return columns_of(l, op, LAYER_QUERIES);
    case LAYER_GATE:
        return layer_columns(l, op - 1) / 2;
    case LAYER_ACT:
    case LAYER_HEADS:
        return layer_columns(l, op - 1);
    default:
        return l->m.channels;
    }
}

/* ---- the stream ------------------------------------------------------------------------------ */

bool layer_takes_stream(const struct layer *l, int op)
{
    return op == 0 || layer_kind_at(l, op - 1) == LAYER_ADD;
}

struct rf_tensor layer_stream(const struct layer *l, int op)
{
    for (int k = op - 1; k >= 0; k--)
        if (layer_kind_at(l, k) == LAYER_ADD)
            return l->op[k].out;
    return l->x;
}

struct rf_tensor layer_stream_after(const struct layer *l, int op)
{
    while (layer_kind_at(l, op) != LAYER_ADD)
        op++;
    return l->op[op].out;
}

/* The last operation that takes the stream is the first one whose backward adds to its gradient. */
static int last_taker(const struct layer *l)
{
    int last = 0;
    for (int k = 0; k < l->b->count; k++)
        last = layer_takes_stream(l, k) ? k : last;
    return last;
}

struct rf_tensor layer_stream_grad(const struct layer *l, int op)
{
    return op < last_taker(l) ? l->din : l->dout;
}

/* backward_weight needs dout unchanged, so the sum starts from a copy. */
int layer_begin_din(const struct layer *l, int op)
{
    return op == last_taker(l) ? rf_copy(l->m.ctx->stream, l->din, l->dout) : 0;
}

/* ---- which gradients are needed -------------------------------------------------------------- */

bool layer_needs_input(const struct layer *l, int op)
{
    return op > 0 ? layer_needs(l, op - 1) : !l->m.ctx->din_unused;
}

bool layer_needs(const struct layer *l, int op)
{
    if (!model_alone(&l->m) || l->m.context.ranks > 1 || !l->m.ctx->din_unused)
        return true;
    for (int k = 0; k <= op; k++) {
        const struct layer_row *row = layer_row_of(l, k);
        if (row->trains && row->trains(l, k))
            return true;
    }
    return false;
}
