/* SPDX-License-Identifier: MIT
 *
 * A layer as data: a list of operations. Forward, both halves of backward, decoding, memory and the
 * exchanges of ranks that share the layer are read off the list (layer.c), by the row of each kind
 * of operation (layer_call.h). An architecture is a list (gpt2.c, llama.c).
 *
 * The list is a chain: each operation takes the result of the one before it. LAYER_ADD adds that
 * result to the residual stream, and what follows takes the stream. The stream begins as the
 * layer's input and ends as its output.
 */
#ifndef RF_MODELS_LAYER_H
#define RF_MODELS_LAYER_H

#include "linear.h"
#include "parts.h"

enum layer_kind {
    LAYER_END = 0, /* after the last operation */
    /* The norm of each row, with a weight and, if the norms are LayerNorm, a bias. Before a column
     * linear it takes the stream (pre-norm); after a row linear it is added to it (post-norm). */
    LAYER_NORM,
    /* The stream itself as the input of a column linear: for architectures without a pre-norm. */
    LAYER_IDENTITY,
    /* y = x W' + b. Tensor ranks divide the outputs (Shoeybi et al. 2019: column parallel). */
    LAYER_COLUMN_LINEAR,
    /* The same, where they divide the inputs (row parallel), and add up their products. Its result
     * goes into a norm or is added to the stream. */
    LAYER_ROW_LINEAR,
    /* Norms and rotation of queries and keys, within the packed queries, keys and values. */
    LAYER_HEADS,
    /* Causal attention; takes packed queries, keys and values. */
    LAYER_ATTEND,
    /* An activation function of each element, or of the first half of the columns times the second
     * half. */
    LAYER_ACT,
    LAYER_GATE,
    LAYER_ADD,
    LAYER_KINDS
};

/* Columns of a result, of all tensor ranks. */
enum layer_columns {
    LAYER_NONE = 0,
    LAYER_CHANNELS,
    LAYER_QUERIES, /* heads times the size of a head */
    LAYER_KEYS,    /* heads of keys times the size; of values, too */
    LAYER_HIDDEN
};

/* Parameters of a block have the order of the operations, but for those that are last. */
enum layer_bias { LAYER_NO_BIAS = 0, LAYER_BIAS, LAYER_BIAS_LAST };

/* Norms of queries and keys, before their rotation. */
enum layer_heads_norm {
    LAYER_NO_NORM = 0,
    LAYER_HEAD_NORM,     /* of each head by itself, with one weight for all */
    LAYER_ALL_HEADS_NORM /* of all heads of a row together */
};

struct layer_op {
    enum layer_kind kind;
    const char *name; /* of its parameters, without the layer's prefix: "attention.qkv" */
    enum layer_columns columns[LORA_MODULES]; /* of a linear map: its outputs, part by part */
    enum layer_bias bias;
    enum rf_activation act;
    enum layer_heads_norm norm; /* of LAYER_HEADS */
    /* Bits of enum model_recompute_part. drop: if one of them is chosen, the result is not kept for
     * the backward pass. with: if it is chosen, the backward pass computes the whole group of
     * operations that have it again, each from the one before. A column linear and attention have
     * the same bits in both. The operations from the stream to an activation have the same `with`.
     */
    unsigned drop, with;
    int64_t hidden; /* LAYER_HIDDEN of a column linear; 0: the config's */
};

#define LAYER_MOST 16 /* operations of a layer, with LAYER_END */

/* Rows that most architectures have: the outputs that LAYER_ATTEND takes; attention; from the
 * gated unit's first product to its last (Shazeer 2020). */
/* clang-format off */
#define LAYER_PACKED {LAYER_QUERIES, LAYER_KEYS, LAYER_KEYS}
#define LAYER_ATTENTION                                                                            \
    {LAYER_ATTEND, .drop = MODEL_RECOMPUTE_ATTENTION, .with = MODEL_RECOMPUTE_ATTENTION}
#define LAYER_GATED_UNIT                                                                           \
    {LAYER_COLUMN_LINEAR, "mlp.gate_up", {LAYER_HIDDEN, LAYER_HIDDEN},                             \
     .drop = MODEL_RECOMPUTE_MLP, .with = MODEL_RECOMPUTE_MLP},                                    \
    {LAYER_GATE, .act = RF_ACT_SILU, .drop = MODEL_RECOMPUTE_GELU, .with = MODEL_RECOMPUTE_MLP},   \
    {LAYER_ROW_LINEAR, "mlp.down", {LAYER_CHANNELS}}
/* clang-format on */

/* What all layers of a model have in common. */
struct layer_config {
    const struct layer_op *ops; /* ends with LAYER_END */
    int64_t channels, heads, kv_heads, head_size, hidden;
    enum rf_dtype dtype, residual; /* as in gpt2.h */
    unsigned recompute;
    bool rms; /* norms are RMSNorm, else LayerNorm */
    float eps;
    enum layer_heads_norm head_norms; /* what LAYER_HEADS does; transformer_create fills it in */
    bool rotates;
    struct rf_rotary_opts rotary;
    const struct model_adapter *adapter;
    enum rf_quantization quantize;
};

/* A layer's own: indices of parameters, and its linear maps, by operation. */
struct layer_block {
    const struct layer_config *config;
    int count;             /* operations */
    int param[LAYER_MOST]; /* of a norm: its weight, which its bias follows */
    struct model_linear linear[LAYER_MOST];
    int head_norm[2]; /* weights of the norms of queries and of keys */
};

/* What the parameters of a layer begin with. */
struct hub_arch;
struct layer_initial {
    float std, residual_std; /* deviations of weights, and of those that are added to the stream */
    const char *name, *prefix; /* of the block; of its parameters: "blocks.3." */
    int layer;
    /* Names the modules that adapters have and that are quantised by themselves (hub_modules.h);
     * NULL: there are no adapters, and nothing is quantised. */
    struct lora_modules (*modules)(const struct hub_arch *architecture,
                                   const struct lora_weight *weight, int layer);
    const struct hub_arch *architecture;
};
/* Declares the parameters. */
void layer_declare(struct layer_block *block, struct model_part *part,
                   const struct layer_config *config, const struct layer_initial *initial);
/* The modules with an adapter; as model_linear_modules. */
int layer_modules(const struct layer_block *block, const struct model_part *part,
                  struct model_adapter_module *out, int capacity);

/* RF_EINVAL: the list cannot be computed. */
int layer_check(const struct layer_op *ops);
/* " layer=take-linear-..." for the text of a config; returns the number of its bytes. */
int layer_text(const struct layer_op *ops, char *text, size_t bytes);

/* Hidden channels of the column linear at or before the operation, of all tensor ranks. */
int64_t layer_hidden(const struct layer_config *config, int op);
/* Outputs of a linear map, of all tensor ranks; elements of the largest weight. */
int64_t layer_outputs(const struct layer_config *config, int op);
int64_t layer_largest(const struct layer_config *config);

/* Operations of a block whose self is a struct layer_block. */
extern const struct rf_block_ops layer_block_ops;

#endif
