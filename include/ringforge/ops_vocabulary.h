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

/* A table of tokens and one of positions, or the part of them that one rank has. f and b mark the
 * fields that the calls below use: forward, backward. A field in brackets may be zero; any other
 * that a call uses must be set, and one that it does not use must be zero (RF_EINVAL names it). */
struct rf_embedding_args {
    int64_t T;               /* fb: rows of a sequence; n is a multiple */
    struct rf_tensor tokens; /* fb (n) i32, 0 to V - 1; any other reads row 0 of the whole table */
    struct rf_tensor wte;    /* f (V,C) */
    struct rf_tensor wpe;    /* [f] at least (T,C) */
    /* [f] (n) i32, with wpe: the row of wpe of each token; one that is not in 0..T-1 reads row
     * T - 1. NULL buffer: i % T. Their backward pass is one of wpe as a table of tokens. */
    struct rf_tensor positions;
    struct rf_tensor out;        /* f (n,C) */
    struct rf_tensor dout;       /* b (n,C) */
    struct rf_tensor dwte, dwpe; /* [b] +=; both f32 or both of the type of dout; one at least */
    struct rf_tensor scratch;    /* b, with dwte: i32, of rf_embedding_scratch() elements */
    /* [fb] A part of the table: wte or dwte (v,C) has the rows of tokens first to first + v - 1 of
     * `vocabulary`. vocabulary 0: the whole table. */
    int64_t first, vocabulary;
    int64_t first_row, rows; /* [b] dwpe gets the sum of these rows of dout; 0 rows: of all */
};

/* out[i] = wte[tokens[i]] + wpe[i % T]. A token of another part of the table reads 0, so the sum of
 * the results of all ranks is the whole result, if exactly one of them passes wpe. */
RF_API int rf_embedding(struct rf_stream *stream, const struct rf_embedding_args *args);

/* The number of elements of the scratch of rf_embedding_backward: `vocabulary` is V, or with a part
 * of the table v + 1. */
RF_EXPORT int64_t rf_embedding_scratch(int64_t rows, int64_t vocabulary);

/* dwte[token] += the sum of dout over the rows with that token; dwpe[t] += the sum over the batch.
 * The sums are f32, in the order of the rows, and are added to the old value. Tokens of other parts
 * add nothing to dwte. */
RF_API int rf_embedding_backward(struct rf_stream *stream, const struct rf_embedding_args *args);

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

/* Logits of n rows and their losses. The letters mark the fields that a call uses: e is
 * rf_cross_entropy; m, s, l and g are the calls for parts of the columns below. A field in brackets
 * may be zero; any other that a call uses must be set, and one that it does not use must be zero
 * (RF_EINVAL names it). All but logits, dlogits and targets are f32. */
struct rf_cross_entropy_args {
    struct rf_tensor logits;  /* emg (n,V), or (n,v) of a part; V, v >= 1 */
    struct rf_tensor targets; /* emlg (n) i32; a negative one is ignored: loss and gradient are 0 */
    struct rf_tensor losses;  /* el (n) */
    struct rf_tensor lse;     /* elg (n): log sum exp of the whole row; g reads it */
    struct rf_tensor dlogits; /* [e]g as logits, which it may alias */
    struct rf_cross_entropy_opts opts; /* [eg] of g, scale and device_scale only */
    int64_t first;                     /* [mg] logits (n,v) are columns first to first + v - 1 */
    int64_t vocabulary;                /* mlg: V, all columns */
    struct rf_tensor most;             /* ms (n): the largest logit of each row of this part */
    struct rf_tensor total;            /* ms (n): the sum of exp(logit - most) of this part */
    struct rf_tensor wanted;   /* ms (n): the logit of the target; 0 if another rank has it */
    struct rf_tensor greatest; /* sl (n): the maximum of `most` over the ranks */
    struct rf_tensor sums;     /* sl (2,n) */
};

/* losses[i] = -log softmax(logits[i])[targets[i]], and dlogits = softmax - onehot, of each row.
 * They are not divided by the number of rows (rf_step_scalars does that). Without dlogits, losses
 * only. Loss, gradient and lse of a row are NaN if its target is V or more, if one of its logits is
 * NaN or plus infinity, or if all are minus infinity. */
RF_API int rf_cross_entropy(struct rf_stream *stream, const struct rf_cross_entropy_args *args);

/* rf_cross_entropy in vocabulary parallelism: each rank has v consecutive columns of the logits,
 * and all targets. It takes four calls, with two exchanges between them:
 *   1. rf_cross_entropy_part_rows writes most, total and wanted.
 *   2. The ranks compute greatest = the maximum of their `most`.
 *   3. rf_cross_entropy_part_sums writes sums: total[i] exp(most[i] - greatest[i]), then wanted.
 *   4. The ranks add up their sums.
 *   5. rf_cross_entropy_part_losses writes losses and lse of the whole rows, to the same bits on
 * all ranks. They agree with those of rf_cross_entropy up to rounding.
 *   6. rf_cross_entropy_part_gradient writes dlogits from lse.
 * NaN and ignored targets are treated as in rf_cross_entropy. Calls 1 and 6 may be made for groups
 * of rows. */
RF_API int rf_cross_entropy_part_rows(struct rf_stream *stream,
                                      const struct rf_cross_entropy_args *args);

RF_API int rf_cross_entropy_part_sums(struct rf_stream *stream,
                                      const struct rf_cross_entropy_args *args);

RF_API int rf_cross_entropy_part_losses(struct rf_stream *stream,
                                        const struct rf_cross_entropy_args *args);

RF_API int rf_cross_entropy_part_gradient(struct rf_stream *stream,
                                          const struct rf_cross_entropy_args *args);

/* ---- head of a language model ---------------------------------------------------------------- */

/* The scratch in bytes that lets rf_lm_head work on chunks of chunk_rows rows. */
RF_EXPORT int64_t rf_lm_head_scratch(int64_t chunk_rows, int64_t vocabulary, enum rf_dtype dtype);

/* T is the type of x, w and dx. A field in brackets may be zero. */
struct rf_lm_head_args {
    struct rf_tensor x;       /* (n,C) */
    struct rf_tensor w;       /* (V,C) */
    struct rf_tensor targets; /* (n) i32, as in rf_cross_entropy */
    struct rf_tensor losses;  /* (n) f32 */
    struct rf_tensor dx;      /* [] (n,C) = dlogits w; may alias x */
    struct rf_tensor dw;      /* [] (V,C) += dlogits^T x; f32 or T. Without both, losses only. */
    /* u8. The chunks are as large as it allows. Every chunk reads w and dw; with a few hundred rows
     * that costs little. */
    struct rf_tensor scratch;
    struct rf_cross_entropy_opts opts; /* [] */
};

/* logits = x w^T and rf_cross_entropy of them, by chunks of rows, without a tensor of (n,V).
 * Results are deterministic for a given scratch. The bits of dw depend on the size of the chunks,
 * those of losses and dx only if those of rf_matmul depend on the number of rows. */
RF_API int rf_lm_head(struct rf_stream *stream, const struct rf_lm_head_args *args);

#ifdef __cplusplus
}
#endif
#endif
