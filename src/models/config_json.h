/* SPDX-License-Identifier: MIT
 *
 * Configurations as JSON: config.json and adapter_config.json. Their texts are not trusted.
 * ringforge/fields.h has the tables of their fields.
 */
#ifndef RF_MODELS_CONFIG_JSON_H
#define RF_MODELS_CONFIG_JSON_H

#include <cjson/cJSON.h>

/* An object, which the caller deletes; NULL: the text is something else. */
cJSON *config_parse(const char *text);

/* The field with exactly this name; NULL: none. */
const cJSON *config_get(const cJSON *object, const char *name);

/* The text of an object with one field replaced, or added in front. Everything else is unchanged,
 * because a reprinted number could change its type, such as 8 for a float. value: as JSON. Freed
 * with free(). NULL: out of memory. */
char *config_with(const char *text, const char *name, const char *value);

/* The text without a field, if it has it. */
char *config_without(const char *text, const char *name);

#endif
