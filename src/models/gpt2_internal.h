/* SPDX-License-Identifier: MIT
 *
 * What the files of the GPT-2 share: the state of a block, and its operations.
 */
#ifndef RF_MODELS_GPT2_INTERNAL_H
#define RF_MODELS_GPT2_INTERNAL_H

#include "gpt2.h"

#define GPT2_EPS 1e-5f
#define GPT2_MAX_PARAMS 12

/* Leaves the function with a negative status. Nothing is held where it is used. */
#define RETURN_IF_FAILED(call)                                                                     \
    do {                                                                                           \
        int failed_ = (call);                                                                      \
        if (failed_ < 0)                                                                           \
            return failed_;                                                                        \
    } while (0)

struct gpt2_part {
    struct gpt2_config config;
    struct rf_param_desc params[GPT2_MAX_PARAMS];
    char names[GPT2_MAX_PARAMS][64];
    int param_count;
    char name[32];
};

extern const struct rf_block_ops gpt2_embedding_ops, gpt2_layer_ops, gpt2_head_ops,
    gpt2_chunked_head_ops;

static inline int64_t gpt2_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
/* Statistics and scratch: n floats. */
static inline uint64_t gpt2_vector_bytes(int64_t n)
{
    return rf_carve_bytes(rf_shape1(n), RF_F32);
}
/* Activations: (n, columns) of the model's type. */
static inline uint64_t gpt2_matrix_bytes(const struct gpt2_config *g, int64_t n, int64_t columns)
{
    return rf_carve_bytes(rf_shape2(n, columns), g->dtype);
}

#endif
