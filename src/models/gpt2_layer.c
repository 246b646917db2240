/* SPDX-License-Identifier: MIT
 *
 * A transformer layer of a GPT-2: y = x + attention(norm(x)), then y + mlp(norm(y)). This file has
 * its memory and its exchanges. Values that are recomputed (recompute.h) are written to scratch,
 * and the same kernels compute them again in the backward pass. A value that costs a product or an
 * attention, and that both halves of the backward pass need, is kept in saved_for_weight.
 */
#include <stdio.h>
#include <string.h>

#include "gpt2_layer.h"

#define SAVED_CUTS 12
static void cut_saved(struct layer *l, struct model_cut cuts[SAVED_CUTS])
{
    const struct model_layer *m = &l->m;
    struct saved *s = &l->s;
    const int64_t c = m->channels, width = l->width;
    const enum rf_dtype t = m->dtype;
    const bool norms = model_recomputes(m, MODEL_RECOMPUTE_NORMS),
               attention = model_recomputes(m, MODEL_RECOMPUTE_ATTENTION);
    const int own = model_row_parts(m);
    const struct model_cut all[SAVED_CUTS] = {
        {&s->norm1, c, t, norms, own},
        {&s->mean1, .parts = own},
        {&s->rstd1, .parts = own},
        {&s->qkv, 3 * width, t},
        {&s->mixed, width, t, attention},
        {&s->lse, l->heads, RF_F32, attention},
        {&s->middle, c, m->residual, .parts = own},
        {&s->norm2, c, t, norms, own},
        {&s->mean2, .parts = own},
        {&s->rstd2, .parts = own},
        {&s->pre, 4 * width, t, model_recomputes(m, MODEL_RECOMPUTE_MLP)},
        {&s->act, 4 * width, t, model_recomputes(m, MODEL_RECOMPUTE_GELU)},
    };
    memcpy(cuts, all, sizeof(all));
}

#define FOR_WEIGHT_CUTS 8
static void cut_for_weight(struct layer *l, struct model_cut cuts[FOR_WEIGHT_CUTS])
{
    const struct model_layer *m = &l->m;
    struct saved_for_weight *h = &l->h;
    const int64_t c = m->channels, width = l->width;
    const enum rf_dtype t = m->dtype;
    const int own = model_row_parts(m);
    const struct model_cut all[FOR_WEIGHT_CUTS] = {
        {&h->dact, 4 * width, t},
        {&h->dnorm2, c, t, .parts = own},
        {&h->dmiddle, c, t},
        {&h->dqkv, 3 * width, t},
        {&h->dnorm1, c, t, .parts = own},
        {&h->dout, c, t, m->residual == t && !m->part.sequence},
        {&h->mixed, width, t, !model_recomputes(m, MODEL_RECOMPUTE_ATTENTION)},
        {&h->act, 4 * width, t, !model_recomputes(m, MODEL_RECOMPUTE_MLP)},
    };
    memcpy(cuts, all, sizeof(all));
}

struct work_cuts {
    struct model_cut operands[4], attention[3 + MODEL_SEQUENCE_CUTS];
};
static struct work_cuts cut_work(struct layer *l)
{
    const struct model_layer *m = &l->m;
    struct work *w = &l->w;
    const enum rf_dtype t = m->dtype;
    const bool norms = model_recomputes(m, MODEL_RECOMPUTE_NORMS),
               attention = model_recomputes(m, MODEL_RECOMPUTE_ATTENTION);
    const int own = model_row_parts(m);
    struct work_cuts cuts = {
        .operands = {{&w->norm, m->channels, t, !norms || m->part.sequence},
                     {&w->mean, 0, RF_F32, !norms, own},
                     {&w->rstd, 0, RF_F32, !norms, own},
                     {&w->act, 4 * l->width, t, !model_recomputes(m, MODEL_RECOMPUTE_GELU)}},
        .attention = {{&w->mixed, l->width, t},
                      {&w->delta, l->heads},
                      {&w->lse, l->heads, RF_F32, !attention}},
    };
    model_cut_sequences(m, &w->sequences, cuts.attention + 3);
    return cuts;
}

static void init(struct layer *l, struct rf_ctx *ctx, const struct gpt2_block *block,
                 const struct rf_tensor_part *part, int64_t rows)
{
    const struct gpt2_config *g = block->config;
    *l = (struct layer){.m = {.channels = g->channels,
                              .dtype = g->dtype,
                              .residual = g->residual,
                              .recompute = g->recompute},
                        .block = block};
    model_layer_init(&l->m, ctx, part, rows);
    l->width = g->channels / l->m.part.ranks;
    l->heads = g->heads / l->m.part.ranks;
    l->m.key_columns = 2 * l->width;
}

/* Sets up the call for one phase. The steps set the tensors that forward does not keep. */
static int open_layer(struct layer *l, struct rf_ctx *ctx, const struct gpt2_block *block)
{
    struct model_cut saved[SAVED_CUTS];
    init(l, ctx, block, &ctx->tensor, ctx->rows);
    cut_saved(l, saved);
    const struct work_cuts work = cut_work(l);
    RETURN_IF_FAILED(model_suballocate(ctx->saved, ctx->rows, saved, SAVED_CUTS));
    RETURN_IF_FAILED(model_suballocate(ctx->scratch, ctx->rows, MODEL_CUTS(work.operands)));
    return model_suballocate(ctx->scratch, ctx->rows, MODEL_CUTS(work.attention));
}

static int open_backward(struct layer *l, struct rf_ctx *ctx, const struct gpt2_block *block,
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
    if (model_recomputes(&l.m, MODEL_RECOMPUTE_GELU))
        l.s.act = l.w.act;
    return model_run_steps(&l, &l.m, gpt2_layer_forward);
}

static int backward_input(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                          struct rf_tensor dout, struct rf_tensor din)
{
    struct layer l;
    RETURN_IF_FAILED(open_backward(&l, ctx, self, in, dout));
    l.din = din;
    return model_run_steps(&l, &l.m, gpt2_layer_backward_input);
}

static int backward_weight(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                           struct rf_tensor dout)
{
    struct layer l;
    RETURN_IF_FAILED(open_backward(&l, ctx, self, in, dout));
    if (model_recomputes(&l.m, MODEL_RECOMPUTE_ATTENTION))
        l.s.mixed = l.h.mixed;
    return model_run_steps(&l, &l.m, gpt2_layer_backward_weight);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static void fill_sizes(struct layer *l, struct rf_block_sizes *out)
{
    const struct model_layer *m = &l->m;
    const int64_t n = m->rows, c = m->channels;
    struct model_cut saved[SAVED_CUTS], saved_for_weight[FOR_WEIGHT_CUTS];
    const struct work_cuts work = cut_work(l);
    const int64_t biases = model_max(model_linear_scratch(m, &l->block->fc, 4 * l->width),
                                     model_linear_scratch(m, &l->block->fc2, c));
    const int64_t weights = model_max(biases, rf_layernorm_scratch(m->own_rows, c));
    const uint64_t scratch[] = {model_cut_bytes(n, MODEL_CUTS(work.operands)),
                                model_cut_bytes(n, MODEL_CUTS(work.attention)),
                                model_scratch_bytes(weights)};
    const struct gpt2_block *b = l->block;
    const struct model_linear *const linears[] = {&b->qkv, &b->proj, &b->fc, &b->fc2};
    cut_saved(l, saved);
    cut_for_weight(l, saved_for_weight);
    *out = (struct rf_block_sizes){
        .saved = model_cut_bytes(n, saved, SAVED_CUTS),
        .saved_for_weight = model_cut_bytes(n, saved_for_weight, FOR_WEIGHT_CUTS),
        .scratch = model_most(scratch, 3) + model_linear_adapter_bytes(m, linears, 4),
        .out = rf_shape2(m->own_rows, c),
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
    const struct gpt2_block *block = self;
    const struct gpt2_config *g = block->config;
    const struct model_division divisions[] = {{g->heads, "heads"},
                                               {rows, "rows of a micro-batch"}};
    struct layer l;
    (void)seq;
    *out = (struct rf_block_sizes){0};
    RETURN_IF_FAILED(model_divide(part, divisions, part->sequence ? 2 : 1, out->fault));
    const char *fault = model_quantize_tensor_fault(g->quantize, part);
    fault = fault ? fault : lora_tensor_fault(g->adapter, part, false);
    if (fault) {
        snprintf(out->fault, sizeof(out->fault), "%s", fault);
        return RF_EINVAL;
    }
    init(&l, NULL, block, part, rows);
    fill_sizes(&l, out);
    model_exchanges(&l.m, gpt2_layer_forward, out->forward);
    model_exchanges(&l.m, gpt2_layer_backward_input, out->backward_input);
    model_exchanges(&l.m, gpt2_layer_backward_weight, out->backward_weight);
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
    model_exchanges(&l.m, gpt2_layer_forward, out->forward);
    model_exchanges(&l.m, gpt2_layer_backward_input, out->backward_input);
    return 0;
}

const struct rf_block_ops gpt2_layer_ops = {forward,      backward_input, backward_weight,   sizes,
                                            tensor_sizes, context_sizes,  &gpt2_layer_decode};
