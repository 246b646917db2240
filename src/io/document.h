/* SPDX-License-Identifier: MIT
 *
 * Documents for fine-tuning: a JSON object with "prompt" and "completion", or with "messages", as
 * tokens and which of them are learned. Used by text.c.
 */
#ifndef RF_IO_DOCUMENT_H
#define RF_IO_DOCUMENT_H

#include <cjson/cJSON.h>

#include "chat.h"

/* Zeroed at first; the caller frees it with rf_document_free and may use it for the next one. */
struct rf_document {
    struct rf_token_list ids, prefix; /* prefix, text: working memory */
    struct rf_text text;
    uint8_t *learned; /* of each id: 1 = it is a target */
    size_t capacity;
    const struct rf_chat_form *form; /* of conversations; found with the first */
    bool carried; /* text begins with the last token of ids, which is not added again */
};

void rf_document_free(struct rf_document *document);

/* Whether the object has one of these fields. */
bool rf_document_is(const cJSON *json);

/* The bytes of a text. In it, cJSON has RF_ZERO_CHARACTER for each zero character, which it could
 * not have itself; here they become zeros, so a text may be asked for once. NULL: it is no text. */
const char *rf_document_bytes(cJSON *item, size_t *bytes);
#define RF_ZERO_CHARACTER "\xc0\x80" /* never in UTF-8 */

/* Replaces what *out has, which has to be used with the same options each time. where: begins the
 * messages of errors. end: the token for the end of a text. json is changed. RF_ECORRUPT: a field
 * is missing, superfluous or of another type; an unknown role, or one that may not follow; a mark
 * of the chat form in a content; nothing to learn. Errors of rf_chat_form_find. */
RF_MUST_CHECK int rf_document_read(const struct rf_data_opts *opts, int32_t end, const char *where,
                                   const cJSON *json, struct rf_document *out);

#endif
