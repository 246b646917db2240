/* SPDX-License-Identifier: MIT
 *
 * Declarations shared by the files of the Llama-style model: the operations of its blocks. The self
 * of the embedding is the config, that of a layer a struct llama_block.
 */
#ifndef RF_MODELS_LLAMA_INTERNAL_H
#define RF_MODELS_LLAMA_INTERNAL_H

#include "linear.h"
#include "llama.h"
#include "parts.h"

extern const struct rf_block_ops llama_embedding_ops, llama_layer_ops;
extern const struct rf_decode_ops llama_embedding_decode, llama_layer_decode;

/* A layer: its linear maps, and the indices of the norms of queries and keys (0: none). */
struct llama_block {
    const struct llama_config *config;
    struct model_linear qkv, proj, gate_up, down;
    int q_norm, k_norm;
};

/* Columns of the packed queries, keys and values. */
static inline int64_t llama_qkv_columns(const struct llama_config *c)
{
    return (int64_t)c->head_size * (c->heads + 2 * c->kv_heads);
}

#endif
