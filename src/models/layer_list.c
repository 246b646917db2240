/* SPDX-License-Identifier: MIT
 *
 * Queries about each operation of a layer's list; see layer_call.h.
 */
#include "layer_call.h"

int64_t layer_hidden(const struct layer_config *g, int op)
{
    while (op > 0 && g->ops[op].kind != LAYER_COLUMN_LINEAR)
        op--;
    return g->ops[op].hidden ? g->ops[op].hidden : g->hidden;
}

int64_t layer_whole(const struct layer_config *g, int op, enum layer_columns columns)
{
    const int64_t all[] = {[LAYER_NONE] = 0,
                           [LAYER_CHANNELS] = g->channels,
                           [LAYER_QUERIES] = g->heads * g->head_size,
                           [LAYER_KEYS] = g->kv_heads * g->head_size,
                           [LAYER_HEAD_SIZE] = g->head_size,
                           [LAYER_HIDDEN] = layer_hidden(g, op)};
    return all[columns];
}

int64_t layer_outputs(const struct layer_config *g, int op)
{
    int64_t rows = 0;
    for (int k = 0; k < LORA_MODULES; k++)
        rows += layer_whole(g, op, g->ops[op].columns[k]);
    return rows;
}

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

bool layer_fuses(const struct layer_op *op)
{
    return op->kind == LAYER_ACT &&
           (op->act == RF_ACT_RELU || op->act == RF_ACT_GELU || op->act == RF_ACT_SILU);
}

/* ---- recomputation --------------------------------------------------------------------------- */

static bool is_activation(enum layer_kind kind)
{
    return kind == LAYER_ACT || kind == LAYER_GATE;
}

/* The bit of enum model_recompute_part by which the result is not kept. A post-norm's is never. */
static unsigned drops_by(const struct layer *l, int op)
{
    switch (layer_kind_at(l, op)) {
    case LAYER_NORM:
        return layer_takes_stream(l, op) ? MODEL_RECOMPUTE_NORMS : 0;
    case LAYER_COLUMN_LINEAR:
        return is_activation(layer_kind_at(l, op + 1)) ? MODEL_RECOMPUTE_MLP : 0;
    case LAYER_ATTEND:
        return MODEL_RECOMPUTE_ATTENTION;
    case LAYER_ACT:
    case LAYER_GATE:
        return MODEL_RECOMPUTE_GELU;
    default:
        return 0;
    }
}

bool layer_drops(const struct layer *l, int op)
{
    return (l->m.recompute & drops_by(l, op)) != 0;
}

bool layer_repeats(const struct layer *l, int op)
{
    if (layer_kind_at(l, op) == LAYER_ATTEND)
        return layer_drops(l, op);
    for (int k = op; k <= op + 2; k++) /* a norm or an identity, a column linear, an activation */
        if (is_activation(layer_kind_at(l, k)))
            return (l->m.recompute & MODEL_RECOMPUTE_MLP) != 0;
        else if (k > op && layer_kind_at(l, k) != LAYER_COLUMN_LINEAR)
            return false;
    return false;
}

/* ---- the stream ------------------------------------------------------------------------------ */

bool layer_takes_stream(const struct layer *l, int op)
{
    return op == 0 || layer_kind_at(l, op - 1) == LAYER_ADD;
}

struct rf_tensor layer_stream(const struct layer *l, int op)
{
    if (layer_is_pair(l))
        return l->taken[layer_branch(l, op)];
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

/* The last operation whose input is the stream is the first one whose backward adds to its
 * gradient. */
static int last_taker(const struct layer *l)
{
    int last = 0;
    for (int k = 0; k < l->b->count; k++)
        last = layer_takes_stream(l, k) ? k : last;
    return last;
}

struct rf_tensor layer_stream_grad(const struct layer *l, int op)
{
    if (layer_is_pair(l)) /* y1's is complete when the second branch has added to it */
        return layer_branch(l, op) == 1 ? layer_pair_grad(l->dout, 1) : layer_pair_grad(l->din, 0);
    return op < last_taker(l) ? l->din : l->dout;
}

/* backward_weight needs dout unchanged, so the sum starts from a copy. */
int layer_begin_din(const struct layer *l, int op)
{
    if (layer_is_pair(l))
        return layer_pair_begin(l, op);
    return op == last_taker(l) ? rf_copy(l->m.ctx->stream, l->din, l->dout) : 0;
}

struct rf_tensor layer_din(const struct layer *l, int op)
{
    return layer_is_pair(l) ? layer_pair_grad(l->din, 1 - layer_branch(l, op)) : l->din;
}

/* ---- needed gradients ------------------------------------------------------------------------ */

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

/* ---- heads ----------------------------------------------------------------------------------- */

int layer_heads_of(const struct layer *l, struct rf_tensor t, int64_t first, int64_t heads,
                   struct rf_heads *out)
{
    struct rf_tensor rows;
    const int64_t n = l->m.rows, seq = l->m.ctx->seq;
    RETURN_IF_FAILED(rf_tensor_reshape(t, rf_shape3(n / seq, seq, rf_tensor_count(t) / n), &rows));
    *out = rf_heads_in(rows, l->size, first, heads);
    return 0;
}

struct model_context layer_context(const struct layer *l)
{
    return model_context_of(l->m.ctx, l->heads, l->keys, l->size);
}
