/* SPDX-License-Identifier: MIT
 *
 * The head of a GPT-2: last norm, logits by the embedding's table, and the loss. In training the
 * gradient of the logits replaces them in place. The chunked head never has all logits: its output
 * is the gradient of the norm, and all of its work but the norm is done in backward_input.
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
        rf_carve(ctx->saved, &at, rf_shape2(ctx->rows, g->channels), g->dtype, &s->norm));
    RETURN_IF_FAILED(rf_carve(ctx->saved, &at, rows, RF_F32, &s->mean));
    return rf_carve(ctx->saved, &at, rows, RF_F32, &s->rstd);
}

static int get_dnorm(const struct rf_ctx *ctx, const struct gpt2_config *g, struct rf_tensor *out)
{
    uint64_t at = 0;
    return rf_carve(ctx->handoff, &at, rf_shape2(ctx->rows, g->channels), g->dtype, out);
}

static struct rf_cross_entropy_opts loss_opts(const struct rf_ctx *ctx)
{
    return (struct rf_cross_entropy_opts){.device_scale =
                                              ctx->loss_scale.buffer ? &ctx->loss_scale : NULL};
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
    const struct rf_cross_entropy_opts opts = loss_opts(ctx);
    return rf_cross_entropy(ctx->stream, ctx->losses, dlogits, out, ctx->targets, scratch, &opts);
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

static int norm_weight(struct rf_ctx *ctx, const struct gpt2_config *g, const struct saved *s,
                       struct rf_tensor in, struct rf_tensor dnorm)
{
    struct rf_tensor scratch;
    uint64_t at = 0;
    int64_t elements = gpt2_max(rf_layernorm_scratch(ctx->rows, g->channels), 1);
    RETURN_IF_FAILED(rf_carve(ctx->scratch, &at, rf_shape1(elements), RF_F32, &scratch));
    return rf_layernorm_backward_weight(ctx->stream, ctx->grads[LN_W], ctx->grads[LN_B], dnorm, in,
                                        s->mean, s->rstd, scratch);
}

static int backward_weight(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                           struct rf_tensor dout)
{
    const struct gpt2_part *part = self;
    struct rf_tensor dnorm;
    struct saved s;
    RETURN_IF_FAILED(get_saved(ctx, &part->config, &s));
    RETURN_IF_FAILED(get_dnorm(ctx, &part->config, &dnorm));
    RETURN_IF_FAILED(rf_matmul(ctx->stream, ctx->grads[TABLE], dout, s.norm,
                               &(struct rf_matmul_opts){.transpose_a = true, .accumulate = true}));
    return norm_weight(ctx, &part->config, &s, in, dnorm);
}

static int sizes(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out)
{
    const struct gpt2_config *g = &((const struct gpt2_part *)self)->config;
    const int64_t n = rows, c = g->channels;
    uint64_t weights = gpt2_vector_bytes(gpt2_max(rf_layernorm_scratch(n, c), 1));
    uint64_t loss = gpt2_vector_bytes(n);
    *out = (struct rf_block_sizes){.saved = gpt2_matrix_bytes(g, n, c) + 2 * gpt2_vector_bytes(n),
                                   .handoff = gpt2_matrix_bytes(g, n, c),
                                   .scratch = weights > loss ? weights : loss,
                                   .out = rf_shape2(n, g->vocab),
                                   .dtype = g->dtype};
    return 0;
}

/* ---- in chunks ------------------------------------------------------------------------------- */

static int64_t chunk_bytes(const struct gpt2_config *g, int64_t rows)
{
    int64_t chunk = g->head_rows < rows ? g->head_rows : rows;
    return rf_lm_head_scratch(chunk, g->vocab, g->dtype);
}

/* Losses and, where there are tensors for them, gradients. */
static int run_chunks(struct rf_ctx *ctx, const struct gpt2_config *g, const struct saved *s,
                      struct rf_tensor dnorm, struct rf_tensor dtable)
{
    struct rf_tensor scratch;
    uint64_t at = 0;
    RETURN_IF_FAILED(
        rf_carve(ctx->scratch, &at, rf_shape1(chunk_bytes(g, ctx->rows)), RF_U8, &scratch));
    const struct rf_cross_entropy_opts opts = loss_opts(ctx);
    return rf_lm_head(ctx->stream, ctx->losses, dnorm, dtable, s->norm, ctx->params[TABLE],
                      ctx->targets, scratch, &opts);
}

static int chunked_forward(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                           struct rf_tensor out)
{
    const struct gpt2_part *part = self;
    const struct rf_tensor *p = ctx->params, none = {0};
    struct saved s;
    RETURN_IF_FAILED(get_saved(ctx, &part->config, &s));
    RETURN_IF_FAILED(
        rf_layernorm(ctx->stream, s.norm, s.mean, s.rstd, in, p[LN_W], p[LN_B], GPT2_EPS));
    /* In training the losses come with the gradients, which need the logits, too. */
    return ctx->evaluate ? run_chunks(ctx, &part->config, &s, none, none) : 0;
}

static int chunked_backward_input(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                                  struct rf_tensor dout, struct rf_tensor din)
{
    const struct gpt2_part *part = self;
    struct saved s;
    RETURN_IF_FAILED(get_saved(ctx, &part->config, &s));
    RETURN_IF_FAILED(run_chunks(ctx, &part->config, &s, dout, ctx->grads[TABLE]));
    return rf_layernorm_backward_input(ctx->stream, din, dout, in, s.mean, s.rstd,
                                       ctx->params[LN_W], false);
}

static int chunked_backward_weight(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                                   struct rf_tensor dout)
{
    const struct gpt2_part *part = self;
    struct saved s;
    RETURN_IF_FAILED(get_saved(ctx, &part->config, &s));
    return norm_weight(ctx, &part->config, &s, in, dout);
}

static int chunked_sizes(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out)
{
    const struct gpt2_config *g = &((const struct gpt2_part *)self)->config;
    const int64_t n = rows, c = g->channels;
    uint64_t weights = gpt2_vector_bytes(gpt2_max(rf_layernorm_scratch(n, c), 1));
    uint64_t chunk = rf_carve_bytes(rf_shape1(chunk_bytes(g, n)), RF_U8);
    *out = (struct rf_block_sizes){.saved = gpt2_matrix_bytes(g, n, c) + 2 * gpt2_vector_bytes(n),
                                   .scratch = weights > chunk ? weights : chunk,
                                   .out = rf_shape2(n, c),
                                   .dtype = g->dtype,
                                   .classes = g->vocab};
    return 0;
}

const struct rf_block_ops gpt2_chunked_head_ops = {chunked_forward, chunked_backward_input,
                                                   chunked_backward_weight, chunked_sizes};
const struct rf_block_ops gpt2_head_ops = {forward, backward_input, backward_weight, sizes};
