/* SPDX-License-Identifier: MIT
 *
 * Declarations shared by the models: the list of blocks with their parameters, suballocation of a
 * block's memory for tensors, and the head.
 */
#ifndef RF_MODELS_PARTS_H
#define RF_MODELS_PARTS_H

#include <ringforge/train.h>

#include "recompute.h"

/* Returns a negative status to the caller. Use it only if nothing needs to be released. */
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

/* A block under construction: its name and its parameters. */
#define MODEL_MAX_PARAMS 20
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
    char config[512]; /* the same for every block; written before model_set_block */
};
/* The shortest text that reads back as the same number. */
const char *model_real_text(float value, char text[24]);
/* Returns RF_ENOMEM or 0. A zeroed struct may be destroyed. */
int model_blocks_create(struct model_blocks *model, int count);
void model_blocks_destroy(struct model_blocks *model);
/* Matrices have weight decay, vectors do not. The parameter's name is prefix followed by name. */
struct rf_param_desc *model_add_param(struct model_part *part, enum rf_dtype dtype,
                                      const char *prefix, const char *name, struct rf_shape shape,
                                      float std, float value);
/* A vector "prefix name.what"; returns its index. */
int model_add_vector(struct model_part *part, enum rf_dtype dtype, const char *prefix,
                     const char *name, const char *what, int64_t elements, float value);
/* Called after all parameters of the block are added. The block's operations get `self`. */
void model_set_block(struct model_blocks *model, int block, const struct rf_block_ops *ops,
                     void *self);

/* freeze.c. Freezes the parameters whose names match a pattern of fnmatch(3), with all uses tied to
 * them. With "!" before the pattern they are unfrozen. Returns the number of matching names. */
int model_freeze(struct model_blocks *model, const char *pattern);

/* A tensor in a block's memory: (rows, columns), or (rows) if columns is 0. */
struct model_cut {
    struct rf_tensor *tensor;
    int64_t columns;
    enum rf_dtype dtype; /* f32 (0) for statistics */
    bool absent;         /* not in this region: takes no memory, and the tensor is left unchanged */
    int parts;           /* divides the number of rows; 0 = 1 */
};
#define MODEL_CUTS(cuts) cuts, (int)(sizeof(cuts) / sizeof((cuts)[0]))
int model_suballocate(struct rf_tensor region, int64_t rows, const struct model_cut *cuts,
                      int count);
/* The bytes that model_suballocate takes from a region. */
uint64_t model_cut_bytes(int64_t rows, const struct model_cut *cuts, int count);
/* f32 scratch of a call, from the start of ctx->scratch: at least one element. */
int model_scratch(const struct rf_ctx *ctx, int64_t elements, struct rf_tensor *out);
uint64_t model_scratch_bytes(int64_t elements);

/* RF_EINVAL: activations or the residual stream cannot have these types. */
int model_check_types(enum rf_dtype dtype, enum rf_dtype residual);

/* The status of a call that recomputes. Its FLOPs are counted as repeated. */
#define MODEL_RECOMPUTED(ctx, call)                                                                \
    model_once((ctx), (rf_stream_repeats((ctx)->stream, true), (call)))
static inline int model_once(const struct rf_ctx *ctx, int status)
{
    rf_stream_repeats(ctx->stream, false);
    return status;
}

/* Whether the gradient of a parameter is needed: in the backward pass, unless it is frozen. */
static inline bool model_wants(const struct rf_ctx *ctx, int param)
{
    return ctx->grads[param].buffer != NULL;
}

/* rf_matmul with the run's workspace. opts may be NULL. */
int model_matmul(const struct rf_ctx *ctx, struct rf_tensor out, struct rf_tensor a,
                 struct rf_tensor b, const struct rf_matmul_opts *opts);

/* The last block: a norm, logits by a table, and the loss. It is the block's self. In training, the
 * gradient of the logits overwrites them. If `rows` is not 0, only that many rows of logits exist
 * at once. The block's output is then the gradient of the norm's output, and backward_input does
 * all work except the norm. Parameters: the norm's weight, its bias (LayerNorm only), the table
 * (vocab, channels). */
struct model_head {
    int64_t channels, vocab, rows;
    enum rf_dtype dtype;
    bool rms; /* RMSNorm; otherwise LayerNorm */
    float eps;
};
const struct rf_block_ops *model_head_ops(const struct model_head *head);

#endif
