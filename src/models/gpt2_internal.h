/* SPDX-License-Identifier: MIT
 *
 * Declarations shared by the files of the GPT-2: the operations of its blocks. Their self is the
 * config.
 */
#ifndef RF_MODELS_GPT2_INTERNAL_H
#define RF_MODELS_GPT2_INTERNAL_H

#include "gpt2.h"
#include "parts.h"

#define GPT2_EPS 1e-5f

extern const struct rf_block_ops gpt2_embedding_ops, gpt2_layer_ops;

#endif
