/* SPDX-License-Identifier: MIT
 *
 * One call of a layer of a Llama-style model: declarations shared by its forward and backward
 * files.
 */
#ifndef RF_MODELS_LLAMA_LAYER_H
#define RF_MODELS_LLAMA_LAYER_H

#include "context.h"
#include "linear.h"
#include "llama_internal.h"
#include "steps.h"

enum param { NORM1, QKV, PROJ, NORM2, GATE_UP, DOWN };

/* Sizes: n rows, of which this rank has n' (fewer with sequence parallelism); C channels, H heads
 * of size D, K heads of keys and values, F hidden channels. Each of t tensor ranks has h = H/t, f =
 * F/t, and k = K/t, or k = 1 where several ranks have a copy of a key head. c = hD, q = (h+2k)D.
 */

/* Results of forward. All but the recomputed ones are kept. */
struct saved {
    struct rf_tensor norm1, rstd1;    /* (n',C) (n') */
    struct rf_tensor qkv, mixed, lse; /* (n,q), rotated; (n,c) (n,h) */
    struct rf_tensor q, k;            /* (n,c) (n,kD): before their norms; only with these */
    struct rf_tensor q_rstd, k_rstd;  /* (n,h) (n,k) */
    struct rf_tensor middle;          /* (n',C): x + attention */
    struct rf_tensor norm2, rstd2;
    struct rf_tensor gates, act; /* (n,2f): gate and up; (n,f) */
};
/* Values that backward_input keeps for backward_weight, in the operand type of products. */
struct saved_for_weight {
    struct rf_tensor dgates, dmiddle, dqkv; /* (n,2f) (n,C) (n,q) */
    struct rf_tensor dq, dk;                /* (n,c) (n,kD): of the norms' outputs, as q and k */
    struct rf_tensor dnorm1, dnorm2;        /* (n',C) */
    struct rf_tensor dout;       /* (n,C): if the residual stream has another type or is sharded */
    struct rf_tensor mixed, act; /* (n,c) (n,f): if attention or the gated unit is recomputed */
};
/* Scratch of a phase: operands of products that are not kept; the tensors of attention; the
 * gradient of the gated unit's output. Each group begins at the start of the scratch. */
struct work {
    struct rf_tensor norm, rstd, gates, act; /* (n',C) (n') (n,2f) (n,f) */
    struct rf_tensor mixed, delta, lse;      /* (n,c), or its gradient; (n,h) (n,h) */
    struct rf_tensor dact;                   /* (n,f) */
    struct model_sequences sequences;
};

struct layer {
    struct model_layer m;
    const struct llama_config *g;
    const struct llama_block *block;
    int64_t heads, keys, size, hidden; /* h, k, D, f */
    struct rf_tensor x, out, dout, din;
    struct saved s;
    struct saved_for_weight h;
    struct work w;
};

extern const struct model_steps llama_layer_forward, llama_layer_backward_input,
    llama_layer_backward_weight;

/* Heads of a packed tensor, or of an (n,c) tensor. */
int llama_heads(const struct layer *l, struct rf_tensor t, int64_t first, int64_t heads,
                struct rf_heads *out);
/* Views (n,h) floats as (B,h,T). */
int llama_by_head(const struct layer *l, struct rf_tensor t, struct rf_tensor *out);
/* If sequences are split, the arguments describe this rank's rows, and lse stays (n,h). */
int llama_attention_args(const struct layer *l, struct rf_attention_args *args);
/* The queries, or the keys, with their norm, if they have one. */
struct llama_normed_heads {
    int weight;               /* index of the parameter */
    int64_t first, heads;     /* in the packed tensor */
    struct rf_tensor x, rstd; /* as saved */
    struct rf_tensor dout;    /* in saved_for_weight */
};
struct llama_normed_heads llama_head_norm(const struct layer *l, bool keys);
/* A tensor as large as these heads in the memory of w.mixed or s.mixed, which is not in use. */
int llama_free_heads(const struct layer *l, struct rf_tensor mixed,
                     const struct llama_normed_heads *of, struct rf_tensor *out);
/* Each head as a row, for the kernels of norms. */
int llama_head_rows(const struct layer *l, struct rf_tensor t, struct rf_tensor *out);
/* out = the heads x of this rank's rows, rotated, or rotated back. out may be x. */
int llama_turn(const struct layer *l, struct rf_heads out, struct rf_heads x, bool back);
struct model_context llama_context(const struct layer *l);
/* This rank's keys and values of qkv or of its gradient; they are adjacent. */
int llama_own_keys(const struct layer *l, struct rf_tensor qkv, struct rf_heads *out);
int llama_give_keys(struct layer *l);

/* Norm of this rank's rows, and its exchange with the other ranks. The result is kept in `kept` if
 * norms are kept. */
int llama_norm(struct layer *l, enum param weight, struct rf_tensor x, struct rf_tensor kept,
               struct rf_tensor rstd);
/* The result of llama_norm as the operand of a product, with all rows. */
struct rf_tensor llama_normed(const struct layer *l, struct rf_tensor kept);
/* Norms, if there are any, and rotation of the queries and keys of s.qkv. */
int llama_place(const struct layer *l);
/* If sequences are split, w.sequences must have the keys. */
int llama_attend(const struct layer *l);
int llama_gate(const struct layer *l);
int llama_widen(const struct layer *l);

#endif
