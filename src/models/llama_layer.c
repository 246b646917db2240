/* SPDX-License-Identifier: MIT
 *
 * A layer of a Llama-style model: x + attention(norm(x)), then that + gated unit(norm(that)).
 */
#include <string.h>

#include "llama_internal.h"

enum param { NORM1, QKV, PROJ, NORM2, GATE_UP, DOWN };

/* What forward keeps; rows n, channels C, hidden F, H heads and K of keys and values, of size D. */
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
    struct rf_tensor dout; /* (n,C): kept where the residual stream has another type */
};

#define SAVED_CUTS 10
static void cut_saved(const struct llama_config *g, struct saved *s,
                      struct model_cut cuts[SAVED_CUTS])
{
    const int64_t c = g->channels, f = g->hidden;
    const enum rf_dtype t = g->dtype;
    const struct model_cut all[SAVED_CUTS] = {
        {&s->norm1, c, t}, {&s->rstd1},         {&s->qkv, llama_qkv_columns(g), t},
        {&s->mixed, c, t}, {&s->lse, g->heads}, {&s->middle, c, g->residual},
        {&s->norm2, c, t}, {&s->rstd2},         {&s->gates, 2 * f, t},
        {&s->act, f, t}};
    memcpy(cuts, all, sizeof(all));
}

static int get_saved(const struct rf_ctx *ctx, const struct llama_config *g, struct saved *s)
{
    struct model_cut cuts[SAVED_CUTS];
    cut_saved(g, s, cuts);
    return model_carve(ctx->saved, ctx->rows, cuts, SAVED_CUTS);
}

#define HANDOFF_CUTS 6
static int cut_handoff(const struct llama_config *g, struct handoff *h,
                       struct model_cut cuts[HANDOFF_CUTS])
{
    const int64_t c = g->channels;
    const enum rf_dtype t = g->dtype;
    const struct model_cut all[HANDOFF_CUTS] = {{&h->dgates, 2 * (int64_t)g->hidden, t},
                                                {&h->dmiddle, c, t},
                                                {&h->dqkv, llama_qkv_columns(g), t},
                                                {&h->dnorm1, c, t},
                                                {&h->dnorm2, c, t},
                                                {&h->dout, c, t}};
    memcpy(cuts, all, sizeof(all));
    return g->residual == t ? HANDOFF_CUTS - 1 : HANDOFF_CUTS;
}

static int get_handoff(const struct rf_ctx *ctx, const struct llama_config *g,
                       struct rf_tensor dout, struct handoff *h)
{
    struct model_cut cuts[HANDOFF_CUTS];
    h->dout = dout;
    return model_carve(ctx->handoff, ctx->rows, cuts, cut_handoff(g, h, cuts));
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

static int forward_attention(struct rf_ctx *ctx, const struct llama_config *g, struct saved *s,
                             struct rf_tensor x)
{
    const struct rf_tensor *p = ctx->params;
    const struct rf_rotary_opts rotary = turns(g);
    struct rf_attention_args args;
    struct rf_heads turned; /* queries and keys lie side by side */
    RETURN_IF_FAILED(rf_rmsnorm(ctx->stream, s->norm1, s->rstd1, x, p[NORM1], g->eps));
    RETURN_IF_FAILED(
        model_matmul(ctx, s->qkv, s->norm1, p[QKV], &(struct rf_matmul_opts){.transpose_b = true}));
    RETURN_IF_FAILED(heads_of(s->qkv, ctx, g, 0, g->heads + g->kv_heads, &turned));
    RETURN_IF_FAILED(rf_rotary(ctx->stream, turned, turned, &rotary));
    RETURN_IF_FAILED(attention_args(ctx, g, s, &args));
    RETURN_IF_FAILED(rf_attend(ctx->stream, &args));
    return model_matmul(ctx, s->middle, s->mixed, p[PROJ],
                        &(struct rf_matmul_opts){.transpose_b = true, .residual = &x});
}

/* din is the gradient of the sum in the middle, to which that of the norm is added. */
static int backward_attention(struct rf_ctx *ctx, const struct llama_config *g,
                              const struct saved *s, const struct handoff *h, struct rf_tensor din,
                              struct rf_tensor x)
{
    const struct rf_tensor *p = ctx->params;
    const struct rf_rotary_opts rotary = turns(g);
    const int64_t heads = g->heads, k = g->kv_heads;
    struct rf_tensor dmixed, delta;
    struct rf_attention_args args;
    struct rf_attention_grads grads;
    struct rf_heads turned;
    const struct model_cut cuts[] = {{&dmixed, g->channels, g->dtype}, {&delta, heads}};
    RETURN_IF_FAILED(model_carve(ctx->scratch, ctx->rows, MODEL_CUTS(cuts)));
    RETURN_IF_FAILED(rf_cast(ctx->stream, h->dmiddle, din));
    RETURN_IF_FAILED(model_matmul(ctx, dmixed, h->dmiddle, p[PROJ], NULL));
    RETURN_IF_FAILED(attention_args(ctx, g, s, &args));
    RETURN_IF_FAILED(heads_of(dmixed, ctx, g, 0, heads, &grads.dout));
    RETURN_IF_FAILED(heads_of(h->dqkv, ctx, g, 0, heads, &grads.dq));
    RETURN_IF_FAILED(heads_of(h->dqkv, ctx, g, heads, k, &grads.dk));
    RETURN_IF_FAILED(heads_of(h->dqkv, ctx, g, heads + k, k, &grads.dv));
    RETURN_IF_FAILED(by_head(delta, ctx, g, &grads.delta));
    RETURN_IF_FAILED(rf_attend_backward(ctx->stream, &args, &grads));
    RETURN_IF_FAILED(heads_of(h->dqkv, ctx, g, 0, heads + k, &turned));
    RETURN_IF_FAILED(rf_rotary_backward(ctx->stream, turned, turned, &rotary));
    RETURN_IF_FAILED(model_matmul(ctx, h->dnorm1, h->dqkv, p[QKV], NULL));
    return rf_rmsnorm_backward_input(ctx->stream, din, h->dnorm1, x, s->rstd1, p[NORM1], true);
}

/* ---- the block ------------------------------------------------------------------------------- */

static int forward(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor out)
{
    const struct llama_config *g = self;
    const struct rf_tensor *p = ctx->params, none = {0};
    struct saved s;
    RETURN_IF_FAILED(get_saved(ctx, g, &s));
    RETURN_IF_FAILED(forward_attention(ctx, g, &s, in));
    RETURN_IF_FAILED(rf_rmsnorm(ctx->stream, s.norm2, s.rstd2, s.middle, p[NORM2], g->eps));
    RETURN_IF_FAILED(model_matmul(ctx, s.gates, s.norm2, p[GATE_UP],
                                  &(struct rf_matmul_opts){.transpose_b = true}));
    RETURN_IF_FAILED(rf_glu(ctx->stream, RF_ACT_SILU, s.act, s.gates, none));
    return model_matmul(ctx, out, s.act, p[DOWN],
                        &(struct rf_matmul_opts){.transpose_b = true, .residual = &s.middle});
}

static int backward_input(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                          struct rf_tensor dout, struct rf_tensor din)
{
    const struct llama_config *g = self;
    const struct rf_tensor *p = ctx->params, none = {0};
    struct rf_tensor dact;
    struct saved s;
    struct handoff h;
    const struct model_cut cuts[] = {{&dact, g->hidden, g->dtype}};
    RETURN_IF_FAILED(get_saved(ctx, g, &s));
    RETURN_IF_FAILED(get_handoff(ctx, g, dout, &h));
    RETURN_IF_FAILED(model_carve(ctx->scratch, ctx->rows, MODEL_CUTS(cuts)));
    if (g->residual != g->dtype)
        RETURN_IF_FAILED(rf_cast(ctx->stream, h.dout, dout));
    RETURN_IF_FAILED(model_matmul(ctx, dact, h.dout, p[DOWN], NULL));
    RETURN_IF_FAILED(
        rf_glu_backward(ctx->stream, RF_ACT_SILU, h.dgates, none, dact, s.gates, none));
    RETURN_IF_FAILED(model_matmul(ctx, h.dnorm2, h.dgates, p[GATE_UP], NULL));
    /* dout is needed unchanged for the weights, so the residual branch starts from a copy. */
    RETURN_IF_FAILED(rf_copy(ctx->stream, din, dout));
    RETURN_IF_FAILED(
        rf_rmsnorm_backward_input(ctx->stream, din, h.dnorm2, s.middle, s.rstd2, p[NORM2], true));
    return backward_attention(ctx, g, &s, &h, din, in);
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
    RETURN_IF_FAILED(get_saved(ctx, g, &s));
    RETURN_IF_FAILED(get_handoff(ctx, g, dout, &h));
    RETURN_IF_FAILED(matrix_grad(ctx, DOWN, h.dout, s.act));
    RETURN_IF_FAILED(matrix_grad(ctx, GATE_UP, h.dgates, s.norm2));
    RETURN_IF_FAILED(norm_grad(ctx, NORM2, h.dnorm2, s.middle, s.rstd2));
    RETURN_IF_FAILED(matrix_grad(ctx, PROJ, h.dmiddle, s.mixed));
    RETURN_IF_FAILED(matrix_grad(ctx, QKV, h.dqkv, s.norm1));
    return norm_grad(ctx, NORM1, h.dnorm1, in, s.rstd1);
}

static int sizes(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out)
{
    const struct llama_config *g = self;
    struct saved s;
    struct handoff h;
    struct rf_tensor t;
    struct model_cut saved[SAVED_CUTS], handoff[HANDOFF_CUTS];
    const struct model_cut attention[] = {{&t, g->channels, g->dtype}, {&t, g->heads}};
    const struct model_cut unit[] = {{&t, g->hidden, g->dtype}};
    const uint64_t needs[] = {model_cut_bytes(rows, MODEL_CUTS(attention)),
                              model_cut_bytes(rows, MODEL_CUTS(unit)),
                              model_scratch_bytes(rf_layernorm_scratch(rows, g->channels))};
    cut_saved(g, &s, saved);
    *out = (struct rf_block_sizes){.saved = model_cut_bytes(rows, saved, SAVED_CUTS),
                                   .handoff =
                                       model_cut_bytes(rows, handoff, cut_handoff(g, &h, handoff)),
                                   .out = rf_shape2(rows, g->channels),
                                   .dtype = g->residual};
    for (int i = 0; i < 3; i++)
        out->scratch = needs[i] > out->scratch ? needs[i] : out->scratch;
    return 0;
}

const struct rf_block_ops llama_layer_ops = {forward, backward_input, backward_weight, sizes};
