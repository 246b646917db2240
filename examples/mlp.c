/* SPDX-License-Identifier: MIT
 *
 * The blocks of mlp.h. An MLP is four rows. The embedding and the head are written by hand: for
 * each its forward pass, the two halves of its backward pass, and its sizes. Gradients of
 * parameters accumulate; gradients of activations are overwritten.
 */
#include "mlp.h"

#include <stdio.h>

static const struct rf_matmul_opts by_transposed = {.transpose_b = true};
static const struct rf_matmul_opts add_gradient = {.transpose_a = true, .accumulate = true};

/* ---- embedding: (n) tokens -> (n, WIDTH) ----------------------------------------------------- */

static int embed(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor out)
{
    return rf_embedding(ctx->stream,
                        &(struct rf_embedding_args){
                            .T = ctx->seq, .tokens = in, .wte = ctx->params[0], .out = out});
}

static int embed_input(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor dout,
                       struct rf_tensor din)
{
    return 0; /* tokens have no gradient */
}

static int embed_weight(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor dout)
{
    struct rf_embedding_args args = {
        .T = ctx->seq, .tokens = in, .dout = dout, .dwte = ctx->grads[0]};
    struct rf_shape words = rf_shape1(rf_embedding_scratch(ctx->rows, VOCABULARY));
    int rc = rf_suballocate(ctx->scratch, &(uint64_t){0}, words, RF_I32, &args.scratch);
    return rc < 0 ? rc : rf_embedding_backward(ctx->stream, &args);
}

static int embed_sizes(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out)
{
    struct rf_shape words = rf_shape1(rf_embedding_scratch(rows, VOCABULARY));
    *out = (struct rf_block_sizes){.scratch = rf_suballocate_bytes(words, RF_I32),
                                   .out = rf_shape2(rows, WIDTH),
                                   .vocabulary = VOCABULARY};
    return 0;
}

/* ---- MLP: out = in + gelu(in A^T) B^T, A (HIDDEN, WIDTH), B (WIDTH, HIDDEN) ------------------ */

static const struct rf_layer_op mlp_rows[] = {
    {RF_LAYER_LINEAR, "in", "before", .param = "a", .columns = HIDDEN},
    {RF_LAYER_ACT, "before", "after", .act = RF_ACT_GELU},
    {RF_LAYER_LINEAR, "after", "sum", .param = "b", .columns = WIDTH},
    {RF_LAYER_ADD, "in", "out", .with = "sum"}};

static int make_mlp(struct rf_block *out, int layer)
{
    char prefix[16];
    snprintf(prefix, sizeof(prefix), "mlp.%d.", layer);
    return rf_layer_block(mlp_rows, 4,
                          &(struct rf_layer_opts){
                              .name = "mlp", .prefix = prefix, .channels = WIDTH, .init_std = 0.2f},
                          out);
}

/* ---- head: logits = in T^T, T (VOCABULARY, WIDTH); losses ------------------------------------ */

static int head(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor out)
{
    struct rf_cross_entropy_args loss = {
        .logits = out, .targets = ctx->targets, .losses = ctx->losses};
    int rc = rf_suballocate(ctx->scratch, &(uint64_t){0}, rf_shape1(ctx->rows), RF_F32, &loss.lse);
    if (rc == 0)
        rc = rf_matmul(ctx->stream, out, in, ctx->params[0], &by_transposed);
    /* The gradient of the logits overwrites them; it is the dout of the backward pass. */
    if (!ctx->evaluate)
        loss.dlogits = out;
    return rc < 0 ? rc : rf_cross_entropy(ctx->stream, &loss);
}

static int head_input(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor dout,
                      struct rf_tensor din)
{
    return rf_matmul(ctx->stream, din, dout, ctx->params[0], NULL);
}

static int head_weight(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor dout)
{
    return rf_matmul(ctx->stream, ctx->grads[0], dout, in, &add_gradient);
}

static int head_sizes(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out)
{
    *out = (struct rf_block_sizes){.scratch = rf_suballocate_bytes(rf_shape1(rows), RF_F32),
                                   .out = rf_shape2(rows, VOCABULARY)};
    return 0;
}

/* ---- the model: a list of blocks, each with its parameters ----------------------------------- */

static const struct rf_block_ops embed_ops = {embed, embed_input, embed_weight, embed_sizes};
static const struct rf_block_ops head_ops = {head, head_input, head_weight, head_sizes};

static const struct rf_param_desc table = {
    .name = "table", .shape = {2, {VOCABULARY, WIDTH}}, .flags = RF_PARAM_DECAY, .init_std = 0.2f};
static const struct rf_param_desc logits = {
    .name = "head", .shape = {2, {VOCABULARY, WIDTH}}, .flags = RF_PARAM_DECAY, .init_std = 0.2f};

int model_make(struct model *m)
{
    *m = (struct model){0};
    m->blocks[0] = (struct rf_block){
        .name = "embedding", .ops = &embed_ops, .params = &table, .param_count = 1};
    for (int i = 1; i <= LAYERS; i++) {
        int rc = make_mlp(&m->blocks[i], i - 1);
        if (rc < 0)
            return rc;
    }
    m->blocks[BLOCKS - 1] =
        (struct rf_block){.name = "head", .ops = &head_ops, .params = &logits, .param_count = 1};
    return 0;
}

void model_free(struct model *m)
{
    for (int i = 1; i <= LAYERS; i++)
        rf_layer_block_free(&m->blocks[i]);
}
