/* SPDX-License-Identifier: MIT
 *
 * Kernels of text generation: products of few rows, and attention to a key-value cache. Types,
 * aliasing and errors: ops.h, which includes this. Each row of a call is a new token of any
 * sequence. The bits of a row depend only on that row, the weights and the cached keys and values
 * up to its position; not on the number of rows, the other rows or `most`. So one call for all
 * tokens of a prompt gives the same bits as one call per token.
 */
#ifndef RINGFORGE_OPS_DECODE_H
#define RINGFORGE_OPS_DECODE_H

#include "quantize.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rf_gemv_opts {
    enum rf_quantization w_quantized; /* w is RF_U8 in this layout (quantize.h) */
    const struct rf_tensor *bias;     /* (N) of T; NULL or a NULL buffer: none */
    const struct rf_tensor *residual; /* (n,N) in the type of out, or none as above. May be out
                                       * itself. */
};

/* out (n,N) = x (n,K) w (N,K)' + bias + residual, rounded once. x and w are of T; out is of T or
 * f32. opts may be NULL. Reads w once for every 8 rows: for many rows rf_matmul is faster.
 *   A quantised w has rf_quantized_bytes() of N * K elements, from a multiple of 4 bytes on; N and
 * K are those of out and x. Its elements are not rounded to T: in f32 the result has the bits of
 * the product with the values of rf_dequantize. */
RF_API int rf_gemv(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x,
                   struct rf_tensor w, const struct rf_gemv_opts *opts);

/* A cache of the keys and values of S sequences of at most L tokens, and the place of each row of a
 * call: row i is the token at position[i] of sequence[i]. Kernels clamp both to the cache. */
struct rf_cache {
    struct rf_tensor keys, values;       /* (S,L,K,D) of T: K heads of size D */
    struct rf_tensor sequence, position; /* (n) i32 */
};

/* Writes the keys and values of the rows into the cache. qkv (n,(H+2K)D) of T has H heads of
 * queries, then K of keys, then K of values; D is even.
 *   angles (L,D) f32, or a NULL buffer: row p has the cosines of the D/2 pairs at position p, then
 * the sines. Keys are rotated before they are written, and queries in place: pairs (i, i + D/2) as
 * in rf_rotary with halves. */
RF_API int rf_cache_append(struct rf_stream *stream, const struct rf_cache *cache,
                           struct rf_tensor qkv, int64_t heads, struct rf_tensor angles);

/* angles (L,D) = the table of rf_cache_append. The angles are those of rf_rotary, with the same
 * opts; their position and halves are ignored. opts may be NULL. */
struct rf_rotary_opts;
RF_API int rf_rotary_angles(struct rf_stream *stream, struct rf_tensor angles,
                            const struct rf_rotary_opts *opts);

/* The number of elements of the scratch of rf_attend_cache. */
RF_EXPORT int64_t rf_attend_cache_scratch(int64_t rows, int64_t heads, int64_t size, int64_t most);

struct rf_attend_cache_args {
    /* (n,columns) of T: the H heads of queries are first in each row, as in qkv above. K divides H,
     * and query head h uses head h / (H/K). D is up to 256. */
    struct rf_tensor q;
    struct rf_tensor out;     /* (n,HD) of T */
    struct rf_tensor scratch; /* f32, of at least rf_attend_cache_scratch() elements */
    int64_t heads;            /* H */
    /* The largest position of the call is below it; larger ones give an undefined result. It bounds
     * the work, and may be up to L. */
    int64_t most;
    float scale; /* of the scores; 0 = 1/sqrt(D), RF_ZERO = 0 */
};

/* out = attention of each row to the cached keys at positions 0 to position[i] of its sequence. */
RF_API int rf_attend_cache(struct rf_stream *stream, const struct rf_cache *cache,
                           const struct rf_attend_cache_args *args);

#ifdef __cplusplus
}
#endif
#endif
