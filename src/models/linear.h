/* SPDX-License-Identifier: MIT
 *
 * Linear maps of layers: y = x W' + b, and the adapters of the map's modules. Computes every
 * product of a layer with one of its weights, forward and backward.
 *
 * Shapes: n rows, K channels of x, N channels of y; of a weight that is split over tensor ranks,
 * those of this rank.
 */
#ifndef RF_MODELS_LINEAR_H
#define RF_MODELS_LINEAR_H

#include "lora.h"
#include "operand.h"

struct model_linear {
    int weight;  /* index of the parameter (N,K) */
    int bias;    /* index of the parameter (N); 0: no bias, since a layer begins with a norm */
    bool summed; /* the weight is split by columns: products are added over the tensor ranks */
    /* The weight is RF_U8: the rows of each module (N of it,K) in the layout of quantize.h, one
     * after the other. So the numbers are those of the modules' own weights. A module consists of
     * one or all of the natural parts of the rows; tensor ranks have some rows of each part. */
    enum rf_quantization quantized;
    int modules, parts;
    int64_t module_rows[LORA_MODULES], part_rows[LORA_MODULES];
    struct lora lora;      /* if it has adapters */
    enum rf_recipe recipe; /* of the operands of its products; not with adapters */
    int64_t in, out;       /* K and N of the whole map; if it has a recipe */
    uint32_t site;         /* of random numbers: by the weight's name */
};

/* ---- quantised weights (linear_quantized.c) -------------------------------------------------- */

/* The weight becomes quantised. Called after lora_add. kind may be RF_QUANTIZE_NONE. */
void model_linear_quantize(struct model_linear *linear, struct model_part *part,
                           const struct lora_weight *weight, const struct lora_modules *modules,
                           enum rf_quantization kind);
/* RF_EINVAL: tensor ranks cannot divide the quantised weight. `channels`: K of the whole. */
int model_linear_check_part(const struct model_linear *linear, const struct rf_tensor_part *part,
                            const char *name, int64_t channels);
/* What one product multiplies by: a module on one rank; this rank's rows of a part; or its columns
 * of a summed map. At least 1, also if the weight is not quantised. */
int model_linear_pieces(const struct model_linear *linear, const struct rf_tensor_part *part);
struct model_piece {
    struct rf_tensor weight;
    struct rf_quantized_part part; /* for rf_matmul_opts.b_part */
    int64_t first, rows, all;      /* rows [first, first + rows) of all of this rank */
};
/* weight: this rank's; channels: K of this rank. */
struct model_piece model_linear_piece(const struct model_linear *linear, int index,
                                      struct rf_tensor weight, int64_t channels,
                                      const struct rf_tensor_part *part);
/* `count` elements of t, from element `first` on. */
struct rf_tensor model_elements(struct rf_tensor t, int64_t first, int64_t count);
/* RF_EINVAL: weights of `elements` elements at most cannot be quantised. */
int model_quantize_check(enum rf_quantization kind, int64_t elements);

/* An activation function that is computed together with a product. */
struct model_act {
    enum rf_activation kind;
    struct rf_tensor pre; /* (n,N): x W' + b, kept for the backward pass; NULL buffer: not kept */
};

/* out (n,N) = act(in W' + b). act may be NULL. For a map that is not summed. */
int model_linear_forward(const struct model_layer *m, const struct model_linear *linear,
                         struct rf_tensor out, struct rf_tensor in, const struct model_act *act);
/* out (n,N) = in W' + b + residual, for a summed map. On several ranks it writes this rank's part
 * of the sum for the exchange MODEL_SUM, and model_linear_end adds bias and residual once, after
 * the exchange. */
int model_linear_sum(const struct model_layer *m, const struct model_linear *linear,
                     struct rf_tensor out, struct rf_tensor in, struct rf_tensor residual);
/* The same without a residual. The first rank's part has the bias, and model_copy_sum takes the sum
 * over the ranks. */
int model_linear_part(const struct model_layer *m, const struct model_linear *linear,
                      struct rf_tensor out, struct rf_tensor in);
int model_linear_end(const struct model_layer *m, const struct model_linear *linear,
                     struct rf_tensor out, struct rf_tensor residual);

/* din (n,K) = dout W, times the slope of act at act->pre. act may be NULL. For a summed map. */
int model_linear_back(const struct model_layer *m, const struct model_linear *linear,
                      struct rf_tensor din, struct rf_tensor dout, const struct model_act *act);
/* din (n,K) = dout W, for a map that is not summed. On several ranks it writes this rank's part of
 * the sum for the exchange MODEL_SUM; model_copy_sum takes the result. */
int model_linear_sum_back(const struct model_layer *m, const struct model_linear *linear,
                          struct rf_tensor din, struct rf_tensor dout);

/* din = dout W + grad, of such a map on one rank. grad may be din. */
int model_linear_join_back(const struct model_layer *m, const struct model_linear *linear,
                           struct rf_tensor din, struct rf_tensor dout, struct rf_tensor grad);

/* Whether the gradient of the weight or of an adapter is needed. The input of the map is then
 * needed, too. */
bool model_linear_wants(const struct model_layer *m, const struct model_linear *linear);
/* Whether the gradient of any parameter of the map is needed. */
bool model_linear_trains(const struct model_layer *m, const struct model_linear *linear);
/* Adds dout' in to the gradient of the weight, the column sums of dout to that of the bias, and the
 * gradients of adapters, as far as needed. The bias of a summed map is not split: each rank adds
 * its own rows. `in` is read only if model_linear_wants, and may be in the scratch of the call,
 * which is overwritten after the product. sums: of lora_grads. */
int model_linear_grads(const struct model_layer *m, const struct model_linear *linear,
                       struct rf_tensor dout, struct rf_tensor in, struct rf_tensor sums);
/* out (count,K) = the gradient of `count` rows of the weight, from row `first`; or adds it. */
int model_linear_grad_rows(const struct model_layer *m, struct rf_tensor out, struct rf_tensor dout,
                           struct rf_tensor in, int64_t first, int64_t count, bool accumulate);
/* Elements of f32 scratch that model_linear_grads needs for a bias with N columns. */
int64_t model_linear_scratch(const struct model_layer *m, const struct model_linear *linear,
                             int64_t columns);
/* Bytes of scratch that adapters and rounded operands need in every call, besides the other
 * scratch. */
uint64_t model_linear_own_bytes(const struct model_layer *m,
                                const struct model_linear *const *linears, int count);
/* Describes the modules that have an adapter, at most `capacity`; returns the total number. out is
 * not read if capacity is 0 or less. */
int model_linear_modules(const struct model_linear *linear, const struct model_part *part,
                         struct model_adapter_module *out, int capacity);

#endif
