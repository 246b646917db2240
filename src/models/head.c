/* SPDX-License-Identifier: MIT
 *
 * The head of a model: last norm, logits by a table, and the loss; see parts.h. The chunked form is
 * for vocabularies whose logits would dominate a model's memory. head_norm.c has the norm.
 * head_shared.c has the head that is split over tensor ranks.
 */
#include "head.h"
#include "decode.h"

static int cut_saved(const struct model_head *h, struct model_head_norm *s,
                     struct model_cut cuts[3])
{
    int count = 0;
    cuts[count++] = (struct model_cut){&s->norm, h->channels, h->dtype};
    if (!h->rms)
        cuts[count++] = (struct model_cut){.tensor = &s->mean};
    cuts[count++] = (struct model_cut){.tensor = &s->rstd};
    return count;
}

static int get_saved(const struct rf_ctx *ctx, const struct model_head *h,
                     struct model_head_norm *s)
{
    struct model_cut cuts[3];
    return model_suballocate(ctx->saved, ctx->rows, cuts, cut_saved(h, s, cuts));
}

static int get_dnorm(const struct rf_ctx *ctx, const struct model_head *h, struct rf_tensor *out)
{
    const struct model_cut cuts[] = {{out, h->channels, h->dtype}};
    return model_suballocate(ctx->saved_for_weight, ctx->rows, MODEL_CUTS(cuts));
}

/* ---- all rows at once ------------------------------------------------------------------------ */

static int forward(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor out)
{
    const struct model_head *h = self;
    struct rf_cross_entropy_args loss = {.logits = out,
                                         .targets = ctx->targets,
                                         .losses = ctx->losses,
                                         .opts = model_head_loss(ctx)};
    struct model_head_norm s;
    if (ctx->tensor.ranks > 1)
        return model_head_shared_forward(ctx, h, in, out);
    RETURN_IF_FAILED(get_saved(ctx, h, &s));
    RETURN_IF_FAILED(model_scratch(ctx, ctx->rows, &loss.lse));
    RETURN_IF_FAILED(model_head_forward_norm(ctx, h, &s, in));
    RETURN_IF_FAILED(model_matmul(ctx, out, s.norm, ctx->params[model_head_table(h)],
                                  &(struct rf_matmul_opts){.transpose_b = true}));
    if (!ctx->evaluate)
        loss.dlogits = out;
    return rf_cross_entropy(ctx->stream, &loss);
}

static int backward_input(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                          struct rf_tensor dout, struct rf_tensor din)
{
    const struct model_head *h = self;
    struct rf_tensor dnorm;
    struct model_head_norm s;
    if (ctx->tensor.ranks > 1)
        return model_head_shared_input(ctx, h, in, dout, din);
    RETURN_IF_FAILED(get_saved(ctx, h, &s));
    RETURN_IF_FAILED(get_dnorm(ctx, h, &dnorm));
    if (!model_head_passes_back(ctx, h))
        return 0;
    RETURN_IF_FAILED(model_matmul(ctx, dnorm, dout, ctx->params[model_head_table(h)], NULL));
    return model_head_norm_input(ctx, h, &s, din, dnorm, in);
}

static int backward_weight(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                           struct rf_tensor dout)
{
    const struct model_head *h = self;
    struct rf_tensor dnorm;
    struct model_head_norm s;
    if (ctx->tensor.ranks > 1)
        return model_head_shared_weight(ctx, h, in, dout);
    RETURN_IF_FAILED(get_saved(ctx, h, &s));
    RETURN_IF_FAILED(get_dnorm(ctx, h, &dnorm));
    RETURN_IF_FAILED(model_head_table_grad(ctx, h, dout, s.norm));
    return model_head_norm_weight(ctx, h, &s, in, dnorm);
}

static int sizes(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out)
{
    const struct model_head *h = self;
    struct model_head_norm s;
    struct rf_tensor dnorm;
    struct model_cut cuts[3];
    const struct model_cut saved_for_weight[] = {{&dnorm, h->channels, h->dtype}};
    *out = (struct rf_block_sizes){
        .saved = model_cut_bytes(rows, cuts, cut_saved(h, &s, cuts)),
        .saved_for_weight = model_cut_bytes(rows, MODEL_CUTS(saved_for_weight)),
        .scratch = model_scratch_bytes(model_max(rf_norm_scratch(rows, h->channels), rows)),
        .out = rf_shape2(rows, h->vocab),
        .dtype = h->dtype};
    return 0;
}

/* ---- in chunks ------------------------------------------------------------------------------- */

static int64_t chunk_bytes(const struct model_head *h, int64_t rows)
{
    return rf_lm_head_scratch(h->rows < rows ? h->rows : rows, h->vocab, h->dtype);
}

/* Computes losses and, if their tensors exist, gradients. */
static int run_chunks(struct rf_ctx *ctx, const struct model_head *h,
                      const struct model_head_norm *s, struct rf_tensor dnorm,
                      struct rf_tensor dtable)
{
    struct rf_lm_head_args args = {.x = s->norm,
                                   .w = ctx->params[model_head_table(h)],
                                   .targets = ctx->targets,
                                   .losses = ctx->losses,
                                   .dx = dnorm,
                                   .dw = dtable,
                                   .opts = model_head_loss(ctx)};
    uint64_t at = 0;
    RETURN_IF_FAILED(rf_suballocate(ctx->scratch, &at, rf_shape1(chunk_bytes(h, ctx->rows)), RF_U8,
                                    &args.scratch));
    return rf_lm_head(ctx->stream, &args);
}

static int chunked_forward(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                           struct rf_tensor out)
{
    const struct model_head *h = self;
    const struct rf_tensor none = {0};
    struct model_head_norm s;
    if (ctx->tensor.ranks > 1)
        return model_head_shared_forward(ctx, h, in, out);
    RETURN_IF_FAILED(get_saved(ctx, h, &s));
    RETURN_IF_FAILED(model_head_forward_norm(ctx, h, &s, in));
    /* In training, the losses are computed with the gradients, which also need the logits. */
    return ctx->evaluate ? run_chunks(ctx, h, &s, none, none) : 0;
}

static int chunked_backward_input(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                                  struct rf_tensor dout, struct rf_tensor din)
{
    const struct model_head *h = self;
    const struct rf_tensor none = {0};
    struct model_head_norm s;
    if (ctx->tensor.ranks > 1)
        return model_head_shared_input(ctx, h, in, dout, din);
    RETURN_IF_FAILED(get_saved(ctx, h, &s));
    RETURN_IF_FAILED(run_chunks(ctx, h, &s, model_head_passes_back(ctx, h) ? dout : none,
                                ctx->grads[model_head_table(h)]));
    return model_head_norm_input(ctx, h, &s, din, dout, in);
}

static int chunked_backward_weight(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                                   struct rf_tensor dout)
{
    const struct model_head *h = self;
    struct model_head_norm s;
    if (ctx->tensor.ranks > 1)
        return model_head_shared_weight(ctx, h, in, dout);
    RETURN_IF_FAILED(get_saved(ctx, h, &s));
    return model_head_norm_weight(ctx, h, &s, in, dout);
}

static int chunked_sizes(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out)
{
    const struct model_head *h = self;
    struct model_head_norm s;
    struct model_cut cuts[3];
    uint64_t weights = model_scratch_bytes(rf_norm_scratch(rows, h->channels));
    uint64_t chunk = rf_suballocate_bytes(rf_shape1(chunk_bytes(h, rows)), RF_U8);
    *out = (struct rf_block_sizes){.saved = model_cut_bytes(rows, cuts, cut_saved(h, &s, cuts)),
                                   .scratch = weights > chunk ? weights : chunk,
                                   .out = rf_shape2(rows, h->channels),
                                   .dtype = h->dtype,
                                   .classes = h->vocab};
    return 0;
}

static int tensor_sizes(const void *self, const struct rf_tensor_part *part, int64_t rows,
                        int64_t seq, struct rf_block_sizes *out)
{
    const struct model_head *h = self;
    if (part->ranks > 1)
        return model_head_shared_sizes(h, part, rows, out);
    return h->rows ? chunked_sizes(h, rows, seq, out) : sizes(h, rows, seq, out);
}

/* The rows are independent, so a split of the sequences has no effect here. */
static int context_sizes(const void *self, const struct rf_context_part *part, int64_t rows,
                         int64_t seq, struct rf_block_sizes *out)
{
    const struct model_head *h = self;
    (void)part;
    return h->rows ? chunked_sizes(h, rows, seq, out) : sizes(h, rows, seq, out);
}

const struct rf_block_ops *model_head_ops(const struct model_head *head)
{
    static const struct rf_block_ops whole = {
        forward,      backward_input, backward_weight,   sizes,
        tensor_sizes, context_sizes,  &model_head_decode};
    static const struct rf_block_ops chunked = {
        chunked_forward, chunked_backward_input, chunked_backward_weight, chunked_sizes,
        tensor_sizes,    context_sizes,          &model_head_decode};
    return head->rows ? &chunked : &whole;
}
