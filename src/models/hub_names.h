/* SPDX-License-Identifier: MIT
 *
 * Patterns of names in the rows of hub_table.h: # is the layer, @ the prefix of the whole model.
 */
#ifndef RF_MODELS_HUB_NAMES_H
#define RF_MODELS_HUB_NAMES_H

#include "hub_table.h"

/* Whether a pattern matches a name; *layer: the number at #. */
bool hub_matches(const char *pattern, const char *prefix, const char *name, int *layer);
/* Writes the name of a pattern. */
void hub_name(const char *pattern, const char *prefix, int layer, char *out, size_t bytes);
/* The number of the hub's tensors for a parameter. */
int hub_parts(const struct hub_row *row);

#endif
