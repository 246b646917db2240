/* SPDX-License-Identifier: MIT
 *
 * Blocks that are described and not programmed: a list of operations, from which forward, both
 * halves of backward, decoding, the parameters, the bytes of memory and the exchanges of ranks
 * follow. For blocks with functions of their own see block.h; a model may have both.
 */
#ifndef RINGFORGE_LAYER_H
#define RINGFORGE_LAYER_H

#include "train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Values are matrices (rows, columns), with a row for each token. */
enum rf_layer_kind {
    RF_LAYER_NORM = 1, /* of each row: LayerNorm with weight and bias, or RMSNorm with weight */
    RF_LAYER_LINEAR,   /* in W' + b, with the weight (columns, columns of in) */
    RF_LAYER_ACT,      /* an activation function: RF_ACT_RELU, RF_ACT_GELU or RF_ACT_SILU */
    RF_LAYER_GATE,     /* any activation function of the first half of the columns, times the
                          second half (Shazeer 2020) */
    RF_LAYER_ATTEND,   /* causal attention; `in` has queries, keys and values side by side */
    RF_LAYER_ADD,      /* in + with */
    RF_LAYER_KINDS
};

/* A row: one operation. Values have names, which rows before it have given to their results; "in"
 * is the block's input. */
struct rf_layer_op {
    enum rf_layer_kind kind;
    const char *in, *out;
    const char *with;  /* RF_LAYER_ADD: the other summand */
    const char *param; /* norms and linear maps: name of the parameters, without ".weight" and
                          ".bias"; at most 40 characters */
    int64_t columns;   /* linear maps: of out */
    bool bias;         /* linear maps; not of one that a norm follows */
    enum rf_activation act;
};

#define RF_LAYER_MOST_OPS 15

struct rf_layer_opts {
    const char *name;   /* rf_block.name */
    const char *prefix; /* in front of the names of parameters: "blocks.3."; NULL: none */
    int64_t channels;   /* columns of "in" and of the output */
    /* Of values within branches, and of the stream: as activations of the library's models. RF_F32,
     * RF_F16 or RF_BF16; residual RF_F32 or the same as dtype. */
    enum rf_dtype dtype, residual;
    bool rms;                /* norms are RMSNorm, else LayerNorm */
    float eps;               /* of norms; 0 = 1e-5, RF_ZERO = 0 */
    int64_t heads, kv_heads; /* attention; kv_heads: of keys and values; 0 = heads */
    int64_t head_size;       /* channels of a head; 1 to 256 */
    float init_std;          /* of weights of linear maps; 0 = 0.02, RF_ZERO = 0 */
    float residual_std;      /* of those whose results are added to the stream; 0 = init_std */
};

/* A block out of rows, in the order in which they compute. The block is a chain of branches. A
 * branch takes the stream, which begins as "in", computes, each row from the result of the row
 * before it, and is added to the stream:
 *     [norm] linear (activation | gate | attend) linear [norm] add
 * The last sum is the block's output. A pass over the rows joins what one kernel computes:
 * activations with the product before them, sums with theirs.
 *
 * The first linear map of a branch is divided by rows over tensor ranks, the second by columns
 * (Shoeybi et al. 2019), heads of attention as a whole. The block may be divided by tensor and
 * context parallelism, and generates text, as the layers of the library's models.
 *
 * Rows, options and texts are copied. *out may be moved, and ends by rf_layer_block_free, after its
 * plans and runs.
 *
 * RF_EINVAL, with a sentence that names the row: a kind that there is not; a value that no row
 * before has written, that two rows write, or that no row takes; columns that do not fit; rows that
 * make no branch. RF_ENOMEM. *out is left unchanged. */
RF_API int rf_layer_block(const struct rf_layer_op *ops, int count,
                          const struct rf_layer_opts *opts, struct rf_block *out);

/* Of rf_layer_block only, or zeroed. *block becomes zero. */
RF_EXPORT void rf_layer_block_free(struct rf_block *block);

#ifdef __cplusplus
}
#endif
#endif
