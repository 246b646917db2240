/* SPDX-License-Identifier: MIT
 *
 * Documents for fine-tuning as tokens; see document.h.
 *   A prompt and what follows it are encoded as one text, as a model's input is. The part that is
 * not learned is what this text has in common with the tokens of the prompt alone.
 */
#define _GNU_SOURCE /* memmem */
#include "document.h"

#include "../base/base.h"
#include "../tokenizer/lists.h"
#include "../tokenizer/utf8.h"

void rf_document_free(struct rf_document *d)
{
    rf_token_list_free(&d->ids);
    rf_token_list_free(&d->prefix);
    rf_text_free(&d->text);
    rf_free(d->learned);
    *d = (struct rf_document){0};
}

static bool has(const cJSON *json, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(json, name) != NULL;
}

bool rf_document_is(const cJSON *json)
{
    return has(json, "prompt") || has(json, "completion") || has(json, "messages");
}

const char *rf_document_bytes(cJSON *item, size_t *bytes)
{
    char *const text = cJSON_GetStringValue(item);
    char *to = text;
    if (!text)
        return NULL;
    for (const char *from = text; *from; to++) {
        const bool zero = strncmp(from, RF_ZERO_CHARACTER, 2) == 0;
        *to = zero ? '\0' : *from;
        from += zero ? 2 : 1;
    }
    *bytes = (size_t)(to - text);
    return text;
}

/* Room for the flags of all ids; those from `from` on are 0. */
static int grow_flags(struct rf_document *d, const char *where, size_t from)
{
    if (d->capacity < d->ids.count) {
        const size_t wanted = 2 * d->ids.count;
        uint8_t *grown = rf_realloc(d->learned, wanted);
        if (!grown)
            return rf_fail(RF_ENOMEM, "%s: out of memory", where);
        d->learned = grown;
        d->capacity = wanted;
    }
    if (d->ids.count > from)
        memset(d->learned + from, 0, d->ids.count - from);
    return 0;
}

static void drop_end(struct rf_token_list *ids, int32_t end)
{
    if (ids->count > 0 && ids->ids[ids->count - 1] == end)
        ids->count--;
}

static void drop(struct rf_token_list *ids, size_t at)
{
    ids->count--;
    memmove(ids->ids + at, ids->ids + at + 1, (ids->count - at) * sizeof(*ids->ids));
}

/* Appends the tokens of d->text, of which the first `prompt` bytes are given. Returns the index of
 * the first token that is not the prompt's. end: a token that is left out at the end; -1: none. */
static int64_t append(const struct rf_tokenizer *tokenizer, const char *where, size_t prompt,
                      int32_t end, struct rf_document *d)
{
    const struct rf_encode_opts opts = {.add_special = end >= 0};
    const size_t from = d->ids.count;
    const char *text = d->text.count > 0 ? d->text.bytes : "";
    size_t same = 0;
    d->prefix.count = 0;
    RETURN_IF_ERROR(rf_tokenizer_encode(tokenizer, text, prompt, &opts, &d->prefix));
    RETURN_IF_ERROR(rf_tokenizer_encode(tokenizer, text, d->text.count, &opts, &d->ids));
    if (end >= 0) {
        drop_end(&d->prefix, end);
        drop_end(&d->ids, end);
    }
    if (d->carried && d->prefix.count > 0 && d->ids.count > from) {
        drop(&d->prefix, 0);
        drop(&d->ids, from);
    }
    RETURN_IF_ERROR(grow_flags(d, where, from));
    while (same < d->prefix.count && from + same < d->ids.count &&
           d->prefix.ids[same] == d->ids.ids[from + same])
        same++;
    return (int64_t)(from + same);
}

static int text_of(const cJSON *json, const char *where, const char *name, const char **out,
                   size_t *bytes)
{
    cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
    *out = rf_document_bytes(item, bytes);
    if (!*out)
        return rf_fail(RF_ECORRUPT, "%s: \"%s\" %s", where, name,
                       item ? "is not a text" : "is missing");
    return 0;
}

/* ---- prompts and completions ----------------------------------------------------------------- */

static int read_completion(const struct rf_tokenizer *tokenizer, int32_t end, const char *where,
                           const cJSON *json, struct rf_document *d)
{
    const char *prompt, *completion;
    size_t given = 0, bytes = 0;
    RETURN_IF_ERROR(text_of(json, where, "prompt", &prompt, &given));
    RETURN_IF_ERROR(text_of(json, where, "completion", &completion, &bytes));
    RETURN_IF_ERROR(rf_text_add(&d->text, prompt, given));
    RETURN_IF_ERROR(rf_text_add(&d->text, completion, bytes));
    const int64_t first = append(tokenizer, where, given, end, d);
    if (first < 0)
        return (int)first;
    const size_t last = d->ids.count;
    RETURN_IF_ERROR(rf_token_list_add(&d->ids, end));
    RETURN_IF_ERROR(grow_flags(d, where, last));
    memset(d->learned + first, 1, d->ids.count - (size_t)first);
    return 0;
}

/* ---- conversations --------------------------------------------------------------------------- */

struct turn {
    int index, role, before; /* before: the role of the turn before; -1: it is the first */
    const char *content;
    size_t bytes;
};

/* Python's str.strip, which the templates call. */
static bool is_space(const char *at)
{
    const uint32_t code = rf_utf8_read(at);
    return rf_utf8_is_space(code) || (code >= 0x1c && code <= 0x1f);
}

static void trim(struct turn *turn, bool at_begin)
{
    const char *begin = turn->content, *end = begin + turn->bytes;
    while (at_begin && begin < end && is_space(begin))
        begin += rf_utf8_length(*begin);
    while (begin < end && is_space(rf_utf8_before(end)))
        end = rf_utf8_before(end);
    turn->content = begin;
    turn->bytes = (size_t)(end - begin);
}

static int read_turn(const struct rf_chat_form *form, const char *where, const cJSON *json,
                     struct turn *turn)
{
    const char *role;
    size_t bytes = 0;
    if (!cJSON_IsObject(json))
        return rf_fail(RF_ECORRUPT, "%s: a message is not an object", where);
    RETURN_IF_ERROR(text_of(json, where, "role", &role, &bytes));
    RETURN_IF_ERROR(text_of(json, where, "content", &turn->content, &turn->bytes));
    turn->role = strlen(role) == bytes ? rf_chat_role_of(role) : -1;
    if (turn->role < 0)
        return rf_fail(RF_ECORRUPT, "%s: there is no role \"%.40s\"; use system, user, assistant",
                       where, role);
    if (!form->before[turn->role])
        return rf_fail(RF_ECORRUPT, "%s: the chat form %s has no role \"%s\"", where, form->name,
                       role);
    for (int i = 0; i < 4 && form->marks[i]; i++)
        if (memmem(turn->content, turn->bytes, form->marks[i], strlen(form->marks[i])))
            return rf_fail(RF_ECORRUPT, "%s: a content has %s, which is of the chat form", where,
                           form->marks[i]);
    if (form->trim[turn->role])
        trim(turn, !(form->inside && turn->before == RF_CHAT_SYSTEM));
    return 0;
}

/* The first message may be the system's, and no other. */
static int check_order(const struct rf_chat_form *form, const char *where, const struct turn *turn)
{
    if (turn->role == RF_CHAT_SYSTEM && turn->index > 0)
        return rf_fail(RF_ECORRUPT, "%s: \"system\" is the role of the first message only", where);
    if (!form->pairs || turn->role == RF_CHAT_SYSTEM ||
        (turn->role == RF_CHAT_USER) != (turn->before == RF_CHAT_USER))
        return 0;
    return rf_fail(RF_ECORRUPT,
                   "%s: message %d is of \"%s\" %s%s; in the chat form %s user and assistant "
                   "alternate, and the user begins",
                   where, turn->index + 1, rf_chat_role_name(turn->role),
                   turn->before < 0 ? "and the first" : "after one of ",
                   turn->before < 0 ? "" : rf_chat_role_name(turn->before), form->name);
}

static int add_text(struct rf_document *d, const char *text)
{
    return rf_text_add(&d->text, text, strlen(text));
}

/* The tokens of d->text and an answer. */
static int add_answer(const struct rf_tokenizer *tokenizer, const struct rf_chat_form *form,
                      const char *where, const struct turn *turn, struct rf_document *d)
{
    const char *const after = form->after[RF_CHAT_ASSISTANT];
    const char *const end = strstr(after, form->end); /* its last token, and what follows it */
    size_t prompt = d->text.count;
    RETURN_IF_ERROR(add_text(d, form->before[RF_CHAT_ASSISTANT]));
    if (!form->pairs)
        prompt = d->text.count;
    RETURN_IF_ERROR(rf_text_add(&d->text, turn->content, turn->bytes));
    RETURN_IF_ERROR(rf_text_add(&d->text, after, (size_t)(end - after) + strlen(form->end)));
    const int64_t first = append(tokenizer, where, prompt, -1, d);
    if (first < 0)
        return (int)first;
    memset(d->learned + first, 1, d->ids.count - (size_t)first);
    /* Text may be encoded in another way behind a token than at the beginning. */
    d->text.count = 0;
    d->carried = true;
    return add_text(d, end);
}

static int add_turn(const struct rf_tokenizer *tokenizer, const struct rf_chat_form *form,
                    const char *where, const struct turn *turn, struct rf_document *d)
{
    if (turn->role == RF_CHAT_ASSISTANT)
        return add_answer(tokenizer, form, where, turn, d);
    if (form->inside && turn->before != RF_CHAT_SYSTEM)
        RETURN_IF_ERROR(add_text(d, form->before[RF_CHAT_USER]));
    if (!form->inside || turn->role == RF_CHAT_SYSTEM)
        RETURN_IF_ERROR(add_text(d, form->before[turn->role]));
    RETURN_IF_ERROR(rf_text_add(&d->text, turn->content, turn->bytes));
    return add_text(d, form->after[turn->role]);
}

static int read_messages(const struct rf_data_opts *opts, const char *where, const cJSON *list,
                         struct rf_document *d)
{
    struct turn turn = {.before = -1};
    if (!d->form)
        RETURN_IF_ERROR(rf_chat_form_find(opts, where, &d->form));
    if (!cJSON_IsArray(list))
        return rf_fail(RF_ECORRUPT, "%s: \"messages\" is not a list", where);
    RETURN_IF_ERROR(add_text(d, d->form->begin));
    for (const cJSON *item = list->child; item; item = item->next) {
        RETURN_IF_ERROR(read_turn(d->form, where, item, &turn));
        RETURN_IF_ERROR(check_order(d->form, where, &turn));
        RETURN_IF_ERROR(add_turn(opts->tokenizer, d->form, where, &turn, d));
        turn.before = turn.role;
        turn.index++;
    }
    const int64_t rest = append(opts->tokenizer, where, d->text.count, -1, d);
    return rest < 0 ? (int)rest : 0;
}

int rf_document_read(const struct rf_data_opts *opts, int32_t end, const char *where,
                     const cJSON *json, struct rf_document *out)
{
    const cJSON *messages = cJSON_GetObjectItemCaseSensitive(json, "messages");
    out->ids.count = out->text.count = 0;
    out->carried = false;
    if (has(json, "text") || (messages && (has(json, "prompt") || has(json, "completion"))))
        return rf_fail(RF_ECORRUPT,
                       "%s: has more than one of \"text\", \"messages\", \"prompt\" with "
                       "\"completion\"",
                       where);
    RETURN_IF_ERROR(messages ? read_messages(opts, where, messages, out)
                             : read_completion(opts->tokenizer, end, where, json, out));
    /* The first token has nothing before it that it could be predicted from. */
    if (out->ids.count < 2 || !memchr(out->learned + 1, 1, out->ids.count - 1))
        return rf_fail(RF_ECORRUPT, "%s: has nothing to learn: no turn of the assistant", where);
    return 0;
}
