/* SPDX-License-Identifier: MIT
 *
 * Declarations shared by the files of the GPT-2: the operations of its blocks. The self of the
 * embedding is the config, that of a layer a struct gpt2_block.
 */
#ifndef RF_MODELS_GPT2_INTERNAL_H
#define RF_MODELS_GPT2_INTERNAL_H

#include "gpt2.h"
#include "linear.h"
#include "parts.h"

#define GPT2_EPS 1e-5f

/* A layer: its linear maps. */
struct gpt2_block {
    const struct gpt2_config *config;
    struct model_linear qkv, proj, fc, fc2;
};

extern const struct rf_block_ops gpt2_embedding_ops, gpt2_layer_ops;
extern const struct rf_decode_ops gpt2_embedding_decode, gpt2_layer_decode;

#endif
