/* SPDX-License-Identifier: MIT
 *
 * The blocks of mlp.h: for each its forward pass, the two halves of its backward pass, and its
 * sizes. Gradients of parameters accumulate; gradients of activations are overwritten.
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

/* The values that forward keeps: the hidden ones before and after GELU. */
static int mlp_kept(struct rf_ctx *ctx, struct rf_tensor *before, struct rf_tensor *after)
{
    uint64_t offset = 0;
    int rc = rf_suballocate(ctx->saved, &offset, rf_shape2(ctx->rows, HIDDEN), RF_F32, before);
    return rc < 0
               ? rc
               : rf_suballocate(ctx->saved, &offset, rf_shape2(ctx->rows, HIDDEN), RF_F32, after);
}

static int mlp(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor out)
{
    struct rf_tensor before, after;
    int rc = mlp_kept(ctx, &before, &after);
    if (rc == 0)
        rc = rf_matmul(
            ctx->stream, after, in, ctx->params[0],
            &(struct rf_matmul_opts){.transpose_b = true, .act = RF_ACT_GELU, .pre = &before});
    return rc < 0 ? rc
                  : rf_matmul(ctx->stream, out, after, ctx->params[1],
                              &(struct rf_matmul_opts){.transpose_b = true, .residual = &in});
}

/* The gradient of `before` goes to saved_for_weight, because the weights need it, too. */
static int mlp_input(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor dout,
                     struct rf_tensor din)
{
    struct rf_tensor before, after, dbefore;
    struct rf_shape hidden = rf_shape2(ctx->rows, HIDDEN);
    int rc = mlp_kept(ctx, &before, &after);
    if (rc == 0)
        rc = rf_suballocate(ctx->saved_for_weight, &(uint64_t){0}, hidden, RF_F32, &dbefore);
    if (rc == 0)
        rc = rf_matmul(
            ctx->stream, dbefore, dout, ctx->params[1],
            &(struct rf_matmul_opts){.act = RF_ACT_GELU, .act_backward = true, .pre = &before});
    return rc < 0 ? rc
                  : rf_matmul(ctx->stream, din, dbefore, ctx->params[0],
                              &(struct rf_matmul_opts){.residual = &dout});
}

static int mlp_weight(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor dout)
{
    struct rf_tensor before, after, dbefore;
    struct rf_shape hidden = rf_shape2(ctx->rows, HIDDEN);
    int rc = mlp_kept(ctx, &before, &after);
    if (rc == 0)
        rc = rf_suballocate(ctx->saved_for_weight, &(uint64_t){0}, hidden, RF_F32, &dbefore);
    if (rc == 0)
        rc = rf_matmul(ctx->stream, ctx->grads[0], dbefore, in, &add_gradient);
    return rc < 0 ? rc : rf_matmul(ctx->stream, ctx->grads[1], dout, after, &add_gradient);
}

static int mlp_sizes(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out)
{
    uint64_t hidden = rf_suballocate_bytes(rf_shape2(rows, HIDDEN), RF_F32);
    *out = (struct rf_block_sizes){
        .saved = 2 * hidden, .saved_for_weight = hidden, .out = rf_shape2(rows, WIDTH)};
    return 0;
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
static const struct rf_block_ops mlp_ops = {mlp, mlp_input, mlp_weight, mlp_sizes};
static const struct rf_block_ops head_ops = {head, head_input, head_weight, head_sizes};

static void add(struct model *m, int block, const char *name, int64_t rows, int64_t columns)
{
    struct rf_block *b = &m->blocks[block];
    b->params = m->params[block];
    m->params[block][b->param_count++] = (struct rf_param_desc){
        .name = name, .shape = rf_shape2(rows, columns), .flags = RF_PARAM_DECAY, .init_std = 0.2f};
}

void model_make(struct model *m)
{
    *m = (struct model){0};
    for (int i = 0; i < LAYERS; i++) {
        m->blocks[i + 1] = (struct rf_block){.name = "mlp", .ops = &mlp_ops};
        snprintf(m->names[i][0], sizeof(m->names[i][0]), "mlp.%d.a", i);
        snprintf(m->names[i][1], sizeof(m->names[i][1]), "mlp.%d.b", i);
        add(m, i + 1, m->names[i][0], HIDDEN, WIDTH);
        add(m, i + 1, m->names[i][1], WIDTH, HIDDEN);
    }
    m->blocks[0] = (struct rf_block){.name = "embedding", .ops = &embed_ops};
    m->blocks[BLOCKS - 1] = (struct rf_block){.name = "head", .ops = &head_ops};
    add(m, 0, "table", VOCABULARY, WIDTH);
    add(m, BLOCKS - 1, "head", VOCABULARY, WIDTH);
}
