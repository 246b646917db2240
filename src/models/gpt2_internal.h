/* SPDX-License-Identifier: MIT
 *
 * What the files of the GPT-2 share: the state of a block, and its operations.
 */
#ifndef RF_MODELS_GPT2_INTERNAL_H
#define RF_MODELS_GPT2_INTERNAL_H

#include "gpt2.h"
#include "parts.h"

#define GPT2_EPS 1e-5f
#define GPT2_MAX_PARAMS 12

struct gpt2_part {
    struct gpt2_config config;
    struct rf_param_desc params[GPT2_MAX_PARAMS];
    char names[GPT2_MAX_PARAMS][64];
    int param_count;
    char name[32];
    struct model_head head; /* of the last block */
};

extern const struct rf_block_ops gpt2_embedding_ops, gpt2_layer_ops;

#endif
