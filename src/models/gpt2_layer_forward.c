/* SPDX-License-Identifier: MIT
 *
 * The forward pass of a GPT-2 layer, in steps, and the parts of it that the backward pass computes
 * again.
 */
#include "gpt2_layer.h"

int gpt2_by_sequence(const struct layer *l, struct rf_tensor t, struct rf_tensor *out)
{
    const int64_t n = l->m.rows, seq = l->m.ctx->seq;
    return rf_tensor_reshape(t, rf_shape3(n / seq, seq, rf_tensor_count(t) / n), out);
}

int gpt2_by_head(const struct layer *l, struct rf_tensor t, struct rf_tensor *out)
{
    const int64_t seq = l->m.ctx->seq;
    return rf_tensor_reshape(t, rf_shape3(l->m.rows / seq, l->heads, seq), out);
}

int gpt2_norm(struct layer *l, enum param weight, struct rf_tensor x, struct rf_tensor kept,
              struct rf_tensor mean, struct rf_tensor rstd)
{
    const struct rf_tensor *p = l->m.ctx->params;
    const bool drops = model_recomputes(&l->m, MODEL_RECOMPUTE_NORMS);
    struct rf_tensor out = kept;
    if (drops)
        RETURN_IF_FAILED(model_rows_place(&l->m, l->w.norm, &out));
    RETURN_IF_FAILED(
        rf_layernorm(l->m.ctx->stream, out, mean, rstd, x, p[weight], p[weight + 1], GPT2_EPS));
    return drops ? 0 : model_write_rows(&l->m, kept);
}

struct rf_tensor gpt2_normed(const struct layer *l, struct rf_tensor kept)
{
    return model_all_rows(&l->m, model_recomputes(&l->m, MODEL_RECOMPUTE_NORMS) ? l->w.norm : kept);
}

struct model_context gpt2_context(const struct layer *l)
{
    return model_context_of(l->m.ctx, l->heads, l->heads, l->width / l->heads);
}

int gpt2_own_keys(const struct layer *l, struct rf_tensor qkv, struct rf_heads *out)
{
    struct rf_tensor rows;
    RETURN_IF_FAILED(gpt2_by_sequence(l, qkv, &rows));
    *out = rf_heads_in(rows, l->width / l->heads, l->heads, 2 * l->heads);
    return 0;
}

int gpt2_attention_args(const struct layer *l, struct rf_attention_args *args)
{
    struct rf_tensor qkv, mixed;
    RETURN_IF_FAILED(gpt2_by_sequence(l, l->s.qkv, &qkv));
    RETURN_IF_FAILED(gpt2_by_sequence(l, l->s.mixed, &mixed));
    const int64_t size = l->width / l->heads;
    *args = (struct rf_attention_args){.q = rf_heads_in(qkv, size, 0, l->heads),
                                       .k = rf_heads_in(qkv, size, l->heads, l->heads),
                                       .v = rf_heads_in(qkv, size, 2 * l->heads, l->heads),
                                       .out = rf_heads_in(mixed, size, 0, l->heads),
                                       .lse = l->s.lse,
                                       .starts = l->m.ctx->starts};
    return l->m.context.ranks > 1 ? 0 : gpt2_by_head(l, l->s.lse, &args->lse);
}

int gpt2_give_keys(struct layer *l)
{
    const struct model_context c = gpt2_context(l);
    struct rf_heads keys;
    if (l->m.context.ranks <= 1)
        return 0;
    RETURN_IF_FAILED(gpt2_own_keys(l, l->s.qkv, &keys));
    return model_write_keys(&c, keys);
}

int gpt2_attend(const struct layer *l)
{
    const struct model_context c = gpt2_context(l);
    struct rf_attention_args args;
    RETURN_IF_FAILED(gpt2_attention_args(l, &args));
    return l->m.context.ranks > 1 ? model_attend(&c, &l->w.sequences, &args)
                                  : rf_attend(l->m.ctx->stream, &args);
}

int gpt2_widen(const struct layer *l)
{
    const struct saved *s = &l->s;
    return model_linear_forward(&l->m, &l->block->fc, s->act, gpt2_normed(l, s->norm2),
                                &(struct model_act){.kind = RF_ACT_GELU, .pre = s->pre});
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int begin(struct layer *l)
{
    return gpt2_norm(l, LN1_W, l->x, l->s.norm1, l->s.mean1, l->s.rstd1);
}

static int queries(struct layer *l)
{
    RETURN_IF_FAILED(
        model_linear_forward(&l->m, &l->block->qkv, l->s.qkv, gpt2_normed(l, l->s.norm1), NULL));
    return gpt2_give_keys(l);
}

static int attention(struct layer *l)
{
    const struct model_context c = gpt2_context(l);
    if (l->m.context.ranks > 1)
        RETURN_IF_FAILED(model_order_keys(&c, &l->w.sequences));
    RETURN_IF_FAILED(gpt2_attend(l));
    return model_linear_sum(&l->m, &l->block->proj, l->s.middle, l->s.mixed, l->x);
}

static int middle(struct layer *l)
{
    RETURN_IF_FAILED(model_linear_end(&l->m, &l->block->proj, l->s.middle, l->x));
    return gpt2_norm(l, LN2_W, l->s.middle, l->s.norm2, l->s.mean2, l->s.rstd2);
}

static int mlp(struct layer *l)
{
    RETURN_IF_FAILED(gpt2_widen(l));
    return model_linear_sum(&l->m, &l->block->fc2, l->out, l->s.act, l->s.middle);
}

static int end(struct layer *l)
{
    return model_linear_end(&l->m, &l->block->fc2, l->out, l->s.middle);
}

static const struct model_step steps[] = {{begin, MODEL_ROWS},    {queries, MODEL_KEYS},
                                          {attention, MODEL_SUM}, {middle, MODEL_ROWS},
                                          {mlp, MODEL_SUM},       {end}};
const struct model_steps gpt2_layer_forward = {MODEL_STEPS(steps)};
