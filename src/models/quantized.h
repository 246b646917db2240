/* SPDX-License-Identifier: MIT
 *
 * A source of parameters for models with quantised weights (gpt2_config.quantize). The modules of a
 * fused weight, such as queries, keys and values, are quantised separately, in the layout of
 * quantize.h, and their bytes are consecutive.
 */
#ifndef RF_MODELS_QUANTIZED_H
#define RF_MODELS_QUANTIZED_H

#include <ringforge/checkpoint.h>
#include <ringforge/quantize.h>
#include <ringforge/train.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The modules of a quantised parameter of a block, at most 3, and their rows; 0: it is none. */
int quantized_modules(const struct rf_block *block, int param, int64_t rows[3]);

struct quantized_source;
struct hub_source;
/* Where weights come from that may be quantised already. */
struct quantized_values {
    struct rf_param_source values;
    struct hub_source *packed; /* of the same values, or NULL */
    bool as_they_are;          /* RF_EINVAL if a weight is not in this form in the files */
};
/* blocks: the model's. plain: those of the same model without quantised weights and adapters.
 * from: a source of the plain model's values, also used for all parameters that are not
 * quantised. Blocks and values must outlive the source. RF_ENOMEM. */
RF_MUST_CHECK int quantized_source_create(enum rf_quantization kind, const struct rf_block *blocks,
                                          const struct rf_block *plain, int count,
                                          struct quantized_values from,
                                          struct quantized_source **out);
void quantized_source_destroy(struct quantized_source *source); /* NULL is allowed */
/* A weight is read whole and quantised when the first of its bytes is requested. The source keeps
 * the bytes of one weight; its values are read 2^18 at a time. Errors: those of values, RF_EINVAL
 * (a weight is NaN or infinite), RF_ENOMEM. */
struct rf_param_source quantized_source_of(struct quantized_source *source);

#ifdef __cplusplus
}
#endif
#endif
