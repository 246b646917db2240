/* SPDX-License-Identifier: MIT
 *
 * What layers do where ranks share sequences (struct rf_context_part): keys and values of all ranks
 * are gathered, put in the order of the sequence, and each rank's queries attend to those before
 * them (Llama Team 2024, section 3.3.2). Back, each rank has the gradients that its queries make of
 * all keys and values; they are added over the ranks, and each gets its own.
 */
#ifndef RF_MODELS_CONTEXT_H
#define RF_MODELS_CONTEXT_H

#include "steps.h"

/* A layer's attention: B sequences of c ranks, two chunks of s rows from each; H heads of queries
 * and K of keys and values, of size D. Of a tensor "in sequence" rows are (B, 2 c s) and have keys,
 * then values, W = 2 K D; exchanged, rows are (c, B, 2 s). */
struct model_context {
    const struct rf_ctx *ctx;
    int64_t batch, chunk;
    int64_t heads, keys, size;
};
struct model_context model_context_of(const struct rf_ctx *ctx, int64_t heads, int64_t keys,
                                      int64_t size);

/* What is in sequence, in a layer's scratch: keys and values, and in backward their gradients, of
 * this rank's second chunk, and of its first one. As cuts: of a layer whose sequences are not
 * shared all are absent. */
struct model_sequences {
    struct rf_tensor keys, grads, first;
};
#define MODEL_SEQUENCE_CUTS 3
void model_cut_sequences(const struct model_layer *m, struct model_sequences *s,
                         struct model_cut cuts[MODEL_SEQUENCE_CUTS]);

/* One of the two chunks of each of this rank's sequences, and of (n,H) floats. */
struct rf_heads model_chunk_of(struct rf_heads heads, int half);
/* Where it begins in the sequence. */
int64_t model_chunk_first(const struct model_context *c, int half);

/* Own keys and values, (B, 2 s) rows of 2 K heads, for MODEL_KEYS. */
int model_give_keys(const struct model_context *c, struct rf_heads keys);
/* Behind it: all of them, in sequence. */
int model_take_keys(const struct model_context *c, const struct model_sequences *s);
/* args: of this rank's rows; k and v are not looked at. lse (n,H), by chunks. */
int model_attend(const struct model_context *c, const struct model_sequences *s,
                 const struct rf_attention_args *args);
/* The gradient of own queries; those of all keys and values for MODEL_KEY_GRADS. grads: dk and dv
 * are not looked at. */
int model_attend_back(const struct model_context *c, const struct model_sequences *s,
                      const struct rf_attention_args *args, const struct rf_attention_grads *grads);
/* Behind it: those of own keys and values, as given. */
int model_take_key_grads(const struct model_context *c, struct rf_heads grads);

/* Rows of a table of positions (T,C) that own rows have, (2 s,C); and gradients of these to it. */
int model_own_positions(const struct rf_ctx *ctx, struct rf_tensor table, struct rf_tensor own);
int model_add_positions(const struct rf_ctx *ctx, struct rf_tensor table, struct rf_tensor own);

#endif
