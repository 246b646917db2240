/* SPDX-License-Identifier: MIT
 *
 * A transformer as a list of blocks: embedding, layers that are all the same list of operations
 * (layer.h), head. An architecture sets a struct transformer_config (gpt2.c, llama.c).
 */
#ifndef RF_MODELS_TRANSFORMER_H
#define RF_MODELS_TRANSFORMER_H

#include "layer.h"
#include "vocabulary.h"

struct transformer_config {
    struct layer_config layer;
    int layers, vocab, head_rows;
    int positions;            /* rows of the table of positions; 0: none */
    bool tied;                /* the head is the table of tokens */
    const char *architecture; /* hub_table.h */
    /* Names of parameters: the table of tokens and that of positions; the last norm; the head. */
    const char *tokens, *places, *norm;
};

struct transformer {
    struct transformer_config config;
    struct model_embedding embedding;
    struct model_head head;
    struct model_blocks model;
    struct layer_block *layers;
};

/* RF_EINVAL: a list that cannot be computed, types, an unknown architecture. Sizes are the caller's
 * to check. */
RF_MUST_CHECK int transformer_check(const struct transformer_config *config);
/* For a config that has passed. text: rf_block.config, at most 490 bytes. The config is copied, but
 * for what it points to. RF_EINVAL: an adapter that matches no module. RF_ENOMEM. *t is empty then.
 */
RF_MUST_CHECK int transformer_create(struct transformer *t, const struct transformer_config *config,
                                     const char *text);
void transformer_destroy(struct transformer *t);
int transformer_adapter_modules(const struct transformer *t, struct model_adapter_module *out,
                                int capacity);

#endif
