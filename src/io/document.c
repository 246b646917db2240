/* SPDX-License-Identifier: MIT
 *
 * Documents for fine-tuning as tokens; see document.h.
 *   A prompt and what follows it are encoded as one text, as a model's input is. The part that is
 * not learned is what this text has in common with the tokens of the prompt alone.
 */
#include "document.h"

#include "../base/base.h"
#include "../tokenizer/lists.h"

#define WHITE " \t\n\v\f\r"

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
    RETURN_IF_ERROR(grow_flags(d, where, from));
    while (same < d->prefix.count && from + same < d->ids.count &&
           d->prefix.ids[same] == d->ids.ids[from + same])
        same++;
    return (int64_t)(from + same);
}

static int text_of(const cJSON *json, const char *where, const char *name, const char **out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);
    *out = cJSON_GetStringValue(item);
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
    RETURN_IF_ERROR(text_of(json, where, "prompt", &prompt));
    RETURN_IF_ERROR(text_of(json, where, "completion", &completion));
    RETURN_IF_ERROR(rf_text_add(&d->text, prompt, strlen(prompt)));
    RETURN_IF_ERROR(rf_text_add(&d->text, completion, strlen(completion)));
    const int64_t first = append(tokenizer, where, strlen(prompt), end, d);
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
    int role;
    const char *content;
    size_t bytes;
};

static int read_turn(const struct rf_chat_form *form, const char *where, const cJSON *json,
                     struct turn *out)
{
    const char *role;
    if (!cJSON_IsObject(json))
        return rf_fail(RF_ECORRUPT, "%s: a message is not an object", where);
    RETURN_IF_ERROR(text_of(json, where, "role", &role));
    RETURN_IF_ERROR(text_of(json, where, "content", &out->content));
    out->role = rf_chat_role_of(role);
    if (out->role < 0)
        return rf_fail(RF_ECORRUPT, "%s: there is no role \"%.40s\"; use system, user, assistant",
                       where, role);
    if (!form->before[out->role])
        return rf_fail(RF_ECORRUPT, "%s: the chat form of this tokenizer has no role \"%s\"", where,
                       role);
    for (int i = 0; i < 4 && form->marks[i]; i++)
        if (strstr(out->content, form->marks[i]))
            return rf_fail(RF_ECORRUPT, "%s: a content has %s, which is of the chat form", where,
                           form->marks[i]);
    if (form->trim)
        out->content += strspn(out->content, WHITE);
    out->bytes = strlen(out->content);
    while (form->trim && out->bytes > 0 && strchr(WHITE, out->content[out->bytes - 1]))
        out->bytes--;
    return 0;
}

/* The first message may be the system's, and no other. */
static int check_order(const struct rf_chat_form *form, const char *where, int index, int role,
                       int before)
{
    if (role == RF_CHAT_SYSTEM && index > 0)
        return rf_fail(RF_ECORRUPT, "%s: \"system\" is the role of the first message only", where);
    if (form->pairs && (role == RF_CHAT_USER) == (before == RF_CHAT_USER))
        return rf_fail(RF_ECORRUPT, "%s: in this chat form user and assistant alternate", where);
    return 0;
}

static int add_text(struct rf_document *d, const char *text)
{
    return rf_text_add(&d->text, text, strlen(text));
}

/* The tokens of d->text and an answer. */
static int add_answer(const struct rf_tokenizer *tokenizer, const struct rf_chat_form *form,
                      const char *where, const struct turn *turn, struct rf_document *d)
{
    const int32_t end = rf_tokenizer_id(tokenizer, form->end);
    const size_t prompt = d->text.count;
    RETURN_IF_ERROR(rf_text_add(&d->text, turn->content, turn->bytes));
    RETURN_IF_ERROR(add_text(d, form->after[RF_CHAT_ASSISTANT]));
    const int64_t first = append(tokenizer, where, prompt, -1, d);
    if (first < 0)
        return (int)first;
    size_t last = d->ids.count; /* one after the token that ends the turn */
    while (last > (size_t)first && d->ids.ids[last - 1] != end)
        last--;
    memset(d->learned + first, 1, last - (size_t)first);
    d->text.count = 0;
    return 0;
}

static int read_messages(const struct rf_tokenizer *tokenizer, const char *where, const cJSON *list,
                         struct rf_document *d)
{
    const struct rf_chat_form *form = rf_chat_form_of(tokenizer);
    int index = 0, before = -1;
    if (!form)
        return rf_fail(RF_ENOTSUP,
                       "%s: no chat form is known for this tokenizer; write the conversation as "
                       "\"prompt\" and \"completion\"",
                       where);
    if (!cJSON_IsArray(list))
        return rf_fail(RF_ECORRUPT, "%s: \"messages\" is not a list", where);
    RETURN_IF_ERROR(add_text(d, form->begin));
    for (const cJSON *item = list->child; item; item = item->next, index++) {
        struct turn turn = {0};
        RETURN_IF_ERROR(read_turn(form, where, item, &turn));
        RETURN_IF_ERROR(check_order(form, where, index, turn.role, before));
        before = turn.role;
        RETURN_IF_ERROR(add_text(d, form->before[turn.role]));
        if (turn.role == RF_CHAT_ASSISTANT) {
            RETURN_IF_ERROR(add_answer(tokenizer, form, where, &turn, d));
            continue;
        }
        RETURN_IF_ERROR(rf_text_add(&d->text, turn.content, turn.bytes));
        RETURN_IF_ERROR(add_text(d, form->after[turn.role]));
    }
    const int64_t rest = d->text.count > 0 ? append(tokenizer, where, d->text.count, -1, d) : 0;
    return rest < 0 ? (int)rest : 0;
}

int rf_document_read(const struct rf_tokenizer *tokenizer, int32_t end, const char *where,
                     const cJSON *json, struct rf_document *out)
{
    const cJSON *messages = cJSON_GetObjectItemCaseSensitive(json, "messages");
    out->ids.count = out->text.count = 0;
    if (has(json, "text") || (messages && (has(json, "prompt") || has(json, "completion"))))
        return rf_fail(RF_ECORRUPT,
                       "%s: has more than one of \"text\", \"messages\", \"prompt\" with "
                       "\"completion\"",
                       where);
    RETURN_IF_ERROR(messages ? read_messages(tokenizer, where, messages, out)
                             : read_completion(tokenizer, end, where, json, out));
    /* The first token has nothing before it that it could be predicted from. */
    if (out->ids.count < 2 || !memchr(out->learned + 1, 1, out->ids.count - 1))
        return rf_fail(RF_ECORRUPT, "%s: has nothing to learn: no turn of the assistant", where);
    return 0;
}
