/* SPDX-License-Identifier: MIT
 *
 * A transformer layer of a GPT-2: x + attention(norm(x)), then that + mlp(norm(that)). What it does
 * not keep (recompute.h) passes through scratch, and is made again in the backward pass by the same
 * kernels; what both halves of that need and costs a product or attention goes by the handoff.
 */
#include <string.h>

#include "gpt2_internal.h"

enum param { LN1_W, LN1_B, QKV_W, QKV_B, PROJ_W, PROJ_B, LN2_W, LN2_B, FC_W, FC_B, FC2_W, FC2_B };

/* What forward makes; rows n, channels C. All but what is recomputed is kept. */
struct saved {
    struct rf_tensor norm1, mean1, rstd1; /* (n,C) (n) (n) */
    struct rf_tensor qkv, mixed, lse;     /* (n,3C) (n,C) (n,H) */
    struct rf_tensor middle;              /* (n,C): x + attention */
    struct rf_tensor norm2, mean2, rstd2;
    struct rf_tensor pre, act; /* (n,4C) */
};
/* What backward_input keeps for backward_weight, all in the type of products. */
struct handoff {
    struct rf_tensor dact, dnorm2, dmiddle, dqkv, dnorm1; /* (n,4C) (n,C) (n,C) (n,3C) (n,C) */
    struct rf_tensor dout;       /* (n,C): kept where the residual stream has another type */
    struct rf_tensor mixed, act; /* (n,C) (n,4C): kept where attention or the MLP is recomputed */
};
/* What lives inside a call, in scratch: `operands` of products, which are not kept, and what
 * attention uses, each from the start. */
struct work {
    struct rf_tensor norm, mean, rstd, act; /* (n,C) (n) (n) (n,4C) */
    struct rf_tensor mixed, delta, lse;     /* (n,C), or its gradient; (n,H) (n,H) */
};

static bool drops(const struct gpt2_config *g, enum model_recompute_part part)
{
    return (g->recompute & part) != 0;
}

#define SAVED_CUTS 12
static void cut_saved(const struct gpt2_config *g, struct saved *s,
                      struct model_cut cuts[SAVED_CUTS])
{
    const int64_t c = g->channels;
    const enum rf_dtype t = g->dtype;
    const bool norms = drops(g, MODEL_RECOMPUTE_NORMS),
               attention = drops(g, MODEL_RECOMPUTE_ATTENTION);
    const struct model_cut all[SAVED_CUTS] = {
        {&s->norm1, c, t, norms},
        {&s->mean1},
        {&s->rstd1},
        {&s->qkv, 3 * c, t},
        {&s->mixed, c, t, attention},
        {&s->lse, g->heads, RF_F32, attention},
        {&s->middle, c, g->residual},
        {&s->norm2, c, t, norms},
        {&s->mean2},
        {&s->rstd2},
        {&s->pre, 4 * c, t, drops(g, MODEL_RECOMPUTE_MLP)},
        {&s->act, 4 * c, t, drops(g, MODEL_RECOMPUTE_GELU)},
    };
    memcpy(cuts, all, sizeof(all));
}

static int get_saved(const struct rf_ctx *ctx, const struct gpt2_config *g, struct saved *s)
{
    struct model_cut cuts[SAVED_CUTS];
    *s = (struct saved){0};
    cut_saved(g, s, cuts);
    return model_carve(ctx->saved, ctx->rows, cuts, SAVED_CUTS);
}

#define HANDOFF_CUTS 8
static void cut_handoff(const struct gpt2_config *g, struct handoff *h,
                        struct model_cut cuts[HANDOFF_CUTS])
{
    const int64_t c = g->channels;
    const enum rf_dtype t = g->dtype;
    const struct model_cut all[HANDOFF_CUTS] = {
        {&h->dact, 4 * c, t},
        {&h->dnorm2, c, t},
        {&h->dmiddle, c, t},
        {&h->dqkv, 3 * c, t},
        {&h->dnorm1, c, t},
        {&h->dout, c, t, g->residual == t},
        {&h->mixed, c, t, !drops(g, MODEL_RECOMPUTE_ATTENTION)},
        {&h->act, 4 * c, t, !drops(g, MODEL_RECOMPUTE_MLP)},
    };
    memcpy(cuts, all, sizeof(all));
}

static int get_handoff(const struct rf_ctx *ctx, const struct gpt2_config *g, struct rf_tensor dout,
                       struct handoff *h)
{
    struct model_cut cuts[HANDOFF_CUTS];
    *h = (struct handoff){.dout = dout};
    cut_handoff(g, h, cuts);
    return model_carve(ctx->handoff, ctx->rows, cuts, HANDOFF_CUTS);
}

struct work_cuts {
    struct model_cut operands[4], attention[3];
};
static struct work_cuts cut_work(const struct gpt2_config *g, struct work *w)
{
    const int64_t c = g->channels, heads = g->heads;
    const enum rf_dtype t = g->dtype;
    const bool norms = drops(g, MODEL_RECOMPUTE_NORMS),
               attention = drops(g, MODEL_RECOMPUTE_ATTENTION);
    return (struct work_cuts){
        .operands = {{&w->norm, c, t, !norms},
                     {&w->mean, 0, RF_F32, !norms},
                     {&w->rstd, 0, RF_F32, !norms},
                     {&w->act, 4 * c, t, !drops(g, MODEL_RECOMPUTE_GELU)}},
        .attention = {{&w->mixed, c, t}, {&w->delta, heads}, {&w->lse, heads, RF_F32, !attention}},
    };
}

static int get_work(const struct rf_ctx *ctx, const struct gpt2_config *g, struct work *w)
{
    *w = (struct work){0};
    const struct work_cuts cuts = cut_work(g, w);
    RETURN_IF_FAILED(model_carve(ctx->scratch, ctx->rows, MODEL_CUTS(cuts.operands)));
    return model_carve(ctx->scratch, ctx->rows, MODEL_CUTS(cuts.attention));
}

static int view3(struct rf_tensor t, const struct rf_ctx *ctx, int64_t columns,
                 struct rf_tensor *out)
{
    return rf_tensor_reshape(t, rf_shape3(ctx->rows / ctx->seq, ctx->seq, columns), out);
}

/* (n,H) floats hold (B,H,T): the same count. */
static int view_lse(struct rf_tensor t, const struct rf_ctx *ctx, const struct gpt2_config *g,
                    struct rf_tensor *out)
{
    return rf_tensor_reshape(t, rf_shape3(ctx->rows / ctx->seq, g->heads, ctx->seq), out);
}

/* ---- forward --------------------------------------------------------------------------------- */

static int attend(struct rf_ctx *ctx, const struct gpt2_config *g, const struct saved *s)
{
    struct rf_tensor qkv, mixed, lse;
    RETURN_IF_FAILED(view3(s->qkv, ctx, 3 * g->channels, &qkv));
    RETURN_IF_FAILED(view3(s->mixed, ctx, g->channels, &mixed));
    RETURN_IF_FAILED(view_lse(s->lse, ctx, g, &lse));
    return rf_attention(ctx->stream, mixed, lse, qkv, g->heads);
}

static int forward_attention(struct rf_ctx *ctx, const struct gpt2_config *g, struct saved *s,
                             struct rf_tensor x)
{
    const struct rf_tensor *p = ctx->params;
    RETURN_IF_FAILED(
        rf_layernorm(ctx->stream, s->norm1, s->mean1, s->rstd1, x, p[LN1_W], p[LN1_B], GPT2_EPS));
    RETURN_IF_FAILED(
        model_matmul(ctx, s->qkv, s->norm1, p[QKV_W],
                     &(struct rf_matmul_opts){.transpose_b = true, .bias = &p[QKV_B]}));
    RETURN_IF_FAILED(attend(ctx, g, s));
    return model_matmul(
        ctx, s->middle, s->mixed, p[PROJ_W],
        &(struct rf_matmul_opts){.transpose_b = true, .bias = &p[PROJ_B], .residual = &x});
}

/* pre only where there is room for it. */
static int widen(struct rf_ctx *ctx, const struct saved *s)
{
    const struct rf_tensor *p = ctx->params;
    return model_matmul(ctx, s->act, s->norm2, p[FC_W],
                        &(struct rf_matmul_opts){.transpose_b = true,
                                                 .bias = &p[FC_B],
                                                 .act = RF_ACT_GELU,
                                                 .pre = s->pre.buffer ? &s->pre : NULL});
}

static int forward(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor out)
{
    const struct gpt2_config *g = self;
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
    if (drops(g, MODEL_RECOMPUTE_GELU))
        s.act = w.act;
    RETURN_IF_FAILED(forward_attention(ctx, g, &s, in));
    RETURN_IF_FAILED(rf_layernorm(ctx->stream, s.norm2, s.mean2, s.rstd2, s.middle, p[LN2_W],
                                  p[LN2_B], GPT2_EPS));
    RETURN_IF_FAILED(widen(ctx, &s));
    return model_matmul(
        ctx, out, s.act, p[FC2_W],
        &(struct rf_matmul_opts){.transpose_b = true, .bias = &p[FC2_B], .residual = &s.middle});
}

/* ---- once more, in backward ------------------------------------------------------------------ */

/* Whole, as in forward: so it is the same bits. What it writes of mean and rstd are those kept. */
static int norm_again(struct rf_ctx *ctx, const struct gpt2_config *g, enum param weight,
                      struct rf_tensor x, const struct work *w)
{
    const struct rf_tensor *p = ctx->params;
    if (!drops(g, MODEL_RECOMPUTE_NORMS))
        return 0;
    return MODEL_AGAIN(ctx, rf_layernorm(ctx->stream, w->norm, w->mean, w->rstd, x, p[weight],
                                         p[weight + 1], GPT2_EPS));
}

/* pre where its gradient will be, which replaces it. */
static int mlp_again(struct rf_ctx *ctx, const struct gpt2_config *g, struct saved *s,
                     const struct handoff *h, const struct work *w)
{
    if (!drops(g, MODEL_RECOMPUTE_MLP))
        return 0;
    if (drops(g, MODEL_RECOMPUTE_NORMS))
        s->norm2 = w->norm;
    s->pre = h->dact;
    s->act = h->act;
    RETURN_IF_FAILED(norm_again(ctx, g, LN2_W, s->middle, w));
    return MODEL_AGAIN(ctx, widen(ctx, s));
}

static int attention_again(struct rf_ctx *ctx, const struct gpt2_config *g, struct saved *s,
                           const struct handoff *h, const struct work *w)
{
    if (!drops(g, MODEL_RECOMPUTE_ATTENTION))
        return 0;
    s->mixed = h->mixed;
    s->lse = w->lse;
    return MODEL_AGAIN(ctx, attend(ctx, g, s));
}

/* act: of the handoff, or made of pre, or kept. */
static int act_again(struct rf_ctx *ctx, const struct gpt2_config *g, struct saved *s,
                     const struct handoff *h, const struct work *w)
{
    if (!drops(g, MODEL_RECOMPUTE_GELU))
        return 0;
    s->act = !drops(g, MODEL_RECOMPUTE_MLP) ? w->act : h->act;
    if (drops(g, MODEL_RECOMPUTE_MLP))
        return 0;
    return MODEL_AGAIN(ctx, rf_activate(ctx->stream, RF_ACT_GELU, s->act, s->pre));
}

/* ---- backward -------------------------------------------------------------------------------- */

/* din is the gradient of the sum in the middle, to which that of the norm is added. */
static int backward_attention(struct rf_ctx *ctx, const struct gpt2_config *g,
                              const struct saved *s, const struct handoff *h, const struct work *w,
                              struct rf_tensor din, struct rf_tensor x)
{
    const struct rf_tensor *p = ctx->params, dmixed = w->mixed;
    struct rf_tensor dmixed3, dqkv, mixed, lse, qkv, delta;
    RETURN_IF_FAILED(rf_cast(ctx->stream, h->dmiddle, din));
    RETURN_IF_FAILED(model_matmul(ctx, dmixed, h->dmiddle, p[PROJ_W], NULL));
    RETURN_IF_FAILED(view3(dmixed, ctx, g->channels, &dmixed3));
    RETURN_IF_FAILED(view3(s->mixed, ctx, g->channels, &mixed));
    RETURN_IF_FAILED(view3(s->qkv, ctx, 3 * g->channels, &qkv));
    RETURN_IF_FAILED(view3(h->dqkv, ctx, 3 * g->channels, &dqkv));
    RETURN_IF_FAILED(view_lse(s->lse, ctx, g, &lse));
    RETURN_IF_FAILED(view_lse(w->delta, ctx, g, &delta));
    RETURN_IF_FAILED(
        rf_attention_backward(ctx->stream, dqkv, dmixed3, mixed, lse, qkv, g->heads, delta));
    RETURN_IF_FAILED(model_matmul(ctx, h->dnorm1, h->dqkv, p[QKV_W], NULL));
    return rf_layernorm_backward_input(ctx->stream, din, h->dnorm1, x, s->mean1, s->rstd1, p[LN1_W],
                                       true);
}

static int backward_input(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                          struct rf_tensor dout, struct rf_tensor din)
{
    const struct gpt2_config *g = self;
    const struct rf_tensor *p = ctx->params;
    struct saved s;
    struct handoff h;
    struct work w;
    RETURN_IF_FAILED(get_saved(ctx, g, &s));
    RETURN_IF_FAILED(get_handoff(ctx, g, dout, &h));
    RETURN_IF_FAILED(get_work(ctx, g, &w));
    if (g->residual != g->dtype)
        RETURN_IF_FAILED(rf_cast(ctx->stream, h.dout, dout));
    RETURN_IF_FAILED(mlp_again(ctx, g, &s, &h, &w));
    RETURN_IF_FAILED(model_matmul(
        ctx, h.dact, h.dout, p[FC2_W],
        &(struct rf_matmul_opts){.act = RF_ACT_GELU, .act_backward = true, .pre = &s.pre}));
    RETURN_IF_FAILED(model_matmul(ctx, h.dnorm2, h.dact, p[FC_W], NULL));
    /* dout is needed unchanged for the weights, so the residual branch starts from a copy. */
    RETURN_IF_FAILED(rf_copy(ctx->stream, din, dout));
    RETURN_IF_FAILED(rf_layernorm_backward_input(ctx->stream, din, h.dnorm2, s.middle, s.mean2,
                                                 s.rstd2, p[LN2_W], true));
    RETURN_IF_FAILED(attention_again(ctx, g, &s, &h, &w));
    return backward_attention(ctx, g, &s, &h, &w, din, in);
}

/* dw += dout^T in, db += column sums of dout. `in` may be in scratch: after the product it is not
 * needed. */
static int linear_grads(struct rf_ctx *ctx, enum param weight, struct rf_tensor dout,
                        struct rf_tensor in)
{
    const int64_t columns = dout.shape.dim[dout.shape.ndim - 1];
    struct rf_tensor scratch;
    RETURN_IF_FAILED(model_matmul(
        ctx, ctx->grads[weight], dout, in,
        &(struct rf_matmul_opts){.transpose_a = true, .accumulate = !ctx->fresh[weight]}));
    RETURN_IF_FAILED(model_scratch(ctx, rf_bias_grad_scratch(ctx->rows, columns), &scratch));
    return rf_bias_grad(ctx->stream, ctx->grads[weight + 1], dout, scratch);
}

static int norm_grads(struct rf_ctx *ctx, enum param weight, struct rf_tensor dout,
                      struct rf_tensor x, struct rf_tensor mean, struct rf_tensor rstd)
{
    struct rf_tensor scratch;
    int64_t elements = rf_layernorm_scratch(ctx->rows, dout.shape.dim[dout.shape.ndim - 1]);
    RETURN_IF_FAILED(model_scratch(ctx, elements, &scratch));
    return rf_layernorm_backward_weight(ctx->stream, ctx->grads[weight], ctx->grads[weight + 1],
                                        dout, x, mean, rstd, scratch);
}

static int backward_weight(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                           struct rf_tensor dout)
{
    const struct gpt2_config *g = self;
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
    RETURN_IF_FAILED(linear_grads(ctx, FC2_W, h.dout, s.act));
    RETURN_IF_FAILED(norm_again(ctx, g, LN2_W, s.middle, &w));
    RETURN_IF_FAILED(linear_grads(ctx, FC_W, h.dact, s.norm2));
    RETURN_IF_FAILED(norm_grads(ctx, LN2_W, h.dnorm2, s.middle, s.mean2, s.rstd2));
    RETURN_IF_FAILED(linear_grads(ctx, PROJ_W, h.dmiddle, s.mixed));
    RETURN_IF_FAILED(norm_again(ctx, g, LN1_W, in, &w));
    RETURN_IF_FAILED(linear_grads(ctx, QKV_W, h.dqkv, s.norm1));
    return norm_grads(ctx, LN1_W, h.dnorm1, in, s.mean1, s.rstd1);
}

static int sizes(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out)
{
    const struct gpt2_config *g = self;
    const int64_t n = rows, c = g->channels;
    struct saved s;
    struct handoff h;
    struct work w;
    struct model_cut saved[SAVED_CUTS], handoff[HANDOFF_CUTS];
    const struct work_cuts work = cut_work(g, &w);
    const int64_t weights = model_max(rf_bias_grad_scratch(n, 4 * c), rf_layernorm_scratch(n, c));
    const uint64_t scratch[] = {model_cut_bytes(n, MODEL_CUTS(work.operands)),
                                model_cut_bytes(n, MODEL_CUTS(work.attention)),
                                model_scratch_bytes(weights)};
    cut_saved(g, &s, saved);
    cut_handoff(g, &h, handoff);
    *out = (struct rf_block_sizes){.saved = model_cut_bytes(n, saved, SAVED_CUTS),
                                   .handoff = model_cut_bytes(n, handoff, HANDOFF_CUTS),
                                   .scratch = model_most(scratch, 3),
                                   .out = rf_shape2(n, c),
                                   .dtype = g->residual};
    return 0;
}

const struct rf_block_ops gpt2_layer_ops = {forward, backward_input, backward_weight, sizes};
