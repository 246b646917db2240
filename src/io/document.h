/* SPDX-License-Identifier: MIT
 *
 * Lines of data: a JSON object with "text", with "prompt" and "completion", or with "messages", as
 * tokens and which of them are learned. Used by text.c.
 */
#ifndef RF_IO_DOCUMENT_H
#define RF_IO_DOCUMENT_H

#include <ringforge/data.h>

#include "chat.h"

enum rf_line_kind { RF_LINE_TEXT, RF_LINE_COMPLETION, RF_LINE_CHAT };

/* One line after the other. Zeroed at first; freed with rf_line_free. */
struct rf_line {
    struct rf_room room; /* of its values */
    struct rf_value value;
    enum rf_line_kind kind;
    struct rf_string *text;    /* of RF_LINE_TEXT */
    struct rf_learned learned; /* of the others, after rf_line_learn */
    struct rf_token_list prompt;
    struct rf_text whole;
    struct rf_chat *chat; /* of conversations; opened with the first, or by rf_line_open */
};
void rf_line_free(struct rf_line *line);

/* Opens the chat that the options name. Errors of rf_chat_open. */
RF_MUST_CHECK int rf_line_open(struct rf_line *line, const struct rf_data_opts *opts);

/* Reads the object at text[*at], and moves *at behind it and the white space that follows. text is
 * valid UTF-8 that lasts until the next one is read. where: begins the messages of errors.
 * RF_ECORRUPT: it is no JSON object, has not what one of the kinds needs, or has a key that is not
 * used. */
RF_MUST_CHECK int rf_line_read(struct rf_line *line, const char *where, const char *text,
                               size_t bytes, size_t *at);

/* Makes the tokens of a line that is no text. end: the token for the end of a text. RF_ECORRUPT:
 * nothing to learn, and errors of rf_chat_learn. */
RF_MUST_CHECK int rf_line_learn(struct rf_line *line, const struct rf_data_opts *opts, int32_t end,
                                const char *where);

/* Whether the object has one of the keys that say what a line is. */
bool rf_line_is_document(const struct rf_dict *object);

#endif
