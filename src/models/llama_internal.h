/* SPDX-License-Identifier: MIT
 *
 * What the files of the Llama-style model share: the state of a block, and its operations.
 */
#ifndef RF_MODELS_LLAMA_INTERNAL_H
#define RF_MODELS_LLAMA_INTERNAL_H

#include "llama.h"
#include "parts.h"

#define LLAMA_MAX_PARAMS 6

struct llama_part {
    struct llama_config config; /* with its defaults filled in */
    struct rf_param_desc params[LLAMA_MAX_PARAMS];
    char names[LLAMA_MAX_PARAMS][64];
    int param_count;
    char name[32];
    struct model_head head; /* of the last block */
};

extern const struct rf_block_ops llama_embedding_ops, llama_layer_ops;

/* Columns of the packed queries, keys and values. */
static inline int64_t llama_qkv_columns(const struct llama_config *c)
{
    return (int64_t)c->channels / c->heads * (c->heads + 2 * c->kv_heads);
}

#endif
