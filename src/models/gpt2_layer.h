/* SPDX-License-Identifier: MIT
 *
 * One call of a GPT-2 layer: declarations shared by its forward and backward files.
 */
#ifndef RF_MODELS_GPT2_LAYER_H
#define RF_MODELS_GPT2_LAYER_H

#include "context.h"
#include "gpt2_internal.h"
#include "linear.h"
#include "steps.h"

enum param { LN1_W, LN1_B, QKV_W, QKV_B, PROJ_W, PROJ_B, LN2_W, LN2_B, FC_W, FC_B, FC2_W, FC2_B };

/* Sizes: n rows, of which this rank has n' (fewer with sequence parallelism); C channels, H heads.
 * Each of t tensor ranks has c = C/t channels inside the halves, and h = H/t heads. */

/* Results of forward. All but the recomputed ones are kept. */
struct saved {
    struct rf_tensor norm1, mean1, rstd1; /* (n',C) (n') (n') */
    struct rf_tensor qkv, mixed, lse;     /* (n,3c) (n,c) (n,h) */
    struct rf_tensor middle;              /* (n',C): x + attention */
    struct rf_tensor norm2, mean2, rstd2;
    struct rf_tensor pre, act; /* (n,4c) */
};
/* Values that backward_input keeps for backward_weight, in the operand type of products. */
struct saved_for_weight {
    struct rf_tensor dact, dqkv, dmiddle; /* (n,4c) (n,3c) (n,C) */
    struct rf_tensor dnorm1, dnorm2;      /* (n',C) */
    struct rf_tensor dout;       /* (n,C): if the residual stream has another type or is sharded */
    struct rf_tensor mixed, act; /* (n,c) (n,4c): if attention or the MLP is recomputed */
};
/* Scratch of a phase: operands of products that are not kept, and the tensors of attention. Each
 * group begins at the start of the scratch. */
struct work {
    struct rf_tensor norm, mean, rstd, act; /* (n',C) (n') (n') (n,4c) */
    struct rf_tensor mixed, delta, lse;     /* (n,c), or its gradient; (n,h) (n,h) */
    struct model_sequences sequences;
};

struct layer {
    struct model_layer m;
    const struct gpt2_block *block;
    int64_t width, heads; /* c, h */
    struct rf_tensor x, out, dout, din;
    struct saved s;
    struct saved_for_weight h;
    struct work w;
};

extern const struct model_steps gpt2_layer_forward, gpt2_layer_backward_input,
    gpt2_layer_backward_weight;

/* Views (n,columns) as (B,T,columns). */
int gpt2_by_sequence(const struct layer *l, struct rf_tensor t, struct rf_tensor *out);
/* Views (n,h) floats as (B,h,T). */
int gpt2_by_head(const struct layer *l, struct rf_tensor t, struct rf_tensor *out);

/* Norm of this rank's rows, and its exchange with the other ranks. `weight` is the norm's weight;
 * its bias follows. The result is kept in `kept` if norms are kept. */
int gpt2_norm(struct layer *l, enum param weight, struct rf_tensor x, struct rf_tensor kept,
              struct rf_tensor mean, struct rf_tensor rstd);
/* The result of gpt2_norm as the operand of a product, with all rows. */
struct rf_tensor gpt2_normed(const struct layer *l, struct rf_tensor kept);
/* If sequences are split, w.sequences must have the keys. */
int gpt2_attend(const struct layer *l);
struct model_context gpt2_context(const struct layer *l);
/* This rank's keys and values of qkv or of its gradient; they are adjacent. */
int gpt2_own_keys(const struct layer *l, struct rf_tensor qkv, struct rf_heads *out);
int gpt2_attention_args(const struct layer *l, struct rf_attention_args *args);
int gpt2_give_keys(struct layer *l);
/* Writes `pre` only if it has memory. */
int gpt2_widen(const struct layer *l);

#endif
