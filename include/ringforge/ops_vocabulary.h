/* SPDX-License-Identifier: MIT
 *
 * Kernels with a vocabulary: embedding, cross entropy, the head of a language model. Types,
 * aliasing and rules for gradients: ops.h, which includes this.
 */
#ifndef RINGFORGE_OPS_VOCABULARY_H
#define RINGFORGE_OPS_VOCABULARY_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- embedding ------------------------------------------------------------------------------- */

/* out (n,C) = wte[tokens[i]] + wpe[i % T]. tokens (n) i32, 0 to V - 1; any other id reads row 0.
 * wte (V,C). wpe: at least (T,C), or a NULL buffer for none. n must be a multiple of T. */
RF_API int rf_embedding(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor tokens,
                        struct rf_tensor wte, struct rf_tensor wpe, int64_t T);

/* The number of elements of the scratch of rf_embedding_backward. */
RF_EXPORT int64_t rf_embedding_scratch(int64_t rows, int64_t vocabulary);

/* dwte[token] += the sum of dout over the rows with that token; dwpe[t] += the sum over the batch.
 * The sums are f32, in the order of the rows, and are added to the old value. dwte and dwpe are
 * both f32 or both of the type of dout. One of them may have a NULL buffer: not wanted.
 * scratch: i32; not read without dwte. */
RF_API int rf_embedding_backward(struct rf_stream *stream, struct rf_tensor dwte,
                                 struct rf_tensor dwpe, struct rf_tensor dout,
                                 struct rf_tensor tokens, int64_t T, struct rf_tensor scratch);

/* The part of a table that one rank has, in vocabulary parallelism. */
struct rf_embedding_part {
    int64_t first;           /* wte (v,C) has the rows of tokens first to first + v - 1 */
    int64_t vocabulary;      /* V, of the whole table */
    int64_t first_row, rows; /* backward: dwpe gets the sum of these rows of dout; 0 rows: of all */
    /* Forward: (n) i32, the row of wpe of each token; one that is not in 0..T-1 reads row T - 1.
     * NULL buffer: i % T. Their backward pass is an rf_embedding_backward of wpe with the positions
     * as tokens. */
    struct rf_tensor positions;
};

/* rf_embedding with a part of the table. A token of another part reads 0, so the sum of the results
 * of all ranks is the whole result, if exactly one of them passes wpe. An id outside 0..V-1 reads
 * row 0 of the whole table. part NULL: the whole table. */
RF_API int rf_embedding_of_part(struct rf_stream *stream, struct rf_tensor out,
                                struct rf_tensor tokens, struct rf_tensor wte, struct rf_tensor wpe,
                                int64_t T, const struct rf_embedding_part *part);

/* Tokens of other parts add nothing to dwte. scratch: rf_embedding_scratch(n, v + 1) elements. */
RF_API int rf_embedding_of_part_backward(struct rf_stream *stream, struct rf_tensor dwte,
                                         struct rf_tensor dwpe, struct rf_tensor dout,
                                         struct rf_tensor tokens, int64_t T,
                                         struct rf_tensor scratch,
                                         const struct rf_embedding_part *part);

/* ---- cross entropy --------------------------------------------------------------------------- */

/* Zero is the default of every field. */
struct rf_cross_entropy_opts {
    float scale; /* factor of dlogits, not of losses, for loss scaling; 0 = 1, RF_ZERO = 0 */
    /* Label smoothing s, 0 <= s < 1: the target gets probability 1 - s, and every class s / V more
     * (Szegedy et al. 2016). */
    float smoothing;
    float z_loss; /* z: adds z * lse^2, lse = log sum exp(logits) (Chowdhery et al. 2022) */
    const struct rf_tensor *device_scale; /* (1) f32: a further factor of dlogits; or NULL */
};

/* losses[i] = -log softmax(logits[i])[targets[i]], and dlogits = softmax - onehot, of each row.
 * They are not divided by the number of rows (rf_step_scalars does that). logits, dlogits (n,V), V
 * >= 1; losses (n) f32; targets (n) i32. dlogits may alias logits, or have a NULL buffer: losses
 * only. scratch: f32, n elements; receives lse. A negative target is ignored: loss and gradient are
 * 0. Loss, gradient and lse of a row are NaN if its target is V or more, if one of its logits is
 * NaN or plus infinity, or if all are minus infinity. opts may be NULL. */
RF_API int rf_cross_entropy(struct rf_stream *stream, struct rf_tensor losses,
                            struct rf_tensor dlogits, struct rf_tensor logits,
                            struct rf_tensor targets, struct rf_tensor scratch,
                            const struct rf_cross_entropy_opts *opts);

/* rf_cross_entropy in vocabulary parallelism: each rank has v consecutive columns of the logits,
 * and all targets. It takes four calls, with two exchanges between them:
 *   1. rf_cross_entropy_part_rows writes most, total and wanted.
 *   2. The ranks compute greatest (n) = the maximum of their `most`.
 *   3. rf_cross_entropy_part_sums writes sums (2,n): total[i] exp(most[i] - greatest[i]), then
 *      wanted.
 *   4. The ranks add up their sums.
 *   5. rf_cross_entropy_part_losses writes losses and lse of the whole rows, to the same bits on
 * all ranks. They agree with those of rf_cross_entropy up to rounding.
 *   6. rf_cross_entropy_part_gradient writes dlogits (n,v) from lse.
 * NaN and ignored targets are treated as in rf_cross_entropy. Calls 1 and 6 may be made for groups
 * of rows. */
struct rf_cross_entropy_part {
    int64_t first;           /* logits (n,v) are columns first to first + v - 1 */
    int64_t vocabulary;      /* V, all columns */
    struct rf_tensor most;   /* (n) f32: the largest logit of each row of this part */
    struct rf_tensor total;  /* (n) f32: the sum of exp(logit - most) of this part */
    struct rf_tensor wanted; /* (n) f32: the logit of the target; 0 if another rank has it */
};

RF_API int rf_cross_entropy_part_rows(struct rf_stream *stream,
                                      const struct rf_cross_entropy_part *part,
                                      struct rf_tensor logits, struct rf_tensor targets);

RF_API int rf_cross_entropy_part_sums(struct rf_stream *stream, struct rf_tensor sums,
                                      const struct rf_cross_entropy_part *part,
                                      struct rf_tensor greatest);

RF_API int rf_cross_entropy_part_losses(struct rf_stream *stream, struct rf_tensor losses,
                                        struct rf_tensor lse, struct rf_tensor greatest,
                                        struct rf_tensor sums, struct rf_tensor targets,
                                        int64_t vocabulary);

/* dlogits may alias logits. Reads neither most nor total nor wanted. Only scale and device_scale of
 * opts may be set; opts may be NULL. */
RF_API int rf_cross_entropy_part_gradient(struct rf_stream *stream, struct rf_tensor dlogits,
                                          const struct rf_cross_entropy_part *part,
                                          struct rf_tensor logits, struct rf_tensor targets,
                                          struct rf_tensor lse,
                                          const struct rf_cross_entropy_opts *opts);

/* ---- head of a language model ---------------------------------------------------------------- */

/* The scratch in bytes that lets rf_lm_head work on chunks of chunk_rows rows. */
RF_EXPORT int64_t rf_lm_head_scratch(int64_t chunk_rows, int64_t vocabulary, enum rf_dtype dtype);

/* logits = x w^T and rf_cross_entropy of them, by chunks of rows, without a tensor of (n,V).
 *   x (n,C), w (V,C), targets (n), losses (n): as above.
 *   dx (n,C) = dlogits w; may alias x; NULL buffer: not wanted.
 *   dw (V,C) += dlogits^T x; f32 or T; NULL buffer: not wanted. Without both, losses only.
 *   scratch: u8. The chunks are as large as it allows. Every chunk reads w and dw; with a few
 * hundred rows that costs little. Results are deterministic for a given scratch. The bits of dw
 * depend on the size of the chunks, those of losses and dx only if those of rf_matmul depend on the
 * number of rows. */
RF_API int rf_lm_head(struct rf_stream *stream, struct rf_tensor losses, struct rf_tensor dx,
                      struct rf_tensor dw, struct rf_tensor x, struct rf_tensor w,
                      struct rf_tensor targets, struct rf_tensor scratch,
                      const struct rf_cross_entropy_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
