/* SPDX-License-Identifier: MIT
 *
 * A layer as data: a list of operations. Forward, both halves of backward, decoding, memory and the
 * exchanges of ranks that share the layer are derived from the list (layer.c), by the row of each
 * kind of operation (layer_call.h). An architecture is a list (gpt2.c, llama.c).
 *
 * The list is a chain: each operation's input is the result of the previous one. LAYER_ADD adds
 * that result to the residual stream, and the next operation's input is the stream. The stream
 * begins as the layer's input and ends as its output. A reversible layer has two streams, of which
 * each branch reads one and adds to the other (layer_pair.c).
 */
#ifndef RF_MODELS_LAYER_H
#define RF_MODELS_LAYER_H

#include "linear.h"
#include "parts.h"

enum layer_kind {
    LAYER_END = 0, /* after the last operation */
    /* The norm of each row, with a weight and, if the norms are LayerNorm, a bias. Before a column
     * linear its input is the stream (pre-norm); after a row linear its result is added to the
     * stream (post-norm). */
    LAYER_NORM,
    /* The stream itself as the input of a column linear: for architectures without a pre-norm. */
    LAYER_IDENTITY,
    /* y = x W' + b. Tensor ranks divide the outputs (Shoeybi et al. 2019: column parallel). */
    LAYER_COLUMN_LINEAR,
    /* The same, but ranks divide the inputs (row parallel), and add up their products. Its result
     * is the input of a norm or is added to the stream. */
    LAYER_ROW_LINEAR,
    /* Norms and rotation of queries and keys, within the packed queries, keys and values. */
    LAYER_HEADS,
    /* Causal attention; its input is the packed queries, keys and values. */
    LAYER_ATTEND,
    /* An activation function of each element, or of the first half of the columns times the second
     * half. */
    LAYER_ACT,
    LAYER_GATE,
    LAYER_ADD,
    LAYER_KINDS
};

/* Columns of a result, over all tensor ranks. */
enum layer_columns {
    LAYER_NONE = 0,
    LAYER_CHANNELS,
    LAYER_QUERIES, /* heads times the size of a head */
    LAYER_KEYS,    /* heads of keys times the head size; also of values */
    LAYER_HIDDEN,
    LAYER_HEAD_SIZE /* one head */
};

/* Parameters of a block have the order of the operations, except the last ones. */
enum layer_bias { LAYER_NO_BIAS = 0, LAYER_BIAS, LAYER_BIAS_LAST };

struct layer_op {
    enum layer_kind kind;
    const char *name; /* of its parameters, without the layer's prefix: "attention.qkv" */
    /* For a linear map: its outputs, part by part. For LAYER_HEADS: the weights of the norms of
     * queries and of keys, each LAYER_HEAD_SIZE, one for all heads, or {LAYER_QUERIES, LAYER_KEYS},
     * all heads of a row together; {LAYER_NONE}: no norms. */
    enum layer_columns columns[LORA_MODULES];
    enum layer_bias bias;
    enum rf_activation act;
    int64_t hidden; /* LAYER_HIDDEN of a column linear; 0: the config's */
};

/* Whether the product before an activation computes it: RF_ACT_RELU, RF_ACT_GELU and RF_ACT_SILU.
 * Others have a kernel of their own. */
bool layer_fuses(const struct layer_op *act);

#define LAYER_MOST 16 /* operations of a layer, with LAYER_END */

/* The outputs that LAYER_HEADS and LAYER_ATTEND take. */
#define LAYER_PACKED                                                                               \
    {                                                                                              \
        LAYER_QUERIES, LAYER_KEYS, LAYER_KEYS                                                      \
    }

/* The configuration that all layers of a model share. */
struct layer_config {
    const struct layer_op *ops; /* ends with LAYER_END */
    int64_t channels, heads, kv_heads, head_size, hidden;
    enum rf_dtype dtype, residual; /* as in gpt2.h */
    unsigned recompute; /* enum model_recompute_part; layer_list.c says what each operation drops */
    bool rms;           /* norms are RMSNorm, otherwise LayerNorm */
    float eps;
    bool rotates;
    struct rf_rotary_opts rotary;
    const struct model_adapter *adapter;
    enum rf_quantization quantize;
    enum rf_reversible reversible;
    enum rf_recipe recipe;
};

/* A single layer's data: indices of parameters, and its linear maps, by operation. */
struct layer_block {
    const struct layer_config *config;
    int count;             /* operations */
    int param[LAYER_MOST]; /* for a norm: its weight, followed by its bias; for LAYER_HEADS: the
                            * weight for queries, followed by that for keys */
    struct model_linear linear[LAYER_MOST];
};

/* Initial values and names of the parameters of a layer. */
struct hub_arch;
struct layer_initial {
    float std, residual_std; /* standard deviations of weights, and of those whose results are added
                              * to the stream */
    const char *name, *prefix; /* of the block; of its parameters: "blocks.3." */
    int layer;
    bool exact; /* products are not rounded by the config's recipe */
    /* Names the modules that adapters have and that are quantised separately (hub_modules.h); NULL:
     * no adapters, and nothing is quantised. */
    struct lora_modules (*modules)(const struct hub_arch *architecture,
                                   const struct lora_weight *weight, int layer);
    const struct hub_arch *architecture;
};
/* Declares the parameters. */
void layer_declare(struct layer_block *block, struct model_part *part,
                   const struct layer_config *config, const struct layer_initial *initial);
/* RF_EINVAL: tensor ranks cannot divide the quantised weights. */
int layer_check_quantized(const struct layer_block *block, const struct rf_tensor_part *part);
/* The modules with an adapter; as model_linear_modules. */
int layer_modules(const struct layer_block *block, const struct model_part *part,
                  struct model_adapter_module *out, int capacity);

/* RF_EINVAL: the list cannot be computed. */
int layer_check(const struct layer_op *ops);
/* " layer=take-linear-..." for the text of a config; returns its length in bytes. */
int layer_text(const struct layer_op *ops, char *text, size_t bytes);

/* Hidden channels of the column linear at or before the operation, over all tensor ranks. */
int64_t layer_hidden(const struct layer_config *config, int op);
int64_t layer_whole(const struct layer_config *config, int op, enum layer_columns columns);
/* Outputs of a linear map, over all tensor ranks; elements of the largest weight. */
int64_t layer_outputs(const struct layer_config *config, int op);
int64_t layer_largest(const struct layer_config *config);

/* RF_EINVAL: the layer cannot be reversible. */
int layer_pair_check(const struct layer_config *config);
/* "", or " reversible=f32" for the text of a config. */
const char *layer_pair_text(enum rf_reversible kind);

/* Operations of a block whose self is a struct layer_block: layer_pair_ops if its config has a pair
 * of streams. */
extern const struct rf_block_ops layer_block_ops, layer_pair_ops;
/* Blocks before and after reversible layers; their self is a struct layer_config. They make the
 * pair, two copies of the stream, and the stream, its mean. */
extern const struct rf_block_ops layer_split_ops, layer_join_ops;

#endif
