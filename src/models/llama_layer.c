/* SPDX-License-Identifier: MIT
 *
 * A layer of a Llama-style model: y = x + attention(norm(x)), then y + gated unit(norm(y)). This
 * file has its memory and its exchanges. Values that are recomputed (recompute.h) are written to
 * scratch, and the same kernels compute them again in the backward pass. A value that costs a
 * product or an attention, and that both halves of the backward pass need, is kept in
 * saved_for_weight.
 */
#include <stdio.h>
#include <string.h>

#include "llama_layer.h"

/* Columns of the packed queries, keys and values of this rank. */
static int64_t packed(const struct layer *l)
{
    return l->size * (l->heads + 2 * l->keys);
}

#define SAVED_CUTS 14
static void cut_saved(struct layer *l, struct model_cut cuts[SAVED_CUTS])
{
    const struct model_layer *m = &l->m;
    struct saved *s = &l->s;
    const int64_t c = m->channels;
    const enum rf_dtype t = m->dtype;
    const bool norms = model_recomputes(m, MODEL_RECOMPUTE_NORMS),
               attention = model_recomputes(m, MODEL_RECOMPUTE_ATTENTION), plain = !l->g->qk_norm;
    const int own = model_row_parts(m);
    const struct model_cut all[SAVED_CUTS] = {
        {&s->norm1, c, t, norms, own},
        {&s->rstd1, .parts = own},
        {&s->qkv, packed(l), t},
        {&s->q, l->heads * l->size, t, plain},
        {&s->k, l->keys * l->size, t, plain},
        {&s->q_rstd, l->heads, RF_F32, plain},
        {&s->k_rstd, l->keys, RF_F32, plain},
        {&s->mixed, l->heads * l->size, t, attention},
        {&s->lse, l->heads, RF_F32, attention},
        {&s->middle, c, m->residual, .parts = own},
        {&s->norm2, c, t, norms, own},
        {&s->rstd2, .parts = own},
        {&s->gates, 2 * l->hidden, t, model_recomputes(m, MODEL_RECOMPUTE_MLP)},
        {&s->act, l->hidden, t, model_recomputes(m, MODEL_RECOMPUTE_GELU)},
    };
    memcpy(cuts, all, sizeof(all));
}

#define FOR_WEIGHT_CUTS 10
static void cut_for_weight(struct layer *l, struct model_cut cuts[FOR_WEIGHT_CUTS])
{
    const struct model_layer *m = &l->m;
    struct saved_for_weight *h = &l->h;
    const int64_t c = m->channels;
    const enum rf_dtype t = m->dtype;
    const int own = model_row_parts(m);
    const struct model_cut all[FOR_WEIGHT_CUTS] = {
        {&h->dgates, 2 * l->hidden, t},
        {&h->dmiddle, c, t},
        {&h->dqkv, packed(l), t},
        {&h->dq, l->heads * l->size, t, !l->g->qk_norm},
        {&h->dk, l->keys * l->size, t, !l->g->qk_norm},
        {&h->dnorm1, c, t, .parts = own},
        {&h->dnorm2, c, t, .parts = own},
        {&h->dout, c, t, m->residual == t && !m->part.sequence},
        {&h->mixed, l->heads * l->size, t, !model_recomputes(m, MODEL_RECOMPUTE_ATTENTION)},
        {&h->act, l->hidden, t, !model_recomputes(m, MODEL_RECOMPUTE_MLP)},
    };
    memcpy(cuts, all, sizeof(all));
}

struct work_cuts {
    struct model_cut operands[4], attention[3 + MODEL_SEQUENCE_CUTS], unit[1];
};
static struct work_cuts cut_work(struct layer *l)
{
    const struct model_layer *m = &l->m;
    struct work *w = &l->w;
    const enum rf_dtype t = m->dtype;
    const bool norms = model_recomputes(m, MODEL_RECOMPUTE_NORMS),
               attention = model_recomputes(m, MODEL_RECOMPUTE_ATTENTION);
    struct work_cuts cuts = {
        .operands = {{&w->norm, m->channels, t, !norms || m->part.sequence},
                     {&w->rstd, 0, RF_F32, !norms, model_row_parts(m)},
                     {&w->gates, 2 * l->hidden, t, !model_recomputes(m, MODEL_RECOMPUTE_MLP)},
                     {&w->act, l->hidden, t, !model_recomputes(m, MODEL_RECOMPUTE_GELU)}},
        .attention = {{&w->mixed, l->heads * l->size, t},
                      {&w->delta, l->heads},
                      {&w->lse, l->heads, RF_F32, !attention}},
        .unit = {{&w->dact, l->hidden, t}},
    };
    model_cut_sequences(m, &w->sequences, cuts.attention + 3);
    return cuts;
}

static void init(struct layer *l, struct rf_ctx *ctx, const struct llama_block *block,
                 const struct rf_tensor_part *part, int64_t rows)
{
    const struct llama_config *g = block->config;
    *l = (struct layer){.m = {.channels = g->channels,
                              .dtype = g->dtype,
                              .residual = g->residual,
                              .recompute = g->recompute},
                        .g = g,
                        .block = block,
                        .size = g->head_size};
    model_layer_init(&l->m, ctx, part, rows);
    const int ranks = l->m.part.ranks;
    l->heads = g->heads / ranks;
    l->keys = model_max(g->kv_heads / ranks, 1);
    l->hidden = g->hidden / ranks;
    l->m.key_columns = 2 * l->keys * l->size;
    l->m.copied = g->kv_heads < ranks ? 2 * g->kv_heads * l->size : 0;
    l->m.shared = (g->qkv_bias ? l->m.copied : 0) +
                  (g->qk_norm && ranks > 1 && !l->m.part.sequence ? 2 * l->size : 0);
}

/* Sets up the call for one phase. The steps set the tensors that forward does not keep. */
static int open_layer(struct layer *l, struct rf_ctx *ctx, const struct llama_block *block)
{
    struct model_cut saved[SAVED_CUTS];
    init(l, ctx, block, &ctx->tensor, ctx->rows);
    cut_saved(l, saved);
    const struct work_cuts work = cut_work(l);
    RETURN_IF_FAILED(model_suballocate(ctx->saved, ctx->rows, saved, SAVED_CUTS));
    RETURN_IF_FAILED(model_suballocate(ctx->scratch, ctx->rows, MODEL_CUTS(work.operands)));
    RETURN_IF_FAILED(model_suballocate(ctx->scratch, ctx->rows, MODEL_CUTS(work.attention)));
    return model_suballocate(ctx->scratch, ctx->rows, MODEL_CUTS(work.unit));
}

static int open_backward(struct layer *l, struct rf_ctx *ctx, const struct llama_block *block,
                         struct rf_tensor in, struct rf_tensor dout)
{
    struct model_cut saved_for_weight[FOR_WEIGHT_CUTS];
    RETURN_IF_FAILED(open_layer(l, ctx, block));
    l->x = in;
    l->dout = l->h.dout = dout;
    cut_for_weight(l, saved_for_weight);
    return model_suballocate(ctx->saved_for_weight, ctx->rows, saved_for_weight, FOR_WEIGHT_CUTS);
}

static int forward(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor out)
{
    struct layer l;
    RETURN_IF_FAILED(open_layer(&l, ctx, self));
    l.x = in;
    l.out = out;
    if (model_recomputes(&l.m, MODEL_RECOMPUTE_ATTENTION)) {
        l.s.mixed = l.w.mixed;
        l.s.lse = l.w.lse;
    }
    if (model_recomputes(&l.m, MODEL_RECOMPUTE_MLP))
        l.s.gates = l.w.gates;
    if (model_recomputes(&l.m, MODEL_RECOMPUTE_GELU))
        l.s.act = l.w.act;
    return model_run_steps(&l, &l.m, llama_layer_forward);
}

static int backward_input(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                          struct rf_tensor dout, struct rf_tensor din)
{
    struct layer l;
    RETURN_IF_FAILED(open_backward(&l, ctx, self, in, dout));
    l.din = din;
    return model_run_steps(&l, &l.m, llama_layer_backward_input);
}

static int backward_weight(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                           struct rf_tensor dout)
{
    struct layer l;
    RETURN_IF_FAILED(open_backward(&l, ctx, self, in, dout));
    if (model_recomputes(&l.m, MODEL_RECOMPUTE_ATTENTION))
        l.s.mixed = l.h.mixed;
    return model_run_steps(&l, &l.m, llama_layer_backward_weight);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Elements of f32 scratch for the gradients of vectors. */
static int64_t vector_scratch(const struct layer *l)
{
    const struct model_layer *m = &l->m;
    int64_t elements = rf_layernorm_scratch(m->own_rows, m->channels);
    if (l->g->qkv_bias)
        elements = model_max(elements, rf_bias_grad_scratch(m->rows, packed(l)) +
                                           (m->copied ? packed(l) : 0));
    if (l->g->qk_norm)
        elements = model_max(elements, rf_layernorm_scratch(m->rows * l->heads, l->size));
    return elements;
}

static void fill_sizes(struct layer *l, struct rf_block_sizes *out)
{
    const struct model_layer *m = &l->m;
    const int64_t n = m->rows;
    struct model_cut saved[SAVED_CUTS], saved_for_weight[FOR_WEIGHT_CUTS];
    const struct work_cuts work = cut_work(l);
    const uint64_t scratch[] = {model_cut_bytes(n, MODEL_CUTS(work.operands)),
                                model_cut_bytes(n, MODEL_CUTS(work.attention)),
                                model_cut_bytes(n, MODEL_CUTS(work.unit)),
                                model_scratch_bytes(vector_scratch(l))};
    const struct llama_block *block = l->block;
    const struct model_linear *const linears[] = {&block->qkv, &block->proj, &block->gate_up,
                                                  &block->down};
    cut_saved(l, saved);
    cut_for_weight(l, saved_for_weight);
    *out = (struct rf_block_sizes){
        .saved = model_cut_bytes(n, saved, SAVED_CUTS),
        .saved_for_weight = model_cut_bytes(n, saved_for_weight, FOR_WEIGHT_CUTS),
        .scratch = model_most(scratch, 4) + model_linear_adapter_bytes(m, linears, 4),
        .out = rf_shape2(m->own_rows, m->channels),
        .dtype = m->residual};
}

static int sizes(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out)
{
    struct layer l;
    (void)seq;
    init(&l, NULL, self, NULL, rows);
    fill_sizes(&l, out);
    return 0;
}

static int tensor_sizes(const void *self, const struct rf_tensor_part *part, int64_t rows,
                        int64_t seq, struct rf_block_sizes *out)
{
    const struct llama_block *block = self;
    const struct llama_config *g = block->config;
    const struct model_division divisions[] = {{g->heads, "heads"},
                                               {g->kv_heads, "heads of keys", .copies = true},
                                               {g->hidden, "hidden channels"},
                                               {rows, "rows of a micro-batch"}};
    struct layer l;
    (void)seq;
    *out = (struct rf_block_sizes){0};
    RETURN_IF_FAILED(model_divide(part, divisions, part->sequence ? 4 : 3, out->fault));
    const char *fault = model_quantize_tensor_fault(g->quantize, part);
    fault = fault ? fault : lora_tensor_fault(g->adapter, part, g->kv_heads < part->ranks);
    if (fault) {
        snprintf(out->fault, sizeof(out->fault), "%s", fault);
        return RF_EINVAL;
    }
    init(&l, NULL, block, part, rows);
    fill_sizes(&l, out);
    model_exchanges(&l.m, llama_layer_forward, out->forward);
    model_exchanges(&l.m, llama_layer_backward_input, out->backward_input);
    model_exchanges(&l.m, llama_layer_backward_weight, out->backward_weight);
    return 0;
}

static int context_sizes(const void *self, const struct rf_context_part *part, int64_t rows,
                         int64_t seq, struct rf_block_sizes *out)
{
    struct layer l;
    (void)seq;
    init(&l, NULL, self, NULL, rows);
    l.m.context = *part;
    fill_sizes(&l, out);
    model_exchanges(&l.m, llama_layer_forward, out->forward);
    model_exchanges(&l.m, llama_layer_backward_input, out->backward_input);
    return 0;
}

const struct rf_block_ops llama_layer_ops = {
    forward,      backward_input, backward_weight,    sizes,
    tensor_sizes, context_sizes,  &llama_layer_decode};
