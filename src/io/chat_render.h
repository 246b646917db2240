/* SPDX-License-Identifier: MIT
 *
 * The state of a chat, and the rendering of a conversation. Used by chat.c and chat_learn.c.
 */
#ifndef RF_IO_CHAT_RENDER_H
#define RF_IO_CHAT_RENDER_H

#include "chat.h"

struct rf_chat {
    const struct rf_tokenizer *tokenizer;
    int64_t now;
    const char *name;
    const struct rf_chat_form *form; /* NULL: the templates are from files */
    struct rf_template *own;         /* of the form */
    struct rf_chat_files files;
    struct rf_rendered whole, part;
    struct rf_room room; /* of prompts */
};

/* The template for a conversation: the one for tools if it exists and the conversation has tools.
 * Opened on first use. */
RF_MUST_CHECK int rf_chat_pick(struct rf_chat *chat, const struct rf_conversation *c,
                               struct rf_template **out);

/* RF_ECORRUPT: a text of the conversation contains a special token or a mark of the form. */
RF_MUST_CHECK int rf_chat_check(const struct rf_chat *chat, const char *where,
                                const struct rf_conversation *c);

/* Renders the first `count` messages. */
RF_MUST_CHECK int rf_chat_render(struct rf_chat *chat, struct rf_template *by, const char *where,
                                 const struct rf_conversation *c, size_t count, bool prompt,
                                 struct rf_rendered *out);

#endif
