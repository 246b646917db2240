/* SPDX-License-Identifier: MIT
 *
 * How the fields of tokenizer.json and of the files beside it are handled (ringforge/fields.h).
 * Used by load.c, load_steps.c and config.c.
 */
#ifndef RF_TOKENIZER_FIELDS_H
#define RF_TOKENIZER_FIELDS_H

#include <ringforge/fields.h>

#define RF_TOKENIZER_ADVICE "delete it if it does not change how texts are divided"

/* Lists of tables, for rf_fields.tables. */
extern const struct rf_field *const rf_tokenizer_fields[];        /* of the whole file */
extern const struct rf_field *const rf_bpe_fields[];              /* of "model" */
extern const struct rf_field *const rf_added_fields[];            /* of an added token */
extern const struct rf_field *const rf_tokenizer_config_fields[]; /* tokenizer_config.json */
extern const struct rf_field *const rf_special_fields[];          /* special_tokens_map.json */

/* The fields of a step of this type: a normalizer, pre-tokenizer, decoder or post-processor. NULL:
 * unknown type. list: the name of a Sequence's list, "normalizers". */
const struct rf_field *rf_step_fields(const char *list, const char *type);

/* Refuses an object of tokenizer.json with an unknown field; `field` is its place. */
RF_MUST_CHECK int rf_check_fields(const struct rf_field *const *tables, const char *field,
                                  const struct cJSON *json);

#endif
