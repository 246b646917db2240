/* SPDX-License-Identifier: MIT
 *
 * Names of the modules that adapters have, by the rows of an architecture (hub_table.h). Called by
 * the models while they are built.
 */
#ifndef RF_MODELS_HUB_MODULES_H
#define RF_MODELS_HUB_MODULES_H

#include "hub_table.h"
#include "lora.h"

/* The modules of the weight in an architecture that has a tensor for each part, or one for all of
 * them. Otherwise no modules. */
struct lora_modules hub_modules(const struct hub_arch *arch, const struct lora_weight *weight,
                                int layer);

#endif
