/* SPDX-License-Identifier: MIT
 *
 * The adapters of a linear map of a layer (adapter.h): their parameters, and their part of each
 * product, for linear.c.
 */
#ifndef RF_MODELS_LORA_H
#define RF_MODELS_LORA_H

#include "adapter.h"
#include "steps.h"

#define LORA_MODULES 3
#define LORA_NAME 96 /* bytes of a module's name */

/* A weight of a layer before its modules have names, and the natural parts of its rows: queries,
 * keys and values. */
struct lora_weight {
    const char *name; /* without "blocks.#." and ".weight": "attention.qkv" */
    int64_t in;
    int64_t rows[LORA_MODULES];
    int parts;
    bool activated; /* as in struct lora_modules */
};

/* The modules of a weight, in the order of its rows. hub_modules (hub_modules.h) names them. */
struct lora_modules {
    const char *name; /* of the weight, without ".weight": "attention.qkv" */
    int64_t in;
    struct {
        char name[LORA_NAME]; /* "model.layers.3.self_attn.q_proj" */
        int64_t rows;
    } module[LORA_MODULES];
    int count;
    bool activated; /* model_linear_back gets the activation function whose result x is */
};

/* rank 0: no adapter. R = count * rank. */
struct lora {
    int rank, count;
    int a, b;    /* indices of the parameters (R,K) and (all rows of segments,r) */
    int64_t in;  /* K of the whole map */
    int64_t out; /* N of the whole map */
    struct {
        char module[LORA_NAME];
        int64_t first, rows; /* of N */
    } segment[LORA_MODULES];
    bool summed; /* as in struct model_linear */
    bool activated;
    float scale, dropout;
    uint32_t site; /* of random numbers; different for each map of the model */
};

/* Adds the parameters of the targeted modules to the part, and fills *out. `weight` is the map's
 * weight, the last argument is the number of the layer. adapter may be NULL. */
void lora_add(struct lora *out, struct model_part *part, const struct model_adapter *adapter,
              const struct lora_modules *modules, enum rf_dtype dtype, int weight, int layer);
/* Describes the modules that have an adapter; returns their number. */
int lora_list(const struct lora *lora, const struct model_part *part, int weight,
              struct model_adapter_module out[LORA_MODULES]);
/* Called after all parts are made: freezes all other parameters, except the biases of
 * adapter->bias. Returns RF_EINVAL if nothing has an adapter, or if one of those biases also
 * belongs to modules without an adapter. adapter may be NULL. */
int lora_finish(struct model_blocks *model, const struct model_adapter *adapter);
/* RF_EINVAL: tensor ranks cannot divide adapters. copies: some rows of weights are copied. */
int lora_check_part(const struct model_adapter *adapter, bool copies);

/* Bytes of scratch of a call, the last ones of ctx->scratch. */
uint64_t lora_scratch(const struct model_layer *m, const struct lora *lora);
/* out (n,N) += scale dropout(in) A' B'. */
int lora_forward(const struct model_layer *m, const struct lora *lora, struct rf_tensor out,
                 struct rf_tensor in);
/* din (n,K) += its gradient. */
int lora_back(const struct model_layer *m, const struct lora *lora, struct rf_tensor din,
              struct rf_tensor dout);
/* The same, as a separate tensor in the scratch, of type m->dtype. Only if lora->activated. */
int lora_back_apart(const struct model_layer *m, const struct lora *lora, struct rf_tensor dout,
                    struct rf_tensor *out);
bool lora_wants(const struct model_layer *m, const struct lora *lora);
/* The matrix that is not split has a gradient to which each tensor rank adds its part: A of split
 * outputs, B of split inputs. Without sequence parallelism the ranks add these lora_shared elements
 * in an exchange: lora_grads writes its part to `sums`, and lora_take_shared gets the result. */
int64_t lora_shared(const struct model_layer *m, const struct lora *lora);
int lora_grads(const struct model_layer *m, const struct lora *lora, struct rf_tensor dout,
               struct rf_tensor in, struct rf_tensor sums);
int lora_take_shared(const struct model_layer *m, const struct lora *lora, struct rf_tensor sums);

#endif
