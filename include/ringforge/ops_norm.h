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

/* T is the type of x, gamma, beta, residual, sum and dx. out and dout are of T, or, if T is f32,
 * f16 or bf16: that is for an f32 residual stream between products of 16 bits. */

/* out (n,C) = (x - mean) * rstd * gamma + beta. Writes mean and rstd (n) for the backward pass. The
 * variance is the biased one; eps is inside the root. beta may have a NULL buffer. Ba, Kiros,
 * Hinton 2016. */
RF_API int rf_layernorm(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor mean,
                        struct rf_tensor rstd, struct rf_tensor x, struct rf_tensor gamma,
                        struct rf_tensor beta, float eps);

/* out (n,C) = x * rstd * gamma, rstd = 1 / sqrt(mean(x^2) + eps). Writes rstd (n). Zhang, Sennrich
 * 2019. */
RF_API int rf_rmsnorm(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor rstd,
                      struct rf_tensor x, struct rf_tensor gamma, float eps);

/* sum = x + residual, rounded to T, and out = the norm of sum, in one pass. sum may alias x or
 * residual. The backward pass is that of the norm, with x = sum and accumulate_dx: dx, which holds
 * the gradient of sum, becomes the gradient of both x and residual. */
RF_API int rf_residual_layernorm(struct rf_stream *stream, struct rf_tensor out,
                                 struct rf_tensor sum, struct rf_tensor mean, struct rf_tensor rstd,
                                 struct rf_tensor x, struct rf_tensor residual,
                                 struct rf_tensor gamma, struct rf_tensor beta, float eps);

RF_API int rf_residual_rmsnorm(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor sum,
                               struct rf_tensor rstd, struct rf_tensor x, struct rf_tensor residual,
                               struct rf_tensor gamma, float eps);

/* dx = the gradient of x; with accumulate_dx, dx += it, for a residual branch. dx may alias dout if
 * both have the same type. */
RF_API int rf_layernorm_backward_input(struct rf_stream *stream, struct rf_tensor dx,
                                       struct rf_tensor dout, struct rf_tensor x,
                                       struct rf_tensor mean, struct rf_tensor rstd,
                                       struct rf_tensor gamma, bool accumulate_dx);

RF_API int rf_rmsnorm_backward_input(struct rf_stream *stream, struct rf_tensor dx,
                                     struct rf_tensor dout, struct rf_tensor x,
                                     struct rf_tensor rstd, struct rf_tensor gamma,
                                     bool accumulate_dx);

/* The number of elements of the scratch of the two calls below. */
RF_EXPORT int64_t rf_layernorm_scratch(int64_t rows, int64_t channels);

/* dgamma, dbeta (C) +=. Both are f32, or both of T. One of them may have a NULL buffer: not wanted.
 * scratch: f32. */
RF_API int rf_layernorm_backward_weight(struct rf_stream *stream, struct rf_tensor dgamma,
                                        struct rf_tensor dbeta, struct rf_tensor dout,
                                        struct rf_tensor x, struct rf_tensor mean,
                                        struct rf_tensor rstd, struct rf_tensor scratch);

RF_API int rf_rmsnorm_backward_weight(struct rf_stream *stream, struct rf_tensor dgamma,
                                      struct rf_tensor dout, struct rf_tensor x,
                                      struct rf_tensor rstd, struct rf_tensor scratch);

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
