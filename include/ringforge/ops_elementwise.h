/* SPDX-License-Identifier: MIT
 *
 * Kernels over a flat range of elements: activations, gated units, dropout, sums, products, casts.
 * Types, aliasing and house rules: ops.h, which includes this.
 */
#ifndef RINGFORGE_OPS_ELEMENTWISE_H
#define RINGFORGE_OPS_ELEMENTWISE_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum rf_activation {
    RF_ACT_NONE = 0, /* x */
    RF_ACT_RELU,
    RF_ACT_GELU,     /* tanh form (Hendrycks, Gimpel 2016) */
    RF_ACT_SILU,     /* x sigmoid(x) (Elfwing, Uchibe, Doya 2017) */
    RF_ACT_GELU_ERF, /* x P(X < x) for a normal X */
    RF_ACT_SIGMOID,
    RF_ACT_TANH,
    RF_ACTIVATION_COUNT
};
/* out = f(x); out may alias x. RF_ACT_GELU of f32 is the same bits as the output of rf_matmul's act
 * from what its pre holds, on drivers that compile the same expressions alike. Not so in 16 bits,
 * where pre has been rounded. */
RF_API int rf_activate(struct rf_stream *stream, enum rf_activation kind, struct rf_tensor out,
                       struct rf_tensor x);
/* dx = dout f'(x), where ReLU's slope at 0 is 0; dx may alias dout or x. */
RF_API int rf_activate_backward(struct rf_stream *stream, enum rf_activation kind,
                                struct rf_tensor dx, struct rf_tensor dout, struct rf_tensor x);

/* Gated linear units (Shazeer 2020): out (n,H) = f(gate) * up; SwiGLU is RF_ACT_SILU, GEGLU
 * RF_ACT_GELU. gate and up are (n,H) each; or gate (n,2H) holds both, gate first in every row, and
 * up has a NULL buffer. out may alias one of two tensors, not halves. */
RF_API int rf_glu(struct rf_stream *stream, enum rf_activation kind, struct rf_tensor out,
                  struct rf_tensor gate, struct rf_tensor up);
/* dgate = dout * up * f'(gate), dup = dout * f(gate); either pair may be halves of one tensor, as
 * above. dgate may alias gate and dup up (both, when they are halves). */
RF_API int rf_glu_backward(struct rf_stream *stream, enum rf_activation kind,
                           struct rf_tensor dgate, struct rf_tensor dup, struct rf_tensor dout,
                           struct rf_tensor gate, struct rf_tensor up);

/* Where random numbers come from: Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011), word `first` + i
 * for element i of the tensor. Equal streams give equal numbers, whatever the type, the device and
 * where a tensor is cut: give a shard the global index of its first element. */
struct rf_random {
    uint64_t seed;
    uint64_t site;                       /* tells streams of one seed apart: layer, step, ... */
    uint64_t first;                      /* multiples of 4 are fastest */
    const struct rf_tensor *device_seed; /* i32 (2), low word first: read instead of `seed` when
                                            the kernel runs; or NULL */
};
/* out = x / (1 - p), or 0 with probability p, 0 <= p < 1 (Srivastava et al. 2014); out may alias x.
 * Its gradient is the same call on dout with the same p and stream, which makes the same mask. */
RF_API int rf_dropout(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x, float p,
                      const struct rf_random *random);

RF_API int rf_add(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a,
                  struct rf_tensor b); /* out may alias a or b */
/* out (n,C) = a (n,C) + bias (C) + residual (n,C): what rf_matmul's bias and residual do, where the
 * products of several ranks are added up first. bias is of T, or, where T is f32, f16 or bf16. out
 * may alias a or residual. */
RF_API int rf_add_bias(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a,
                       struct rf_tensor bias, struct rf_tensor residual);
/* out = a * b; out may alias a or b. Its gradients are products again: da = dout * b. */
RF_API int rf_mul(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a,
                  struct rf_tensor b);

/* out = the larger of a and b, element by element; NaN where one of them is. */
RF_API int rf_maximum(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a,
                      struct rf_tensor b);
RF_API int rf_scale(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a,
                    float factor); /* out may alias a */
/* out = a in out's type; a has the same count. No overlap. */
RF_API int rf_cast(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a);
RF_API int rf_copy(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a);
RF_API int rf_fill(struct rf_stream *stream, struct rf_tensor out, float value);

#ifdef __cplusplus
}
#endif
#endif
