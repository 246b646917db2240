/* SPDX-License-Identifier: MIT
 *
 * The backward pass of a layer of a Llama-style model, in steps: one half for its input, one for
 * its weights.
 */
#include "llama_layer.h"

/* ---- recomputation --------------------------------------------------------------------------- */

/* Computes whole rows, like forward, so the bits are the same. It overwrites rstd with the values
 * that it already has. */
static int recompute_norm(struct layer *l, enum param weight, struct rf_tensor x,
                          struct rf_tensor kept)
{
    if (!model_recomputes(&l->m, MODEL_RECOMPUTE_NORMS))
        return model_write_rows(&l->m, kept);
    return MODEL_RECOMPUTED(l->m.ctx, llama_norm(l, weight, x, kept, l->w.rstd));
}

/* Writes the gates to the memory of their gradients, which later overwrite them. */
static int recompute_unit(struct layer *l)
{
    if (!model_recomputes(&l->m, MODEL_RECOMPUTE_MLP))
        return 0;
    l->s.gates = l->h.dgates;
    l->s.act = l->h.act;
    return MODEL_RECOMPUTED(l->m.ctx, llama_widen(l));
}

static int recompute_attention(struct layer *l)
{
    if (!model_recomputes(&l->m, MODEL_RECOMPUTE_ATTENTION))
        return 0;
    l->s.mixed = l->h.mixed;
    l->s.lse = l->w.lse;
    return MODEL_RECOMPUTED(l->m.ctx, llama_attend(l));
}

/* Gets `act` from saved_for_weight, computes it from the gates, or uses the kept one. */
static int recompute_act(struct layer *l)
{
    if (!model_recomputes(&l->m, MODEL_RECOMPUTE_GELU))
        return 0;
    l->s.act = model_recomputes(&l->m, MODEL_RECOMPUTE_MLP) ? l->h.act : l->w.act;
    return model_recomputes(&l->m, MODEL_RECOMPUTE_MLP) ? 0
                                                        : MODEL_RECOMPUTED(l->m.ctx, llama_gate(l));
}

/* ---- input ----------------------------------------------------------------------------------- */

/* The gradients of the input half, each computed from the previous one. */
enum link { DOUT, DACT, DNORM2, DMIDDLE, DQKV, DNORM1, DIN };

/* Whether the input half has to compute this gradient. */
static bool reaches(const struct layer *l, enum link link)
{
    const struct llama_block *b = l->block;
    const struct rf_ctx *ctx = l->m.ctx;
    const bool wanted[DIN] = {model_linear_trains(&l->m, &b->down),
                              model_linear_trains(&l->m, &b->gate_up),
                              model_wants(ctx, NORM2),
                              model_linear_trains(&l->m, &b->proj),
                              model_linear_trains(&l->m, &b->qkv),
                              model_wants(ctx, NORM1)};
    return model_reach(&l->m, wanted, DIN) >= (int)link;
}

static int begin(struct layer *l)
{
    if (l->m.part.sequence)
        return model_write_rows(&l->m, l->dout);
    return l->m.residual != l->m.dtype ? rf_cast(l->m.ctx->stream, l->h.dout, l->dout) : 0;
}

/* The steps before the products of the gated unit. */
static int take_dout(struct layer *l)
{
    if (l->m.part.sequence)
        RETURN_IF_FAILED(rf_copy(l->m.ctx->stream, l->h.dout, l->m.ctx->exchanged));
    return model_recomputes(&l->m, MODEL_RECOMPUTE_MLP)
               ? recompute_norm(l, NORM2, l->s.middle, l->s.norm2)
               : 0;
}

static int unit(struct layer *l)
{
    const struct rf_tensor none = {0};
    RETURN_IF_FAILED(recompute_unit(l));
    if (!reaches(l, DACT))
        return 0;
    RETURN_IF_FAILED(model_linear_back(&l->m, &l->block->down, l->w.dact, l->h.dout, NULL));
    RETURN_IF_FAILED(rf_glu_backward(l->m.ctx->stream, RF_ACT_SILU, l->h.dgates, none, l->w.dact,
                                     l->s.gates, none));
    if (!reaches(l, DNORM2))
        return 0;
    return model_linear_sum_back(&l->m, &l->block->gate_up, l->h.dnorm2, l->h.dgates);
}

/* din has the gradient of the sum in the middle; the gradient of the first norm is added to it. */
static int middle(struct layer *l)
{
    struct rf_stream *stream = l->m.ctx->stream;
    if (!reaches(l, DMIDDLE))
        return 0;
    RETURN_IF_FAILED(model_copy_sum(&l->m, l->h.dnorm2));
    /* backward_weight needs dout unchanged, so the residual branch starts from a copy. */
    RETURN_IF_FAILED(rf_copy(stream, l->din, l->dout));
    RETURN_IF_FAILED(rf_rmsnorm_backward_input(stream, l->din, l->h.dnorm2, l->s.middle, l->s.rstd2,
                                               l->m.ctx->params[NORM2], true));
    return l->m.part.sequence ? model_write_rows(&l->m, l->din)
                              : rf_cast(stream, l->h.dmiddle, l->din);
}

/* Where ranks have copies of a key head, each rank computes the part of the gradient that its own
 * queries contribute. The later sum over the ranks adds these parts. MODEL_COPIES adds those of the
 * weights. */
static int attend_back(struct layer *l)
{
    const int64_t heads = l->heads, k = l->keys;
    const struct model_context c = llama_context(l);
    struct rf_attention_args args;
    struct rf_attention_grads grads;
    RETURN_IF_FAILED(llama_attention_args(l, &args));
    RETURN_IF_FAILED(llama_heads(l, l->w.mixed, 0, heads, &grads.dout));
    RETURN_IF_FAILED(llama_heads(l, l->h.dqkv, 0, heads, &grads.dq));
    RETURN_IF_FAILED(llama_heads(l, l->h.dqkv, heads, k, &grads.dk));
    RETURN_IF_FAILED(llama_heads(l, l->h.dqkv, heads + k, k, &grads.dv));
    grads.delta = l->w.delta;
    if (l->m.context.ranks > 1)
        return model_attend_back(&c, &l->w.sequences, &args, &grads);
    RETURN_IF_FAILED(llama_by_head(l, l->w.delta, &grads.delta));
    return rf_attend_backward(l->m.ctx->stream, &args, &grads);
}

static int attention(struct layer *l)
{
    const struct model_context c = llama_context(l);
    if (l->m.part.sequence)
        RETURN_IF_FAILED(rf_copy(l->m.ctx->stream, l->h.dmiddle, l->m.ctx->exchanged));
    if (l->m.context.ranks > 1)
        RETURN_IF_FAILED(model_order_keys(&c, &l->w.sequences));
    if (reaches(l, DMIDDLE))
        RETURN_IF_FAILED(recompute_attention(l));
    if (!reaches(l, DQKV))
        return 0;
    RETURN_IF_FAILED(model_linear_back(&l->m, &l->block->proj, l->w.mixed, l->h.dmiddle, NULL));
    return attend_back(l);
}

static int queries(struct layer *l)
{
    const struct model_context c = llama_context(l);
    struct rf_heads keys;
    if (l->m.context.ranks > 1) {
        RETURN_IF_FAILED(llama_own_keys(l, l->h.dqkv, &keys));
        RETURN_IF_FAILED(model_read_key_grads(&c, keys));
    }
    if (!reaches(l, DQKV))
        return 0;
    RETURN_IF_FAILED(llama_rotate(l, l->h.dqkv, true));
    if (!reaches(l, DNORM1))
        return 0;
    return model_linear_sum_back(&l->m, &l->block->qkv, l->h.dnorm1, l->h.dqkv);
}

static int end(struct layer *l)
{
    RETURN_IF_FAILED(model_copy_sum(&l->m, l->h.dnorm1));
    if (!reaches(l, DIN))
        return 0;
    return rf_rmsnorm_backward_input(l->m.ctx->stream, l->din, l->h.dnorm1, l->x, l->s.rstd1,
                                     l->m.ctx->params[NORM1], true);
}

static const struct model_step input_steps[] = {{begin, MODEL_ROWS},
                                                {take_dout, MODEL_ROWS_RECOMPUTED},
                                                {unit, MODEL_SUM},
                                                {middle, MODEL_ROWS},
                                                {llama_give_keys, MODEL_KEYS},
                                                {attention, MODEL_KEY_GRADS},
                                                {queries, MODEL_SUM},
                                                {end}};
const struct model_steps llama_layer_backward_input = {MODEL_STEPS(input_steps)};

/* ---- weights --------------------------------------------------------------------------------- */

static int norm_grad(struct layer *l, enum param weight, struct rf_tensor dout, struct rf_tensor x,
                     struct rf_tensor rstd)
{
    struct rf_ctx *ctx = l->m.ctx;
    struct rf_tensor scratch;
    if (!model_wants(ctx, weight))
        return 0;
    RETURN_IF_FAILED(
        model_scratch(ctx, rf_layernorm_scratch(l->m.own_rows, l->m.channels), &scratch));
    return rf_rmsnorm_backward_weight(ctx->stream, ctx->grads[weight], dout, x, rstd, scratch);
}

/* The norm of `x`, from which the gradient of a product is computed. All ranks take part in an
 * exchange. */
static int norm_for(struct layer *l, const struct model_linear *product, enum param weight,
                    struct rf_tensor x, struct rf_tensor kept)
{
    const bool needed = model_linear_wants(&l->m, product) || l->m.part.sequence;
    return needed ? recompute_norm(l, weight, x, kept) : 0;
}

static int down_weights(struct layer *l)
{
    const struct llama_block *b = l->block;
    if (model_linear_wants(&l->m, &b->down))
        RETURN_IF_FAILED(recompute_act(l));
    RETURN_IF_FAILED(model_linear_grads(&l->m, &b->down, l->h.dout, l->s.act));
    return norm_for(l, &b->gate_up, NORM2, l->s.middle, l->s.norm2);
}

static int middle_weights(struct layer *l)
{
    const struct llama_block *b = l->block;
    RETURN_IF_FAILED(
        model_linear_grads(&l->m, &b->gate_up, l->h.dgates, llama_normed(l, l->s.norm2)));
    RETURN_IF_FAILED(norm_grad(l, NORM2, l->h.dnorm2, l->s.middle, l->s.rstd2));
    RETURN_IF_FAILED(model_linear_grads(&l->m, &b->proj, l->h.dmiddle, l->s.mixed));
    return norm_for(l, &b->qkv, NORM1, l->x, l->s.norm1);
}

/* The rows of the QKV weight, or of its gradient, that other ranks have copies of: those of the key
 * and the value after the queries. */
static int own_copies(const struct layer *l, struct rf_tensor qkv, struct rf_tensor *out)
{
    return rf_tensor_rows(qkv, l->heads * l->size, 2 * l->size, out);
}
/* The rows of this rank's head among those of all heads that have copies. */
static int shared_copies(const struct layer *l, struct rf_tensor all, struct rf_tensor *out)
{
    const int64_t head = (int64_t)l->m.part.rank * l->g->kv_heads / l->m.part.ranks;
    return rf_tensor_rows(all, 2 * l->size * head, 2 * l->size, out);
}

static int split_qkv_weights(struct layer *l, struct rf_tensor norm1)
{
    struct rf_ctx *ctx = l->m.ctx;
    const int64_t queries = l->heads * l->size;
    struct rf_tensor grads, copies;
    if (!model_wants(ctx, QKV))
        return rf_fill(ctx->stream, ctx->exchange, 0);
    RETURN_IF_FAILED(rf_tensor_rows(ctx->grads[QKV], 0, queries, &grads));
    RETURN_IF_FAILED(shared_copies(l, ctx->exchange, &copies));
    RETURN_IF_FAILED(model_linear_grad_rows(&l->m, grads, l->h.dqkv, norm1, 0, queries,
                                            !ctx->overwrite_grad[QKV]));
    RETURN_IF_FAILED(rf_fill(ctx->stream, ctx->exchange, 0));
    return model_linear_grad_rows(&l->m, copies, l->h.dqkv, norm1, queries, 2 * l->size, false);
}

static int qkv_weights(struct layer *l)
{
    const struct rf_tensor norm1 = llama_normed(l, l->s.norm1);
    if (l->m.copied)
        RETURN_IF_FAILED(split_qkv_weights(l, norm1));
    else
        RETURN_IF_FAILED(model_linear_grads(&l->m, &l->block->qkv, l->h.dqkv, norm1));
    return norm_grad(l, NORM1, l->h.dnorm1, l->x, l->s.rstd1);
}

static int take_copies(struct layer *l)
{
    struct rf_ctx *ctx = l->m.ctx;
    struct rf_tensor grads, copies;
    if (!l->m.copied || !model_wants(ctx, QKV))
        return 0;
    RETURN_IF_FAILED(own_copies(l, ctx->grads[QKV], &grads));
    RETURN_IF_FAILED(shared_copies(l, ctx->exchanged, &copies));
    return ctx->overwrite_grad[QKV] ? rf_copy(ctx->stream, grads, copies)
                                    : rf_add(ctx->stream, grads, grads, copies);
}

static const struct model_step weight_steps[] = {{down_weights, MODEL_ROWS},
                                                 {middle_weights, MODEL_ROWS},
                                                 {qkv_weights, MODEL_COPIES},
                                                 {take_copies}};
const struct model_steps llama_layer_backward_weight = {MODEL_STEPS(weight_steps)};
