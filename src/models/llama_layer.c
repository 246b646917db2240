/* SPDX-License-Identifier: MIT
 *
 * A layer of a Llama-style model: x + attention(norm(x)), then that + gated unit(norm(that)). What
 * it does not keep (recompute.h) passes through scratch, and is made again in the backward pass by
 * the same kernels; what both halves of that need and costs a product or attention goes by the
 * handoff.
 */
#include <string.h>

#include "llama_internal.h"

enum param { NORM1, QKV, PROJ, NORM2, GATE_UP, DOWN };

/* What forward makes; rows n, channels C, hidden F, H heads and K of keys and values, of size D.
 * All but what is recomputed is kept. */
struct saved {
    struct rf_tensor norm1, rstd1;    /* (n,C) (n) */
    struct rf_tensor qkv, mixed, lse; /* (n,(H+2K)D), turned; (n,C) (n,H) */
    struct rf_tensor middle;          /* (n,C): x + attention */
    struct rf_tensor norm2, rstd2;
    struct rf_tensor gates, act; /* (n,2F): gate and up; (n,F) */
};
/* What backward_input keeps for backward_weight, all in the type of products. */
struct handoff {
    struct rf_tensor dgates, dmiddle, dqkv; /* (n,2F) (n,C) (n,(H+2K)D) */
    struct rf_tensor dnorm1, dnorm2;        /* (n,C) */
    struct rf_tensor dout;       /* (n,C): kept where the residual stream has another type */
    struct rf_tensor mixed, act; /* (n,C) (n,F): kept where attention or the unit is recomputed */
};
/* What lives inside a call, in scratch: `operands` of products, which are not kept; what attention
 * uses; and the gradient of the unit's output. Each from the start. */
struct work {
    struct rf_tensor norm, rstd, gates, act; /* (n,C) (n) (n,2F) (n,F) */
    struct rf_tensor mixed, delta, lse;      /* (n,C), or its gradient; (n,H) (n,H) */
    struct rf_tensor dact;                   /* (n,F) */
};

static bool drops(const struct llama_config *g, enum model_recompute_part part)
{
    return (g->recompute & part) != 0;
}

#define SAVED_CUTS 10
static void cut_saved(const struct llama_config *g, struct saved *s,
                      struct model_cut cuts[SAVED_CUTS])
{
    const int64_t c = g->channels, f = g->hidden;
    const enum rf_dtype t = g->dtype;
    const bool norms = drops(g, MODEL_RECOMPUTE_NORMS),
               attention = drops(g, MODEL_RECOMPUTE_ATTENTION);
    const struct model_cut all[SAVED_CUTS] = {
        {&s->norm1, c, t, norms},
        {&s->rstd1},
        {&s->qkv, llama_qkv_columns(g), t},
        {&s->mixed, c, t, attention},
        {&s->lse, g->heads, RF_F32, attention},
        {&s->middle, c, g->residual},
        {&s->norm2, c, t, norms},
        {&s->rstd2},
        {&s->gates, 2 * f, t, drops(g, MODEL_RECOMPUTE_MLP)},
        {&s->act, f, t, drops(g, MODEL_RECOMPUTE_GELU)},
    };
    memcpy(cuts, all, sizeof(all));
}

static int get_saved(const struct rf_ctx *ctx, const struct llama_config *g, struct saved *s)
{
    struct model_cut cuts[SAVED_CUTS];
    *s = (struct saved){0};
    cut_saved(g, s, cuts);
    return model_carve(ctx->saved, ctx->rows, cuts, SAVED_CUTS);
}

#define HANDOFF_CUTS 8
static void cut_handoff(const struct llama_config *g, struct handoff *h,
                        struct model_cut cuts[HANDOFF_CUTS])
{
    const int64_t c = g->channels, f = g->hidden;
    const enum rf_dtype t = g->dtype;
    const struct model_cut all[HANDOFF_CUTS] = {
        {&h->dgates, 2 * f, t},
        {&h->dmiddle, c, t},
        {&h->dqkv, llama_qkv_columns(g), t},
        {&h->dnorm1, c, t},
        {&h->dnorm2, c, t},
        {&h->dout, c, t, g->residual == t},
        {&h->mixed, c, t, !drops(g, MODEL_RECOMPUTE_ATTENTION)},
        {&h->act, f, t, !drops(g, MODEL_RECOMPUTE_MLP)},
    };
    memcpy(cuts, all, sizeof(all));
}

static int get_handoff(const struct rf_ctx *ctx, const struct llama_config *g,
                       struct rf_tensor dout, struct handoff *h)
{
    struct model_cut cuts[HANDOFF_CUTS];
    *h = (struct handoff){.dout = dout};
    cut_handoff(g, h, cuts);
    return model_carve(ctx->handoff, ctx->rows, cuts, HANDOFF_CUTS);
}

struct work_cuts {
    struct model_cut operands[4], attention[3], unit[1];
};
static struct work_cuts cut_work(const struct llama_config *g, struct work *w)
{
    const int64_t c = g->channels, f = g->hidden, heads = g->heads;
    const enum rf_dtype t = g->dtype;
    const bool norms = drops(g, MODEL_RECOMPUTE_NORMS),
               attention = drops(g, MODEL_RECOMPUTE_ATTENTION);
    return (struct work_cuts){
        .operands = {{&w->norm, c, t, !norms},
                     {&w->rstd, 0, RF_F32, !norms},
                     {&w->gates, 2 * f, t, !drops(g, MODEL_RECOMPUTE_MLP)},
                     {&w->act, f, t, !drops(g, MODEL_RECOMPUTE_GELU)}},
        .attention = {{&w->mixed, c, t}, {&w->delta, heads}, {&w->lse, heads, RF_F32, !attention}},
        .unit = {{&w->dact, f, t}},
    };
}

static int get_work(const struct rf_ctx *ctx, const struct llama_config *g, struct work *w)
{
    *w = (struct work){0};
    const struct work_cuts cuts = cut_work(g, w);
    RETURN_IF_FAILED(model_carve(ctx->scratch, ctx->rows, MODEL_CUTS(cuts.operands)));
    RETURN_IF_FAILED(model_carve(ctx->scratch, ctx->rows, MODEL_CUTS(cuts.attention)));
    return model_carve(ctx->scratch, ctx->rows, MODEL_CUTS(cuts.unit));
}

/* ---- attention ------------------------------------------------------------------------------- */

/* Heads of a packed tensor, or of one of (n,C). */
static int heads_of(struct rf_tensor t, const struct rf_ctx *ctx, const struct llama_config *g,
                    int64_t first, int64_t heads, struct rf_heads *out)
{
    struct rf_tensor rows;
    const int64_t columns = rf_tensor_count(t) / ctx->rows;
    RETURN_IF_FAILED(
        rf_tensor_reshape(t, rf_shape3(ctx->rows / ctx->seq, ctx->seq, columns), &rows));
    *out = rf_heads_in(rows, g->channels / g->heads, first, heads);
    return 0;
}

/* (n,H) floats hold (B,H,T): the same count. */
static int by_head(struct rf_tensor t, const struct rf_ctx *ctx, const struct llama_config *g,
                   struct rf_tensor *out)
{
    return rf_tensor_reshape(t, rf_shape3(ctx->rows / ctx->seq, g->heads, ctx->seq), out);
}

static int attention_args(const struct rf_ctx *ctx, const struct llama_config *g,
                          const struct saved *s, struct rf_attention_args *args)
{
    const int64_t h = g->heads, k = g->kv_heads;
    *args = (struct rf_attention_args){0};
    RETURN_IF_FAILED(heads_of(s->qkv, ctx, g, 0, h, &args->q));
    RETURN_IF_FAILED(heads_of(s->qkv, ctx, g, h, k, &args->k));
    RETURN_IF_FAILED(heads_of(s->qkv, ctx, g, h + k, k, &args->v));
    RETURN_IF_FAILED(heads_of(s->mixed, ctx, g, 0, h, &args->out));
    return by_head(s->lse, ctx, g, &args->lse);
}

static struct rf_rotary_opts turns(const struct llama_config *g)
{
    return (struct rf_rotary_opts){.theta = (double)g->theta, .halves = true};
}

static int attend(struct rf_ctx *ctx, const struct llama_config *g, const struct saved *s)
{
    struct rf_attention_args args;
    RETURN_IF_FAILED(attention_args(ctx, g, s, &args));
    return rf_attend(ctx->stream, &args);
}

static int forward_attention(struct rf_ctx *ctx, const struct llama_config *g, struct saved *s,
                             struct rf_tensor x)
{
    const struct rf_tensor *p = ctx->params;
    const struct rf_rotary_opts rotary = turns(g);
    struct rf_heads turned; /* queries and keys lie side by side */
    RETURN_IF_FAILED(rf_rmsnorm(ctx->stream, s->norm1, s->rstd1, x, p[NORM1], g->eps));
    RETURN_IF_FAILED(
        model_matmul(ctx, s->qkv, s->norm1, p[QKV], &(struct rf_matmul_opts){.transpose_b = true}));
    RETURN_IF_FAILED(heads_of(s->qkv, ctx, g, 0, g->heads + g->kv_heads, &turned));
    RETURN_IF_FAILED(rf_rotary(ctx->stream, turned, turned, &rotary));
    RETURN_IF_FAILED(attend(ctx, g, s));
    return model_matmul(ctx, s->middle, s->mixed, p[PROJ],
                        &(struct rf_matmul_opts){.transpose_b = true, .residual = &x});
}

/* din is the gradient of the sum in the middle, to which that of the norm is added. */
static int backward_attention(struct rf_ctx *ctx, const struct llama_config *g,
                              const struct saved *s, const struct handoff *h, const struct work *w,
                              struct rf_tensor din, struct rf_tensor x)
{
    const struct rf_tensor *p = ctx->params, dmixed = w->mixed;
    const struct rf_rotary_opts rotary = turns(g);
    const int64_t heads = g->heads, k = g->kv_heads;
    struct rf_attention_args args;
    struct rf_attention_grads grads;
    struct rf_heads turned;
    RETURN_IF_FAILED(rf_cast(ctx->stream, h->dmiddle, din));
    RETURN_IF_FAILED(model_matmul(ctx, dmixed, h->dmiddle, p[PROJ], NULL));
    RETURN_IF_FAILED(attention_args(ctx, g, s, &args));
    RETURN_IF_FAILED(heads_of(dmixed, ctx, g, 0, heads, &grads.dout));
    RETURN_IF_FAILED(heads_of(h->dqkv, ctx, g, 0, heads, &grads.dq));
    RETURN_IF_FAILED(heads_of(h->dqkv, ctx, g, heads, k, &grads.dk));
    RETURN_IF_FAILED(heads_of(h->dqkv, ctx, g, heads + k, k, &grads.dv));
    RETURN_IF_FAILED(by_head(w->delta, ctx, g, &grads.delta));
    RETURN_IF_FAILED(rf_attend_backward(ctx->stream, &args, &grads));
    RETURN_IF_FAILED(heads_of(h->dqkv, ctx, g, 0, heads + k, &turned));
    RETURN_IF_FAILED(rf_rotary_backward(ctx->stream, turned, turned, &rotary));
    RETURN_IF_FAILED(model_matmul(ctx, h->dnorm1, h->dqkv, p[QKV], NULL));
    return rf_rmsnorm_backward_input(ctx->stream, din, h->dnorm1, x, s->rstd1, p[NORM1], true);
}

/* ---- forward --------------------------------------------------------------------------------- */

static int gate(struct rf_ctx *ctx, const struct saved *s)
{
    const struct rf_tensor none = {0};
    return rf_glu(ctx->stream, RF_ACT_SILU, s->act, s->gates, none);
}

static int widen(struct rf_ctx *ctx, const struct saved *s)
{
    RETURN_IF_FAILED(model_matmul(ctx, s->gates, s->norm2, ctx->params[GATE_UP],
                                  &(struct rf_matmul_opts){.transpose_b = true}));
    return gate(ctx, s);
}

static int forward(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor out)
{
    const struct llama_config *g = self;
    const struct rf_tensor *p = ctx->params;
    struct saved s;
    struct work w;
    RETURN_IF_FAILED(get_saved(ctx, g, &s));
    RETURN_IF_FAILED(get_work(ctx, g, &w));
    if (drops(g, MODEL_RECOMPUTE_NORMS))
        s.norm1 = s.norm2 = w.norm;
    if (drops(g, MODEL_RECOMPUTE_ATTENTION)) {
        s.mixed = w.mixed;
        s.lse = w.lse;
    }
    if (drops(g, MODEL_RECOMPUTE_MLP))
        s.gates = w.gates;
    if (drops(g, MODEL_RECOMPUTE_GELU))
        s.act = w.act;
    RETURN_IF_FAILED(forward_attention(ctx, g, &s, in));
    RETURN_IF_FAILED(rf_rmsnorm(ctx->stream, s.norm2, s.rstd2, s.middle, p[NORM2], g->eps));
    RETURN_IF_FAILED(widen(ctx, &s));
    return model_matmul(ctx, out, s.act, p[DOWN],
                        &(struct rf_matmul_opts){.transpose_b = true, .residual = &s.middle});
}

/* ---- once more, in backward ------------------------------------------------------------------ */

/* Whole, as in forward: so it is the same bits. The rstd that it writes is the one kept. */
static int norm_again(struct rf_ctx *ctx, const struct llama_config *g, enum param weight,
                      struct rf_tensor x, const struct work *w)
{
    if (!drops(g, MODEL_RECOMPUTE_NORMS))
        return 0;
    return MODEL_AGAIN(ctx,
                       rf_rmsnorm(ctx->stream, w->norm, w->rstd, x, ctx->params[weight], g->eps));
}

/* The gates where their gradients will be, which replace them. */
static int mlp_again(struct rf_ctx *ctx, const struct llama_config *g, struct saved *s,
                     const struct handoff *h, const struct work *w)
{
    if (!drops(g, MODEL_RECOMPUTE_MLP))
        return 0;
    if (drops(g, MODEL_RECOMPUTE_NORMS))
        s->norm2 = w->norm;
    s->gates = h->dgates;
    s->act = h->act;
    RETURN_IF_FAILED(norm_again(ctx, g, NORM2, s->middle, w));
    return MODEL_AGAIN(ctx, widen(ctx, s));
}

static int attention_again(struct rf_ctx *ctx, const struct llama_config *g, struct saved *s,
                           const struct handoff *h, const struct work *w)
{
    if (!drops(g, MODEL_RECOMPUTE_ATTENTION))
        return 0;
    s->mixed = h->mixed;
    s->lse = w->lse;
    return MODEL_AGAIN(ctx, attend(ctx, g, s));
}

/* act: of the handoff, or made of the gates, or kept. */
static int act_again(struct rf_ctx *ctx, const struct llama_config *g, struct saved *s,
                     const struct handoff *h, const struct work *w)
{
    if (!drops(g, MODEL_RECOMPUTE_GELU))
        return 0;
    s->act = drops(g, MODEL_RECOMPUTE_MLP) ? h->act : w->act;
    return drops(g, MODEL_RECOMPUTE_MLP) ? 0 : MODEL_AGAIN(ctx, gate(ctx, s));
}

/* ---- backward -------------------------------------------------------------------------------- */

static int backward_input(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                          struct rf_tensor dout, struct rf_tensor din)
{
    const struct llama_config *g = self;
    const struct rf_tensor *p = ctx->params, none = {0};
    struct saved s;
    struct handoff h;
    struct work w;
    RETURN_IF_FAILED(get_saved(ctx, g, &s));
    RETURN_IF_FAILED(get_handoff(ctx, g, dout, &h));
    RETURN_IF_FAILED(get_work(ctx, g, &w));
    if (g->residual != g->dtype)
        RETURN_IF_FAILED(rf_cast(ctx->stream, h.dout, dout));
    RETURN_IF_FAILED(mlp_again(ctx, g, &s, &h, &w));
    RETURN_IF_FAILED(model_matmul(ctx, w.dact, h.dout, p[DOWN], NULL));
    RETURN_IF_FAILED(
        rf_glu_backward(ctx->stream, RF_ACT_SILU, h.dgates, none, w.dact, s.gates, none));
    RETURN_IF_FAILED(model_matmul(ctx, h.dnorm2, h.dgates, p[GATE_UP], NULL));
    /* dout is needed unchanged for the weights, so the residual branch starts from a copy. */
    RETURN_IF_FAILED(rf_copy(ctx->stream, din, dout));
    RETURN_IF_FAILED(
        rf_rmsnorm_backward_input(ctx->stream, din, h.dnorm2, s.middle, s.rstd2, p[NORM2], true));
    RETURN_IF_FAILED(attention_again(ctx, g, &s, &h, &w));
    return backward_attention(ctx, g, &s, &h, &w, din, in);
}

/* dw += dout^T in. */
static int matrix_grad(struct rf_ctx *ctx, enum param weight, struct rf_tensor dout,
                       struct rf_tensor in)
{
    return model_matmul(
        ctx, ctx->grads[weight], dout, in,
        &(struct rf_matmul_opts){.transpose_a = true, .accumulate = !ctx->fresh[weight]});
}

static int norm_grad(struct rf_ctx *ctx, enum param weight, struct rf_tensor dout,
                     struct rf_tensor x, struct rf_tensor rstd)
{
    struct rf_tensor scratch;
    const int64_t columns = rf_tensor_count(dout) / ctx->rows;
    RETURN_IF_FAILED(model_scratch(ctx, rf_layernorm_scratch(ctx->rows, columns), &scratch));
    return rf_rmsnorm_backward_weight(ctx->stream, ctx->grads[weight], dout, x, rstd, scratch);
}

static int backward_weight(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                           struct rf_tensor dout)
{
    const struct llama_config *g = self;
    struct saved s;
    struct handoff h;
    struct work w;
    RETURN_IF_FAILED(get_saved(ctx, g, &s));
    RETURN_IF_FAILED(get_handoff(ctx, g, dout, &h));
    RETURN_IF_FAILED(get_work(ctx, g, &w));
    if (drops(g, MODEL_RECOMPUTE_NORMS))
        s.norm1 = s.norm2 = w.norm; /* one after the other */
    if (drops(g, MODEL_RECOMPUTE_ATTENTION))
        s.mixed = h.mixed;
    RETURN_IF_FAILED(act_again(ctx, g, &s, &h, &w));
    RETURN_IF_FAILED(matrix_grad(ctx, DOWN, h.dout, s.act));
    RETURN_IF_FAILED(norm_again(ctx, g, NORM2, s.middle, &w));
    RETURN_IF_FAILED(matrix_grad(ctx, GATE_UP, h.dgates, s.norm2));
    RETURN_IF_FAILED(norm_grad(ctx, NORM2, h.dnorm2, s.middle, s.rstd2));
    RETURN_IF_FAILED(matrix_grad(ctx, PROJ, h.dmiddle, s.mixed));
    RETURN_IF_FAILED(norm_again(ctx, g, NORM1, in, &w));
    RETURN_IF_FAILED(matrix_grad(ctx, QKV, h.dqkv, s.norm1));
    return norm_grad(ctx, NORM1, h.dnorm1, in, s.rstd1);
}

static int sizes(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out)
{
    const struct llama_config *g = self;
    struct saved s;
    struct handoff h;
    struct work w;
    struct model_cut saved[SAVED_CUTS], handoff[HANDOFF_CUTS];
    const struct work_cuts work = cut_work(g, &w);
    const uint64_t scratch[] = {model_cut_bytes(rows, MODEL_CUTS(work.operands)),
                                model_cut_bytes(rows, MODEL_CUTS(work.attention)),
                                model_cut_bytes(rows, MODEL_CUTS(work.unit)),
                                model_scratch_bytes(rf_layernorm_scratch(rows, g->channels))};
    cut_saved(g, &s, saved);
    cut_handoff(g, &h, handoff);
    *out = (struct rf_block_sizes){.saved = model_cut_bytes(rows, saved, SAVED_CUTS),
                                   .handoff = model_cut_bytes(rows, handoff, HANDOFF_CUTS),
                                   .scratch = model_most(scratch, 4),
                                   .out = rf_shape2(rows, g->channels),
                                   .dtype = g->residual};
    return 0;
}

const struct rf_block_ops llama_layer_ops = {forward, backward_input, backward_weight, sizes};
