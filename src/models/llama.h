/* SPDX-License-Identifier: MIT
 *
 * A Llama-style transformer (Touvron et al. 2023) as a list of blocks: embedding, layers, head. It
 * has RMSNorm before each half, rotary positions, grouped-query attention (Ainslie et al. 2023),
 * SwiGLU, and a head of its own or tied to the embedding. With the fields of its config it computes
 * LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM of transformers,
 * except windowed attention. It uses only public headers, like any user's model.
 */
#ifndef RF_MODELS_LLAMA_H
#define RF_MODELS_LLAMA_H

#include <ringforge/quantize.h>
#include <ringforge/train.h>

#include "adapter.h"
#include "recompute.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Longer rotary periods for longer sequences, as in Llama 3.1 ("llama3" of transformers). */
struct llama_rope_scaling {
    float factor;              /* periods above the low limit are this much longer; 0 = none */
    float low_freq, high_freq; /* the limits are original / low_freq and original / high_freq */
    int original;              /* tokens of a sequence in the first training */
};

struct llama_config {
    int layers, channels, heads;
    int kv_heads; /* heads of keys and values; divides heads; 0 = heads */
    int hidden;   /* width of the gated unit; 0 = 8/3 of channels, rounded up to a multiple of 32 */
    int vocab;    /* 0 = 257: bytes and end of text */
    float theta;  /* base of the rotary embedding; 0 = 10000 */
    float eps;    /* of the norms; 0 = 1e-5, RF_ZERO = 0 */
    bool tied;    /* the head is the embedding's table */
    int head_rows;                 /* as in gpt2.h */
    enum rf_dtype dtype, residual; /* as in gpt2.h */
    unsigned recompute;            /* as in gpt2.h */
    int head_size;                 /* channels of a head; even; 0 = channels / heads */
    bool qkv_bias;                 /* the projection to queries, keys and values has a bias */
    bool qk_norm; /* each head of queries and keys has a norm before the rotary embedding */
    struct llama_rope_scaling rope_scaling;
    /* The operations of a layer (layer.h), if they differ; then qkv_bias and qk_norm are ignored.
     * NULL: a Llama's. */
    const struct layer_op *layer;
    /* Read by llama_create only. NULL: none. Otherwise all other parameters are frozen;
     * llama_freeze with "!" can unfreeze some of them. */
    const struct model_adapter *adapter;
    /* As in gpt2.h. */
    enum rf_quantization quantize;
    enum rf_reversible reversible;
    enum rf_recipe recipe;
    /* The architecture whose names modules and exported weights have (hub_table.h); NULL:
     * "LlamaForCausalLM". */
    const char *architecture;
};

/* The config with its defaults in place of zeros. It must have layers, channels and heads. */
struct llama_config llama_with_defaults(const struct llama_config *config);

struct llama;
/* RF_EINVAL: the config cannot be computed. RF_ENOMEM. */
RF_MUST_CHECK int llama_create(const struct llama_config *config, struct llama **out);
void llama_destroy(struct llama *model); /* after its runs and plans; NULL is allowed */
int llama_freeze(struct llama *model, const char *pattern); /* like gpt2_freeze */
/* The modules with an adapter. Fills at most `capacity`; returns the total number. */
int llama_adapter_modules(const struct llama *model, struct model_adapter_module *out,
                          int capacity);
/* layers + 2 blocks, and 2 more of a reversible model. The model owns them. */
const struct rf_block *llama_blocks(const struct llama *model, int *count);

#ifdef __cplusplus
}
#endif
#endif
