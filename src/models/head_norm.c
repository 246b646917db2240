/* SPDX-License-Identifier: MIT
 *
 * The parts of the head that do not depend on the number of tensor ranks: its norm, the index of
 * its table and the options of its loss. head.c and head_shared.c call it; it calls neither.
 */
#include "head.h"

int model_head_table(const struct model_head *h)
{
    return h->rms ? 1 : 2;
}

struct rf_cross_entropy_opts model_head_loss(const struct rf_ctx *ctx)
{
    return (struct rf_cross_entropy_opts){.device_scale =
                                              ctx->loss_scale.buffer ? &ctx->loss_scale : NULL};
}

bool model_head_passes_back(const struct rf_ctx *ctx, const struct model_head *h)
{
    return !ctx->din_unused || model_wants(ctx, 0) || (!h->rms && model_wants(ctx, 1));
}

int model_head_table_grad(struct rf_ctx *ctx, const struct model_head *h, struct rf_tensor dlogits,
                          struct rf_tensor norm)
{
    const int table = model_head_table(h);
    if (!model_wants(ctx, table))
        return 0;
    return model_matmul(
        ctx, ctx->grads[table], dlogits, norm,
        &(struct rf_matmul_opts){.transpose_a = true, .accumulate = !ctx->overwrite_grad[table]});
}

/* ---- the norm -------------------------------------------------------------------------------- */

static struct rf_norm_args norm_of(const struct model_head *h, const struct model_head_norm *s,
                                   struct rf_tensor in)
{
    const struct rf_tensor none = {0};
    return (struct rf_norm_args){
        .rms = h->rms, .x = in, .mean = h->rms ? none : s->mean, .rstd = s->rstd};
}

int model_head_forward_norm(struct rf_ctx *ctx, const struct model_head *h,
                            const struct model_head_norm *s, struct rf_tensor in)
{
    struct rf_norm_args norm = norm_of(h, s, in);
    norm.eps = h->eps;
    norm.gamma = ctx->params[0];
    if (!h->rms)
        norm.beta = ctx->params[1];
    norm.out = s->norm;
    return rf_norm(ctx->stream, &norm);
}

int model_head_norm_input(struct rf_ctx *ctx, const struct model_head *h,
                          const struct model_head_norm *s, struct rf_tensor din,
                          struct rf_tensor dnorm, struct rf_tensor in)
{
    struct rf_norm_args norm = norm_of(h, s, in);
    norm.gamma = ctx->params[0];
    norm.dout = dnorm;
    norm.dx = din;
    return ctx->din_unused ? 0 : rf_norm_backward_input(ctx->stream, &norm);
}

int model_head_norm_weight(struct rf_ctx *ctx, const struct model_head *h,
                           const struct model_head_norm *s, struct rf_tensor in,
                           struct rf_tensor dnorm)
{
    struct rf_norm_args norm = norm_of(h, s, in);
    if (!model_wants(ctx, 0) && (h->rms || !model_wants(ctx, 1)))
        return 0;
    norm.dout = dnorm;
    norm.dgamma = ctx->grads[0];
    if (!h->rms)
        norm.dbeta = ctx->grads[1];
    RETURN_IF_FAILED(
        model_scratch(ctx, rf_norm_scratch(rf_tensor_count(s->rstd), h->channels), &norm.scratch));
    return rf_norm_backward_weight(ctx->stream, &norm);
}
