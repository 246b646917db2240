/* SPDX-License-Identifier: MIT
 *
 * A layer of a Llama-style model in a call: what its forward and backward files share.
 */
#ifndef RF_MODELS_LLAMA_LAYER_H
#define RF_MODELS_LLAMA_LAYER_H

#include "context.h"
#include "llama_internal.h"
#include "steps.h"

enum param { NORM1, QKV, PROJ, NORM2, GATE_UP, DOWN };

/* n rows, of which this rank has n' (fewer with sequence parallelism); C channels, H heads of size
 * D, K of keys and values, F hidden. Of t tensor ranks each has c = C/t, h = H/t, f = F/t, and k =
 * K/t, or 1 where several ranks have copies of a head of keys; q = (h+2k)D. */

/* What forward makes. All but what is recomputed is kept. */
struct saved {
    struct rf_tensor norm1, rstd1;    /* (n',C) (n') */
    struct rf_tensor qkv, mixed, lse; /* (n,q), turned; (n,c) (n,h) */
    struct rf_tensor middle;          /* (n',C): x + attention */
    struct rf_tensor norm2, rstd2;
    struct rf_tensor gates, act; /* (n,2f): gate and up; (n,f) */
};
/* What backward_input keeps for backward_weight, all in the type of products. */
struct saved_for_weight {
    struct rf_tensor dgates, dmiddle, dqkv; /* (n,2f) (n,C) (n,q) */
    struct rf_tensor dnorm1, dnorm2;        /* (n',C) */
    struct rf_tensor dout;       /* (n,C): where the residual stream has another type or is cut */
    struct rf_tensor mixed, act; /* (n,c) (n,f): kept where attention or the unit is recomputed */
};
/* What lives inside a phase, in scratch: `operands` of products, which are not kept; what attention
 * uses; and the gradient of the unit's output. Each from the start. */
struct work {
    struct rf_tensor norm, rstd, gates, act; /* (n',C) (n') (n,2f) (n,f) */
    struct rf_tensor mixed, delta, lse;      /* (n,c), or its gradient; (n,h) (n,h) */
    struct rf_tensor dact;                   /* (n,f) */
    struct model_sequences sequences;
};

struct layer {
    struct model_layer m;
    const struct llama_config *g;
    int64_t heads, keys, size, hidden; /* h, k, D, f */
    struct rf_tensor x, out, dout, din;
    struct saved s;
    struct saved_for_weight h;
    struct work w;
};

extern const struct model_steps llama_layer_forward, llama_layer_backward_input,
    llama_layer_backward_weight;

/* Heads of a packed tensor, or of one of (n,c). */
int llama_heads(const struct layer *l, struct rf_tensor t, int64_t first, int64_t heads,
                struct rf_heads *out);
/* (B,h,T) of (n,h) floats: the same count. */
int llama_by_head(const struct layer *l, struct rf_tensor t, struct rf_tensor *out);
/* Where sequences are shared: of own rows, and lse is not cut into heads. */
int llama_attention_args(const struct layer *l, struct rf_attention_args *args);
/* Queries and keys of qkv, or its gradient, turned or turned back, in place. */
int llama_turn(const struct layer *l, struct rf_tensor qkv, bool back);
struct model_context llama_context(const struct layer *l);
/* Own keys and values side by side, of qkv or its gradient. */
int llama_own_keys(const struct layer *l, struct rf_tensor qkv, struct rf_heads *out);
int llama_give_keys(struct layer *l);

/* Norm of own rows, given to the other ranks; kept where norms are kept. */
int llama_norm(struct layer *l, enum param weight, struct rf_tensor x, struct rf_tensor kept,
               struct rf_tensor rstd);
/* Where that is for a product, with all rows. */
struct rf_tensor llama_normed(const struct layer *l, struct rf_tensor kept);
/* Where sequences are shared: with keys in w.sequences. */
int llama_attend(const struct layer *l);
int llama_gate(const struct layer *l);
int llama_widen(const struct layer *l);

#endif
