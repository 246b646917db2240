/* SPDX-License-Identifier: MIT
 *
 * A layer of a GPT-2 in a call: what its forward and backward files share.
 */
#ifndef RF_MODELS_GPT2_LAYER_H
#define RF_MODELS_GPT2_LAYER_H

#include "context.h"
#include "gpt2_internal.h"
#include "steps.h"

enum param { LN1_W, LN1_B, QKV_W, QKV_B, PROJ_W, PROJ_B, LN2_W, LN2_B, FC_W, FC_B, FC2_W, FC2_B };

/* n rows, of which this rank has n' (fewer with sequence parallelism); C channels, H heads. Of t
 * tensor ranks each has c = C/t of the channels inside the halves, and h = H/t heads. */

/* What forward makes. All but what is recomputed is kept. */
struct saved {
    struct rf_tensor norm1, mean1, rstd1; /* (n',C) (n') (n') */
    struct rf_tensor qkv, mixed, lse;     /* (n,3c) (n,c) (n,h) */
    struct rf_tensor middle;              /* (n',C): x + attention */
    struct rf_tensor norm2, mean2, rstd2;
    struct rf_tensor pre, act; /* (n,4c) */
};
/* What backward_input keeps for backward_weight, all in the type of products. */
struct saved_for_weight {
    struct rf_tensor dact, dqkv, dmiddle; /* (n,4c) (n,3c) (n,C) */
    struct rf_tensor dnorm1, dnorm2;      /* (n',C) */
    struct rf_tensor dout;       /* (n,C): where the residual stream has another type or is cut */
    struct rf_tensor mixed, act; /* (n,c) (n,4c): kept where attention or the MLP is recomputed */
};
/* What lives inside a phase, in scratch: `operands` of products, which are not kept, and what
 * attention uses, each from the start. */
struct work {
    struct rf_tensor norm, mean, rstd, act; /* (n',C) (n') (n') (n,4c) */
    struct rf_tensor mixed, delta, lse;     /* (n,c), or its gradient; (n,h) (n,h) */
    struct model_sequences sequences;
};

struct layer {
    struct model_layer m;
    int64_t width, heads; /* c, h */
    struct rf_tensor x, out, dout, din;
    struct saved s;
    struct saved_for_weight h;
    struct work w;
};

extern const struct model_steps gpt2_layer_forward, gpt2_layer_backward_input,
    gpt2_layer_backward_weight;

/* (B,T,columns) of (n,columns). */
int gpt2_by_sequence(const struct layer *l, struct rf_tensor t, struct rf_tensor *out);
/* (B,h,T) of (n,h) floats: the same count. */
int gpt2_by_head(const struct layer *l, struct rf_tensor t, struct rf_tensor *out);

/* Norm of own rows, by the norm's weight and the bias behind it, given to the other ranks; kept
 * where norms are kept. */
int gpt2_norm(struct layer *l, enum param weight, struct rf_tensor x, struct rf_tensor kept,
              struct rf_tensor mean, struct rf_tensor rstd);
/* Where that is for a product, with all rows. */
struct rf_tensor gpt2_normed(const struct layer *l, struct rf_tensor kept);
/* Where sequences are shared: with keys in w.sequences. */
int gpt2_attend(const struct layer *l);
struct model_context gpt2_context(const struct layer *l);
/* Own keys and values side by side, of qkv or its gradient. */
int gpt2_own_keys(const struct layer *l, struct rf_tensor qkv, struct rf_heads *out);
int gpt2_attention_args(const struct layer *l, struct rf_attention_args *args);
int gpt2_give_keys(struct layer *l);
/* pre only where there is room for it. */
int gpt2_widen(const struct layer *l);

#endif
