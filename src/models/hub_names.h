/* SPDX-License-Identifier: MIT
 *
 * Patterns of names in the rows of hub_table.h: # is the layer, @ the prefix of the whole model.
 */
#ifndef RF_MODELS_HUB_NAMES_H
#define RF_MODELS_HUB_NAMES_H

#include "hub_table.h"

/* Whether a name is that of a pattern; *layer: the number at #. */
bool hub_matches(const char *pattern, const char *prefix, const char *name, int *layer);
/* The name of a pattern. */
void hub_name(const char *pattern, const char *prefix, int layer, char *out, size_t bytes);
/* How many tensors of the hub a parameter consists of. */
int hub_parts(const struct hub_row *row);

#endif
