/* SPDX-License-Identifier: MIT
 *
 * The files beside tokenizer.json that describe its tokens. Called by load.c.
 */
#ifndef RF_TOKENIZER_CONFIG_H
#define RF_TOKENIZER_CONFIG_H

#include <cjson/cJSON.h>

#include "internal.h"

/* The files; NULL if absent from the folder. */
struct rf_tokenizer_files {
    cJSON *config;  /* tokenizer_config.json */
    cJSON *special; /* special_tokens_map.json */
    cJSON *added;   /* added_tokens.json */
};

/* Adds the tokens that the files name and tokenizer.json lacks, with the ids and flags that
 * transformers gives them, and finds the tokens with a role. RF_EINVAL: a field is unknown, or
 * contradicts tokenizer.json. RF_ECORRUPT: a file is not a JSON object. The files are not trusted.
 */
RF_MUST_CHECK int rf_load_config(struct rf_tokenizer *tokenizer,
                                 const struct rf_tokenizer_files *files);

#endif
