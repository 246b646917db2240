/* SPDX-License-Identifier: MIT
 *
 * Kernels over rows: normalization and softmax. Types, aliasing and rules for gradients: ops.h,
 * which includes this.
 */
#ifndef RINGFORGE_OPS_NORM_H
#define RINGFORGE_OPS_NORM_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- normalization --------------------------------------------------------------------------- */

/* A norm of n rows of C elements: LayerNorm (Ba, Kiros, Hinton 2016) or RMSNorm (Zhang, Sennrich
 * 2019), alone or of a sum. f, i and w mark the fields that the three calls below use: forward,
 * gradient of the input, gradients of the weights. A field in brackets may be zero; any other that
 * a call uses must be set, and one that it does not use must be zero (RF_EINVAL names it).
 *
 * T is the type of x, gamma, beta, residual, sum and dx. out and dout are of T, or, if T is f32,
 * f16 or bf16: that is for an f32 residual stream between products of 16 bits. */
struct rf_norm_args {
    bool rms;                  /* [fiw] RMSNorm, which has neither mean nor beta */
    float eps;                 /* [f] inside the root */
    struct rf_tensor x;        /* fiw (n,C); in the backward pass, what was normalized: sum or x */
    struct rf_tensor residual; /* [f] (n,C): sum = x + residual is normalized; needs sum */
    struct rf_tensor gamma;    /* fi (C) */
    struct rf_tensor beta;     /* [f] (C); LayerNorm only */
    struct rf_tensor out;      /* f (n,C) */
    struct rf_tensor sum;  /* [f] (n,C), rounded to T; needs residual; may alias x or residual */
    struct rf_tensor mean; /* fiw (n) f32; LayerNorm only. Forward writes it for the others. */
    struct rf_tensor rstd; /* fiw (n) f32; the same, of both norms */
    struct rf_tensor dout; /* iw (n,C) */
    struct rf_tensor dx;   /* i (n,C); may alias dout if both have the same type */
    bool accumulate_dx;    /* [i] dx += instead of dx = */
    struct rf_tensor dgamma, dbeta; /* [w] (C) +=; both f32, or both of T; one of them at least */
    struct rf_tensor scratch;       /* w f32, rf_norm_scratch(n, C) elements */
};

/* LayerNorm: out = (x - mean) * rstd * gamma + beta, rstd = 1 / sqrt(variance + eps), with the
 * biased variance. RMSNorm: out = x * rstd * gamma, rstd = 1 / sqrt(mean(x^2) + eps). */
RF_API int rf_norm(struct rf_stream *stream, const struct rf_norm_args *args);

/* dx = the gradient of x. For a norm of a sum, with accumulate_dx: dx, which holds the gradient of
 * sum, becomes the gradient of both x and residual. */
RF_API int rf_norm_backward_input(struct rf_stream *stream, const struct rf_norm_args *args);

/* The number of elements of the scratch of rf_norm_backward_weight. */
RF_EXPORT int64_t rf_norm_scratch(int64_t rows, int64_t channels);

RF_API int rf_norm_backward_weight(struct rf_stream *stream, const struct rf_norm_args *args);

/* ---- softmax --------------------------------------------------------------------------------- */

/* out (n,C) = the softmax of each row of x. out may alias x. If the largest element of a row is not
 * finite, the row becomes NaN. */
RF_API int rf_softmax(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x);

/* dx = out * (dout - sum of out * dout over the row). dx may alias dout. */
RF_API int rf_softmax_backward(struct rf_stream *stream, struct rf_tensor dx, struct rf_tensor dout,
                               struct rf_tensor out);

#ifdef __cplusplus
}
#endif
#endif
