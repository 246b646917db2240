/* SPDX-License-Identifier: MIT
 *
 * What the models share: the list of blocks with their parameters, memory of blocks cut into
 * tensors, and the head.
 */
#ifndef RF_MODELS_PARTS_H
#define RF_MODELS_PARTS_H

#include <ringforge/train.h>

#include "recompute.h"

/* Leaves the function with a negative status. Nothing is held where it is used. */
#define RETURN_IF_FAILED(call)                                                                     \
    do {                                                                                           \
        int failed_ = (call);                                                                      \
        if (failed_ < 0)                                                                           \
            return failed_;                                                                        \
    } while (0)

static inline int64_t model_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t model_most(const uint64_t *bytes, int count)
{
    uint64_t most = 0;
    for (int i = 0; i < count; i++)
        most = bytes[i] > most ? bytes[i] : most;
    return most;
}

/* A block under construction: what it is called, and its parameters. */
#define MODEL_MAX_PARAMS 12
struct model_part {
    char name[32];
    struct rf_param_desc params[MODEL_MAX_PARAMS];
    char names[MODEL_MAX_PARAMS][64];
    int param_count;
};
struct model_blocks {
    struct rf_block *blocks;
    struct model_part *parts;
    int count;
    char config[256]; /* of every block; written before model_set_block */
};
/* The shortest text that is read back as this number. */
const char *model_real_text(float value, char text[24]);
/* RF_ENOMEM, or 0. What is zero may be destroyed. */
int model_blocks_create(struct model_blocks *model, int count);
void model_blocks_destroy(struct model_blocks *model);
/* Matrices decay, vectors do not. The name is prefix and name. */
struct rf_param_desc *model_add_param(struct model_part *part, enum rf_dtype dtype,
                                      const char *prefix, const char *name, struct rf_shape shape,
                                      float std, float value);
/* When all its parameters are there. `self` goes to the operations. */
void model_set_block(struct model_blocks *model, int block, const struct rf_block_ops *ops,
                     void *self);

/* A tensor of a block's memory, (rows, columns) or, without columns, (rows). */
struct model_cut {
    struct rf_tensor *tensor;
    int64_t columns;
    enum rf_dtype dtype; /* f32 (0) for statistics */
    bool absent;         /* not in this region: takes nothing, and the tensor stays what it is */
    int parts;           /* it has so many times fewer rows; 0 = 1 */
};
#define MODEL_CUTS(cuts) cuts, (int)(sizeof(cuts) / sizeof((cuts)[0]))
int model_suballocate(struct rf_tensor region, int64_t rows, const struct model_cut *cuts,
                      int count);
/* What model_suballocate takes of a region. */
uint64_t model_cut_bytes(int64_t rows, const struct model_cut *cuts, int count);
/* f32 scratch of a call, from the start of ctx->scratch: at least one element. */
int model_scratch(const struct rf_ctx *ctx, int64_t elements, struct rf_tensor *out);
uint64_t model_scratch_bytes(int64_t elements);

/* What is wrong with the types of activations and of the residual stream; NULL: nothing. */
const char *model_type_fault(enum rf_dtype dtype, enum rf_dtype residual);

/* What is wrong with a set of enum model_recompute_part; NULL: nothing. */
const char *model_recompute_fault(unsigned recompute);

/* The status of a call that makes again what is not kept: its FLOPs count as repeated. */
#define MODEL_AGAIN(ctx, call) model_once((ctx), (rf_stream_repeats((ctx)->stream, true), (call)))
static inline int model_once(const struct rf_ctx *ctx, int status)
{
    rf_stream_repeats(ctx->stream, false);
    return status;
}

/* rf_matmul with the run's workspace; opts may be NULL. */
int model_matmul(const struct rf_ctx *ctx, struct rf_tensor out, struct rf_tensor a,
                 struct rf_tensor b, const struct rf_matmul_opts *opts);

/* The last block: a norm, logits by a table, and the loss. In training the gradient of the logits
 * replaces them in place. With `rows` the logits never exist at once: the block's output is the
 * gradient of the norm's, and all of its work but the norm's is done in backward_input. Parameters:
 * the norm's weight, with LayerNorm its bias, the table (vocab, channels). A block's self. */
struct model_head {
    int64_t channels, vocab, rows;
    enum rf_dtype dtype;
    bool rms; /* RMSNorm, else LayerNorm */
    float eps;
};
const struct rf_block_ops *model_head_ops(const struct model_head *head);

#endif
