/* SPDX-License-Identifier: MIT
 *
 * Blocks that are described instead of programmed: a list of operations, from which forward, both
 * halves of backward, decoding, the parameters, the bytes of memory and the exchanges of ranks are
 * derived. For blocks with functions of their own see block.h; a model may have both.
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
    RF_LAYER_ACT,      /* any activation function */
    RF_LAYER_GATE,     /* any activation function of the first half of the columns, times the second
                        * half (Shazeer 2020) */
    RF_LAYER_ATTEND,   /* causal attention; `in` has queries, keys and values side by side */
    RF_LAYER_ADD,      /* in + with */
    RF_LAYER_KINDS
};

/* A row: one operation. It reads values by name: "in" is the block's input, the others are results
 * of earlier rows. */
struct rf_layer_op {
    enum rf_layer_kind kind;
    const char *in, *out;
    const char *with;  /* RF_LAYER_ADD: the other summand */
    const char *param; /* norms and linear maps: name of the parameters, without ".weight" and
                          ".bias"; at most 40 characters */
    int64_t columns;   /* linear maps: columns of out */
    bool bias;         /* linear maps; not if a norm follows */
    enum rf_activation act;
};

#define RF_LAYER_MOST_OPS 15

/* A reversible block (Gomez et al. 2017) has two streams, x1 and x2, and two branches, F and G:
 * y1 = x1 + F(x2), y2 = x2 + G(y1). With rf_policy.invert the backward pass computes its input from
 * its output. The streams are f32; or in fixed point of 2^-16 (rf_fixed_add), from which the
 * inverse has the same bits. */
enum rf_reversible { RF_NOT_REVERSIBLE = 0, RF_REVERSIBLE_F32, RF_REVERSIBLE_FIXED };

struct rf_layer_opts {
    const char *name;   /* rf_block.name */
    const char *prefix; /* prefix of the names of parameters: "blocks.3."; NULL: none */
    int64_t channels;   /* columns of "in" and of the output */
    /* The types of values within branches, and of the stream: like activations of the library's
     * models. RF_F32, RF_F16 or RF_BF16; residual RF_F32 or the same as dtype. */
    enum rf_dtype dtype, residual;
    bool rms;                /* norms are RMSNorm, otherwise LayerNorm */
    float eps;               /* for norms; 0 = 1e-5, RF_ZERO = 0 */
    int64_t heads, kv_heads; /* attention; kv_heads: of keys and values; 0 = heads */
    int64_t head_size;       /* channels of a head; 1 to 256 */
    float init_std;          /* for weights of linear maps; 0 = 0.02, RF_ZERO = 0 */
    float residual_std;      /* for those whose results are added to the stream; 0 = init_std */
    enum rf_reversible reversible; /* the rows have two branches, and residual is f32 */
    /* How the operands of products with weights are rounded in training. Not with context
     * parallelism; with tensor parallelism only if ranks have whole blocks (rf_recipe_block). */
    enum rf_recipe recipe;
};

/* Makes a block from rows, in the order of computation. The block is a chain of branches. The
 * stream begins as "in". A branch reads the stream; each row reads the result of the row before it;
 * and the branch's result is added to the stream:
 *     [norm] linear (activation | gate | attend) linear [norm] add
 * The last sum is the block's output. A pass over the rows fuses operations that one kernel
 * computes: sums with the product before them, and RF_ACT_RELU, RF_ACT_GELU and RF_ACT_SILU.
 *
 * The first linear map of a branch is divided by rows over tensor ranks, the second by columns
 * (Shoeybi et al. 2019), heads of attention as a whole. The block may be divided by tensor and
 * context parallelism, and can generate text, like the layers of the library's models.
 *
 * Rows, options and texts are copied. *out may be moved. Free it with rf_layer_block_free, after
 * its plans and runs.
 *
 * RF_EINVAL, with a sentence that names the row: an unknown kind; a value that no earlier row
 * writes, that two rows write, or that no row reads; columns that do not match; rows that do not
 * form a branch. RF_ENOMEM. *out is left unchanged. */
RF_API int rf_layer_block(const struct rf_layer_op *ops, int count,
                          const struct rf_layer_opts *opts, struct rf_block *out);

/* The blocks before and after reversible ones: two copies of the stream, and the mean of both. They
 * read channels and reversible of *opts. rows of such a pair are twice those of a stream: x1, then
 * x2. Free them like others. RF_EINVAL, RF_ENOMEM. */
RF_API int rf_layer_split(const struct rf_layer_opts *opts, struct rf_block *out);
RF_API int rf_layer_join(const struct rf_layer_opts *opts, struct rf_block *out);

/* Only for blocks of these functions, or a zeroed struct. Sets *block to zero. */
RF_EXPORT void rf_layer_block_free(struct rf_block *block);

#ifdef __cplusplus
}
#endif
#endif
