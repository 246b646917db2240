/* SPDX-License-Identifier: MIT
 *
 * Blocks: the parts of a model that the library trains. A block is a transformer layer, the
 * embedding or the head. It is the unit of recomputation, sharding, pipeline stages, gradient
 * buckets and offload. train.h includes this.
 *
 * There is no autograd tape. A block computes its own backward pass, in two parts: the gradient of
 * its input, which the block before waits for, and the gradients of its parameters, which nothing
 * in the backward pass waits for.
 */
#ifndef RINGFORGE_BLOCK_H
#define RINGFORGE_BLOCK_H

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- parameters ------------------------------------------------------------------------------ */

enum rf_param_flags {
    RF_PARAM_DECAY = 1, /* weight decay applies (matrices; not biases and norms) */
    /* No gradient, no optimizer state, and in 16 bits no f32 master. Blocks before the first one
     * with a parameter that is not frozen have no backward pass. A block without such a parameter
     * has no backward_weight. For tied parameters the flag of the first one counts. */
    RF_PARAM_FROZEN = 2,
    /* If ctx->overwrite_grad is set, the block writes the whole gradient instead of adding to it,
     * so that the gradient need not be cleared. For large gradients, most of which are products. */
    RF_PARAM_OVERWRITE_GRAD = 4
};

enum rf_split_kind { RF_SPLIT_NONE = 0, RF_SPLIT_ROWS, RF_SPLIT_COLUMNS };

#define RF_MAX_SEGMENTS 6

/* How tensor parallelism divides a parameter, along its rows (first dimension) or columns (last
 * dimension). The dimension consists of segments, such as the three of a fused q, k, v. Each
 * segment is divided separately, in units of `unit` rows, such as a head. If a segment has n units,
 * rank k of t has units k * n / t to (k + 1) * n / t - 1, rounded down. A rank stores its parts of
 * all segments consecutively. If a segment of rows has fewer units than ranks, and its units divide
 * the ranks, units are copied: rank k has unit k * n / t. The block must then write the gradient of
 * the whole unit to all copies, with the same bits.
 *
 * For RF_U8 rows are words of 4 bytes. A segment may then be a matrix of which a rank has columns,
 * or be on every rank. */
struct rf_split {
    enum rf_split_kind kind;
    int segments;                   /* 0 = 1 */
    int unit;                       /* 0 = 1 */
    int64_t sizes[RF_MAX_SEGMENTS]; /* rows or columns of each segment; all 0: equal sizes */
    /* Only for RF_U8: lines of equal length in each segment; every line is divided; 0 = 1. */
    int64_t lines;
    uint32_t whole; /* only for RF_U8: bit k: every rank has all of segment k */
};

/* A parameter. Initial values, norm, sums of tied uses and checkpoints follow from this. */
struct rf_param_desc {
    const char *name;      /* global and unique: "blocks.3.attention.qkv.weight" */
    struct rf_shape shape; /* of the whole parameter, even if it is split */
    /* RF_F32. Or RF_F16 or RF_BF16, the same for all parameters that are not f32: the block gets a
     * copy in this type, rounded to nearest after each update. The optimizer, gradients and
     * checkpoints still have the parameter in f32. Or RF_U8 for a parameter that is frozen by its
     * flag, not tied, of one dimension, a multiple of 4 bytes: it is stored, moved
     * and saved as it is, such as a quantised weight (quantize.h). Functions that read and write
     * values of parameters take 4 of its bytes as one f32. */
    enum rf_dtype dtype;
    uint32_t flags; /* enum rf_param_flags */
    struct rf_split split;
    const char *tied_to; /* name of an earlier parameter with the same storage; or NULL */
    float init_std;      /* normal(0, std), by Philox over the global element index; 0 = constant */
    float init_value;    /* the constant */
};

/* ---- ranks that share a block ---------------------------------------------------------------- */

/* Tensor parallelism (Shoeybi et al. 2019): several ranks compute every block together. Each rank
 * has its part of the parameters that are split, and the whole of the others. A call of a block is
 * a sequence of phases. Between two phases the ranks exchange one tensor. */
enum rf_exchange_kind {
    RF_EXCHANGE_NONE = 0,
    RF_EXCHANGE_SUM,    /* all-reduce: the sum over all ranks */
    RF_EXCHANGE_MAX,    /* all-reduce: the maximum of each element */
    RF_EXCHANGE_GATHER, /* all-gather: rank k has written part k */
    RF_EXCHANGE_SCATTER /* reduce-scatter: rank k gets part k of the sum; the rest is undefined */
};

/* Parts are of equal size, along the first dimension. */
struct rf_exchange {
    enum rf_exchange_kind kind;
    struct rf_shape shape; /* of the whole tensor */
    enum rf_dtype dtype;   /* f32, f16 or bf16; for MAX f32 */
};

/* The most exchanges of one call. Exchange k is between phases k and k + 1. The first
 * RF_EXCHANGE_NONE ends the list. */
#define RF_MAX_EXCHANGES 6

/* One of the ranks that share a block. */
struct rf_tensor_part {
    int ranks, rank;
    /* Sequence parallelism (Korthikanti et al. 2022): outputs and their gradients are divided too;
     * rank k has rows k * rows / ranks and the following ones. Each rank then computes the
     * gradients of unsplit parameters from its own rows, and the run adds them over the ranks once
     * a step. Without sequence parallelism these gradients have the same bits on all ranks. */
    bool sequence;
};

/* One of the ranks that share every sequence (context parallelism). All have all blocks, and all of
 * their parameters. A sequence has 2 * ranks chunks of equal length. Rank k has chunks k and 2 *
 * ranks - 1 - k, in this order, so that causal attention is the same amount of work on each rank.
 * Inputs and outputs of blocks have these rows only. A block exchanges data of other rows, such as
 * keys, between phases. A rank computes gradients of parameters from its own rows, and the run adds
 * them over the ranks once a step. */
struct rf_context_part {
    int ranks, rank;
};

/* The position in the sequence at which the first (half 0) or second chunk of this rank begins.
 * chunk: the length of a chunk in tokens. */
static inline int64_t rf_context_first(const struct rf_context_part *part, int half, int64_t chunk)
{
    return (half ? 2 * part->ranks - 1 - part->rank : part->rank) * chunk;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* The sizes of a block for a number of rows (tokens). */
struct rf_block_sizes {
    uint64_t saved;            /* bytes kept from forward to backward */
    uint64_t saved_for_weight; /* bytes kept from backward_input to backward_weight */
    uint64_t scratch;          /* bytes of working memory inside one call */
    struct rf_shape out;       /* shape of the output */
    enum rf_dtype dtype;       /* of the output and its gradient: f32 (0), f16 or bf16 */
    /* In the last block: targets must be below it. 0: the output is logits, and targets must be
     * below its number of columns. */
    int64_t classes;
    /* In the first block: tokens must be in 0 to vocabulary - 1, which is checked before anything
     * runs. 0: any i32. */
    int64_t vocabulary;
    /* The exchanges of each call; set by tensor_sizes() and context_sizes() only. */
    struct rf_exchange forward[RF_MAX_EXCHANGES];
    struct rf_exchange backward_input[RF_MAX_EXCHANGES];
    struct rf_exchange backward_weight[RF_MAX_EXCHANGES];
    struct rf_exchange invert[RF_MAX_EXCHANGES];
};

/* The arguments of a call of a block. Tensors are valid during the call only. The block records on
 * `stream` and returns; it must not wait. */
struct rf_ctx {
    struct rf_stream *stream;
    int64_t step;        /* from 0 */
    int64_t micro_batch; /* global index within the step */
    uint64_t seed; /* of the run; random numbers depend on it, step, micro_batch and element */
    int64_t rows;  /* tokens in this micro-batch: sequences * seq */
    int64_t seq;   /* tokens in a sequence. With context ranks, rows and seq are this rank's */
    bool evaluate; /* forward only: dlogits are not wanted */

    int param_count;
    const struct rf_tensor *params; /* in the order of rf_block.params */
    const struct rf_tensor *grads;  /* same order; add to them. NULL buffer: frozen, compute no
                                     * gradient */
    /* Same order, in the backward pass: write this gradient; its old contents are undefined. Only
     * for parameters with RF_PARAM_OVERWRITE_GRAD. */
    const bool *overwrite_grad;
    /* In backward_input: din is not used, because all parameters of the blocks before are frozen.
     * It may be left undefined, but all exchanges must still be made. */
    bool din_unused;

    struct rf_tensor saved; /* u8, sized by sizes(), aligned to 256; so are the next two */
    struct rf_tensor saved_for_weight;
    struct rf_tensor scratch;
    /* f32, for rf_matmul_opts.scratch; rf_policy.workspace_bytes. NULL buffer: none. */
    struct rf_tensor workspace;
    /* f32: the struct rf_step_scalars of this step. A kernel that needs the step or the learning
     * rate must read it here and not take it as a push constant, so that it can be replayed.
     * inv_tokens is valid only after the losses. */
    struct rf_tensor scalars;
    struct rf_tensor
        loss_scale; /* (1) f32, a part of scalars; rf_block.scales_loss. NULL buffer: none */
    struct rf_tensor targets; /* (rows) i32; negative = ignored */
    /* (rows) i32 with rf_policy.packed, else NULL buffers. starts: for each token, the index in its
     * sequence of its document's first token, as in rf_attention_args. positions: the index of each
     * token in its document, from 0. */
    struct rf_tensor starts, positions;
    /* (rows) f32. The last block writes it in forward; in training also backward_input may. Every
     * tensor rank writes all of it. For other blocks it has no buffer. */
    struct rf_tensor losses;

    struct rf_tensor_part tensor;   /* ranks 1 without tensor parallelism */
    struct rf_context_part context; /* ranks 1 without context parallelism */
    /* The phase of the call, from 0. All phases of a call get the same tensors. However, scratch
     * and workspace keep nothing between phases, and exchanged and exchange never share memory. */
    int phase;
    struct rf_tensor exchanged; /* result of the exchange before this phase; NULL buffer: none */
    struct rf_tensor exchange;  /* input of the exchange after this phase; NULL buffer: none */
};

struct rf_decode_ops;

/* The functions of a block. They return a status. */
struct rf_block_ops {
    /* in: for the first block (rows) i32 tokens. out: for the last block the logits, or anything
     * else if it sets rf_block_sizes.classes. */
    int (*forward)(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor out);

    /* din = the gradient of in (a NULL buffer for the first block). in still holds the input of
     * forward. For the last block, dout is its own out, in which forward may have left anything,
     * such as dlogits. dout may be overwritten. Gradients of parameters that are cheap here may be
     * added to ctx->grads. */
    int (*backward_input)(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                          struct rf_tensor dout, struct rf_tensor din);

    /* grads +=, or = with ctx->overwrite_grad. Called after backward_input of the same micro-batch,
     * with the same dout. */
    int (*backward_weight)(struct rf_ctx *ctx, void *self, struct rf_tensor in,
                           struct rf_tensor dout);

    /* Fills *out for this number of rows. Pure. If it is not possible: a status, by rf_fail with
     * the reason and the remedy; so the next two. */
    int (*sizes)(const void *self, int64_t rows, int64_t seq, struct rf_block_sizes *out);

    /* The same with tensor parallelism: bytes and output of this rank, and the exchanges of each
     * call. rows is that of the whole micro-batch, also with part->sequence. Pure. Fails if the
     * block cannot be divided: "3 tensor ranks do not divide 4 heads; use 2 or 4". NULL: every rank
     * computes the whole block, with all of its parameters whole. Not allowed with sequence
     * parallelism. */
    int (*tensor_sizes)(const void *self, const struct rf_tensor_part *part, int64_t rows,
                        int64_t seq, struct rf_block_sizes *out);

    /* The same with context parallelism: rows and seq are this rank's. A block that computes each
     * row independently returns the sizes of sizes(). NULL: a mesh with cp is refused. */
    int (*context_sizes)(const void *self, const struct rf_context_part *part, int64_t rows,
                         int64_t seq, struct rf_block_sizes *out);

    /* For text generation (generate.h). NULL: the block cannot. */
    const struct rf_decode_ops *decode;

    /* For reversible blocks (Gomez et al. 2017): computes the input from the output. Writes `in`,
     * and ctx->saved as forward does. rf_policy.invert calls it before backward_input, which then
     * gets this input. NULL: the block is not reversible. */
    int (*invert)(struct rf_ctx *ctx, void *self, struct rf_tensor in, struct rf_tensor out);
};

/* The caller keeps everything that this refers to alive for as long as a plan or run uses it. */
struct rf_block {
    const char *name;
    const struct rf_block_ops *ops;
    void *self;
    const struct rf_param_desc *params;
    int param_count;
    /* true: the block is called in every step, because it records different commands in different
     * steps, or because it does something on the host. false: a step whose commands stay the same
     * is replayed without calling the blocks (struct rf_run_opts). Launches that differ with
     * ctx->step are detected at once. Launches that change later are an error at the next check, in
     * steps 16, 32, 64, ..., or in every step with RF_CHECK_REPLAY=1. */
    bool varies;
    /* true: as the last block it multiplies the gradient that it passes back by ctx->loss_scale, if
     * there is one. */
    bool scales_loss;
    /* The settings that the block's function depends on, besides the shapes of its parameters:
     * "name=value" separated by spaces, printable ASCII without quotes and backslashes ("heads=4
     * eps=1e-05"); or NULL. Types and amounts of memory are not included. All blocks of a model may
     * return the model's text; different values of one name are joined by commas. It must be equal
     * on all ranks. Checkpoints contain it, and a run loads only those with an equal one. */
    const char *config;
    /* How the block rounds, besides the types of its parameters, as any text; or NULL. It must be
     * equal on all ranks. Checkpoints do not contain it. */
    const char *rounding;
};

/* Blocks in the order of the model. */
struct rf_blocks {
    const struct rf_block *list;
    int count;
};

/* Takes a tensor from a u8 region such as ctx->saved, at *offset, aligned to 256, and advances
 * *offset. Errors: RF_EINVAL (the region is too small). */
RF_API int rf_suballocate(struct rf_tensor region, uint64_t *offset, struct rf_shape shape,
                          enum rf_dtype dtype, struct rf_tensor *out);

/* The bytes that rf_suballocate uses for this tensor; for sizes(). */
RF_EXPORT uint64_t rf_suballocate_bytes(struct rf_shape shape, enum rf_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
