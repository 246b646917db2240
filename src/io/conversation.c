/* SPDX-License-Identifier: MIT
 *
 * Conversations as variables of a chat template; see conversation.h.
 */
#include "conversation.h"

#include "../base/base.h"
#include "../template/letters.h"
#include "../tokenizer/utf8.h"

/* ---- what may be in a message ---------------------------------------------------------------- */

static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};

/* What the template must do with a key so that nothing is lost. All other keys must be read. */
static const struct {
    const char *key;
    enum { MUST_BE_WRITTEN, MUST_BE_READ, MAY_BE_LEFT } wanted;
} keys[] = {
    {"role", MAY_BE_LEFT}, /* it determines how the rest is rendered */
    {"content", MUST_BE_WRITTEN},
    {"tool_calls", MUST_BE_WRITTEN},
    {"name", MUST_BE_WRITTEN},
    {"reasoning_content", MUST_BE_READ}, /* templates omit it for earlier answers */
    {"thinking", MUST_BE_READ},
    {"reasoning", MUST_BE_READ},
    {"tool_call_id", MAY_BE_LEFT}, /* results follow their calls in order */
};

static const char *const reasoning[] = {"reasoning_content", "thinking", "reasoning"};

static bool is_any(const struct rf_string *text, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (rf_string_is(text, names[i]))
            return true;
    return false;
}

bool rf_conversation_key(const struct rf_string *key)
{
    static const char *const names[] = {"messages", "tools", "documents", "chat_template_kwargs"};
    return is_any(key, names, 4);
}

static int fail(const char *where, size_t message, const char *what)
{
    return rf_fail(RF_ECORRUPT, "%s: message %zu %s", where, message, what);
}

/* ---- texts ----------------------------------------------------------------------------------- */

/* Sets the origin of all texts of a value, keys included. */
static void mark(struct rf_value *value, struct rf_origin *from)
{
    if (value->kind == RF_V_STRING)
        value->string->from = from;
    for (size_t i = 0; value->kind == RF_V_LIST && i < value->list->count; i++)
        mark(&value->list->items[i], from);
    for (size_t i = 0; value->kind == RF_V_DICT && i < value->dict->count; i++) {
        value->dict->pairs[i].key.string->from = from;
        mark(&value->dict->pairs[i].value, from);
    }
}

/* Whether it contains anything but white space. */
static bool has_text(const struct rf_value *value)
{
    if (value->kind == RF_V_STRING) {
        const struct rf_string *text = value->string;
        for (size_t i = 0; i < text->count; i += rf_utf8_length(text->bytes[i]))
            if (!rf_letter_is_space(rf_utf8_read(text->bytes + i)))
                return true;
        return false;
    }
    if (value->kind == RF_V_DICT)
        return value->dict->count > 0;
    for (size_t i = 0; value->kind == RF_V_LIST && i < value->list->count; i++)
        if (has_text(&value->list->items[i]))
            return true;
    return false;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int read_role(const char *where, size_t index, struct rf_dict *from, struct rf_message *out)
{
    const struct rf_pair *role = rf_dict_get(from, "role");
    const bool text = role && role->value.kind == RF_V_STRING;
    if (!text)
        return fail(where, index, role ? "has a \"role\" that is no text" : "has no \"role\"");
    if (!is_any(role->value.string, roles, sizeof(roles) / sizeof(roles[0])))
        return rf_fail(RF_ECORRUPT,
                       "%s: message %zu: there is no role \"%.*s\"; use system, developer, user, "
                       "assistant, tool",
                       where, index,
                       (int)(role->value.string->count < 40 ? role->value.string->count : 40),
                       role->value.string->bytes);
    out->assistant = rf_string_is(role->value.string, "assistant");
    out->tool = rf_string_is(role->value.string, "tool");
    return 0;
}

/* 0 or 1: whether the loss includes the message. */
static int read_weight(const char *where, size_t index, const struct rf_value *weight,
                       struct rf_message *out)
{
    const double value = rf_is_number(weight) ? rf_as_real(weight) : -1;
    if (value != 0 && value != 1)
        return fail(where, index, "has a \"weight\" that is neither 0 nor 1");
    if (value == 1 && !out->assistant)
        return fail(where, index,
                    "has the weight 1, and is not the assistant's: only what the "
                    "assistant writes is learned; take the weight out");
    out->learned = out->assistant && value == 1;
    return 0;
}

/* Parts of a content must be texts; the result of a tool may be any list. */
static int check_parts(const char *where, size_t index, const struct rf_value *content)
{
    for (size_t i = 0; content->kind == RF_V_LIST && i < content->list->count; i++) {
        const struct rf_value *part = &content->list->items[i];
        const struct rf_pair *type =
            part->kind == RF_V_DICT ? rf_dict_get(part->dict, "type") : NULL;
        if (type && type->value.kind == RF_V_STRING && !rf_string_is(type->value.string, "text"))
            return rf_fail(RF_ECORRUPT,
                           "%s: message %zu has a part of the type \"%.*s\"; only parts of the "
                           "type \"text\" are learned from",
                           where, index,
                           (int)(type->value.string->count < 40 ? type->value.string->count : 40),
                           type->value.string->bytes);
    }
    return 0;
}

/* The first of the three names that has a value; NULL: none. */
static const struct rf_value *reasoning_of(struct rf_dict *from)
{
    for (int i = 0; i < 3; i++) {
        const struct rf_pair *pair = rf_dict_get(from, reasoning[i]);
        if (pair && pair->value.kind != RF_V_NONE)
            return &pair->value;
    }
    return NULL;
}

static int put(struct rf_room *room, struct rf_dict *dict, const char *key, struct rf_value value)
{
    struct rf_string *name = rf_string_from(room, key);
    if (!name)
        return rf_last_error()->status;
    return rf_dict_put(room, dict, rf_string_value(name), value);
}

/* Makes the message that the template gets: without keys that have no value, and with reasoning
 * under both names that templates read. */
static int give(struct rf_room *room, struct rf_dict *from, struct rf_message *out)
{
    const struct rf_value *thought = reasoning_of(from);
    struct rf_value given;
    RETURN_IF_ERROR(rf_dict_make(room, RF_V_DICT, &given));
    if (thought)
        RETURN_IF_ERROR(put(room, given.dict, "thinking", *thought));
    for (size_t i = 0; i < from->count; i++)
        if (from->pairs[i].value.kind != RF_V_NONE &&
            !rf_string_is(from->pairs[i].key.string, "weight"))
            RETURN_IF_ERROR(
                rf_dict_put(room, given.dict, from->pairs[i].key, from->pairs[i].value));
    if (thought)
        RETURN_IF_ERROR(put(room, given.dict, "reasoning_content", *thought));
    out->from = from;
    out->given = given.dict;
    out->origins = rf_room_take(room, (given.dict->count + 1) * sizeof(*out->origins));
    given.dict->read = rf_room_take(room, (given.dict->count + 1) * sizeof(bool));
    if (!out->origins || !given.dict->read)
        return rf_last_error()->status;
    for (size_t i = 0; i < given.dict->count; i++) {
        struct rf_pair *pair = &given.dict->pairs[i];
        out->origins[i].in_parts = pair->value.kind == RF_V_LIST && !out->tool &&
                                   rf_string_is(pair->key.string, "content");
        mark(&pair->value, &out->origins[i]);
    }
    return 0;
}

static int read_message(struct rf_conversation *c, const char *where, struct rf_value *item,
                        size_t at)
{
    struct rf_message *message = &c->messages[at];
    if (item->kind != RF_V_DICT)
        return fail(where, at + 1, "is not an object");
    struct rf_dict *from = item->dict;
    RETURN_IF_ERROR(read_role(where, at + 1, from, message));
    message->learned = message->assistant;
    const struct rf_pair *weight = rf_dict_get(from, "weight");
    const struct rf_pair *content = rf_dict_get(from, "content");
    if (weight && weight->value.kind != RF_V_NONE)
        RETURN_IF_ERROR(read_weight(where, at + 1, &weight->value, message));
    if (content && !message->tool)
        RETURN_IF_ERROR(check_parts(where, at + 1, &content->value));
    RETURN_IF_ERROR(give(c->room, from, message));
    message->given->message = (int)at + 1;
    c->weighted = c->weighted || (message->assistant && !message->learned);
    return rf_list_add(c->room, c->list.list,
                       (struct rf_value){.kind = RF_V_DICT, .dict = message->given});
}

/* A list of objects, or nothing. */
static int read_objects(const char *where, const char *name, const struct rf_value *value,
                        struct rf_origin *from, struct rf_value *out)
{
    *out = rf_none();
    if (!value || value->kind == RF_V_NONE)
        return 0;
    bool fits = value->kind == RF_V_LIST;
    for (size_t i = 0; fits && i < value->list->count; i++)
        fits = value->list->items[i].kind == RF_V_DICT;
    if (!fits)
        return rf_fail(RF_ECORRUPT, "%s: \"%s\" is not a list of objects", where, name);
    *out = *value;
    mark(out, from);
    return 0;
}

/* The value of a key; NULL: absent or null. */
static struct rf_value *value_of(struct rf_dict *line, const char *key)
{
    struct rf_pair *pair = rf_dict_get(line, key);
    return pair && pair->value.kind != RF_V_NONE ? &pair->value : NULL;
}

int rf_conversation_read(struct rf_room *room, const char *where, struct rf_dict *line,
                         const struct rf_value *tools, struct rf_conversation *out)
{
    static const char *const fixed[] = {"messages", "tools", "documents", "add_generation_prompt"};
    struct rf_value *messages = value_of(line, "messages");
    struct rf_value *more = value_of(line, "chat_template_kwargs");
    const struct rf_value *own = value_of(line, "tools");
    *out = (struct rf_conversation){.room = room};
    if (!messages || messages->kind != RF_V_LIST)
        return rf_fail(RF_ECORRUPT, "%s: \"messages\" is %s", where,
                       messages ? "not a list" : "missing");
    if (more && more->kind != RF_V_DICT)
        return rf_fail(RF_ECORRUPT, "%s: \"chat_template_kwargs\" is not an object", where);
    out->more = more ? more->dict : NULL;
    for (size_t i = 0; more && i < more->dict->count; i++)
        if (is_any(more->dict->pairs[i].key.string, fixed, 4))
            return rf_fail(RF_ECORRUPT,
                           "%s: \"chat_template_kwargs\" has \"%.*s\", which the line "
                           "has beside it",
                           where, (int)more->dict->pairs[i].key.string->count,
                           more->dict->pairs[i].key.string->bytes);
    RETURN_IF_ERROR(read_objects(where, "tools", own ? own : tools, &out->tools_from, &out->tools));
    RETURN_IF_ERROR(read_objects(where, "documents", value_of(line, "documents"),
                                 &out->documents_from, &out->documents));
    out->count = messages->list->count;
    out->messages = rf_room_take(room, (out->count + 1) * sizeof(*out->messages));
    if (!out->messages)
        return rf_last_error()->status;
    RETURN_IF_ERROR(rf_list_make(room, RF_V_LIST, &out->list));
    for (size_t i = 0; i < out->count; i++)
        RETURN_IF_ERROR(read_message(out, where, &messages->list->items[i], i));
    return 0;
}

/* ---- variables ------------------------------------------------------------------------------- */

int rf_conversation_variables(const struct rf_conversation *c, size_t count, bool prompt,
                              struct rf_dict *out)
{
    struct rf_value list;
    for (size_t i = 0; c->more && i < c->more->count; i++)
        RETURN_IF_ERROR(rf_dict_put(c->room, out, c->more->pairs[i].key, c->more->pairs[i].value));
    RETURN_IF_ERROR(rf_list_make(c->room, RF_V_LIST, &list));
    for (size_t i = 0; i < count; i++)
        RETURN_IF_ERROR(rf_list_add(c->room, list.list, c->list.list->items[i]));
    RETURN_IF_ERROR(put(c->room, out, "messages", list));
    RETURN_IF_ERROR(put(c->room, out, "tools", c->tools));
    RETURN_IF_ERROR(put(c->room, out, "documents", c->documents));
    return put(c->room, out, "add_generation_prompt", rf_bool(prompt));
}

/* ---- what was written ------------------------------------------------------------------------ */

/* Whether the template read reasoning under one of its three names. */
static bool reasoning_is_read(const struct rf_dict *dict)
{
    for (size_t i = 0; i < dict->count; i++)
        if (dict->read[i] && is_any(dict->pairs[i].key.string, reasoning, 3))
            return true;
    return false;
}

static bool is_lost(const struct rf_message *message, size_t at)
{
    const struct rf_dict *dict = message->given;
    const struct rf_string *key = dict->pairs[at].key.string;
    size_t row = 0;
    const size_t rows = sizeof(keys) / sizeof(keys[0]);
    while (row < rows && !rf_string_is(key, keys[row].key))
        row++;
    /* The call also names the tool. */
    if ((row < rows && keys[row].wanted == MAY_BE_LEFT) ||
        (message->tool && rf_string_is(key, "name")))
        return false;
    if (row < rows && keys[row].wanted == MUST_BE_WRITTEN)
        return has_text(&dict->pairs[at].value) && !message->origins[at].written;
    if (is_any(key, reasoning, 3))
        return has_text(&dict->pairs[at].value) && !reasoning_is_read(dict);
    const struct rf_value *value = &dict->pairs[at].value;
    return !dict->read[at] && (has_text(value) || rf_is_number(value));
}

static int lost(const char *where, const char *what, const struct rf_string *key)
{
    return rf_fail(RF_ECORRUPT,
                   "%s: %s\"%.*s\", which the chat template does not write; take it out of the "
                   "data, or name a template that writes it",
                   where, what, (int)(key->count < 60 ? key->count : 60), key->bytes);
}

static int lost_list(const char *where, const char *name)
{
    const struct rf_string key = {.bytes = name, .count = strlen(name)};
    return lost(where, "has ", &key);
}

/* The name of a key in the line, which may name reasoning differently. */
static const struct rf_string *key_of(const struct rf_message *message, size_t at)
{
    const struct rf_string *key = message->given->pairs[at].key.string;
    for (int i = 0; is_any(key, reasoning, 3) && i < 3; i++) {
        const struct rf_pair *pair = rf_dict_get(message->from, reasoning[i]);
        if (pair && pair->value.kind != RF_V_NONE)
            return pair->key.string;
    }
    return key;
}

int rf_conversation_written(const struct rf_conversation *c, const char *where,
                            const struct rf_template *by)
{
    for (size_t i = 0; i < c->count; i++)
        for (size_t k = 0; k < c->messages[i].given->count; k++) {
            char what[48];
            if (!is_lost(&c->messages[i], k))
                continue;
            snprintf(what, sizeof(what), "message %zu has ", i + 1);
            return lost(where, what, key_of(&c->messages[i], k));
        }
    if (c->tools.kind == RF_V_LIST && c->tools.list->count > 0 && !c->tools_from.written)
        return lost_list(where, "tools");
    if (c->documents.kind == RF_V_LIST && c->documents.list->count > 0 &&
        !c->documents_from.written)
        return lost_list(where, "documents");
    for (size_t i = 0; c->more && i < c->more->count; i++) {
        char name[64];
        const struct rf_string *key = c->more->pairs[i].key.string;
        snprintf(name, sizeof(name), "%.*s", (int)(key->count < 60 ? key->count : 60), key->bytes);
        if (!rf_template_asks(by, name))
            return lost(where, "chat_template_kwargs has ", key);
    }
    return 0;
}
