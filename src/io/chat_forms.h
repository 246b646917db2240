/* SPDX-License-Identifier: MIT
 *
 * The named forms of conversations, as templates. Used by chat.c.
 */
#ifndef RF_IO_CHAT_FORMS_H
#define RF_IO_CHAT_FORMS_H

#include <stdbool.h>

struct rf_chat_form {
    const char *name, *text;
    const char *tokens[4]; /* that the tokenizer must have */
    const char *marks[4];  /* forbidden in contents; they need not be tokens */
    bool by_tokens;        /* used without a template if the tokenizer has all marks as tokens */
};

/* The last element has no name. */
extern const struct rf_chat_form rf_chat_forms[];

#endif
