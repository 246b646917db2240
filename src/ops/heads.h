/* SPDX-License-Identifier: MIT
 *
 * Checks of strided (B,T,H,D) operands, for attention and rotary embedding.
 */
#ifndef RF_OPS_HEADS_H
#define RF_OPS_HEADS_H

#include "pick.h"

/* An operand by its name in the header. */
struct rf_named_heads {
    const char *name;
    struct rf_heads heads;
};

/* Checks that the operand is inside its tensor, which is f32, f16 or bf16. */
RF_MUST_CHECK int rf_check_heads(const char *op, const char *what, const struct rf_heads *heads);
/* rf_check_heads, and checks type, batch, rows, heads and size; rows, heads: -1 for any. */
RF_MUST_CHECK int rf_check_heads_like(const char *op, const char *what,
                                      const struct rf_heads *heads, enum rf_dtype dtype,
                                      const int64_t shape[4]);
/* Checks that the first `outs` operands overlap neither another operand nor themselves. */
RF_MUST_CHECK int rf_check_heads_apart(const char *op, const struct rf_named_heads *operands,
                                       size_t outs, size_t count);
bool rf_heads_same_place(const struct rf_heads *a, const struct rf_heads *b);
bool rf_heads_same_strides(const struct rf_heads *a, const struct rf_heads *b);
/* The range from the first element to the last, as a tensor of one dimension: what a launch
 * touches. */
struct rf_tensor rf_heads_extent(const struct rf_heads *heads);
/* Whether every row of every head consists of whole quads and starts at a multiple of 4 elements'
 * bytes. */
bool rf_heads_vector(const struct rf_heads *heads);
/* Batch, row and head stride in the kernels' form. */
void rf_heads_strides(const struct rf_heads *heads, uint32_t out[3]);
/* A whole tensor as one row of one head. */
struct rf_heads rf_heads_flat(struct rf_tensor tensor);

#endif
