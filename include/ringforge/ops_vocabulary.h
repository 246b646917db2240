/* SPDX-License-Identifier: MIT
 *
 * What has a vocabulary: embedding, losses. Types, aliasing and house rules: ops.h, which includes
 * this.
 */
#ifndef RINGFORGE_OPS_VOCABULARY_H
#define RINGFORGE_OPS_VOCABULARY_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out (n,C) = wte[tokens[i]] + wpe[i % T]. tokens (n) i32 in 0..V-1: an id outside reads row 0;
 * wte (V,C), wpe (>= T, C) or a tensor with a NULL buffer for none. n is a multiple of T. */
RF_API int rf_embedding(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor tokens,
                        struct rf_tensor wte, struct rf_tensor wpe, int64_t T);
/* dwte += scatter of dout by token, dwpe += sum of dout over the batch, both in row order, as f32
 * sums that are added to what is there. dwte and dwpe are both f32 or both of dout's type. dwpe may
 * have a NULL buffer. scratch: i32, rf_embedding_scratch(n, V) elements. */
RF_EXPORT int64_t rf_embedding_scratch(int64_t rows, int64_t vocabulary);
RF_API int rf_embedding_backward(struct rf_stream *stream, struct rf_tensor dwte,
                                 struct rf_tensor dwpe, struct rf_tensor dout,
                                 struct rf_tensor tokens, int64_t T, struct rf_tensor scratch);

/* The same where ranks share the table, each with neighbouring rows of it: wte (v,C) has those of
 * tokens first to first + v - 1, of a vocabulary of V. In out, other tokens have 0 in place of
 * their row, so that the ranks' results add up to the whole's if one of them has wpe; dwte gets
 * nothing from them. An id outside 0..V-1 stands for 0 as above. part NULL: v is V. scratch of the
 * backward pass: rf_embedding_scratch(n, v + 1) elements. */
struct rf_embedding_part {
    int64_t first, vocabulary;
    int64_t first_row, rows; /* backward: dwpe gets the sum of these rows of dout; 0 rows: all */
};
RF_API int rf_embedding_of_part(struct rf_stream *stream, struct rf_tensor out,
                                struct rf_tensor tokens, struct rf_tensor wte, struct rf_tensor wpe,
                                int64_t T, const struct rf_embedding_part *part);
RF_API int rf_embedding_of_part_backward(struct rf_stream *stream, struct rf_tensor dwte,
                                         struct rf_tensor dwpe, struct rf_tensor dout,
                                         struct rf_tensor tokens, int64_t T,
                                         struct rf_tensor scratch,
                                         const struct rf_embedding_part *part);

struct rf_cross_entropy_opts {
    float scale;     /* of dlogits, not of losses: a loss scale; 0 = 1 */
    float smoothing; /* of labels, 0 <= s < 1: the target's probability is 1 - s, and s / V is added
                        to all (Szegedy et al. 2016) */
    float z_loss;    /* z adds z * lse^2, lse = log sum exp(logits) (Chowdhery et al. 2022) */
    const struct rf_tensor *device_scale; /* (1): dlogits are multiplied by it, too; or NULL */
};
/* Per row: losses[i] = -log softmax(logits[i])[targets[i]], and dlogits = softmax - onehot, not
 * divided by the number of rows (rf_step_scalars divides). targets (n) i32; a negative target is
 * ignored: loss 0, gradient 0. Loss and gradient of a row are NaN where its target is not below V,
 * one of its logits is NaN or plus infinity, or all are minus infinity. dlogits may alias logits
 * (in place) or have a NULL buffer (loss only). losses (n) f32; logits, dlogits (n,V), any V >= 1.
 * scratch: f32, n elements, receives lse (NaN in such rows). opts may be NULL. */
RF_API int rf_cross_entropy(struct rf_stream *stream, struct rf_tensor losses,
                            struct rf_tensor dlogits, struct rf_tensor logits,
                            struct rf_tensor targets, struct rf_tensor scratch,
                            const struct rf_cross_entropy_opts *opts);

/* rf_cross_entropy where ranks share the columns of the logits: each has neighbouring ones, logits
 * (n,v) from column `first` on of V, and all targets. Four calls, with two exchanges between them:
 *   rf_cross_entropy_part_rows: most[i] = the largest of logits[i], total[i] = sum of exp(logit -
 *     most[i]), wanted[i] = the target's logit, 0 if another rank has it. Each (n) f32.
 *   greatest (n) is the largest `most` of all ranks.
 *   rf_cross_entropy_part_sums: sums (2,n) = total[i] exp(most[i] - greatest[i]), then wanted.
 *   sums are added over the ranks.
 *   rf_cross_entropy_part_losses: losses, and lse as in scratch above, of the whole rows: on every
 *     rank the same bits. They agree with rf_cross_entropy's up to rounding.
 *   rf_cross_entropy_part_gradient: dlogits (n,v), from lse; may alias logits. Of opts only scale
 *     and device_scale may be set; NULL: neither.
 * What is not a number, and what is ignored, is as above. Rows may be done in groups in the first
 * and the last call. */
struct rf_cross_entropy_part {
    int64_t first, vocabulary;
    struct rf_tensor most, total, wanted; /* not looked at by _gradient */
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
RF_API int rf_cross_entropy_part_gradient(struct rf_stream *stream, struct rf_tensor dlogits,
                                          const struct rf_cross_entropy_part *part,
                                          struct rf_tensor logits, struct rf_tensor targets,
                                          struct rf_tensor lse,
                                          const struct rf_cross_entropy_opts *opts);

/* A language model's head without a tensor of (n,V): logits = x w^T and rf_cross_entropy of them,
 * chunk by chunk of rows. x (n,C), w (V,C), targets (n), losses (n) as above;
 *   dx (n,C) = dlogits w, may alias x; NULL buffer: not wanted
 *   dw (V,C) += dlogits^T x, f32 or T; NULL buffer: not wanted; with neither, only losses
 * scratch: bytes (u8), of which rf_lm_head_scratch(r, V, T) make chunks of r rows possible: the
 * most rows that fit are taken at once. Every chunk reads w and dw, so that a few hundred rows cost
 * little over all at once. Deterministic for a given scratch: the sum of dw is cut at the chunks,
 * so its bits depend on their size (those of losses and dx only where rf_matmul's do on the number
 * of rows). */
RF_EXPORT int64_t rf_lm_head_scratch(int64_t chunk_rows, int64_t vocabulary, enum rf_dtype dtype);
RF_API int rf_lm_head(struct rf_stream *stream, struct rf_tensor losses, struct rf_tensor dx,
                      struct rf_tensor dw, struct rf_tensor x, struct rf_tensor w,
                      struct rf_tensor targets, struct rf_tensor scratch,
                      const struct rf_cross_entropy_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
