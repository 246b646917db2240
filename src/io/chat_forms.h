/* SPDX-License-Identifier: MIT
 *
 * The forms of conversations that have a name, as templates. Used by chat.c.
 */
#ifndef RF_IO_CHAT_FORMS_H
#define RF_IO_CHAT_FORMS_H

#include <stdbool.h>

struct rf_chat_form {
    const char *name, *text;
    const char *tokens[4]; /* that the tokenizer has to have */
    const char *marks[4];  /* no content may have them; they may be no tokens */
    bool by_tokens;        /* without a template it is recognized by its marks, if all are tokens */
};

/* The last one has no name. */
extern const struct rf_chat_form rf_chat_forms[];

#endif
