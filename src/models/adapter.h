/* SPDX-License-Identifier: MIT
 *
 * Low-rank adapters (LoRA; Hu et al. 2021): y = x W' + b + scale * dropout(x) A' B', with A (r,K)
 * and B (N,r). W is frozen. A fused weight has adapters for any of its modules, such as queries and
 * values. Modules have the names of the Hugging Face hub.
 */
#ifndef RF_MODELS_ADAPTER_H
#define RF_MODELS_ADAPTER_H

#include <ringforge/train.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MODEL_MOST_TARGETS 65535 /* bytes */

/* Biases that are trained beside the adapters, as in PEFT. The values are in the parameters of the
 * base, so they change the base's output without its adapters. */
enum model_adapter_bias {
    MODEL_ADAPTER_BIAS_NONE,
    MODEL_ADAPTER_BIAS_ALL,  /* of linear maps and of norms */
    MODEL_ADAPTER_BIAS_ONLY, /* "lora_only": of the modules with an adapter */
};

struct model_adapter {
    int rank;      /* r; 1 to 1024 */
    float alpha;   /* scale = alpha / r, or with rslora alpha / sqrt(r); 0 = 8, as in PEFT */
    float dropout; /* of x, in training; 0 to below 1 */
    bool rslora;   /* Kalajdzievski 2023 */
    /* The modules with an adapter, separated by commas: "q_proj,v_proj". A name matches the end of
     * the module's name after a dot: "self_attn.q_proj", "layers.3.mlp.up_proj". A pattern of
     * fnmatch(3) must match the whole name: "model.layers.[0-3].*". "all-linear": all of the
     * layers. */
    const char *targets;
    enum model_adapter_bias bias;
};

/* RF_EINVAL: it cannot be an adapter. NULL is allowed. */
RF_MUST_CHECK int model_adapter_check(const struct model_adapter *adapter);
float model_adapter_scale(const struct model_adapter *adapter);

/* A module of the model that has an adapter. A and B of the modules of a fused weight are rows of
 * common parameters. */
struct model_adapter_module {
    char name[96];      /* "model.layers.3.self_attn.q_proj" */
    const char *weight; /* parameters: (all rows,K), (all r,K), (all rows with an adapter,r) */
    const char *a, *b;
    int64_t in, rows;     /* K and N of the module */
    int64_t weight_first; /* rows of the module in the weight, in A and in B */
    int64_t a_first, b_first;
    int rank;
};

/* Finds the first target, from `from` on (NULL: all), that matches none of the modules with an
 * adapter. Copies it to `target`, and returns the place to continue from. NULL: none. */
const char *model_adapter_unmatched(const struct model_adapter *adapter,
                                    const struct model_adapter_module *modules, int count,
                                    const char *from, char target[128]);

/* weight (rows,in) += scale B A: the weight that gives the same output without an adapter. Sums are
 * f64, rounded once. A (rank,in), B (rows,rank), row-major. */
void model_adapter_merge(float *weight, const float *a, const float *b, int64_t rows, int64_t in,
                         int rank, float scale);

#ifdef __cplusplus
}
#endif
#endif
