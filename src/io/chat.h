/* SPDX-License-Identifier: MIT
 *
 * The forms in which families of models write conversations. Used by document.c.
 */
#ifndef RF_IO_CHAT_H
#define RF_IO_CHAT_H

#include <ringforge/data.h>

enum rf_chat_role { RF_CHAT_SYSTEM, RF_CHAT_USER, RF_CHAT_ASSISTANT, RF_CHAT_ROLES };

struct rf_chat_form {
    const char *name;
    const char *published[3]; /* parts of the published template by which it is recognized */
    const char *marks[4];     /* no content may have them */
    bool by_tokens;    /* without a template it is recognized by its marks, if they are tokens */
    const char *begin; /* of a conversation; a token, or nothing */
    /* Before and after the content of each role; NULL: the form has no such turns. */
    const char *before[RF_CHAT_ROLES], *after[RF_CHAT_ROLES];
    const char *end;          /* in after[RF_CHAT_ASSISTANT]: the last token that is learned */
    bool trim[RF_CHAT_ROLES]; /* contents lose white space around them */
    /* User and assistant alternate, and nothing asks for an answer: what is before it is learned
     * with it. */
    bool pairs;
    bool inside; /* what the system says is a part of the first turn of the user */
};

/* The form of opts->chat, opts->model or opts->tokenizer, see data.h. where: begins the messages of
 * errors. RF_ENOTSUP: it is not known, or needs a token that the tokenizer does not have; the
 * message lists all forms. RF_ECORRUPT: tokenizer_config.json is damaged. */
RF_MUST_CHECK int rf_chat_form_find(const struct rf_data_opts *opts, const char *where,
                                    const struct rf_chat_form **out);

/* -1: there is no such role. */
int rf_chat_role_of(const char *name);

/* The name of a role. */
const char *rf_chat_role_name(int role);

#endif
