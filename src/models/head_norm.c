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

int model_head_forward_norm(struct rf_ctx *ctx, const struct model_head *h,
                            const struct model_head_norm *s, struct rf_tensor in)
{
    const struct rf_tensor *p = ctx->params;
    return h->rms ? rf_rmsnorm(ctx->stream, s->norm, s->rstd, in, p[0], h->eps)
                  : rf_layernorm(ctx->stream, s->norm, s->mean, s->rstd, in, p[0], p[1], h->eps);
}

int model_head_norm_input(struct rf_ctx *ctx, const struct model_head *h,
                          const struct model_head_norm *s, struct rf_tensor din,
                          struct rf_tensor dnorm, struct rf_tensor in)
{
    const struct rf_tensor *p = ctx->params;
    if (ctx->din_unused)
        return 0;
    return h->rms ? rf_rmsnorm_backward_input(ctx->stream, din, dnorm, in, s->rstd, p[0], false)
                  : rf_layernorm_backward_input(ctx->stream, din, dnorm, in, s->mean, s->rstd, p[0],
                                                false);
}

int model_head_norm_weight(struct rf_ctx *ctx, const struct model_head *h,
                           const struct model_head_norm *s, struct rf_tensor in,
                           struct rf_tensor dnorm)
{
    const struct rf_tensor *g = ctx->grads;
    struct rf_tensor scratch;
    if (!model_wants(ctx, 0) && (h->rms || !model_wants(ctx, 1)))
        return 0;
    RETURN_IF_FAILED(
        model_scratch(ctx, rf_layernorm_scratch(rf_tensor_count(s->rstd), h->channels), &scratch));
    return h->rms ? rf_rmsnorm_backward_weight(ctx->stream, g[0], dnorm, in, s->rstd, scratch)
                  : rf_layernorm_backward_weight(ctx->stream, g[0], g[1], dnorm, in, s->mean,
                                                 s->rstd, scratch);
}
