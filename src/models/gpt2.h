/* SPDX-License-Identifier: MIT
 *
 * GPT-2 (Radford et al. 2019) as a list of blocks: embedding, transformer layers, head. Layer norm
 * before each half, tanh GELU, learned positions, biases, and a head tied to the embedding. Used by
 * the tools, the examples and tests; written against the public headers, as anybody would.
 */
#ifndef RF_MODELS_GPT2_H
#define RF_MODELS_GPT2_H

#include <ringforge/train.h>

#include "recompute.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gpt2_config {
    int layers, channels, heads;
    int seq;   /* longest sequence: rows of the position table */
    int vocab; /* 0 = 257, bytes and end of text */
    /* Rows of logits that exist at once. 0: all, and rf_run_forward gives them. Else rf_lm_head's
     * chunks: far less memory with a large vocabulary; the last block's output is no logits then.
     */
    int head_rows;
    /* Of activations, their gradients, and the parameters that blocks see: RF_F32, RF_F16 or
     * RF_BF16. Masters, gradients of parameters, statistics and losses are f32 in any case. */
    enum rf_dtype dtype;
    /* Of the residual stream: what passes from layer to layer and is added to in each, with its
     * gradient, and the parameters that are used where it begins and ends, those of embeddings and
     * norms. RF_F32 (0), whatever the operands of products and attention are; or dtype. */
    enum rf_dtype residual;
    unsigned recompute; /* enum model_recompute_part; 0: all that backward needs is kept */
};

struct gpt2;
/* The status is RF_EINVAL when gpt2_config_fault has something to say. */
RF_MUST_CHECK int gpt2_create(const struct gpt2_config *config, struct gpt2 **out);
void gpt2_destroy(struct gpt2 *model); /* after its runs and plans; NULL is allowed */
/* layers + 2 blocks, owned by the model. */
const struct rf_block *gpt2_blocks(const struct gpt2 *model, int *count);
/* What was wrong with the config of a gpt2_create that failed, in one sentence; NULL when the fault
 * is not there. */
const char *gpt2_config_fault(const struct gpt2_config *config);

#ifdef __cplusplus
}
#endif
#endif
