/* SPDX-License-Identifier: MIT
 *
 * The block: its parameters, its forward pass, and the two halves of its backward pass.
 */
#include "layer.h"

#include "activation.h"
#include "activation_gradient.h"

enum { TABLE, HEAD };
const struct rf_param_desc layer_params[2] = {
    {.name = "table", .shape = {2, {VOCABULARY, WIDTH}}, .init_std = 0.5f},
    {.name = "head", .shape = {2, {VOCABULARY, WIDTH}}, .init_std = 0.5f, .flags = RF_PARAM_DECAY},
};

static int kernel(struct rf_device *device, const char *name, const uint32_t *spirv, size_t bytes,
                  struct rf_kernel **out)
{
    struct rf_kernel_desc desc = {
        .name = name, .spirv = spirv, .spirv_bytes = bytes, .push_bytes = 32};
    return rf_kernel_create(device, &desc, out);
}

int layer_init(struct layer *layer, struct rf_device *device)
{
    int rc = kernel(device, "activation", activation, sizeof(activation), &layer->activation);
    if (rc < 0)
        return rc;
    return kernel(device, "activation_gradient", activation_gradient, sizeof(activation_gradient),
                  &layer->gradient);
}

void layer_fini(struct layer *layer)
{
    rf_kernel_destroy(layer->activation);
    rf_kernel_destroy(layer->gradient);
}

/* The push constants of activation.comp, and the ranges that it accesses. */
static int launch(struct rf_stream *stream, struct rf_kernel *kernel, struct rf_tensor result,
                  struct rf_tensor x, struct rf_tensor dy)
{
    uint64_t bytes = rf_tensor_bytes(x);
    struct {
        uint64_t result, x, dy;
        uint32_t count, unused;
    } push = {rf_tensor_address(result), rf_tensor_address(x),
              dy.buffer ? rf_tensor_address(dy) : 0, (uint32_t)rf_tensor_count(x), 0};
    struct rf_range ranges[3] = {
        {push.result, bytes, true}, {push.x, bytes, false}, {push.dy, bytes, false}};
    uint32_t groups[3] = {(push.count + 63) / 64, 1, 1};
    /* The arithmetic, for rf_block_costs: the ranges only tell the bytes. */
    const struct rf_work work = {.flops = 2 * (uint64_t)push.count};
    int rc =
        rf_launch(stream, kernel,
                  (struct rf_dispatch){&push, sizeof(push), groups, ranges, dy.buffer ? 3 : 2});
    if (rc == 0)
        rf_stream_count(stream, &work);
    return rc;
}

/* The values that forward keeps for the backward pass: the looked-up rows and their activation. */
struct kept {
    struct rf_tensor rows, active;
};
static int kept(struct rf_ctx *ctx, struct kept *k)
{
    uint64_t offset = 0;
    int rc = rf_suballocate(ctx->saved, &offset, rf_shape2(ctx->rows, WIDTH), RF_F32, &k->rows);
    return rc < 0 ? rc
                  : rf_suballocate(ctx->saved, &offset, rf_shape2(ctx->rows, WIDTH), RF_F32,
                                   &k->active);
}

static int forward(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor out)
{
    struct layer *layer = self;
    struct rf_cross_entropy_args loss = {
        .logits = out, .targets = ctx->targets, .losses = ctx->losses};
    struct rf_tensor none = {0};
    struct kept k;
    uint64_t offset = 0;
    int rc = kept(ctx, &k);
    if (rc == 0)
        rc = rf_embedding(ctx->stream, &(struct rf_embedding_args){.T = ctx->seq,
                                                                   .tokens = in,
                                                                   .wte = ctx->params[TABLE],
                                                                   .out = k.rows});
    if (rc == 0)
        rc = launch(ctx->stream, layer->activation, k.active, k.rows, none);
    if (rc == 0)
        rc = rf_matmul(ctx->stream, out, k.active, ctx->params[HEAD],
                       &(struct rf_matmul_opts){.transpose_b = true});
    if (rc == 0)
        rc = rf_suballocate(ctx->scratch, &offset, rf_shape1(ctx->rows), RF_F32, &loss.lse);
    /* The last block computes losses from its scores, and overwrites the scores with their
     * gradient. */
    if (!ctx->evaluate)
        loss.dlogits = out;
    return rc < 0 ? rc : rf_cross_entropy(ctx->stream, &loss);
}

/* The first block has no input gradient. The values for backward_weight go to saved_for_weight. */
static int backward_input(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                          struct rf_tensor dout, struct rf_tensor din)
{
    struct layer *layer = self;
    struct rf_tensor dactive;
    struct kept k;
    uint64_t offset = 0;
    int rc = kept(ctx, &k);
    if (rc == 0)
        rc = rf_suballocate(ctx->saved_for_weight, &offset, rf_shape2(ctx->rows, WIDTH), RF_F32,
                            &dactive);
    if (rc == 0)
        rc = rf_matmul(ctx->stream, dactive, dout, ctx->params[HEAD], NULL);
    /* In place: each element is read before it is written. */
    return rc < 0 ? rc : launch(ctx->stream, layer->gradient, dactive, k.rows, dactive);
}

static int backward_weight(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                           struct rf_tensor dout)
{
    struct rf_embedding_args args = {.T = ctx->seq, .tokens = in, .dwte = ctx->grads[TABLE]};
    struct kept k;
    uint64_t offset = 0, used = 0;
    int rc = kept(ctx, &k);
    if (rc == 0)
        rc = rf_suballocate(ctx->saved_for_weight, &offset, rf_shape2(ctx->rows, WIDTH), RF_F32,
                            &args.dout);
    if (rc == 0)
        rc = rf_suballocate(ctx->scratch, &used,
                            rf_shape1(rf_embedding_scratch(ctx->rows, VOCABULARY)), RF_I32,
                            &args.scratch);
    if (rc == 0) /* gradients of parameters accumulate */
        rc = rf_matmul(ctx->stream, ctx->grads[HEAD], dout, k.active,
                       &(struct rf_matmul_opts){.transpose_a = true, .accumulate = true});
    return rc < 0 ? rc : rf_embedding_backward(ctx->stream, &args);
}

static int sizes(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out)
{
    uint64_t wide = rf_suballocate_bytes(rf_shape2(rows, WIDTH), RF_F32);
    *out = (struct rf_block_sizes){
        .saved = 2 * wide,
        .saved_for_weight = wide,
        .scratch = rf_suballocate_bytes(rf_shape1(rf_embedding_scratch(rows, VOCABULARY)), RF_I32),
        .out = rf_shape2(rows, VOCABULARY),
        .vocabulary = VOCABULARY,
    };
    return 0;
}

const struct rf_block_ops layer_ops = {forward, backward_input, backward_weight, sizes};
