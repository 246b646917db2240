/* SPDX-License-Identifier: MIT
 *
 * The conversation of a line of data as the variables of a chat template. Does what transformers
 * does to messages before it renders them, and checks that the template loses nothing. Used by
 * chat.c.
 */
#ifndef RF_IO_CONVERSATION_H
#define RF_IO_CONVERSATION_H

#include "../template/template.h"

/* One message. */
struct rf_message {
    struct rf_dict *from;      /* as the line has it */
    struct rf_dict *given;     /* as the template gets it */
    struct rf_origin *origins; /* of its keys, in their order */
    bool assistant, tool;
    bool learned; /* an assistant's message with weight 1 */
};

struct rf_conversation {
    struct rf_room *room; /* of all values; the caller's */
    struct rf_value list; /* the messages, as the template gets them */
    struct rf_message *messages;
    size_t count;
    bool weighted;                    /* an assistant's message has weight 0 */
    struct rf_value tools, documents; /* None: absent */
    struct rf_origin tools_from, documents_from;
    struct rf_dict *more; /* chat_template_kwargs; NULL: none */
};

/* Whether a key of a line, other than "messages", belongs to a conversation. */
bool rf_conversation_key(const struct rf_string *key);

/* Reads the conversation of a line, whose values are in the room. tools: for a line without its
 * own; NULL: none. where: begins error messages. RF_ECORRUPT: invalid. */
RF_MUST_CHECK int rf_conversation_read(struct rf_room *room, const char *where,
                                       struct rf_dict *line, const struct rf_value *tools,
                                       struct rf_conversation *out);

/* Adds the variables of transformers' apply_chat_template for the first `count` messages. */
RF_MUST_CHECK int rf_conversation_variables(const struct rf_conversation *conversation,
                                            size_t count, bool prompt, struct rf_dict *out);

/* Call after the whole conversation was rendered. RF_ECORRUPT if the template did not write, or did
 * not read, a part of it. */
RF_MUST_CHECK int rf_conversation_written(const struct rf_conversation *conversation,
                                          const char *where, const struct rf_template *by);

#endif
