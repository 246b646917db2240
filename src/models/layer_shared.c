/* SPDX-License-Identifier: MIT
 *
 * Gradients that tensor ranks add in the exchange MODEL_COPIES: rows of the weight of queries, keys
 * and values, and elements of its bias, that ranks have copies of, those of each key head and its
 * value together; then what the rows of kinds have (layer_row.shared).
 */
#include "layer_call.h"

int layer_shared_begin(struct layer *l, int op)
{
    (void)op;
    return l->m.copied + l->m.shared > 0 ? rf_fill(l->m.ctx->stream, l->m.ctx->exchange, 0) : 0;
}

/* The copied rows of this rank follow those of the queries. */
static int64_t own_copies(const struct layer *l)
{
    return l->heads * l->size;
}

/* This rank's head among those of all heads that have copies. `width` is C for the weight, whose
 * rows are first, and 1 for the bias. */
static struct rf_tensor shared_copies(const struct layer *l, struct rf_tensor all, int64_t width)
{
    const int64_t head = (int64_t)l->m.part.rank * l->g->kv_heads / l->m.part.ranks,
                  first = width > 1 ? 0 : l->m.copied * l->m.channels, pair = 2 * l->size;
    struct rf_tensor part = model_elements(all, first + pair * head * width, pair * width);
    if (width > 1)
        part.shape = rf_shape2(pair, width);
    return part;
}

struct rf_tensor layer_shared_of(const struct layer *l, int op, struct rf_tensor all)
{
    int64_t first = l->m.copied * l->m.channels + l->m.shared;
    for (int k = op; k < l->b->count; k++)
        if (layer_row_of(l, k)->shared)
            first -= layer_row_of(l, k)->shared(l, k);
    return model_elements(all, first, layer_row_of(l, op)->shared(l, op));
}

static int split_bias(const struct layer *l, int op)
{
    struct rf_ctx *ctx = l->m.ctx;
    const int bias = l->b->linear[op].bias;
    const struct rf_tensor dout = l->op[op].dout;
    const int64_t q = dout.shape.dim[1], own = own_copies(l), pair = 2 * l->size,
                  partial = rf_bias_grad_scratch(l->m.rows, q);
    struct rf_tensor scratch, grads;
    RETURN_IF_FAILED(model_scratch(ctx, q + partial, &scratch));
    const struct rf_tensor sums = model_elements(scratch, 0, q),
                           rest = model_elements(scratch, q, partial);
    RETURN_IF_FAILED(rf_fill(ctx->stream, sums, 0));
    RETURN_IF_FAILED(rf_bias_grad(ctx->stream, sums, dout, rest));
    RETURN_IF_FAILED(rf_tensor_rows(ctx->grads[bias], 0, own, &grads));
    RETURN_IF_FAILED(rf_add(ctx->stream, grads, grads, model_elements(sums, 0, own)));
    return rf_copy(ctx->stream, shared_copies(l, ctx->exchange, 1),
                   model_elements(sums, own, pair));
}

int layer_split_linear(struct layer *l, int op, struct rf_tensor in)
{
    struct rf_ctx *ctx = l->m.ctx;
    const struct model_linear *linear = &l->b->linear[op];
    const struct rf_tensor dout = l->op[op].dout;
    const int64_t queries = own_copies(l);
    struct rf_tensor grads;
    if (model_wants(ctx, linear->weight)) {
        const struct rf_tensor copies = shared_copies(l, ctx->exchange, l->m.channels);
        RETURN_IF_FAILED(rf_tensor_rows(ctx->grads[linear->weight], 0, queries, &grads));
        RETURN_IF_FAILED(model_linear_grad_rows(&l->m, grads, dout, in, 0, queries,
                                                !ctx->overwrite_grad[linear->weight]));
        RETURN_IF_FAILED(
            model_linear_grad_rows(&l->m, copies, dout, in, queries, 2 * l->size, false));
    }
    return linear->bias && model_wants(ctx, linear->bias) ? split_bias(l, op) : 0;
}

static int take_copies(const struct layer *l, const struct model_linear *linear)
{
    struct rf_ctx *ctx = l->m.ctx;
    struct rf_tensor grads;
    if (model_wants(ctx, linear->weight)) {
        const struct rf_tensor copies = shared_copies(l, ctx->exchanged, l->m.channels);
        RETURN_IF_FAILED(
            rf_tensor_rows(ctx->grads[linear->weight], own_copies(l), 2 * l->size, &grads));
        RETURN_IF_FAILED(ctx->overwrite_grad[linear->weight]
                             ? rf_copy(ctx->stream, grads, copies)
                             : rf_add(ctx->stream, grads, grads, copies));
    }
    if (!linear->bias || !model_wants(ctx, linear->bias))
        return 0;
    RETURN_IF_FAILED(rf_tensor_rows(ctx->grads[linear->bias], own_copies(l), 2 * l->size, &grads));
    return rf_add(ctx->stream, grads, grads, shared_copies(l, ctx->exchanged, 1));
}

int layer_shared_take(struct layer *l, int op)
{
    (void)op;
    for (int k = 0; l->m.copied && k < l->b->count; k++)
        if (layer_kind_at(l, k) == LAYER_COLUMN_LINEAR && l->g->ops[k].columns[1] == LAYER_KEYS)
            RETURN_IF_FAILED(take_copies(l, &l->b->linear[k]));
    for (int k = 0; k < l->b->count; k++) {
        const struct layer_row *row = layer_row_of(l, k);
        if (row->shared && row->shared(l, k) > 0)
            RETURN_IF_FAILED(row->take_shared(l, k));
    }
    return 0;
}
