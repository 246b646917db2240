/* SPDX-License-Identifier: MIT
 *
 * Text generation of layers and heads: functions shared by the decode functions of blocks. A call
 * has n rows, each of any sequence at any position (ringforge/generate.h).
 */
#ifndef RF_MODELS_DECODE_H
#define RF_MODELS_DECODE_H

#include <ringforge/generate.h>

#include "linear.h"

/* out (n,N) = in W' + b + residual, plus the products of adapters, without dropout. residual may
 * have a NULL buffer. */
int model_decode_linear(const struct rf_decode *call, const struct model_linear *linear,
                        struct rf_tensor out, struct rf_tensor in, struct rf_tensor residual);

/* Bytes of scratch that the adapters of a block need, after the other scratch. */
uint64_t model_decode_adapter_bytes(const struct rf_decode_shape *shape,
                                    const struct model_linear *const *linears, int count);

/* The attention of a layer: H heads of queries and K of keys and values, of size D. */
struct model_decode_attention {
    int64_t heads, keys, size;
    enum rf_dtype dtype;
};
uint64_t model_decode_cache_bytes(const struct model_decode_attention *a,
                                  const struct rf_decode_shape *shape);
/* Columns of f32 scratch for each row, `sums` below. */
int64_t model_decode_columns(const struct model_decode_attention *a,
                             const struct rf_decode_shape *shape);
/* Adds the keys and values of qkv (n,(H+2K)D) to the cache, and writes mixed (n,HD). angles: as in
 * rf_cache_append. */
int model_decode_attend(const struct rf_decode *call, const struct model_decode_attention *a,
                        struct rf_tensor mixed, struct rf_tensor qkv, struct rf_tensor angles,
                        struct rf_tensor sums);

/* decode_head.c */
extern const struct rf_decode_ops model_head_decode;

#endif
