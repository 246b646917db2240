/* SPDX-License-Identifier: MIT
 *
 * Fields of a JSON object, with messages that name them. Used by load.c and load_steps.c.
 */
#ifndef RF_TOKENIZER_JSON_H
#define RF_TOKENIZER_JSON_H

#include <cjson/cJSON.h>
#include <ringforge/status.h>
#include <stdbool.h>

enum { RF_FIELD = 128 };

/* Parses a whole file; `text` is zero-terminated. RF_ECORRUPT: not JSON in UTF-8, nested more than
 * 64 deep, or with a zero character. */
RF_MUST_CHECK int rf_json_parse(const char *path, const char *text, size_t bytes, cJSON **out);

/* "parent.name", or "parent[3]". */
void rf_json_name(char out[RF_FIELD], const char *parent, const char *name);

/* RF_ECORRUPT: the field is absent, or of another type (cJSON_Object, ...). */
RF_MUST_CHECK int rf_json_get(const cJSON *json, const char *field, const char *name, int type,
                              const cJSON **out);
RF_MUST_CHECK int rf_json_text(const cJSON *json, const char *field, const char *name,
                               const char **out);
/* absent: 0 or 1, the value of a missing or null field; -1: it is required. */
RF_MUST_CHECK int rf_json_bool(const cJSON *json, const char *field, const char *name, int absent,
                               bool *out);
/* A whole number from 0 to most. */
RF_MUST_CHECK int rf_json_int(const cJSON *json, const char *field, const char *name, int most,
                              int *out);
RF_MUST_CHECK int rf_json_copy(const char *field, const char *text, char **out);

#endif
