/* SPDX-License-Identifier: MIT
 *
 * Selects the template for a conversation and renders prompts; see chat.h.
 */
#define _GNU_SOURCE /* memmem */
#include "chat.h"

#include <time.h>

#include "../base/base.h"
#include "../template/json.h"
#include "../tokenizer/utf8.h"
#include "chat_forms.h"
#include "chat_render.h"

/* ---- which template -------------------------------------------------------------------------- */

/* Lists the forms that can be named. Those whose tokens the tokenizer has come first. */
static int refuse(const char *what)
{
    char names[256] = "";
    for (const struct rf_chat_form *form = rf_chat_forms; form->name; form++)
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s",
                 form == rf_chat_forms ? "" : ", ", form->name);
    return rf_fail(
        RF_ENOTSUP,
        "%s; name one of the chat forms %s, or the file of a template (./NAME.jinja), or "
        "write the conversation as \"prompt\" and \"completion\"",
        what, names);
}

static bool has_tokens(const struct rf_tokenizer *tokenizer, const char *const *texts)
{
    for (int i = 0; i < 4 && texts[i]; i++)
        if (rf_tokenizer_id(tokenizer, texts[i]) < 0)
            return false;
    return true;
}

static const struct rf_chat_form *form_by_tokens(const struct rf_tokenizer *tokenizer)
{
    for (const struct rf_chat_form *form = rf_chat_forms; form->name; form++)
        if (form->by_tokens && has_tokens(tokenizer, form->marks) &&
            has_tokens(tokenizer, form->tokens))
            return form;
    return NULL;
}

static const struct rf_chat_form *form_by_name(const char *name)
{
    for (const struct rf_chat_form *form = rf_chat_forms; form->name; form++)
        if (strcmp(form->name, name) == 0)
            return form;
    return NULL;
}

/* Whether the tokenizer encodes the text as one token. */
static int is_token(const struct rf_tokenizer *tokenizer, const char *text, bool *out)
{
    const struct rf_encode_opts opts = {0};
    struct rf_token_list ids = {0};
    const int rc = rf_tokenizer_encode(tokenizer, text, strlen(text), &opts, &ids);
    *out = ids.count == 1 && ids.ids[0] == rf_tokenizer_id(tokenizer, text);
    rf_token_list_free(&ids);
    return rc;
}

static int use_form(struct rf_chat *chat, const struct rf_chat_form *form)
{
    char what[160];
    for (int i = 0; i < 4 && form->tokens[i]; i++) {
        bool token = false;
        RETURN_IF_ERROR(is_token(chat->tokenizer, form->tokens[i], &token));
        if (token)
            continue;
        snprintf(what, sizeof(what), "the tokenizer has no token %s, which the chat form %s needs",
                 form->tokens[i], form->name);
        return refuse(what);
    }
    chat->form = form;
    chat->name = form->name;
    return rf_template_open(form->name, form->text, strlen(form->text), NULL, &chat->own);
}

/* The template with this name; NULL: none. */
static struct rf_chat_source *source_of(struct rf_chat *chat, const char *name)
{
    for (size_t i = 0; i < chat->files.count; i++)
        if (strcmp(chat->files.sources[i].name, name) == 0)
            return &chat->files.sources[i];
    return NULL;
}

static int find(struct rf_chat *chat, const struct rf_chat_opts *opts)
{
    const struct rf_chat_form *form = opts->form ? form_by_name(opts->form) : NULL;
    const bool path = opts->form && !form && strpbrk(opts->form, "/.") != NULL;
    char what[160];
    if (opts->form && !form && !path) {
        snprintf(what, sizeof(what), "there is no chat form \"%.40s\"", opts->form);
        return refuse(what);
    }
    if (opts->model)
        RETURN_IF_ERROR(rf_chat_files_read(opts->model, &chat->files));
    if (path) {
        while (chat->files.count > 0) { /* the folder's templates: a named form replaces them */
            struct rf_chat_source *last = &chat->files.sources[--chat->files.count];
            rf_free(last->name);
            rf_free(last->where);
            rf_free(last->text);
        }
        RETURN_IF_ERROR(rf_chat_files_add(&chat->files, opts->form));
    }
    if (!form && chat->files.count == 0)
        form = form_by_tokens(chat->tokenizer);
    if (form)
        return use_form(chat, form);
    if (chat->files.count == 0)
        return refuse(chat->files.has_processor
                          ? "the model has no chat template but chat_template.json, which "
                            "transformers' tokenizers do not read"
                          : "the model has no chat template, and no chat form is known for this "
                            "tokenizer");
    const struct rf_chat_source *first = source_of(chat, "default");
    chat->name = (first ? first : &chat->files.sources[0])->where;
    return 0;
}

int rf_chat_open(const struct rf_chat_opts *opts, struct rf_chat **out)
{
    if (!opts || !opts->tokenizer || !out)
        return rf_fail(RF_EINVAL, "chat: a tokenizer and a pointer for the result are needed");
    struct rf_chat *chat = rf_alloc(sizeof(*chat));
    if (!chat)
        return rf_fail(RF_ENOMEM, "chat: out of memory");
    chat->tokenizer = opts->tokenizer;
    chat->now = opts->now ? opts->now : (int64_t)time(NULL);
    const int rc = find(chat, opts);
    if (rc < 0) {
        rf_chat_close(chat);
        return rc;
    }
    *out = chat;
    return 0;
}

void rf_chat_close(struct rf_chat *chat)
{
    if (!chat)
        return;
    rf_chat_files_free(&chat->files);
    rf_template_close(chat->own);
    rf_rendered_free(&chat->whole);
    rf_rendered_free(&chat->part);
    rf_room_free(&chat->room);
    rf_free(chat);
}

const char *rf_chat_name(const struct rf_chat *chat)
{
    return chat->name;
}

/* ---- opening them ---------------------------------------------------------------------------- */

/* Every special token that the template reads must be known, and must be one token. */
static int check_specials(struct rf_chat *chat, const struct rf_chat_source *source)
{
    const struct rf_specials *specials = &chat->files.specials;
    for (int i = 0; i < RF_SPECIALS; i++)
        if (rf_template_asks(source->open, rf_special_names[i]) &&
            !rf_specials_find(specials, rf_special_names[i]))
            return rf_fail(RF_ENOTSUP,
                           "%s: asks for %s, and tokenizer_config.json does not say which it is; "
                           "add \"%s\", or null where there is none",
                           source->where, rf_special_names[i], rf_special_names[i]);
    for (size_t i = 0; i < specials->count; i++) {
        const struct rf_special *one = &specials->items[i];
        bool token = true;
        if (!one->text || !rf_template_asks(source->open, one->name))
            continue;
        RETURN_IF_ERROR(is_token(chat->tokenizer, one->text, &token));
        if (!token)
            return rf_fail(RF_ENOTSUP, "%s: the tokenizer has no token %.60s, which is %.60s",
                           source->where, one->text, one->name);
    }
    return 0;
}

int rf_chat_pick(struct rf_chat *chat, const struct rf_conversation *c, struct rf_template **out)
{
    *out = chat->own;
    if (chat->own)
        return 0;
    struct rf_chat_source *source = c->tools.kind != RF_V_NONE ? source_of(chat, "tool_use") : NULL;
    if (!source)
        source = source_of(chat, "default");
    if (!source)
        return rf_fail(
            RF_ENOTSUP,
            "%s: the model has several chat templates, and none of the name \"default\"; "
            "name the file of one of them",
            chat->name);
    if (!source->open) {
        RETURN_IF_ERROR(
            rf_template_open(source->where, source->text, source->bytes, NULL, &source->open));
        const int rc = check_specials(chat, source);
        if (rc < 0) {
            rf_template_close(source->open);
            source->open = NULL;
            return rc;
        }
    }
    *out = source->open;
    return 0;
}

/* ---- texts ----------------------------------------------------------------------------------- */

static int check_text(const struct rf_chat *chat, const char *where, const struct rf_string *text)
{
    int32_t id;
    const char *found = NULL;
    for (int i = 0; chat->form && i < 4 && chat->form->marks[i] && !found; i++)
        if (memmem(text->bytes, text->count, chat->form->marks[i], strlen(chat->form->marks[i])))
            found = chat->form->marks[i];
    RETURN_IF_ERROR(rf_tokenizer_find_special(chat->tokenizer, text->bytes, text->count, &id));
    if (id >= 0)
        found = rf_tokenizer_token(chat->tokenizer, id);
    return found ? rf_fail(RF_ECORRUPT,
                           "%s: a text has %.60s, which would be taken for a token of the "
                           "template; take it out",
                           where, found)
                 : 0;
}

/* No text of the conversation may contain a special token. */
static int check_texts(const struct rf_chat *chat, const char *where, const struct rf_value *value)
{
    if (value->kind == RF_V_STRING)
        return check_text(chat, where, value->string);
    for (size_t i = 0; value->kind == RF_V_LIST && i < value->list->count; i++)
        RETURN_IF_ERROR(check_texts(chat, where, &value->list->items[i]));
    for (size_t i = 0; value->kind == RF_V_DICT && i < value->dict->count; i++) {
        RETURN_IF_ERROR(check_text(chat, where, value->dict->pairs[i].key.string));
        RETURN_IF_ERROR(check_texts(chat, where, &value->dict->pairs[i].value));
    }
    return 0;
}

int rf_chat_check(const struct rf_chat *chat, const char *where, const struct rf_conversation *c)
{
    RETURN_IF_ERROR(check_texts(chat, where, &c->list));
    RETURN_IF_ERROR(check_texts(chat, where, &c->tools));
    return check_texts(chat, where, &c->documents);
}

int rf_chat_render(struct rf_chat *chat, struct rf_template *by, const char *where,
                   const struct rf_conversation *c, size_t count, bool prompt,
                   struct rf_rendered *out)
{
    struct rf_value variables;
    RETURN_IF_ERROR(rf_dict_make(c->room, RF_V_DICT, &variables));
    for (size_t i = 0; i < chat->files.specials.count && !chat->own; i++) {
        const struct rf_special *one = &chat->files.specials.items[i];
        if (!one->text)
            continue;
        struct rf_string *name = rf_string_from(c->room, one->name);
        struct rf_string *text = rf_string_from(c->room, one->text);
        if (!name || !text)
            return rf_last_error()->status;
        RETURN_IF_ERROR(
            rf_dict_put(c->room, variables.dict, rf_string_value(name), rf_string_value(text)));
    }
    RETURN_IF_ERROR(rf_conversation_variables(c, count, prompt, variables.dict));
    const int rc = rf_template_render(by, variables.dict, chat->now, out);
    return rc < 0 ? rf_fail(rc, "%s: %s", where, rf_last_error()->message) : 0;
}

/* ---- prompts --------------------------------------------------------------------------------- */

static int read_json(struct rf_room *room, const char *what, const char *text, size_t bytes,
                     struct rf_value *out)
{
    size_t at = 0;
    if (rf_utf8_valid(text, bytes) < bytes)
        return rf_fail(RF_ECORRUPT, "%s: is not UTF-8", what);
    room->where = what;
    RETURN_IF_ERROR(rf_json_read(room, text, bytes, &at, out));
    return at == bytes ? 0 : rf_fail(RF_ECORRUPT, "%s: has text behind its JSON value", what);
}

static int prompt_text(struct rf_chat *chat, const struct rf_chat_request *request)
{
    const char *where = request->where, *tools = request->tools;
    struct rf_value line, list = rf_none();
    struct rf_conversation c;
    struct rf_template *by;
    RETURN_IF_ERROR(read_json(&chat->room, where, request->json, request->bytes, &line));
    if (tools)
        RETURN_IF_ERROR(read_json(&chat->room, "the list of tools", tools, strlen(tools), &list));
    if (line.kind != RF_V_DICT)
        return rf_fail(RF_ECORRUPT, "%s: is no JSON object", where);
    for (size_t i = 0; i < line.dict->count; i++) {
        const struct rf_string *key = line.dict->pairs[i].key.string;
        if (!rf_conversation_key(key) && line.dict->pairs[i].value.kind != RF_V_NONE)
            return rf_fail(RF_ECORRUPT,
                           "%s: has the key \"%.*s\", which is not one of a conversation", where,
                           (int)(key->count < 60 ? key->count : 60), key->bytes);
    }
    RETURN_IF_ERROR(rf_conversation_read(&chat->room, where, line.dict, tools ? &list : NULL, &c));
    if (c.count == 0 || c.messages[c.count - 1].assistant)
        return rf_fail(RF_ECORRUPT, "%s: there is no message that the assistant could answer",
                       where);
    RETURN_IF_ERROR(rf_chat_pick(chat, &c, &by));
    RETURN_IF_ERROR(rf_chat_check(chat, where, &c));
    RETURN_IF_ERROR(rf_chat_render(chat, by, where, &c, c.count, true, &chat->whole));
    return rf_conversation_written(&c, where, by);
}

int rf_chat_prompt(struct rf_chat *chat, const struct rf_chat_request *request,
                   struct rf_token_list *out)
{
    if (!chat || !request || !request->where || !request->json || !out)
        return rf_fail(RF_EINVAL, "chat: a chat, a conversation and a list are needed");
    rf_room_init(&chat->room, request->where, NULL);
    RETURN_IF_ERROR(prompt_text(chat, request));
    return rf_tokenizer_encode(chat->tokenizer, chat->whole.text.bytes, chat->whole.text.count,
                               NULL, out);
}
