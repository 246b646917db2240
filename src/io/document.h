/* SPDX-License-Identifier: MIT
 *
 * Documents for fine-tuning: a JSON object with "prompt" and "completion", or with "messages", as
 * tokens and which of them are learned. Used by text.c.
 */
#ifndef RF_IO_DOCUMENT_H
#define RF_IO_DOCUMENT_H

#include <cjson/cJSON.h>
#include <ringforge/tokenizer.h>

/* Zeroed at first; the caller frees it with rf_document_free and may use it for the next one. */
struct rf_document {
    struct rf_token_list ids, prefix; /* prefix, text: working memory */
    struct rf_text text;
    uint8_t *learned; /* of each id: 1 = it is a target */
    size_t capacity;
};

void rf_document_free(struct rf_document *document);

/* Whether the object has one of these fields. */
bool rf_document_is(const cJSON *json);

/* Replaces what *out has. where: begins the messages of errors. end: the token for the end of a
 * text. RF_ECORRUPT: a field is missing, superfluous or of another type; an unknown role; a marker
 * of the chat form in a content; nothing to learn. RF_ENOTSUP: no chat form is known for the
 * tokenizer. */
RF_MUST_CHECK int rf_document_read(const struct rf_tokenizer *tokenizer, int32_t end,
                                   const char *where, const cJSON *json, struct rf_document *out);

/* ---- chat.c ---------------------------------------------------------------------------------- */

enum rf_chat_role { RF_CHAT_SYSTEM, RF_CHAT_USER, RF_CHAT_ASSISTANT, RF_CHAT_ROLES };

/* How conversations are written for a family of models. */
struct rf_chat_form {
    const char *marks[4]; /* tokens by which the form is recognized; no content may have them */
    const char *begin;    /* of a conversation */
    /* Before and after the content of each role; NULL: the form has no such turns. A turn that
     * follows one of the assistant begins with a token, as texts are encoded up to there. */
    const char *before[RF_CHAT_ROLES], *after[RF_CHAT_ROLES];
    const char *end;  /* the last token of the assistant's turn that is learned */
    bool trim, pairs; /* contents lose white space around them; user and assistant alternate */
};

/* The form for a tokenizer; NULL: none is known. */
const struct rf_chat_form *rf_chat_form_of(const struct rf_tokenizer *tokenizer);

/* -1: there is no such role. */
int rf_chat_role_of(const char *name);

/* The name of a role. */
const char *rf_chat_role_name(int role);

#endif
