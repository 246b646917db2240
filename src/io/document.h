/* SPDX-License-Identifier: MIT
 *
 * Lines of data: JSON objects with "text", with "prompt" and "completion", or with "messages".
 * Gives their tokens, and marks those that are learned. Used by text.c.
 */
#ifndef RF_IO_DOCUMENT_H
#define RF_IO_DOCUMENT_H

#include <ringforge/data.h>

#include "chat.h"

enum rf_line_kind { RF_LINE_TEXT, RF_LINE_COMPLETION, RF_LINE_CHAT };

/* The current line. Zeroed at first; freed with rf_line_free. */
struct rf_line {
    struct rf_room room; /* of its values */
    struct rf_value value;
    enum rf_line_kind kind;
    struct rf_string *text;    /* of RF_LINE_TEXT */
    struct rf_learned learned; /* of the others, after rf_line_learn */
    struct rf_token_list prompt;
    struct rf_text whole;
    struct rf_chat *chat; /* for conversations; opened with the first one, or by rf_line_open */
};
void rf_line_free(struct rf_line *line);

/* Opens the chat form that the options name. Errors of rf_chat_open. */
RF_MUST_CHECK int rf_line_open(struct rf_line *line, const struct rf_data_opts *opts);

/* Reads the object at text[*at], and moves *at past it and the white space after it. text is valid
 * UTF-8 and must last until the next line is read. where: begins error messages. RF_ECORRUPT: not a
 * JSON object, a key that its kind needs is absent, or a key is unused. */
RF_MUST_CHECK int rf_line_read(struct rf_line *line, const char *where, const char *text,
                               size_t bytes, size_t *at);

/* Encodes a line that is not plain text. end: the end-of-text token. RF_ECORRUPT: nothing to learn,
 * and errors of rf_chat_learn. */
RF_MUST_CHECK int rf_line_learn(struct rf_line *line, const struct rf_data_opts *opts, int32_t end,
                                const char *where);

/* Whether the object has a key that determines a line's kind. */
bool rf_line_is_document(const struct rf_dict *object);

#endif
