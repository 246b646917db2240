/* SPDX-License-Identifier: MIT
 *
 * Names of the modules that adapters have, by the rows of an architecture (hub_table.h). Called by
 * the models while they are built.
 */
#ifndef RF_MODELS_HUB_MODULES_H
#define RF_MODELS_HUB_MODULES_H

#include "hub_table.h"
#include "lora.h"

/* A weight of a layer, and the natural parts of its rows: queries, keys and values. */
struct hub_weight {
    const char *name; /* without "blocks.#." and ".weight": "attention.qkv" */
    int64_t in;
    int64_t rows[LORA_MODULES];
    int parts;
    bool activated; /* as in struct lora_modules */
};

/* The modules that the weight consists of in an architecture, which has a tensor for each part, or
 * one for all of them. Otherwise no modules. */
struct lora_modules hub_modules(const struct hub_arch *arch, const struct hub_weight *weight,
                                int layer);

#endif
