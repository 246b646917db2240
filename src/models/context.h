/* SPDX-License-Identifier: MIT
 *
 * Attention of layers whose sequences are split over ranks (struct rf_context_part). The keys and
 * values of all ranks are gathered and put in sequence order. The queries of each rank attend to
 * the keys before them (Llama Team 2024, section 3.3.2). In the backward pass each rank computes
 * the gradients of all keys and values from its own queries. They are added over the ranks, and
 * each rank gets those of its own keys and values.
 */
#ifndef RF_MODELS_CONTEXT_H
#define RF_MODELS_CONTEXT_H

#include "steps.h"

/* Sizes of a layer's attention: B sequences on c ranks, with two chunks of s rows on each rank; H
 * heads of queries and K heads of keys and values, of size D. A tensor in sequence order has rows
 * (B, 2 c s) of keys, then values, with W = 2 K D columns. An exchanged tensor
 * has rows (c, B, 2 s). */
struct model_context {
    const struct rf_ctx *ctx;
    int64_t batch, chunk;
    int64_t heads, keys, size;
};
struct model_context model_context_of(const struct rf_ctx *ctx, int64_t heads, int64_t keys,
                                      int64_t size);

/* Tensors in sequence order, in a layer's scratch: keys and values, and in backward their gradients
 * from this rank's second and first chunk of queries. All cuts are absent in a layer whose
 * sequences are not split. */
struct model_sequences {
    struct rf_tensor keys, grads, first;
};
#define MODEL_SEQUENCE_CUTS 3
void model_cut_sequences(const struct model_layer *m, struct model_sequences *s,
                         struct model_cut cuts[MODEL_SEQUENCE_CUTS]);

/* The first or the second chunk of each of this rank's sequences. */
struct rf_heads model_chunk_of(struct rf_heads heads, int half);
/* The position of the chunk's begin in the sequence. */
int64_t model_chunk_first(const struct model_context *c, int half);

/* Writes this rank's keys and values, (B, 2 s) rows of 2 K heads, for the exchange MODEL_KEYS. */
int model_write_keys(const struct model_context *c, struct rf_heads keys);
/* After the exchange: puts all keys and values in sequence order. */
int model_order_keys(const struct model_context *c, const struct model_sequences *s);
/* args describes this rank's rows; its k and v are ignored. lse is (n,H), chunk after chunk. */
int model_attend(const struct model_context *c, const struct model_sequences *s,
                 const struct rf_attention_args *args);
/* Computes the gradient of this rank's queries, and writes those of all keys and values for the
 * exchange MODEL_KEY_GRADS. dk and dv of grads are ignored. */
int model_attend_back(const struct model_context *c, const struct model_sequences *s,
                      const struct rf_attention_args *args, const struct rf_attention_grads *grads);
/* After the exchange: the gradients of this rank's keys and values. */
int model_read_key_grads(const struct model_context *c, struct rf_heads grads);

/* Copies the rows of a table of positions (T,C) that belong to this rank's tokens into `own` (2
 * s,C), or adds the gradients in `own` to the table. */
int model_own_positions(const struct rf_ctx *ctx, struct rf_tensor table, struct rf_tensor own);
int model_add_positions(const struct rf_ctx *ctx, struct rf_tensor table, struct rf_tensor own);

#endif
