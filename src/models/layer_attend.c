/* SPDX-License-Identifier: MIT
 *
 * Attention of a layer, and the norms and rotation of its queries and keys; see layer_call.h. If
 * sequences are split over ranks, context.h has the rest.
 */
#include "layer_call.h"

/* A rank's heads of a packed tensor, or of an (n,hD) tensor. Queries and keys are adjacent, and so
 * are keys and values. */
static int heads_of(const struct layer *l, struct rf_tensor t, int64_t first, int64_t heads,
                    struct rf_heads *out)
{
    struct rf_tensor rows;
    const int64_t n = l->m.rows, seq = l->m.ctx->seq;
    RETURN_IF_FAILED(rf_tensor_reshape(t, rf_shape3(n / seq, seq, rf_tensor_count(t) / n), &rows));
    *out = rf_heads_in(rows, l->size, first, heads);
    return 0;
}

/* What a norm takes as one row: a head, or all heads of a token. */
static int64_t normed_size(const struct layer *l, int which)
{
    return l->g->head_norms == LAYER_HEAD_NORM ? l->size : (which ? l->keys : l->heads) * l->size;
}

static int normed_rows(const struct layer *l, struct rf_tensor t, int which, struct rf_tensor *out)
{
    const int64_t size = normed_size(l, which);
    return rf_tensor_reshape(t, rf_shape2(rf_tensor_count(t) / size, size), out);
}

static struct model_context context_of(const struct layer *l)
{
    return model_context_of(l->m.ctx, l->heads, l->keys, l->size);
}

/* ---- queries and keys ------------------------------------------------------------------------ */

/* out = the heads x of this rank's rows, rotated, or rotated back. out may be x. */
static int rotate(const struct layer *l, struct rf_heads out, struct rf_heads x, bool back)
{
    const struct model_context c = context_of(l);
    const bool whole = l->m.context.ranks <= 1;
    for (int half = 0; half < (whole ? 1 : 2); half++) {
        struct rf_rotary_opts rotary = l->g->rotary;
        rotary.position = whole ? 0 : model_chunk_first(&c, half);
        const struct rf_heads from = whole ? x : model_chunk_of(x, half),
                              to = whole ? out : model_chunk_of(out, half);
        RETURN_IF_FAILED(back ? rf_rotary_backward(l->m.ctx->stream, to, from, &rotary)
                              : rf_rotary(l->m.ctx->stream, to, from, &rotary));
    }
    return 0;
}

static int turn(const struct layer *l, struct rf_heads out, struct rf_heads x, bool back)
{
    return l->g->rotates ? rotate(l, out, x, back) : rf_copy_heads(l->m.ctx->stream, out, x, false);
}

/* The queries (0) or keys (1), and their norm. */
struct normed {
    int64_t first, heads; /* in the packed tensor */
    struct rf_tensor weight, rstd, kept, x,
        dout;              /* kept: (n,hD); x and dout: as rows of the norm */
    struct rf_tensor free; /* as large, in the memory of attention's result, which is not in use */
    struct rf_tensor free_rows;
    struct rf_heads packed, kept_heads, dout_heads, free_heads;
};

/* packed: the queries, keys and values, or their gradient. */
static int open_normed(const struct layer *l, int op, int which, struct rf_tensor packed,
                       struct rf_tensor mixed, struct normed *n)
{
    const struct layer_normed_heads *s = &l->op[op].heads[which];
    *n = (struct normed){.first = which ? l->heads : 0,
                         .heads = which ? l->keys : l->heads,
                         .weight = l->m.ctx->params[l->b->head_norm[which]],
                         .rstd = s->rstd,
                         .kept = s->x,
                         .free = mixed};
    n->free.shape = rf_shape2(l->m.rows, n->heads * l->size);
    RETURN_IF_FAILED(heads_of(l, packed, n->first, n->heads, &n->packed));
    RETURN_IF_FAILED(heads_of(l, s->x, 0, n->heads, &n->kept_heads));
    RETURN_IF_FAILED(heads_of(l, n->free, 0, n->heads, &n->free_heads));
    RETURN_IF_FAILED(normed_rows(l, n->free, which, &n->free_rows));
    RETURN_IF_FAILED(normed_rows(l, s->x, which, &n->x));
    if (!s->dout.buffer)
        return 0; /* forward */
    RETURN_IF_FAILED(heads_of(l, s->dout, 0, n->heads, &n->dout_heads));
    return normed_rows(l, s->dout, which, &n->dout);
}

static int place(struct layer *l, int op)
{
    struct rf_stream *stream = l->m.ctx->stream;
    const struct rf_tensor packed = l->op[op - 1].out;
    struct rf_heads both; /* queries and keys are adjacent */
    for (int which = 0; l->g->head_norms && which < 2; which++) {
        struct normed n;
        RETURN_IF_FAILED(open_normed(l, op, which, packed, l->op[op + 1].out, &n));
        RETURN_IF_FAILED(rf_copy_heads(stream, n.kept_heads, n.packed, false));
        RETURN_IF_FAILED(rf_norm(stream, &(struct rf_norm_args){.rms = true,
                                                                .eps = l->g->eps,
                                                                .x = n.x,
                                                                .gamma = n.weight,
                                                                .out = n.free_rows,
                                                                .rstd = n.rstd}));
        RETURN_IF_FAILED(turn(l, n.packed, n.free_heads, false));
    }
    if (l->g->head_norms || !l->g->rotates)
        return 0;
    RETURN_IF_FAILED(heads_of(l, packed, 0, l->heads + l->keys, &both));
    return rotate(l, both, both, false);
}

static int place_back(struct layer *l, int op)
{
    struct rf_stream *stream = l->m.ctx->stream;
    const struct rf_tensor packed = l->op[op - 1].dout;
    struct rf_heads both;
    if (!layer_needs(l, op))
        return 0;
    for (int which = 0; l->g->head_norms && which < 2; which++) {
        struct normed n;
        RETURN_IF_FAILED(open_normed(l, op, which, packed, l->w.mixed, &n));
        RETURN_IF_FAILED(turn(l, n.dout_heads, n.packed, true));
        RETURN_IF_FAILED(rf_norm_backward_input(stream, &(struct rf_norm_args){.rms = true,
                                                                               .x = n.x,
                                                                               .gamma = n.weight,
                                                                               .rstd = n.rstd,
                                                                               .dout = n.dout,
                                                                               .dx = n.free_rows}));
        RETURN_IF_FAILED(rf_copy_heads(stream, n.packed, n.free_heads, false));
    }
    if (l->g->head_norms || !l->g->rotates)
        return 0;
    RETURN_IF_FAILED(heads_of(l, packed, 0, l->heads + l->keys, &both));
    return rotate(l, both, both, true);
}

static bool trains(const struct layer *l, int op)
{
    (void)op;
    return l->g->head_norms &&
           (model_wants(l->m.ctx, l->b->head_norm[0]) || model_wants(l->m.ctx, l->b->head_norm[1]));
}

static int head_norm_grads(struct layer *l, int op)
{
    const struct rf_ctx *ctx = l->m.ctx;
    for (int which = 0; l->g->head_norms && which < 2; which++) {
        const struct layer_normed_heads *s = &l->op[op].heads[which];
        struct rf_norm_args norm = {
            .rms = true, .rstd = s->rstd, .dgamma = layer_head_norm_grad(l, which)};
        if (!model_wants(ctx, l->b->head_norm[which]))
            continue;
        RETURN_IF_FAILED(normed_rows(l, s->dout, which, &norm.dout));
        RETURN_IF_FAILED(normed_rows(l, s->x, which, &norm.x));
        const int64_t *dim = norm.x.shape.dim;
        RETURN_IF_FAILED(model_scratch(ctx, rf_norm_scratch(dim[0], dim[1]), &norm.scratch));
        RETURN_IF_FAILED(rf_norm_backward_weight(ctx->stream, &norm));
    }
    return 0;
}

static int64_t head_scratch(const struct layer *l, int op)
{
    (void)op;
    const int64_t size = normed_size(l, 0);
    return l->g->head_norms ? rf_norm_scratch(l->m.rows * l->heads * l->size / size, size) : 0;
}

static void cut_heads(struct layer *l, int op, struct layer_regions *r)
{
    const enum rf_dtype t = l->m.dtype;
    for (int which = 0; which < 2; which++) {
        struct layer_normed_heads *s = &l->op[op].heads[which];
        const int64_t heads = which ? l->keys : l->heads;
        const bool plain = !l->g->head_norms;
        layer_cut(&r->saved, (struct model_cut){&s->x, heads * l->size, t, plain});
        layer_cut(&r->saved, (struct model_cut){&s->rstd, heads * l->size / normed_size(l, which),
                                                RF_F32, plain});
        layer_cut(&r->for_weight, (struct model_cut){&s->dout, heads * l->size, t, plain});
    }
}

const struct layer_row layer_heads_row = {.cut = cut_heads,
                                          .forward = {{place}},
                                          .back = {{place_back}},
                                          .weight = {{head_norm_grads}},
                                          .trains = trains,
                                          .scratch = head_scratch};

/* ---- attention ------------------------------------------------------------------------------- */

/* The product that has the queries, keys and values. */
static int packed_of(const struct layer *l, int op)
{
    return layer_kind_at(l, op - 1) == LAYER_HEADS ? op - 2 : op - 1;
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
    RETURN_IF_FAILED(heads_of(l, packed, 0, h, &args->q));
    RETURN_IF_FAILED(heads_of(l, packed, h, k, &args->k));
    RETURN_IF_FAILED(heads_of(l, packed, h + k, k, &args->v));
    RETURN_IF_FAILED(heads_of(l, l->op[op].out, 0, h, &args->out));
    args->lse = l->op[op].lse;
    args->starts = l->m.ctx->starts;
    return l->m.context.ranks > 1 ? 0 : by_head(l, l->op[op].lse, &args->lse);
}

/* This rank's keys and values, which are adjacent. */
static int own_keys(const struct layer *l, struct rf_tensor packed, struct rf_heads *out)
{
    return heads_of(l, packed, l->heads, 2 * l->keys, out);
}

static int give_keys(struct layer *l, int op)
{
    const struct model_context c = context_of(l);
    struct rf_heads keys;
    if (l->m.context.ranks <= 1)
        return 0;
    RETURN_IF_FAILED(own_keys(l, l->op[packed_of(l, op)].out, &keys));
    return model_write_keys(&c, keys);
}

static int order_keys(struct layer *l, int op)
{
    const struct model_context c = context_of(l);
    (void)op;
    return l->m.context.ranks > 1 ? model_order_keys(&c, &l->w.sequences) : 0;
}

static int run(const struct layer *l, int op)
{
    const struct model_context c = context_of(l);
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

/* Where ranks have copies of a key head, each rank computes the part of the gradient that its own
 * queries contribute. The later sum over the ranks adds these parts; layer_shared.c adds those of
 * the weights. */
static int attend_back(struct layer *l, int op)
{
    const int64_t h = l->heads, k = l->keys;
    const struct rf_tensor packed = l->op[packed_of(l, op)].dout;
    const struct model_context c = context_of(l);
    struct rf_attention_args args;
    struct rf_attention_grads grads;
    if (!layer_needs_input(l, op))
        return 0;
    RETURN_IF_FAILED(arguments(l, op, &args));
    RETURN_IF_FAILED(heads_of(l, l->w.mixed, 0, h, &grads.dout));
    RETURN_IF_FAILED(heads_of(l, packed, 0, h, &grads.dq));
    RETURN_IF_FAILED(heads_of(l, packed, h, k, &grads.dk));
    RETURN_IF_FAILED(heads_of(l, packed, h + k, k, &grads.dv));
    grads.delta = l->w.delta;
    if (l->m.context.ranks > 1)
        return model_attend_back(&c, &l->w.sequences, &args, &grads);
    RETURN_IF_FAILED(by_head(l, l->w.delta, &grads.delta));
    return rf_attend_backward(l->m.ctx->stream, &args, &grads);
}

static int read_key_grads(struct layer *l, int op)
{
    const struct model_context c = context_of(l);
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
