/* SPDX-License-Identifier: MIT
 *
 * Encodes conversations in the form that a model was trained with: its published chat template is
 * rendered as transformers does (docs/tokenizers.md). Training and generation use the same calls.
 *
 * Thread safety: a chat belongs to one thread at a time. No call blocks.
 */
#ifndef RINGFORGE_CHAT_H
#define RINGFORGE_CHAT_H

#include "tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rf_chat;

struct rf_chat_opts {
    const struct rf_tokenizer *tokenizer; /* used until the chat is closed */
    /* A folder with chat_template.jinja, additional_chat_templates or tokenizer_config.json; NULL:
     * none. */
    const char *model;
    /* The name of a form in docs/tokenizers.md, or the path of a template, which contains a "/" or
     * a ".". NULL: the folder's template, or without one a form whose tokens the tokenizer has. */
    const char *form;
    /* The time for templates, as seconds since 1970; 0: the time of the call. */
    int64_t now;
};

/* Finds the template. A folder's template is read when a conversation needs it. Errors: RF_ENOTSUP
 * (no form of that name; no template, and no form is known for the tokenizer; a template has an
 * unsupported construct), RF_ECORRUPT (a damaged template or tokenizer_config.json), RF_EIO,
 * RF_EINVAL, RF_ENOMEM. The caller closes it. */
RF_API int rf_chat_open(const struct rf_chat_opts *opts, struct rf_chat **out);

/* NULL is allowed. */
RF_EXPORT void rf_chat_close(struct rf_chat *chat);

/* The name of the form, or the file of the template. */
RF_EXPORT const char *rf_chat_name(const struct rf_chat *chat);

struct rf_chat_request {
    const char *where; /* begins the messages of errors, such as "line 3" */
    const char *json; /* an object with "messages" and what may be beside it (docs/tokenizers.md) */
    size_t bytes;
    const char *tools; /* a JSON list for conversations without "tools"; NULL: none */
};

/* Appends the tokens of a conversation up to where the assistant is to answer. Errors:
 * RF_ECORRUPT (damaged; a key that is not used; the template refuses the conversation or leaves a
 * part out), RF_ENOTSUP, RF_ENOMEM. */
RF_API int rf_chat_prompt(struct rf_chat *chat, const struct rf_chat_request *request,
                          struct rf_token_list *out);

#ifdef __cplusplus
}
#endif
#endif
