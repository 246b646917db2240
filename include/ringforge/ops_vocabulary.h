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
