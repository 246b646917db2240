/* SPDX-License-Identifier: MIT
 *
 * The backward pass of a GPT-2 layer, in steps: one half for its input, one for its weights.
 */
#include "gpt2_layer.h"

/* ---- recomputation --------------------------------------------------------------------------- */

/* Computes whole rows, like forward, so the bits are the same. It overwrites mean and rstd with the
 * values that they already have. */
static int recompute_norm(struct layer *l, enum param weight, struct rf_tensor x,
                          struct rf_tensor kept)
{
    if (!model_recomputes(&l->m, MODEL_RECOMPUTE_NORMS))
        return model_write_rows(&l->m, kept);
    return MODEL_RECOMPUTED(l->m.ctx, gpt2_norm(l, weight, x, kept, l->w.mean, l->w.rstd));
}

/* Writes `pre` to the memory of its gradient, which later overwrites it. */
static int recompute_mlp(struct layer *l)
{
    if (!model_recomputes(&l->m, MODEL_RECOMPUTE_MLP))
        return 0;
    l->s.pre = l->h.dact;
    l->s.act = l->h.act;
    return MODEL_RECOMPUTED(l->m.ctx, gpt2_widen(l));
}

static int recompute_attention(struct layer *l)
{
    if (!model_recomputes(&l->m, MODEL_RECOMPUTE_ATTENTION))
        return 0;
    l->s.mixed = l->h.mixed;
    l->s.lse = l->w.lse;
    return MODEL_RECOMPUTED(l->m.ctx, gpt2_attend(l));
}

/* Gets `act` from saved_for_weight, computes it from `pre`, or uses the kept one. */
static int recompute_act(struct layer *l)
{
    if (!model_recomputes(&l->m, MODEL_RECOMPUTE_GELU))
        return 0;
    l->s.act = model_recomputes(&l->m, MODEL_RECOMPUTE_MLP) ? l->h.act : l->w.act;
    if (model_recomputes(&l->m, MODEL_RECOMPUTE_MLP))
        return 0;
    return MODEL_RECOMPUTED(l->m.ctx,
                            rf_activate(l->m.ctx->stream, RF_ACT_GELU, l->s.act, l->s.pre));
}

/* ---- input ----------------------------------------------------------------------------------- */

/* The gradients of the input half, each computed from the previous one. */
enum link { DOUT, DACT, DNORM2, DMIDDLE, DQKV, DNORM1, DIN };

/* Whether the input half has to compute this gradient. */
static bool reaches(const struct layer *l, enum link link)
{
    const struct gpt2_block *b = l->block;
    const struct rf_ctx *ctx = l->m.ctx;
    const bool wanted[DIN] = {model_linear_trains(&l->m, &b->fc2),
                              model_linear_trains(&l->m, &b->fc),
                              model_wants(ctx, LN2_W) || model_wants(ctx, LN2_B),
                              model_linear_trains(&l->m, &b->proj),
                              model_linear_trains(&l->m, &b->qkv),
                              model_wants(ctx, LN1_W) || model_wants(ctx, LN1_B)};
    return model_reach(&l->m, wanted, DIN) >= (int)link;
}

static int begin(struct layer *l)
{
    if (l->m.part.sequence)
        return model_write_rows(&l->m, l->dout);
    return l->m.residual != l->m.dtype ? rf_cast(l->m.ctx->stream, l->h.dout, l->dout) : 0;
}

/* The steps before the products of the MLP. */
static int take_dout(struct layer *l)
{
    if (l->m.part.sequence)
        RETURN_IF_FAILED(rf_copy(l->m.ctx->stream, l->h.dout, l->m.ctx->exchanged));
    return model_recomputes(&l->m, MODEL_RECOMPUTE_MLP)
               ? recompute_norm(l, LN2_W, l->s.middle, l->s.norm2)
               : 0;
}

static int mlp(struct layer *l)
{
    struct model_act gelu = {.kind = RF_ACT_GELU};
    RETURN_IF_FAILED(recompute_mlp(l));
    gelu.pre = l->s.pre;
    if (reaches(l, DACT))
        RETURN_IF_FAILED(model_linear_back(&l->m, &l->block->fc2, l->h.dact, l->h.dout, &gelu));
    if (!reaches(l, DNORM2))
        return 0;
    return model_linear_sum_back(&l->m, &l->block->fc, l->h.dnorm2, l->h.dact);
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
    RETURN_IF_FAILED(rf_layernorm_backward_input(stream, l->din, l->h.dnorm2, l->s.middle,
                                                 l->s.mean2, l->s.rstd2, l->m.ctx->params[LN2_W],
                                                 true));
    return l->m.part.sequence ? model_write_rows(&l->m, l->din)
                              : rf_cast(stream, l->h.dmiddle, l->din);
}

static int attend_back(struct layer *l)
{
    const struct model_context c = gpt2_context(l);
    const int64_t heads = l->heads, size = l->width / heads;
    struct rf_tensor dmixed, dqkv;
    struct rf_attention_args args;
    RETURN_IF_FAILED(gpt2_by_sequence(l, l->w.mixed, &dmixed));
    RETURN_IF_FAILED(gpt2_by_sequence(l, l->h.dqkv, &dqkv));
    RETURN_IF_FAILED(gpt2_attention_args(l, &args));
    struct rf_attention_grads grads = {.dout = rf_heads_in(dmixed, size, 0, heads),
                                       .dq = rf_heads_in(dqkv, size, 0, heads),
                                       .dk = rf_heads_in(dqkv, size, heads, heads),
                                       .dv = rf_heads_in(dqkv, size, 2 * heads, heads),
                                       .delta = l->w.delta};
    if (l->m.context.ranks > 1)
        return model_attend_back(&c, &l->w.sequences, &args, &grads);
    RETURN_IF_FAILED(gpt2_by_head(l, l->w.delta, &grads.delta));
    return rf_attend_backward(l->m.ctx->stream, &args, &grads);
}

static int attention(struct layer *l)
{
    const struct model_context c = gpt2_context(l);
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
    const struct model_context c = gpt2_context(l);
    struct rf_heads keys;
    if (l->m.context.ranks > 1) {
        RETURN_IF_FAILED(gpt2_own_keys(l, l->h.dqkv, &keys));
        RETURN_IF_FAILED(model_read_key_grads(&c, keys));
    }
    if (!reaches(l, DNORM1))
        return 0;
    return model_linear_sum_back(&l->m, &l->block->qkv, l->h.dnorm1, l->h.dqkv);
}

static int end(struct layer *l)
{
    RETURN_IF_FAILED(model_copy_sum(&l->m, l->h.dnorm1));
    if (!reaches(l, DIN))
        return 0;
    return rf_layernorm_backward_input(l->m.ctx->stream, l->din, l->h.dnorm1, l->x, l->s.mean1,
                                       l->s.rstd1, l->m.ctx->params[LN1_W], true);
}

static const struct model_step input_steps[] = {{begin, MODEL_ROWS},
                                                {take_dout, MODEL_ROWS_RECOMPUTED},
                                                {mlp, MODEL_SUM},
                                                {middle, MODEL_ROWS},
                                                {gpt2_give_keys, MODEL_KEYS},
                                                {attention, MODEL_KEY_GRADS},
                                                {queries, MODEL_SUM},
                                                {end}};
const struct model_steps gpt2_layer_backward_input = {MODEL_STEPS(input_steps)};

/* ---- weights --------------------------------------------------------------------------------- */

static int norm_grads(struct layer *l, enum param weight, struct rf_tensor dout, struct rf_tensor x,
                      struct rf_tensor mean, struct rf_tensor rstd)
{
    struct rf_ctx *ctx = l->m.ctx;
    struct rf_tensor scratch;
    if (!model_wants(ctx, weight) && !model_wants(ctx, weight + 1))
        return 0;
    RETURN_IF_FAILED(
        model_scratch(ctx, rf_layernorm_scratch(l->m.own_rows, l->m.channels), &scratch));
    return rf_layernorm_backward_weight(ctx->stream, ctx->grads[weight], ctx->grads[weight + 1],
                                        dout, x, mean, rstd, scratch);
}

/* The norm of `x`, from which the gradient of a product is computed. All ranks take part in an
 * exchange. */
static int norm_for(struct layer *l, const struct model_linear *product, enum param weight,
                    struct rf_tensor x, struct rf_tensor kept)
{
    const bool needed = model_linear_wants(&l->m, product) || l->m.part.sequence;
    return needed ? recompute_norm(l, weight, x, kept) : 0;
}

static int narrow_weights(struct layer *l)
{
    const struct gpt2_block *b = l->block;
    if (model_linear_wants(&l->m, &b->fc2))
        RETURN_IF_FAILED(recompute_act(l));
    RETURN_IF_FAILED(model_linear_grads(&l->m, &b->fc2, l->h.dout, l->s.act));
    return norm_for(l, &b->fc, LN2_W, l->s.middle, l->s.norm2);
}

static int middle_weights(struct layer *l)
{
    const struct gpt2_block *b = l->block;
    RETURN_IF_FAILED(model_linear_grads(&l->m, &b->fc, l->h.dact, gpt2_normed(l, l->s.norm2)));
    RETURN_IF_FAILED(norm_grads(l, LN2_W, l->h.dnorm2, l->s.middle, l->s.mean2, l->s.rstd2));
    RETURN_IF_FAILED(model_linear_grads(&l->m, &b->proj, l->h.dmiddle, l->s.mixed));
    return norm_for(l, &b->qkv, LN1_W, l->x, l->s.norm1);
}

static int qkv_weights(struct layer *l)
{
    RETURN_IF_FAILED(
        model_linear_grads(&l->m, &l->block->qkv, l->h.dqkv, gpt2_normed(l, l->s.norm1)));
    return norm_grads(l, LN1_W, l->h.dnorm1, l->x, l->s.mean1, l->s.rstd1);
}

static const struct model_step weight_steps[] = {
    {narrow_weights, MODEL_ROWS}, {middle_weights, MODEL_ROWS}, {qkv_weights}};
const struct model_steps gpt2_layer_backward_weight = {MODEL_STEPS(weight_steps)};
