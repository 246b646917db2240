/* SPDX-License-Identifier: MIT
 *
 * A transformer layer of a GPT-2: x + attention(norm(x)), then that + mlp(norm(that)).
 */
#include <string.h>

#include "gpt2_internal.h"

enum param { LN1_W, LN1_B, QKV_W, QKV_B, PROJ_W, PROJ_B, LN2_W, LN2_B, FC_W, FC_B, FC2_W, FC2_B };

/* What forward keeps; rows n, channels C. */
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
    struct rf_tensor dout; /* (n,C): kept where the residual stream has another type */
};

#define SAVED_CUTS 12
static void cut_saved(const struct gpt2_config *g, struct saved *s,
                      struct model_cut cuts[SAVED_CUTS])
{
    const int64_t c = g->channels;
    const enum rf_dtype t = g->dtype;
    const struct model_cut all[SAVED_CUTS] = {{&s->norm1, c, t},
                                              {&s->mean1},
                                              {&s->rstd1},
                                              {&s->qkv, 3 * c, t},
                                              {&s->mixed, c, t},
                                              {&s->lse, g->heads},
                                              {&s->middle, c, g->residual},
                                              {&s->norm2, c, t},
                                              {&s->mean2},
                                              {&s->rstd2},
                                              {&s->pre, 4 * c, t},
                                              {&s->act, 4 * c, t}};
    memcpy(cuts, all, sizeof(all));
}

static int get_saved(const struct rf_ctx *ctx, const struct gpt2_config *g, struct saved *s)
{
    struct model_cut cuts[SAVED_CUTS];
    cut_saved(g, s, cuts);
    return model_carve(ctx->saved, ctx->rows, cuts, SAVED_CUTS);
}

#define HANDOFF_CUTS 6
static int cut_handoff(const struct gpt2_config *g, struct handoff *h,
                       struct model_cut cuts[HANDOFF_CUTS])
{
    const int64_t c = g->channels;
    const enum rf_dtype t = g->dtype;
    const struct model_cut all[HANDOFF_CUTS] = {{&h->dact, 4 * c, t}, {&h->dnorm2, c, t},
                                                {&h->dmiddle, c, t},  {&h->dqkv, 3 * c, t},
                                                {&h->dnorm1, c, t},   {&h->dout, c, t}};
    memcpy(cuts, all, sizeof(all));
    return g->residual == t ? HANDOFF_CUTS - 1 : HANDOFF_CUTS;
}

static int get_handoff(const struct rf_ctx *ctx, const struct gpt2_config *g, struct rf_tensor dout,
                       struct handoff *h)
{
    struct model_cut cuts[HANDOFF_CUTS];
    h->dout = dout;
    return model_carve(ctx->handoff, ctx->rows, cuts, cut_handoff(g, h, cuts));
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

static int forward_attention(struct rf_ctx *ctx, const struct gpt2_config *g, struct saved *s,
                             struct rf_tensor x)
{
    const struct rf_tensor *p = ctx->params;
    struct rf_tensor qkv, mixed, lse;
    RETURN_IF_FAILED(
        rf_layernorm(ctx->stream, s->norm1, s->mean1, s->rstd1, x, p[LN1_W], p[LN1_B], GPT2_EPS));
    RETURN_IF_FAILED(
        model_matmul(ctx, s->qkv, s->norm1, p[QKV_W],
                     &(struct rf_matmul_opts){.transpose_b = true, .bias = &p[QKV_B]}));
    RETURN_IF_FAILED(view3(s->qkv, ctx, 3 * g->channels, &qkv));
    RETURN_IF_FAILED(view3(s->mixed, ctx, g->channels, &mixed));
    RETURN_IF_FAILED(view_lse(s->lse, ctx, g, &lse));
    RETURN_IF_FAILED(rf_attention(ctx->stream, mixed, lse, qkv, g->heads));
    return model_matmul(
        ctx, s->middle, s->mixed, p[PROJ_W],
        &(struct rf_matmul_opts){.transpose_b = true, .bias = &p[PROJ_B], .residual = &x});
}

static int forward(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor out)
{
    const struct gpt2_config *g = self;
    const struct rf_tensor *p = ctx->params;
    struct saved s;
    RETURN_IF_FAILED(get_saved(ctx, g, &s));
    RETURN_IF_FAILED(forward_attention(ctx, g, &s, in));
    RETURN_IF_FAILED(rf_layernorm(ctx->stream, s.norm2, s.mean2, s.rstd2, s.middle, p[LN2_W],
                                  p[LN2_B], GPT2_EPS));
    RETURN_IF_FAILED(model_matmul(
        ctx, s.act, s.norm2, p[FC_W],
        &(struct rf_matmul_opts){
            .transpose_b = true, .bias = &p[FC_B], .act = RF_ACT_GELU, .pre = &s.pre}));
    return model_matmul(
        ctx, out, s.act, p[FC2_W],
        &(struct rf_matmul_opts){.transpose_b = true, .bias = &p[FC2_B], .residual = &s.middle});
}

/* din is the gradient of the sum in the middle, to which that of the norm is added. */
static int backward_attention(struct rf_ctx *ctx, const struct gpt2_config *g,
                              const struct saved *s, const struct handoff *h, struct rf_tensor din,
                              struct rf_tensor x)
{
    const struct rf_tensor *p = ctx->params;
    struct rf_tensor dmixed, delta, dmixed3, dqkv, mixed, lse, qkv, delta3;
    const struct model_cut cuts[] = {{&dmixed, g->channels, g->dtype}, {&delta, g->heads}};
    RETURN_IF_FAILED(model_carve(ctx->scratch, ctx->rows, MODEL_CUTS(cuts)));
    RETURN_IF_FAILED(rf_cast(ctx->stream, h->dmiddle, din));
    RETURN_IF_FAILED(model_matmul(ctx, dmixed, h->dmiddle, p[PROJ_W], NULL));
    RETURN_IF_FAILED(view3(dmixed, ctx, g->channels, &dmixed3));
    RETURN_IF_FAILED(view3(s->mixed, ctx, g->channels, &mixed));
    RETURN_IF_FAILED(view3(s->qkv, ctx, 3 * g->channels, &qkv));
    RETURN_IF_FAILED(view3(h->dqkv, ctx, 3 * g->channels, &dqkv));
    RETURN_IF_FAILED(view_lse(s->lse, ctx, g, &lse));
    RETURN_IF_FAILED(view_lse(delta, ctx, g, &delta3));
    RETURN_IF_FAILED(
        rf_attention_backward(ctx->stream, dqkv, dmixed3, mixed, lse, qkv, g->heads, delta3));
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
    RETURN_IF_FAILED(get_saved(ctx, g, &s));
    RETURN_IF_FAILED(get_handoff(ctx, g, dout, &h));
    if (g->residual != g->dtype)
        RETURN_IF_FAILED(rf_cast(ctx->stream, h.dout, dout));
    RETURN_IF_FAILED(model_matmul(
        ctx, h.dact, h.dout, p[FC2_W],
        &(struct rf_matmul_opts){.act = RF_ACT_GELU, .act_backward = true, .pre = &s.pre}));
    RETURN_IF_FAILED(model_matmul(ctx, h.dnorm2, h.dact, p[FC_W], NULL));
    /* dout is needed unchanged for the weights, so the residual branch starts from a copy. */
    RETURN_IF_FAILED(rf_copy(ctx->stream, din, dout));
    RETURN_IF_FAILED(rf_layernorm_backward_input(ctx->stream, din, h.dnorm2, s.middle, s.mean2,
                                                 s.rstd2, p[LN2_W], true));
    return backward_attention(ctx, g, &s, &h, din, in);
}

/* dw += dout^T in, db += column sums of dout. */
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
    RETURN_IF_FAILED(get_saved(ctx, g, &s));
    RETURN_IF_FAILED(get_handoff(ctx, g, dout, &h));
    RETURN_IF_FAILED(linear_grads(ctx, FC2_W, h.dout, s.act));
    RETURN_IF_FAILED(linear_grads(ctx, FC_W, h.dact, s.norm2));
    RETURN_IF_FAILED(norm_grads(ctx, LN2_W, h.dnorm2, s.middle, s.mean2, s.rstd2));
    RETURN_IF_FAILED(linear_grads(ctx, PROJ_W, h.dmiddle, s.mixed));
    RETURN_IF_FAILED(linear_grads(ctx, QKV_W, h.dqkv, s.norm1));
    return norm_grads(ctx, LN1_W, h.dnorm1, in, s.mean1, s.rstd1);
}

static int sizes(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out)
{
    const struct gpt2_config *g = self;
    const int64_t n = rows, c = g->channels;
    struct saved s;
    struct handoff h;
    struct rf_tensor t;
    struct model_cut saved[SAVED_CUTS], handoff[HANDOFF_CUTS];
    const struct model_cut inputs[] = {{&t, c, g->dtype}, {&t, g->heads}};
    int64_t weights = model_max(rf_bias_grad_scratch(n, 4 * c), rf_layernorm_scratch(n, c));
    cut_saved(g, &s, saved);
    *out = (struct rf_block_sizes){
        .saved = model_cut_bytes(n, saved, SAVED_CUTS),
        .handoff = model_cut_bytes(n, handoff, cut_handoff(g, &h, handoff)),
        .scratch = (uint64_t)model_max((int64_t)model_cut_bytes(n, MODEL_CUTS(inputs)),
                                       (int64_t)model_scratch_bytes(weights)),
        .out = rf_shape2(n, c),
        .dtype = g->residual};
    return 0;
}

const struct rf_block_ops gpt2_layer_ops = {forward, backward_input, backward_weight, sizes};
