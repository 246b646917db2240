/* SPDX-License-Identifier: MIT
 *
 * Element-wise kernels: activations, gated units, dropout, sums, products, casts. Types, aliasing
 * and rules for gradients: ops.h, which includes this.
 */
#ifndef RINGFORGE_OPS_ELEMENTWISE_H
#define RINGFORGE_OPS_ELEMENTWISE_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- activations ----------------------------------------------------------------------------- */

/* Constant and name, numbered from 0 as in shaders/activation.glsl. NONE is x; GELU the tanh form
 * (Hendrycks, Gimpel 2016); SILU x sigmoid(x) (Elfwing, Uchibe, Doya 2017); GELU_ERF x Phi(x), Phi
 * the normal distribution function. */
#define RF_ACTIVATIONS(ROW)                                                                        \
    ROW(RF_ACT_NONE, "identity")                                                                   \
    ROW(RF_ACT_RELU, "relu")                                                                       \
    ROW(RF_ACT_GELU, "gelu")                                                                       \
    ROW(RF_ACT_SILU, "silu")                                                                       \
    ROW(RF_ACT_GELU_ERF, "gelu-erf")                                                               \
    ROW(RF_ACT_SIGMOID, "sigmoid")                                                                 \
    ROW(RF_ACT_TANH, "tanh")
#define RF_ACTIVATION_CONSTANT(constant, name) constant,
enum rf_activation { RF_ACTIVATIONS(RF_ACTIVATION_CONSTANT) RF_ACTIVATION_COUNT };

/* NULL: there is no such activation. */
RF_API const char *rf_activation_name(enum rf_activation kind);

/* out = f(x). out may alias x. In f32, RF_ACT_GELU of the `pre` that rf_matmul writes has the same
 * bits as the product's own output, if the driver compiles equal expressions alike. In 16 bits the
 * bits differ, because pre has been rounded. */
RF_API int rf_activate(struct rf_stream *stream, enum rf_activation kind, struct rf_tensor out,
                       struct rf_tensor x);

/* dx = dout f'(x); the slope of ReLU at 0 is 0. dx may alias dout or x. */
RF_API int rf_activate_backward(struct rf_stream *stream, enum rf_activation kind,
                                struct rf_tensor dx, struct rf_tensor dout, struct rf_tensor x);

/* ---- gated linear units ---------------------------------------------------------------------- */

/* out (n,H) = f(gate) * up (Shazeer 2020). SwiGLU is RF_ACT_SILU, GEGLU is RF_ACT_GELU. gate and up
 * are (n,H) each; or one tensor (n,2H) holds both: pass it as gate (each row has gate, then up),
 * and an up with a NULL buffer. out may alias gate or up if they are separate tensors. */
RF_API int rf_glu(struct rf_stream *stream, enum rf_activation kind, struct rf_tensor out,
                  struct rf_tensor gate, struct rf_tensor up);

struct rf_glu_grads {
    struct rf_tensor dout;       /* (n,H) */
    struct rf_tensor dgate, dup; /* two tensors or one, as gate and up */
};

/* dgate = dout * up * f'(gate), dup = dout * f(gate). dgate may alias gate, and dup may alias up; a
 * pair in one tensor may alias the other one. */
RF_API int rf_glu_backward(struct rf_stream *stream, enum rf_activation kind, struct rf_tensor gate,
                           struct rf_tensor up, const struct rf_glu_grads *grads);

/* ---- dropout --------------------------------------------------------------------------------- */

/* A stream of random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011). Element i of a
 * tensor gets word first + i. The numbers depend neither on the type nor on the device. For a
 * shard, pass the global index of its first element: then they do not depend on the sharding
 * either. */
struct rf_random {
    uint64_t seed;
    uint64_t site;  /* which of the streams of one seed: layer, step, ... */
    uint64_t first; /* multiples of 4 are fastest */
    /* i32 (2), low word first: the kernel reads the seed from here when it runs. NULL: `seed`. */
    const struct rf_tensor *device_seed;
};

/* out = 0 with probability p, else x / (1 - p); 0 <= p < 1 (Srivastava et al. 2014). out may alias
 * x. The backward pass is the same call on dout, with the same p and random: the mask is the same.
 */
RF_API int rf_dropout(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x, float p,
                      const struct rf_random *random);

/* ---- sums, products, copies ------------------------------------------------------------------ */

/* out = a + b. out may alias a or b. */
RF_API int rf_add(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a,
                  struct rf_tensor b);

/* out (n,C) = a (n,C) + bias (C) + residual (n,C), as bias and residual of rf_matmul, for products
 * of several ranks that must be summed first. bias is of T, or, if T is f32, f16 or bf16. out may
 * alias a or residual. */
RF_API int rf_add_bias(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a,
                       struct rf_tensor bias, struct rf_tensor residual);

/* out = a * b. out may alias a or b. The gradients are products too: da = dout * b. */
RF_API int rf_mul(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a,
                  struct rf_tensor b);

/* Fixed point of 32 bits, in units of 2^-16 (RF_I32), in which sums are exact: rf_fixed_add with
 * `subtract` and the same term undoes rf_fixed_add, to the bit. Streams of reversible blocks are
 * such sums (rf_policy.invert). f32 values are rounded to nearest, ties to even. The lowest number
 * stands for NaN: for a value or a sum that is not finite or not below 2^15 in magnitude. Counts
 * are equal. rf_fixed_read: f32 out = x. rf_fixed_write: out = f32 x. rf_fixed_add: out = x + f32
 * term, or x - term; out may be x. */
RF_API int rf_fixed_read(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x);
RF_API int rf_fixed_write(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x);
RF_API int rf_fixed_add(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor x,
                        struct rf_tensor term, bool subtract);

/* out = max(a, b) of each element; NaN if one of them is NaN. */
RF_API int rf_maximum(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a,
                      struct rf_tensor b);

/* out = factor * a, rounded once to the type of out. out may alias a if both have the same type. */
RF_API int rf_scale(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a,
                    float factor);

/* out = a, converted to the type of out. The counts are equal. out must not overlap a. */
RF_API int rf_cast(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a);

/* out = a. */
RF_API int rf_copy(struct rf_stream *stream, struct rf_tensor out, struct rf_tensor a);

/* Every element of out = value. */
RF_API int rf_fill(struct rf_stream *stream, struct rf_tensor out, float value);

#ifdef __cplusplus
}
#endif
#endif
