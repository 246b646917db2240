/* SPDX-License-Identifier: MIT
 *
 * The forward pass of a layer of a Llama-style model, in steps, and the parts of it that the
 * backward pass computes again.
 */
#include "llama_layer.h"

int llama_heads(const struct layer *l, struct rf_tensor t, int64_t first, int64_t heads,
                struct rf_heads *out)
{
    struct rf_tensor rows;
    const int64_t n = l->m.rows, seq = l->m.ctx->seq;
    RETURN_IF_FAILED(rf_tensor_reshape(t, rf_shape3(n / seq, seq, rf_tensor_count(t) / n), &rows));
    *out = rf_heads_in(rows, l->size, first, heads);
    return 0;
}

int llama_by_head(const struct layer *l, struct rf_tensor t, struct rf_tensor *out)
{
    const int64_t seq = l->m.ctx->seq;
    return rf_tensor_reshape(t, rf_shape3(l->m.rows / seq, l->heads, seq), out);
}

int llama_attention_args(const struct layer *l, struct rf_attention_args *args)
{
    const int64_t h = l->heads, k = l->keys;
    *args = (struct rf_attention_args){0};
    RETURN_IF_FAILED(llama_heads(l, l->s.qkv, 0, h, &args->q));
    RETURN_IF_FAILED(llama_heads(l, l->s.qkv, h, k, &args->k));
    RETURN_IF_FAILED(llama_heads(l, l->s.qkv, h + k, k, &args->v));
    RETURN_IF_FAILED(llama_heads(l, l->s.mixed, 0, h, &args->out));
    args->lse = l->s.lse;
    args->starts = l->m.ctx->starts;
    return l->m.context.ranks > 1 ? 0 : llama_by_head(l, l->s.lse, &args->lse);
}

static struct rf_rotary_scaling scaling_of(const struct llama_config *c)
{
    const struct llama_rope_scaling *s = &c->rope_scaling;
    return (struct rf_rotary_scaling){(double)s->factor, (double)s->low_freq, (double)s->high_freq,
                                      s->original};
}

int llama_turn(const struct layer *l, struct rf_heads out, struct rf_heads x, bool back)
{
    const struct model_context c = llama_context(l);
    const bool whole = l->m.context.ranks <= 1;
    for (int half = 0; half < (whole ? 1 : 2); half++) {
        const struct rf_rotary_opts rotary = {.theta = (double)l->g->theta,
                                              .position = whole ? 0 : model_chunk_first(&c, half),
                                              .halves = true,
                                              .scaling = scaling_of(l->g)};
        const struct rf_heads from = whole ? x : model_chunk_of(x, half),
                              to = whole ? out : model_chunk_of(out, half);
        RETURN_IF_FAILED(back ? rf_rotary_backward(l->m.ctx->stream, to, from, &rotary)
                              : rf_rotary(l->m.ctx->stream, to, from, &rotary));
    }
    return 0;
}

struct llama_normed_heads llama_head_norm(const struct layer *l, bool keys)
{
    return keys ? (struct llama_normed_heads){l->block->k_norm, l->heads,    l->keys,
                                              l->s.k,           l->s.k_rstd, l->h.dk}
                : (struct llama_normed_heads){l->block->q_norm, 0,           l->heads,
                                              l->s.q,           l->s.q_rstd, l->h.dq};
}

int llama_free_heads(const struct layer *l, struct rf_tensor mixed,
                     const struct llama_normed_heads *of, struct rf_tensor *out)
{
    mixed.shape = rf_shape2(l->m.rows, of->heads * l->size);
    *out = mixed;
    return 0;
}

int llama_head_rows(const struct layer *l, struct rf_tensor t, struct rf_tensor *out)
{
    return rf_tensor_reshape(t, rf_shape2(rf_tensor_count(t) / l->size, l->size), out);
}

/* The norm goes through the memory of `mixed`, which attention has not written yet. */
static int place_normed(const struct layer *l, const struct llama_normed_heads *n)
{
    struct rf_stream *stream = l->m.ctx->stream;
    struct rf_tensor normed, rows, x;
    struct rf_heads packed, kept, from;
    RETURN_IF_FAILED(llama_free_heads(l, l->s.mixed, n, &normed));
    RETURN_IF_FAILED(llama_heads(l, l->s.qkv, n->first, n->heads, &packed));
    RETURN_IF_FAILED(llama_heads(l, n->x, 0, n->heads, &kept));
    RETURN_IF_FAILED(llama_heads(l, normed, 0, n->heads, &from));
    RETURN_IF_FAILED(llama_head_rows(l, normed, &rows));
    RETURN_IF_FAILED(llama_head_rows(l, n->x, &x));
    RETURN_IF_FAILED(rf_copy_heads(stream, kept, packed, false));
    RETURN_IF_FAILED(rf_rmsnorm(stream, rows, n->rstd, x, l->m.ctx->params[n->weight], l->g->eps));
    return llama_turn(l, packed, from, false);
}

int llama_place(const struct layer *l)
{
    struct rf_heads rotated; /* queries and keys are adjacent */
    if (!l->g->qk_norm) {
        RETURN_IF_FAILED(llama_heads(l, l->s.qkv, 0, l->heads + l->keys, &rotated));
        return llama_turn(l, rotated, rotated, false);
    }
    for (int keys = 0; keys < 2; keys++) {
        const struct llama_normed_heads n = llama_head_norm(l, keys);
        RETURN_IF_FAILED(place_normed(l, &n));
    }
    return 0;
}

struct model_context llama_context(const struct layer *l)
{
    return model_context_of(l->m.ctx, l->heads, l->keys, l->size);
}

int llama_own_keys(const struct layer *l, struct rf_tensor qkv, struct rf_heads *out)
{
    return llama_heads(l, qkv, l->heads, 2 * l->keys, out);
}

int llama_give_keys(struct layer *l)
{
    const struct model_context c = llama_context(l);
    struct rf_heads keys;
    if (l->m.context.ranks <= 1)
        return 0;
    RETURN_IF_FAILED(llama_own_keys(l, l->s.qkv, &keys));
    return model_write_keys(&c, keys);
}

int llama_norm(struct layer *l, enum param weight, struct rf_tensor x, struct rf_tensor kept,
               struct rf_tensor rstd)
{
    const bool drops = model_recomputes(&l->m, MODEL_RECOMPUTE_NORMS);
    struct rf_tensor out = kept;
    if (drops)
        RETURN_IF_FAILED(model_rows_place(&l->m, l->w.norm, &out));
    RETURN_IF_FAILED(
        rf_rmsnorm(l->m.ctx->stream, out, rstd, x, l->m.ctx->params[weight], l->g->eps));
    return drops ? 0 : model_write_rows(&l->m, kept);
}

struct rf_tensor llama_normed(const struct layer *l, struct rf_tensor kept)
{
    return model_all_rows(&l->m, model_recomputes(&l->m, MODEL_RECOMPUTE_NORMS) ? l->w.norm : kept);
}

int llama_attend(const struct layer *l)
{
    const struct model_context c = llama_context(l);
    struct rf_attention_args args;
    RETURN_IF_FAILED(llama_attention_args(l, &args));
    return l->m.context.ranks > 1 ? model_attend(&c, &l->w.sequences, &args)
                                  : rf_attend(l->m.ctx->stream, &args);
}

int llama_gate(const struct layer *l)
{
    const struct rf_tensor none = {0};
    return rf_glu(l->m.ctx->stream, RF_ACT_SILU, l->s.act, l->s.gates, none);
}

int llama_widen(const struct layer *l)
{
    RETURN_IF_FAILED(model_linear_forward(&l->m, &l->block->gate_up, l->s.gates,
                                          llama_normed(l, l->s.norm2), NULL));
    return llama_gate(l);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int begin(struct layer *l)
{
    return llama_norm(l, NORM1, l->x, l->s.norm1, l->s.rstd1);
}

static int queries(struct layer *l)
{
    RETURN_IF_FAILED(
        model_linear_forward(&l->m, &l->block->qkv, l->s.qkv, llama_normed(l, l->s.norm1), NULL));
    RETURN_IF_FAILED(llama_place(l));
    return llama_give_keys(l);
}

static int attention(struct layer *l)
{
    const struct model_context c = llama_context(l);
    if (l->m.context.ranks > 1)
        RETURN_IF_FAILED(model_order_keys(&c, &l->w.sequences));
    RETURN_IF_FAILED(llama_attend(l));
    return model_linear_sum(&l->m, &l->block->proj, l->s.middle, l->s.mixed, l->x);
}

static int middle(struct layer *l)
{
    RETURN_IF_FAILED(model_linear_end(&l->m, &l->block->proj, l->s.middle, l->x));
    return llama_norm(l, NORM2, l->s.middle, l->s.norm2, l->s.rstd2);
}

static int unit(struct layer *l)
{
    RETURN_IF_FAILED(llama_widen(l));
    return model_linear_sum(&l->m, &l->block->down, l->out, l->s.act, l->s.middle);
}

static int end(struct layer *l)
{
    return model_linear_end(&l->m, &l->block->down, l->out, l->s.middle);
}

static const struct model_step steps[] = {{begin, MODEL_ROWS},    {queries, MODEL_KEYS},
                                          {attention, MODEL_SUM}, {middle, MODEL_ROWS},
                                          {unit, MODEL_SUM},      {end}};
const struct model_steps llama_layer_forward = {MODEL_STEPS(steps)};
