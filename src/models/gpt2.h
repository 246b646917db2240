/* SPDX-License-Identifier: MIT
 *
 * GPT-2 (Radford et al. 2019) as a list of blocks: embedding, transformer layers, head. It has
 * layer norm before each half, tanh GELU, learned positions, biases, and a head tied to the
 * embedding. Used by tools, examples and tests. It uses only public headers, like any user's model.
 */
#ifndef RF_MODELS_GPT2_H
#define RF_MODELS_GPT2_H

#include <ringforge/quantize.h>
#include <ringforge/train.h>

#include "adapter.h"
#include "recompute.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gpt2_config {
    int layers, channels, heads;
    int seq;   /* maximum sequence length; rows of the position table */
    int vocab; /* 0 = 257: bytes and end of text */
    /* The number of rows whose logits exist at once. 0: all rows, and rf_run_forward returns the
     * logits. Otherwise rf_lm_head works in chunks of this size. A large vocabulary then needs far
     * less memory, but the output of the last block is not logits. */
    int head_rows;
    /* Type of activations, their gradients, and the parameters that blocks use: RF_F32, RF_F16 or
     * RF_BF16. Masters, gradients of parameters, statistics and losses are always f32. */
    enum rf_dtype dtype;
    /* Type of the residual stream: the tensor that passes from layer to layer, its gradient, and
     * the parameters of embeddings and norms. RF_F32 (0), or the same as dtype. */
    enum rf_dtype residual;
    unsigned recompute; /* enum model_recompute_part; 0: keep everything that backward needs */
    /* Read by gpt2_create only. NULL: none. Otherwise all other parameters are frozen; gpt2_freeze
     * with "!" can unfreeze some of them. */
    const struct model_adapter *adapter;
    /* The quantization of the weights of linear maps in layers, which are then frozen parameters of
     * RF_U8: one row of bytes for each weight, fused or not. Needs a source of values
     * (quantized.h): initial values are zero bytes. Tensor ranks must not cut blocks of
     * RF_QUANTIZE_BLOCK. Without an adapter it is for generation (generate.h). */
    enum rf_quantization quantize;
    /* Layers have a pair of streams. Only for training: such a model has no architecture on a hub.
     */
    enum rf_reversible reversible;
    /* How the operands of products are rounded in layers; the head's products are not. Not with an
     * adapter, quantize or context parallelism; with tensor parallelism only if ranks have whole
     * blocks (rf_recipe_block). Generation does not round them. */
    enum rf_recipe recipe;
    const char *architecture; /* as in llama.h; NULL: "GPT2LMHeadModel" */
};

struct gpt2;
/* RF_EINVAL: the config cannot be computed. RF_ENOMEM. */
RF_MUST_CHECK int gpt2_create(const struct gpt2_config *config, struct gpt2 **out);
void gpt2_destroy(struct gpt2 *model); /* after its runs and plans; NULL is allowed */
/* Freezes the parameters whose names match a pattern of fnmatch(3), such as "blocks.0.*", and
 * parameters tied to them. With "!" before the pattern they are unfrozen. A later call overrides
 * earlier ones. Must be called before plans are built from the blocks. Returns the number of
 * matching names. */
int gpt2_freeze(struct gpt2 *model, const char *pattern);
/* The modules with an adapter. Fills at most `capacity`; returns the total number. */
int gpt2_adapter_modules(const struct gpt2 *model, struct model_adapter_module *out, int capacity);
/* layers + 2 blocks, and 2 more of a reversible model. The model owns them. */
const struct rf_block *gpt2_blocks(const struct gpt2 *model, int *count);

#ifdef __cplusplus
}
#endif
#endif
