/* SPDX-License-Identifier: MIT
 *
 * Kernels over rows: normalization, softmax. Types, aliasing and house rules: ops.h, which includes
 * this.
 */
#ifndef RINGFORGE_OPS_NORM_H
#define RINGFORGE_OPS_NORM_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of the norms T is the type of x, gamma, beta, residual, sum and dx. out and dout are of T, or,
 * where T is f32, f16 or bf16: rows that are added up in f32 between products of 16 bits. */

/* out (n,C) = (x - mean) * rstd * gamma + beta; mean, rstd (n) are written for the backward pass.
 * Ba, Kiros, Hinton 2016; variance is biased, eps inside the root. beta may have a NULL buffer. */
RF_API int rf_layernorm(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor mean,
                        struct rf_tensor rstd, struct rf_tensor x, struct rf_tensor gamma,
                        struct rf_tensor beta, float eps);
/* out (n,C) = x * rstd * gamma, rstd = 1 / sqrt(mean(x^2) + eps). Zhang, Sennrich 2019. */
RF_API int rf_rmsnorm(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor rstd,
                      struct rf_tensor x, struct rf_tensor gamma, float eps);

/* sum = x + residual, in T, and the norm of that, in one pass. sum may alias x or residual. The
 * backward pass is that of the norm with x = sum and accumulate_dx: dx, which holds the gradient of
 * sum, becomes that of both x and residual. */
RF_API int rf_residual_layernorm(struct rf_stream *stream, struct rf_tensor out,
                                 struct rf_tensor sum, struct rf_tensor mean, struct rf_tensor rstd,
                                 struct rf_tensor x, struct rf_tensor residual,
                                 struct rf_tensor gamma, struct rf_tensor beta, float eps);
RF_API int rf_residual_rmsnorm(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor sum,
                               struct rf_tensor rstd, struct rf_tensor x, struct rf_tensor residual,
                               struct rf_tensor gamma, float eps);

/* dx = (or, with accumulate_dx, +=: the residual branch), dx may alias a dout of its type. */
RF_API int rf_layernorm_backward_input(struct rf_stream *stream, struct rf_tensor dx,
                                       struct rf_tensor dout, struct rf_tensor x,
                                       struct rf_tensor mean, struct rf_tensor rstd,
                                       struct rf_tensor gamma, bool accumulate_dx);
RF_API int rf_rmsnorm_backward_input(struct rf_stream *stream, struct rf_tensor dx,
                                     struct rf_tensor dout, struct rf_tensor x,
                                     struct rf_tensor rstd, struct rf_tensor gamma,
                                     bool accumulate_dx);
/* dgamma, dbeta (C) +=, both f32 or both T; dbeta may have a NULL buffer. scratch: f32,
 * rf_layernorm_scratch(n, C) elements. */
RF_EXPORT int64_t rf_layernorm_scratch(int64_t rows, int64_t channels);
RF_API int rf_layernorm_backward_weight(struct rf_stream *stream, struct rf_tensor dgamma,
                                        struct rf_tensor dbeta, struct rf_tensor dout,
                                        struct rf_tensor x, struct rf_tensor mean,
                                        struct rf_tensor rstd, struct rf_tensor scratch);
RF_API int rf_rmsnorm_backward_weight(struct rf_stream *stream, struct rf_tensor dgamma,
                                      struct rf_tensor dout, struct rf_tensor x,
                                      struct rf_tensor rstd, struct rf_tensor scratch);

/* out (n,C) = softmax of each row of x; out may alias x. A row whose largest element is not finite
 * becomes NaN. */
RF_API int rf_softmax(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x);
/* dx = out * (dout - sum(out * dout) over the row); dx may alias dout. */
RF_API int rf_softmax_backward(struct rf_stream *stream, struct rf_tensor dx, struct rf_tensor dout,
                               struct rf_tensor out);

#ifdef __cplusplus
}
#endif
#endif
