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

static bool wants_head_norms(const struct layer *l)
{
    const struct llama_block *b = l->block;
    return l->g->qk_norm && (model_wants(l->m.ctx, b->q_norm) || model_wants(l->m.ctx, b->k_norm));
}

/* Whether the input half has to compute this gradient. */
static bool reaches(const struct layer *l, enum link link)
{
    const struct llama_block *b = l->block;
    const struct rf_ctx *ctx = l->m.ctx;
    const bool wanted[DIN] = {model_linear_trains(&l->m, &b->down),
                              model_linear_trains(&l->m, &b->gate_up),
                              model_wants(ctx, NORM2),
                              model_linear_trains(&l->m, &b->proj),
                              model_linear_trains(&l->m, &b->qkv) || wants_head_norms(l),
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

/* Writes the gradients of the norm's output and, to dqkv, of its input. The latter goes through the
 * memory of `mixed`, of which attention needs nothing more. */
static int head_norm_back(const struct layer *l, const struct llama_normed_heads *n)
{
    struct rf_stream *stream = l->m.ctx->stream;
    struct rf_tensor input, rows, dout, x;
    struct rf_heads packed, back, from;
    RETURN_IF_FAILED(llama_free_heads(l, l->w.mixed, n, &input));
    RETURN_IF_FAILED(llama_heads(l, l->h.dqkv, n->first, n->heads, &packed));
    RETURN_IF_FAILED(llama_heads(l, n->dout, 0, n->heads, &back));
    RETURN_IF_FAILED(llama_heads(l, input, 0, n->heads, &from));
    RETURN_IF_FAILED(llama_head_rows(l, input, &rows));
    RETURN_IF_FAILED(llama_head_rows(l, n->dout, &dout));
    RETURN_IF_FAILED(llama_head_rows(l, n->x, &x));
    RETURN_IF_FAILED(llama_turn(l, back, packed, true));
    RETURN_IF_FAILED(rf_rmsnorm_backward_input(stream, rows, dout, x, n->rstd,
                                               l->m.ctx->params[n->weight], false));
    return rf_copy_heads(stream, packed, from, false);
}

static int place_back(const struct layer *l)
{
    struct rf_heads rotated;
    if (!l->g->qk_norm) {
        RETURN_IF_FAILED(llama_heads(l, l->h.dqkv, 0, l->heads + l->keys, &rotated));
        return llama_turn(l, rotated, rotated, true);
    }
    for (int keys = 0; keys < 2; keys++) {
        const struct llama_normed_heads n = llama_head_norm(l, keys);
        RETURN_IF_FAILED(head_norm_back(l, &n));
    }
    return 0;
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
    RETURN_IF_FAILED(place_back(l));
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

/* ---- gradients that ranks add ---------------------------------------------------------------- */

/* The exchange MODEL_COPIES: rows of the QKV weight and elements of its bias that ranks have copies
 * of, those of each key head and its value together, then the norms of queries and keys. With
 * sequence parallelism the gradients of norms are added once a step, like those of all parameters
 * that are not split. */
static int64_t own_copies(const struct layer *l)
{
    return l->heads * l->size; /* follow the queries */
}
/* Elements [first, first + count) of an exchanged tensor. */
static struct rf_tensor elements_of(struct rf_tensor all, int64_t first, int64_t count)
{
    all.offset += (uint64_t)first * sizeof(float);
    all.shape = rf_shape1(count);
    return all;
}
/* This rank's head among those of all heads that have copies. `width` is C for the weight, whose
 * rows are first, and 1 for the bias. */
static struct rf_tensor shared_copies(const struct layer *l, struct rf_tensor all, int64_t width)
{
    const int64_t head = (int64_t)l->m.part.rank * l->g->kv_heads / l->m.part.ranks,
                  first = width > 1 ? 0 : l->m.copied * l->m.channels, pair = 2 * l->size;
    struct rf_tensor part = elements_of(all, first + pair * head * width, pair * width);
    if (width > 1)
        part.shape = rf_shape2(pair, width);
    return part;
}
static struct rf_tensor shared_norm(const struct layer *l, struct rf_tensor all, bool keys)
{
    const int64_t end = l->m.copied * l->m.channels + l->m.shared;
    return elements_of(all, end - (keys ? 1 : 2) * l->size, l->size);
}
static bool norms_are_shared(const struct layer *l)
{
    return l->g->qk_norm && !model_alone(&l->m) && !l->m.part.sequence;
}

static int split_qkv_bias(struct layer *l)
{
    struct rf_ctx *ctx = l->m.ctx;
    const int bias = l->block->qkv.bias;
    const int64_t q = l->h.dqkv.shape.dim[1], own = own_copies(l), pair = 2 * l->size,
                  partial = rf_bias_grad_scratch(l->m.rows, q);
    struct rf_tensor scratch, grads;
    RETURN_IF_FAILED(model_scratch(ctx, q + partial, &scratch));
    const struct rf_tensor sums = elements_of(scratch, 0, q),
                           rest = elements_of(scratch, q, partial);
    RETURN_IF_FAILED(rf_fill(ctx->stream, sums, 0));
    RETURN_IF_FAILED(rf_bias_grad(ctx->stream, sums, l->h.dqkv, rest));
    RETURN_IF_FAILED(rf_tensor_rows(ctx->grads[bias], 0, own, &grads));
    RETURN_IF_FAILED(rf_add(ctx->stream, grads, grads, elements_of(sums, 0, own)));
    return rf_copy(ctx->stream, shared_copies(l, ctx->exchange, 1), elements_of(sums, own, pair));
}

static int split_qkv(struct layer *l, struct rf_tensor norm1)
{
    struct rf_ctx *ctx = l->m.ctx;
    const int64_t queries = own_copies(l);
    struct rf_tensor grads;
    if (model_wants(ctx, QKV)) {
        const struct rf_tensor copies = shared_copies(l, ctx->exchange, l->m.channels);
        RETURN_IF_FAILED(rf_tensor_rows(ctx->grads[QKV], 0, queries, &grads));
        RETURN_IF_FAILED(model_linear_grad_rows(&l->m, grads, l->h.dqkv, norm1, 0, queries,
                                                !ctx->overwrite_grad[QKV]));
        RETURN_IF_FAILED(
            model_linear_grad_rows(&l->m, copies, l->h.dqkv, norm1, queries, 2 * l->size, false));
    }
    if (!l->g->qkv_bias || !model_wants(ctx, l->block->qkv.bias))
        return 0;
    return split_qkv_bias(l);
}

static int head_norm_grads(struct layer *l)
{
    struct rf_ctx *ctx = l->m.ctx;
    for (int keys = 0; l->g->qk_norm && keys < 2; keys++) {
        const struct llama_normed_heads n = llama_head_norm(l, keys);
        struct rf_tensor scratch, dout, x;
        if (!model_wants(ctx, n.weight))
            continue;
        RETURN_IF_FAILED(llama_head_rows(l, n.dout, &dout));
        RETURN_IF_FAILED(llama_head_rows(l, n.x, &x));
        RETURN_IF_FAILED(
            model_scratch(ctx, rf_layernorm_scratch(l->m.rows * n.heads, l->size), &scratch));
        RETURN_IF_FAILED(rf_rmsnorm_backward_weight(
            ctx->stream,
            norms_are_shared(l) ? shared_norm(l, ctx->exchange, keys) : ctx->grads[n.weight], dout,
            x, n.rstd, scratch));
    }
    return 0;
}

static int qkv_weights(struct layer *l)
{
    const struct rf_tensor norm1 = llama_normed(l, l->s.norm1);
    if (l->m.copied + l->m.shared > 0)
        RETURN_IF_FAILED(rf_fill(l->m.ctx->stream, l->m.ctx->exchange, 0));
    if (l->m.copied)
        RETURN_IF_FAILED(split_qkv(l, norm1));
    else
        RETURN_IF_FAILED(model_linear_grads(&l->m, &l->block->qkv, l->h.dqkv, norm1));
    RETURN_IF_FAILED(head_norm_grads(l));
    return norm_grad(l, NORM1, l->h.dnorm1, l->x, l->s.rstd1);
}

static int take_copies(struct layer *l)
{
    struct rf_ctx *ctx = l->m.ctx;
    const int bias = l->block->qkv.bias;
    struct rf_tensor grads;
    if (l->m.copied && model_wants(ctx, QKV)) {
        const struct rf_tensor copies = shared_copies(l, ctx->exchanged, l->m.channels);
        RETURN_IF_FAILED(rf_tensor_rows(ctx->grads[QKV], own_copies(l), 2 * l->size, &grads));
        RETURN_IF_FAILED(ctx->overwrite_grad[QKV] ? rf_copy(ctx->stream, grads, copies)
                                                  : rf_add(ctx->stream, grads, grads, copies));
    }
    if (l->m.copied && bias && model_wants(ctx, bias)) {
        RETURN_IF_FAILED(rf_tensor_rows(ctx->grads[bias], own_copies(l), 2 * l->size, &grads));
        RETURN_IF_FAILED(rf_add(ctx->stream, grads, grads, shared_copies(l, ctx->exchanged, 1)));
    }
    for (int keys = 0; norms_are_shared(l) && keys < 2; keys++) {
        grads = ctx->grads[keys ? l->block->k_norm : l->block->q_norm];
        if (grads.buffer)
            RETURN_IF_FAILED(
                rf_add(ctx->stream, grads, grads, shared_norm(l, ctx->exchanged, keys)));
    }
    return 0;
}

static const struct model_step weight_steps[] = {{down_weights, MODEL_ROWS},
                                                 {middle_weights, MODEL_ROWS},
                                                 {qkv_weights, MODEL_COPIES},
                                                 {take_copies}};
const struct model_steps llama_layer_backward_weight = {MODEL_STEPS(weight_steps)};
