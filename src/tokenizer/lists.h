/* SPDX-License-Identifier: MIT
 *
 * Appending to the lists of tokenizer.h. RF_ENOMEM leaves a list as it is.
 */
#ifndef RF_TOKENIZER_LISTS_H
#define RF_TOKENIZER_LISTS_H

#include <ringforge/tokenizer.h>

/* Reserves space for `more` elements. */
RF_MUST_CHECK int rf_token_list_reserve(struct rf_token_list *list, size_t more);
RF_MUST_CHECK int rf_token_list_add(struct rf_token_list *list, int32_t id);
RF_MUST_CHECK int rf_text_reserve(struct rf_text *text, size_t more);
RF_MUST_CHECK int rf_text_add(struct rf_text *text, const char *bytes, size_t count);

#endif
