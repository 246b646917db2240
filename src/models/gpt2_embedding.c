/* SPDX-License-Identifier: MIT
 *
 * The embedding block of a GPT-2: token and position tables.
 */
#include "gpt2_internal.h"

static int forward(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor out)
{
    return rf_embedding(ctx->stream, out, in, ctx->params[0], ctx->params[1], ctx->seq);
}

static int backward_input(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                          struct rf_tensor dout, struct rf_tensor din)
{
    return 0; /* tokens have no gradient */
}

static int backward_weight(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                           struct rf_tensor dout)
{
    const struct gpt2_config *g = self;
    const int64_t words = rf_embedding_scratch(ctx->rows, g->vocab);
    struct rf_tensor scratch;
    uint64_t at = 0;
    RETURN_IF_FAILED(rf_carve(ctx->scratch, &at, rf_shape1(words), RF_I32, &scratch));
    return rf_embedding_backward(ctx->stream, ctx->grads[0], ctx->grads[1], dout, in, ctx->seq,
                                 scratch);
}

static int sizes(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out)
{
    const struct gpt2_config *g = self;
    if (seq > g->seq)
        return RF_EINVAL;
    const int64_t words = rf_embedding_scratch(rows, g->vocab);
    *out = (struct rf_block_sizes){.scratch = rf_carve_bytes(rf_shape1(words), RF_I32),
                                   .out = rf_shape2(rows, g->channels),
                                   .dtype = g->residual,
                                   .vocabulary = g->vocab};
    return 0;
}

const struct rf_block_ops gpt2_embedding_ops = {forward, backward_input, backward_weight, sizes};
