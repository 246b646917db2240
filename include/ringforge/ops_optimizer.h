/* SPDX-License-Identifier: MIT
 *
 * Optimizer updates of flat buffers, and the scalars of a step. Types, aliasing and rules for
 * gradients: ops.h, which includes this. The same updates in host memory, without a device:
 * host_step.h.
 */
#ifndef RINGFORGE_OPS_OPTIMIZER_H
#define RINGFORGE_OPS_OPTIMIZER_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- scalars of a step ----------------------------------------------------------------------- */

/* Values that change from step to step, in device memory: RF_SCALAR_WORDS f32 as a tensor. Kernels
 * read them there, so a recorded step can be replayed, and the host need not know whether a step is
 * skipped. All zero is a valid initial state. */
struct rf_step_scalars {
    /* The host sets these before a step. */
    float lr;
    float inv_tokens; /* 1 / tokens of the global batch; gradients are multiplied by it */
    float clip;       /* largest norm of the gradients; 0 = no clipping */
    float step;       /* number of the step, from 1 */
    uint32_t seed[2]; /* key of stochastic rounding */
    /* The device keeps these from step to step. The host sets them at the start, or to resume. */
    float loss_scale;    /* gradients were multiplied by it; 0 = 1 */
    uint32_t good_steps; /* since loss_scale last changed */
    uint32_t updates;    /* made so far, without skipped steps: t of Adam */
    /* rf_step_begin writes these for the other kernels of the step. */
    uint32_t skipped; /* 1: a gradient is infinite or NaN, and nothing is updated */
    float norm;       /* of gradients * inv_tokens / loss_scale; the largest f32 if it is larger */
    float factor;     /* clip coefficient * inv_tokens / loss_scale / prescale */
    float bias1, bias2; /* 1 - beta^updates; 1 without bias correction */
    /* Gradients are multiplied by prescale, then by factor. It is a power of two, and 1 unless the
     * clipped gradients are so large that factor alone would underflow f32. 0 = 1. */
    float prescale;
    uint32_t reserved;
};
#define RF_SCALAR_WORDS 16

struct rf_optimizer_opts;

/* Begins an update: writes norm, factor and bias corrections, and increments updates. The clip
 * coefficient is min(1, clip / (norm + 1e-6)), or 1 without clipping. If sum_squares is not finite
 * it sets `skipped` instead, and the kernels below do nothing in this step.
 *   sum_squares (1): the sum over all gradients of the step, from rf_sum_squares. It is finite for
 * all finite gradients. Without clipping, such gradients can still overflow in a rule that squares
 * them. Call it once for all buffers of a step, before their updates. */
RF_API int rf_step_begin(struct rf_stream *stream, const struct rf_optimizer_opts *opts,
                         struct rf_tensor scalars, struct rf_tensor sum_squares);

struct rf_loss_scale_opts {
    float growth, backoff; /* 0 = 2 and 0.5 */
    uint32_t interval;     /* 0 = 2000 */
};

/* Dynamic loss scaling (Micikevicius et al. 2018), by the rules of PyTorch's GradScaler. Call it
 * after the updates of a step. A skipped step multiplies the scale by `backoff`. `interval` good
 * steps in a row multiply it by `growth`, unless the result is infinite. opts may be NULL. */
RF_API int rf_loss_scale_update(struct rf_stream *stream, const struct rf_loss_scale_opts *opts,
                                struct rf_tensor scalars);

/* ---- update rules ---------------------------------------------------------------------------- */

/* g is the gradient after the factor. States start at 0. root(x) is sqrt(x) + eps, or sqrt(x + eps)
 * with eps_inside. wd is weight_decay: decoupled decay (Loshchilov, Hutter 2019) first does p -= lr
 * wd p; the other rules use g += wd p. Then p -= lr d. With equal options these are the rules of
 * torch.optim. */
enum rf_optimizer {
    RF_ADAMW = 0, /* Adam with decoupled decay */
    RF_SGD,       /* d = g; decoupled decay, which is equivalent here */
    RF_MOMENTUM,  /* m = momentum m + (1 - dampening) g, first m = g; d = m. Polyak 1964 */
    RF_NESTEROV,  /* the same m; d = g + momentum m. Sutskever et al. 2013 */
    RF_ADAGRAD,   /* v += g^2; d = g / root(v). Duchi, Hazan, Singer 2011 */
    RF_RMSPROP, /* v = beta2 v + (1 - beta2) g^2; d = g / root(v). With centered (Graves 2013): a =
                 * beta2 a + (1 - beta2) g, and root(v - a^2). With momentum: m = momentum m + d,
                 * and d = m. Tieleman, Hinton 2012 */
    RF_ADAM,    /* m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2, d = (m / (1 -
                 * beta1^t)) / root(v / (1 - beta2^t)). Kingma, Ba 2015 */
    RF_LION,    /* d = sign(beta1 m + (1 - beta1) g), then m = beta2 m + (1 - beta2) g; decoupled
                 * decay. Chen et al. 2023 */
    RF_OPTIMIZER_COUNT
};

#define RF_OPTIMIZER_EXTRA 2

struct rf_optimizer_opts {
    enum rf_optimizer kind;
    float beta1, beta2, eps;
    float weight_decay;
    float momentum, dampening;       /* dampening: RF_MOMENTUM only */
    float extra[RF_OPTIMIZER_EXTRA]; /* further options; none of the rules above has any */
    bool eps_inside;          /* eps inside the root, as in some papers; else as in PyTorch */
    bool no_bias_correction;  /* Adam: without the divisions by 1 - beta^t */
    bool centered;            /* RMSProp */
    bool stochastic_rounding; /* of parameters, or their copy, in 16 bits */
};

/* The states of an optimizer, each one number for each parameter: m, v and a above; u is for rules
 * with four. */
enum rf_optimizer_state { RF_STATE_M = 0, RF_STATE_V, RF_STATE_A, RF_STATE_U, RF_STATE_COUNT };

/* The types in which states are stored; updates are in f32:
 *   RF_F32
 *   RF_BF16  rounded to nearest, ties to even
 *   RF_U8    8 bits by blocks (Dettmers et al. 2022): RF_STATE_BLOCK_BYTES for each RF_STATE_BLOCK
 *            elements of a buffer, of which the last block may have fewer. A block has the codes of
 *            its elements, then their largest magnitude in f32. A code is an index of a table of
 *            256 ascending levels from 0 or -1 to 1, denser at 0: the dynamic map (Dettmers 2015)
 *            with the bits of bitsandbytes. An element is its level times the largest magnitude.
 *            The nearest level is stored; the lower one if two are equally near. Zero bytes are
 *            states of 0, and a state of 0 stays 0. */
#define RF_STATE_BLOCK 256
#define RF_STATE_BLOCK_BYTES 260

struct rf_optimizer_info {
    const char *name;                  /* "adamw" */
    float beta1, beta2, eps, momentum; /* customary values; 0 if the rule has none */
    bool decoupled;                    /* weight decay */
    bool corrects_bias;                /* divides by 1 - beta^t; accepts no_bias_correction */
    bool takes_momentum, takes_dampening, takes_centered, takes_extra; /* supported options */
    float extra[RF_OPTIMIZER_EXTRA];                                   /* customary values */
};

/* Constant data. */
RF_EXPORT const struct rf_optimizer_info *rf_optimizer_get_info(enum rf_optimizer kind);

/* The rule of this name (enum rf_optimizer); -1: none. */
RF_EXPORT int rf_optimizer_find(const char *name);

/* "m", "v", ...: also the suffix of a tensor's name in checkpoints. NULL: no such state. */
RF_EXPORT const char *rf_optimizer_state_name(enum rf_optimizer_state state);

/* Whether the rule keeps this state with these options. */
RF_EXPORT bool rf_optimizer_has(const struct rf_optimizer_opts *opts,
                                enum rf_optimizer_state state);

/* Whether the states of a rule with these options can be stored in this type. Rules without states
 * have f32 only. Centered RMSProp has no 8-bit states: its spread is a difference of two. */
RF_EXPORT bool rf_optimizer_can_store(const struct rf_optimizer_opts *opts, enum rf_dtype dtype);

/* Whether the levels of this state in 8 bits have both signs: those of the second state of a rule
 * with two have not. */
RF_EXPORT bool rf_optimizer_signed(const struct rf_optimizer_opts *opts,
                                   enum rf_optimizer_state state);

/* The operands of one update: n parameters of a flat buffer, from its element `first` on. */
struct rf_optimizer_part {
    struct rf_tensor param; /* (n) f32; f16 or bf16 without an f32 master */
    struct rf_tensor grad;  /* (n) f32, f16 or bf16 */
    /* (n) f32 or bf16, or RF_U8 (ceil(n/256) * 260); all of one type. A NULL buffer if the rule
     * lacks it. */
    struct rf_tensor state[RF_STATE_COUNT];
    struct rf_tensor
        copy; /* (n) f16 or bf16: receives the f32 parameters, rounded; NULL buffer: none */
    /* i32 (ceil(n/64)), 0 or 1 for each 64 elements: whether weight decay applies to them. */
    struct rf_tensor decay;
    uint64_t first; /* a multiple of 64 */
    /* The numbers by which elements draw random words (struct rf_place_run), i32. A NULL buffer:
     * element i of the part draws by number first + i. */
    struct rf_tensor places;
};

/* For buffers with parts of a larger one: parameters of some blocks only, or some of their rows and
 * columns. Elements of the flat buffer before `end` draw by their index plus `shift`, modulo 2^64.
 * The table of a part begins with two words for each 64 of its elements: the distance in words from
 * the first of the two to the run that contains the first of these elements, and that element's
 * index in the flat buffer divided by 64. Runs follow in ascending order; the last one ends past
 * the part. */
struct rf_place_run {
    uint64_t end, shift;
};

/* One update in place, by one launch. 16-bit stores round to nearest, or stochastically:
 * Philox4x32-10 with key seed and counter {number / 4, updates} gives the random words of four
 * numbers. The bits do not depend on the division of a buffer into parts, if `first` is right, nor
 * on the distribution of its elements, if `places` is right. With states in 8 bits a buffer is
 * divided at multiples of RF_STATE_BLOCK. */
RF_API int rf_optimizer_step(struct rf_stream *stream, const struct rf_optimizer_opts *opts,
                             const struct rf_optimizer_part *part, struct rf_tensor scalars);

/* Writes the copy made by update number scalars.updates, or with `before` by the previous one: from
 * part->param, f32, with the same roundings. After 0 updates copies are rounded to nearest. Reads
 * param, first and places of the part. */
RF_API int rf_optimizer_copy(struct rf_stream *stream, const struct rf_optimizer_opts *opts,
                             const struct rf_optimizer_part *part, struct rf_tensor scalars,
                             bool before);

/* The types of an update, for its work. */
struct rf_optimizer_types {
    enum rf_dtype param, copy, state; /* copy: RF_F32 is no copy */
};
/* The work of an update of `count` parameters, with f32 gradients. For each f32 parameter AdamW
 * reads 16 bytes and writes 12; a copy adds 2. */
RF_EXPORT void rf_optimizer_work(const struct rf_optimizer_opts *opts, uint64_t count,
                                 struct rf_optimizer_types types, struct rf_work *out);

#ifdef __cplusplus
}
#endif
#endif
