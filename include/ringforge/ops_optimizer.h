/* SPDX-License-Identifier: MIT
 *
 * Optimizer updates of flat buffers, and the scalars of a step. Types, aliasing and house rules:
 * ops.h, which includes this. The same in memory of the host, without a device: host_step.h.
 */
#ifndef RINGFORGE_OPS_OPTIMIZER_H
#define RINGFORGE_OPS_OPTIMIZER_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The block of scalars of a step, in device memory: what changes from step to step is read there by
 * the kernels, so a recorded step can be replayed, and whether a step is skipped never has to be
 * asked by the host. As a tensor: RF_SCALAR_WORDS f32. All zero is a good beginning. */
struct rf_step_scalars {
    /* Set by the host before a step. */
    float lr;
    float inv_tokens; /* gradients are multiplied by it: 1 / tokens of the global batch */
    float clip;       /* largest norm; 0 = none */
    float step;       /* the number of the update, from 1 */
    uint32_t seed[2]; /* key of stochastic rounding */
    /* Kept by the device from step to step; the host sets them to begin or to go on. */
    float loss_scale;    /* gradients were multiplied by it; 0 counts as 1 */
    uint32_t good_steps; /* since loss_scale was moved */
    uint32_t updates;    /* made so far: a skipped step does not count. Adam's t */
    /* Written by rf_step_begin for the other kernels of the step. */
    uint32_t skipped; /* 1: a gradient is infinite or NaN; everything stays as it was */
    float norm;   /* of gradients * inv_tokens / loss_scale; the largest f32 where it is larger */
    float factor; /* clip coefficient * inv_tokens / loss_scale / prescale */
    float bias1, bias2; /* 1 - beta^updates; 1 without bias correction */
    /* Gradients are multiplied by it, then by factor: a power of two, 1 but where gradients so
     * large are clipped that factor alone would be too small for f32. 0 counts as 1. */
    float prescale;
    uint32_t reserved;
};
#define RF_SCALAR_WORDS 16

/* Opens an update: norm, factor (the coefficient is min(1, clip / (norm + 1e-6)), or 1 without
 * clipping) and bias corrections go into the block, and updates counts it; or, where sum_squares is
 * not finite, skipped is set, and every kernel below does nothing in this step. sum_squares (1): of
 * all gradients of the step, as rf_sum_squares gives it; finite gradients of any size have one.
 * What is not clipped can still be too large for a rule that squares it. One call for all buffers
 * of a step, before their updates. */
struct rf_optimizer_opts;
RF_API int rf_step_begin(struct rf_stream *stream, const struct rf_optimizer_opts *opts,
                         struct rf_tensor scalars, struct rf_tensor sum_squares);
/* Dynamic loss scaling (Micikevicius et al. 2018, by the rules of PyTorch's GradScaler), after the
 * updates of a step: a skipped one multiplies the scale by `backoff`; `interval` good ones in a row
 * by `growth`, unless that is infinite. */
struct rf_loss_scale_opts {
    float growth, backoff; /* 0 = 2 and 0.5 */
    uint32_t interval;     /* 0 = 2000 */
};
RF_API int rf_loss_scale_update(struct rf_stream *stream, const struct rf_loss_scale_opts *opts,
                                struct rf_tensor scalars);

/* The rules, with g the gradient after the factor, states from 0, and root(x) = sqrt(x) + eps, or
 * sqrt(x + eps) with eps_inside. First the weight decay: decoupled p -= lr wd p (Loshchilov, Hutter
 * 2019), or g += wd p. Then p -= lr d. With the same options these are torch.optim's. */
enum rf_optimizer {
    RF_ADAMW = 0, /* Adam with decoupled decay */
    RF_SGD,       /* d = g; decay decoupled, which is the same here */
    RF_MOMENTUM,  /* m = momentum m + (1 - dampening) g, the first time m = g; d = m. Polyak 1964 */
    RF_NESTEROV,  /* the same m; d = g + momentum m. Sutskever et al. 2013 */
    RF_ADAGRAD,   /* v += g^2; d = g / root(v). Duchi, Hazan, Singer 2011 */
    RF_RMSPROP,   /* v = beta2 v + (1 - beta2) g^2; d = g / root(v). With centered, Graves 2013: a =
                   * beta2 a + (1 - beta2) g, and root(v - a^2). With momentum: m = momentum m + d,
                   * and d = m. Tieleman, Hinton 2012 */
    RF_ADAM,      /* m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2, d = (m / (1 -
                   * beta1^t)) / root(v / (1 - beta2^t)). Kingma, Ba 2015 */
    RF_LION,      /* d = sign(beta1 m + (1 - beta1) g), then m = beta2 m + (1 - beta2) g; decay
                   * decoupled. Chen et al. 2023 */
    RF_OPTIMIZER_COUNT
};
struct rf_optimizer_opts {
    enum rf_optimizer kind;
    float beta1, beta2, eps;
    float weight_decay;
    float momentum, dampening; /* dampening: RF_MOMENTUM only */
    bool eps_inside;           /* the root, as in some texts; else outside, as in PyTorch */
    bool no_bias_correction;   /* Adam: leave out the divisions by 1 - beta^t */
    bool centered;             /* RMSProp */
    bool stochastic_rounding;  /* of parameters (or the copy) stored in 16 bits */
};
enum rf_optimizer_state { RF_STATE_M = 0, RF_STATE_V, RF_STATE_A, RF_STATE_COUNT };
struct rf_optimizer_info {
    const char *name;                  /* "adamw" */
    float beta1, beta2, eps, momentum; /* customary values; 0 where it has none */
    bool decoupled;                    /* weight decay */
};
RF_EXPORT const struct rf_optimizer_info *rf_optimizer_get_info(enum rf_optimizer kind);
/* By name; -1: there is none. */
RF_EXPORT int rf_optimizer_find(const char *name);
/* Whether it has that state: each is one f32 per parameter. */
RF_EXPORT bool rf_optimizer_has(const struct rf_optimizer_opts *opts,
                                enum rf_optimizer_state state);

/* What one update touches: a flat buffer of n parameters, or the part of one from element `first`,
 * a multiple of 64. */
struct rf_optimizer_part {
    struct rf_tensor param;                 /* (n) f32, or f16 or bf16: without an f32 master */
    struct rf_tensor grad;                  /* (n) f32, f16 or bf16 */
    struct rf_tensor state[RF_STATE_COUNT]; /* (n) f32; those it has not: NULL buffers */
    struct rf_tensor copy; /* (n) f16 or bf16: receives f32 parameters rounded; NULL buffer: none */
    struct rf_tensor decay; /* i32, one word per 64 elements (ceil(n/64)), 0 or 1: whether weight
                             * decay applies there */
    uint64_t first;
};
/* One update in place, in one launch. Stores in 16 bits are to the nearest, or stochastic:
 * Philox4x32-10 with key seed and counter {element / 4, updates} gives four elements their random
 * words. Bits do not depend on where a buffer is cut, as long as cuts are at multiples of 64
 * elements and `first` says where. */
RF_API int rf_optimizer_step(struct rf_stream *stream, const struct rf_optimizer_opts *opts,
                             const struct rf_optimizer_part *part, struct rf_tensor scalars);
/* What such an update of `count` parameters amounts to: parameters of type `param`, f32 gradients,
 * and a copy of type `copy` (RF_F32: none). AdamW reads 16 bytes for each f32 parameter and writes
 * 12; the copy is 2 more. */
RF_EXPORT void rf_optimizer_work(const struct rf_optimizer_opts *opts, uint64_t count,
                                 enum rf_dtype param, enum rf_dtype copy, struct rf_work *out);

#ifdef __cplusplus
}
#endif
#endif
