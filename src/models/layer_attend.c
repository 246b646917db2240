/* SPDX-License-Identifier: MIT
 *
 * Attention of a layer; see layer_call.h. If sequences are split over ranks, context.h has the
 * rest.
 */
#include "layer_call.h"

/* The product that gives the queries, keys and values. */
static int packed_of(const struct layer *l, int op)
{
    while (layer_kind_at(l, op) != LAYER_COLUMN_LINEAR)
        op--;
    return op;
}

/* Views (n,h) floats as (B,h,T). */
static int by_head(const struct layer *l, struct rf_tensor t, struct rf_tensor *out)
{
    const int64_t seq = l->m.ctx->seq;
    return rf_tensor_reshape(t, rf_shape3(l->m.rows / seq, l->heads, seq), out);
}

/* If sequences are split, the arguments describe this rank's rows, and lse stays (n,h). */
static int arguments(const struct layer *l, int op, struct rf_attention_args *args)
{
    const struct rf_tensor packed = l->op[packed_of(l, op)].out;
    const int64_t h = l->heads, k = l->keys;
    *args = (struct rf_attention_args){0};
    RETURN_IF_FAILED(layer_heads_of(l, packed, 0, h, &args->q));
    RETURN_IF_FAILED(layer_heads_of(l, packed, h, k, &args->k));
    RETURN_IF_FAILED(layer_heads_of(l, packed, h + k, k, &args->v));
    RETURN_IF_FAILED(layer_heads_of(l, l->op[op].out, 0, h, &args->out));
    args->lse = l->op[op].lse;
    args->starts = l->m.ctx->starts;
    return l->m.context.ranks > 1 ? 0 : by_head(l, l->op[op].lse, &args->lse);
}

/* This rank's keys and values, which are adjacent. */
static int own_keys(const struct layer *l, struct rf_tensor packed, struct rf_heads *out)
{
    return layer_heads_of(l, packed, l->heads, 2 * l->keys, out);
}

static int give_keys(struct layer *l, int op)
{
    const struct model_context c = layer_context(l);
    struct rf_heads keys;
    if (l->m.context.ranks <= 1)
        return 0;
    RETURN_IF_FAILED(own_keys(l, l->op[packed_of(l, op)].out, &keys));
    return model_write_keys(&c, keys);
}

static int order_keys(struct layer *l, int op)
{
    const struct model_context c = layer_context(l);
    (void)op;
    return l->m.context.ranks > 1 ? model_order_keys(&c, &l->w.sequences) : 0;
}

static int run(const struct layer *l, int op)
{
    const struct model_context c = layer_context(l);
    struct rf_attention_args args;
    RETURN_IF_FAILED(arguments(l, op, &args));
    return l->m.context.ranks > 1 ? model_attend(&c, &l->w.sequences, &args)
                                  : rf_attend(l->m.ctx->stream, &args);
}

static int attend(struct layer *l, int op)
{
    RETURN_IF_FAILED(order_keys(l, op));
    return run(l, op);
}

static int repeat(struct layer *l, int op)
{
    return layer_needs(l, op + 1) ? MODEL_RECOMPUTED(l->m.ctx, run(l, op)) : 0;
}

/* If ranks have copies of a key head, each rank computes the part of the gradient from its own
 * queries. The later sum over the ranks adds these parts; layer_shared.c adds those of the weights.
 */
static int attend_back(struct layer *l, int op)
{
    const int64_t h = l->heads, k = l->keys;
    const struct rf_tensor packed = l->op[packed_of(l, op)].dout;
    const struct model_context c = layer_context(l);
    struct rf_attention_args args;
    struct rf_attention_grads grads;
    if (!layer_needs_input(l, op))
        return 0;
    RETURN_IF_FAILED(arguments(l, op, &args));
    RETURN_IF_FAILED(layer_heads_of(l, l->w.mixed, 0, h, &grads.dout));
    RETURN_IF_FAILED(layer_heads_of(l, packed, 0, h, &grads.dq));
    RETURN_IF_FAILED(layer_heads_of(l, packed, h, k, &grads.dk));
    RETURN_IF_FAILED(layer_heads_of(l, packed, h + k, k, &grads.dv));
    grads.delta = l->w.delta;
    if (l->m.context.ranks > 1)
        return model_attend_back(&c, &l->w.sequences, &args, &grads);
    RETURN_IF_FAILED(by_head(l, l->w.delta, &grads.delta));
    return rf_attend_backward(l->m.ctx->stream, &args, &grads);
}

static int read_key_grads(struct layer *l, int op)
{
    const struct model_context c = layer_context(l);
    struct rf_heads keys;
    if (l->m.context.ranks <= 1)
        return 0;
    RETURN_IF_FAILED(own_keys(l, l->op[packed_of(l, op)].dout, &keys));
    return model_read_key_grads(&c, keys);
}

static void cut_attend(struct layer *l, int op, struct layer_regions *r)
{
    const struct model_layer *m = &l->m;
    struct layer_state *s = &l->op[op];
    const int64_t columns = layer_columns(l, op);
    const bool drops = layer_drops(l, op);
    struct model_cut sequences[MODEL_SEQUENCE_CUTS];
    layer_cut(&r->saved, (struct model_cut){&s->out, columns, m->dtype, drops});
    layer_cut(&r->saved, (struct model_cut){&s->lse, l->heads, RF_F32, drops});
    layer_cut(&r->for_weight, (struct model_cut){&s->held, columns, m->dtype, !drops});
    layer_cut(&r->attention, (struct model_cut){&l->w.mixed, columns, m->dtype});
    layer_cut(&r->attention, (struct model_cut){&l->w.delta, l->heads});
    layer_cut(&r->attention, (struct model_cut){&l->w.lse, l->heads, RF_F32, !drops});
    model_cut_sequences(m, &l->w.sequences, sequences);
    for (int k = 0; k < MODEL_SEQUENCE_CUTS; k++)
        layer_cut(&r->attention, sequences[k]);
}

const struct layer_row layer_attend_row = {
    .cut = cut_attend,
    .forward = {{give_keys, MODEL_KEYS}, {attend}},
    .ready = {{give_keys, MODEL_KEYS}, {order_keys}},
    .repeat = {{repeat}},
    .back = {{attend_back, MODEL_KEY_GRADS}, {read_key_grads}}};
