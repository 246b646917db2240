/* SPDX-License-Identifier: MIT
 *
 * A conversation of a line of data as the variables of a chat template: what transformers does to
 * messages before it renders them, and that nothing of it is lost on the way. Used by chat.c.
 */
#ifndef RF_IO_CONVERSATION_H
#define RF_IO_CONVERSATION_H

#include "../template/template.h"

/* Of one message. */
struct rf_message {
    struct rf_dict *from;      /* as the line has it */
    struct rf_dict *given;     /* as the template gets it */
    struct rf_origin *origins; /* of its keys, in their order */
    bool assistant, tool;
    bool learned; /* the assistant's, and its weight is not 0 */
};

struct rf_conversation {
    struct rf_room *room; /* of all values; the caller's */
    struct rf_value list; /* the messages, as the template gets them */
    struct rf_message *messages;
    size_t count;
    bool weighted;                    /* one of the assistant has the weight 0 */
    struct rf_value tools, documents; /* None: there are none */
    struct rf_origin tools_from, documents_from;
    struct rf_dict *more; /* chat_template_kwargs; NULL: none */
};

/* Whether the key of a line belongs to a conversation, beside "messages". */
bool rf_conversation_key(const struct rf_string *key);

/* Takes the conversation of a line, whose values are the room's. tools: those of a line without
 * them; NULL: none. where: begins the messages of errors. RF_ECORRUPT: something in it is not as it
 * has to be. */
RF_MUST_CHECK int rf_conversation_read(struct rf_room *room, const char *where,
                                       struct rf_dict *line, const struct rf_value *tools,
                                       struct rf_conversation *out);

/* Adds the variables of transformers' apply_chat_template for the first `count` messages. */
RF_MUST_CHECK int rf_conversation_variables(const struct rf_conversation *conversation,
                                            size_t count, bool prompt, struct rf_dict *out);

/* After the whole conversation was rendered: RF_ECORRUPT if the template has not written, or not
 * asked for, something that it has. */
RF_MUST_CHECK int rf_conversation_written(const struct rf_conversation *conversation,
                                          const char *where, const struct rf_template *by);

#endif
