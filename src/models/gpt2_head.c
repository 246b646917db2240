/* SPDX-License-Identifier: MIT
 *
 * The head of a GPT-2: last norm, logits by the embedding's table, and the loss. In training the
 * gradient of the logits replaces them in place.
 */
#include "gpt2_internal.h"

enum param { LN_W, LN_B, TABLE };

struct saved {
    struct rf_tensor norm, mean, rstd; /* (n,C) (n) (n) */
};

static int get_saved(const struct rf_ctx *ctx, const struct gpt2_config *g, struct saved *s)
{
    uint64_t at = 0;
    struct rf_shape rows = rf_shape1(ctx->rows);
    RETURN_IF_FAILED(
        rf_carve(ctx->saved, &at, rf_shape2(ctx->rows, g->channels), RF_F32, &s->norm));
    RETURN_IF_FAILED(rf_carve(ctx->saved, &at, rows, RF_F32, &s->mean));
    return rf_carve(ctx->saved, &at, rows, RF_F32, &s->rstd);
}

static int get_dnorm(const struct rf_ctx *ctx, const struct gpt2_config *g, struct rf_tensor *out)
{
    uint64_t at = 0;
    return rf_carve(ctx->handoff, &at, rf_shape2(ctx->rows, g->channels), RF_F32, out);
}

static int forward(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor out)
{
    const struct gpt2_part *part = self;
    const struct rf_tensor *p = ctx->params;
    struct rf_tensor scratch, dlogits = {0};
    struct saved s;
    uint64_t at = 0;
    RETURN_IF_FAILED(get_saved(ctx, &part->config, &s));
    RETURN_IF_FAILED(rf_carve(ctx->scratch, &at, rf_shape1(ctx->rows), RF_F32, &scratch));
    RETURN_IF_FAILED(
        rf_layernorm(ctx->stream, s.norm, s.mean, s.rstd, in, p[LN_W], p[LN_B], GPT2_EPS));
    RETURN_IF_FAILED(rf_matmul(ctx->stream, out, s.norm, p[TABLE],
                               &(struct rf_matmul_opts){.transpose_b = true}));
    if (!ctx->evaluate)
        dlogits = out;
    return rf_cross_entropy(ctx->stream, ctx->losses, dlogits, out, ctx->targets, scratch, NULL);
}

static int backward_input(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                          struct rf_tensor dout, struct rf_tensor din)
{
    const struct gpt2_part *part = self;
    const struct rf_tensor *p = ctx->params;
    struct rf_tensor dnorm;
    struct saved s;
    RETURN_IF_FAILED(get_saved(ctx, &part->config, &s));
    RETURN_IF_FAILED(get_dnorm(ctx, &part->config, &dnorm));
    RETURN_IF_FAILED(rf_matmul(ctx->stream, dnorm, dout, p[TABLE], NULL));
    return rf_layernorm_backward_input(ctx->stream, din, dnorm, in, s.mean, s.rstd, p[LN_W], false);
}

static int backward_weight(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                           struct rf_tensor dout)
{
    const struct gpt2_part *part = self;
    struct rf_tensor dnorm, scratch;
    struct saved s;
    uint64_t at = 0;
    int64_t elements = gpt2_max(rf_layernorm_scratch(ctx->rows, part->config.channels), 1);
    RETURN_IF_FAILED(get_saved(ctx, &part->config, &s));
    RETURN_IF_FAILED(get_dnorm(ctx, &part->config, &dnorm));
    RETURN_IF_FAILED(rf_carve(ctx->scratch, &at, rf_shape1(elements), RF_F32, &scratch));
    RETURN_IF_FAILED(rf_matmul(ctx->stream, ctx->grads[TABLE], dout, s.norm,
                               &(struct rf_matmul_opts){.transpose_a = true, .accumulate = true}));
    return rf_layernorm_backward_weight(ctx->stream, ctx->grads[LN_W], ctx->grads[LN_B], dnorm, in,
                                        s.mean, s.rstd, scratch);
}

static int sizes(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out)
{
    const struct gpt2_part *part = self;
    const int64_t n = rows, c = part->config.channels;
    uint64_t weights = gpt2_vector_bytes(gpt2_max(rf_layernorm_scratch(n, c), 1));
    uint64_t loss = gpt2_vector_bytes(n);
    *out = (struct rf_block_sizes){.saved = gpt2_matrix_bytes(n, c) + 2 * gpt2_vector_bytes(n),
                                   .handoff = gpt2_matrix_bytes(n, c),
                                   .scratch = weights > loss ? weights : loss,
                                   .out = rf_shape2(n, part->config.vocab)};
    return 0;
}

const struct rf_block_ops gpt2_head_ops = {forward, backward_input, backward_weight, sizes};
