/* SPDX-License-Identifier: MIT
 *
 * Lines of data as tokens; see document.h.
 *   A prompt and its completion are encoded as one text, as a model's input is. The tokens that
 * this text has in common with the prompt alone are not learned.
 */
#include "document.h"

#include "../base/base.h"
#include "../template/json.h"

void rf_line_free(struct rf_line *line)
{
    rf_room_free(&line->room);
    rf_learned_free(&line->learned);
    rf_token_list_free(&line->prompt);
    rf_text_free(&line->whole);
    rf_chat_close(line->chat);
    *line = (struct rf_line){0};
}

int rf_line_open(struct rf_line *line, const struct rf_data_opts *opts)
{
    const struct rf_chat_opts chat = {
        .tokenizer = opts->tokenizer, .model = opts->model, .form = opts->chat, .now = opts->now};
    return rf_chat_open(&chat, &line->chat);
}

/* ---- keys ------------------------------------------------------------------------------------ */

enum { OF_TEXT = 1, OF_COMPLETION = 2, OF_CHAT = 4 };

static const struct {
    const char *key;
    int kinds; /* the kinds of lines that use it */
} used[] = {
    {"text", OF_TEXT},
    {"prompt", OF_COMPLETION},
    {"completion", OF_COMPLETION},
    {"messages", OF_CHAT},
    {"tools", OF_CHAT},
    {"documents", OF_CHAT},
    {"chat_template_kwargs", OF_CHAT},
};

/* Keys that identify or count a line, for people and filters. No text and no template uses them. */
static const char *const ignored[] = {
    "id",          "idx",     "index",    "uid",       "uuid",
    "hash",        "source",  "dataset",  "subset",    "split",
    "category",    "topic",   "url",      "license",   "language",
    "lang",        "meta",    "metadata", "date",      "dump",
    "timestamp",   "created", "added",    "file_path", "language_score",
    "token_count",
};

static bool is_ignored(const struct rf_string *key)
{
    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
        if (rf_string_is(key, ignored[i]))
            return true;
    return false;
}

/* The kinds of lines that use the key. */
static int kinds_of(const struct rf_string *key)
{
    for (size_t i = 0; i < sizeof(used) / sizeof(used[0]); i++)
        if (rf_string_is(key, used[i].key))
            return used[i].kinds;
    return 0;
}

bool rf_line_is_document(const struct rf_dict *object)
{
    for (size_t i = 0; i < object->count; i++)
        if (kinds_of(object->pairs[i].key.string))
            return true;
    return false;
}

/* Tables write null for a column without a value, so null counts as absent. */
static bool has(struct rf_dict *object, const char *key)
{
    const struct rf_pair *pair = rf_dict_get(object, key);
    return pair && pair->value.kind != RF_V_NONE;
}

static int find_kind(struct rf_line *line, const char *where)
{
    struct rf_dict *object = line->value.dict;
    const bool text = has(object, "text"), chat = has(object, "messages");
    const bool completion = has(object, "prompt") || has(object, "completion");
    if (text + chat + completion > 1)
        return rf_fail(RF_ECORRUPT,
                       "%s: has more than one of \"text\", \"messages\", \"prompt\" with "
                       "\"completion\"",
                       where);
    if (text + chat + completion == 0)
        return rf_fail(RF_ECORRUPT,
                       "%s has no \"text\", no \"prompt\" and \"completion\", and no \"messages\"",
                       where);
    line->kind = text ? RF_LINE_TEXT : chat ? RF_LINE_CHAT : RF_LINE_COMPLETION;
    return 0;
}

static int check_keys(const struct rf_line *line, const char *where)
{
    const struct rf_dict *object = line->value.dict;
    const int kind = 1 << line->kind;
    for (size_t i = 0; i < object->count; i++) {
        const struct rf_string *key = object->pairs[i].key.string;
        if (object->pairs[i].value.kind == RF_V_NONE || (kinds_of(key) & kind) || is_ignored(key))
            continue;
        return rf_fail(RF_ECORRUPT,
                       "%s: has the key \"%.*s\", which is not used%s; take it out of the data, or "
                       "put what it says into the texts",
                       where, (int)(key->count < 60 ? key->count : 60), key->bytes,
                       line->kind == RF_LINE_TEXT         ? " beside \"text\""
                       : line->kind == RF_LINE_COMPLETION ? " beside \"prompt\""
                                                          : " beside \"messages\"");
    }
    return 0;
}

static int text_of(struct rf_dict *object, const char *where, const char *key,
                   struct rf_string **out)
{
    const struct rf_pair *pair = rf_dict_get(object, key);
    if (!pair || pair->value.kind != RF_V_STRING)
        return rf_fail(RF_ECORRUPT, "%s: \"%s\" %s", where, key,
                       pair && pair->value.kind != RF_V_NONE ? "is not a text" : "is missing");
    *out = pair->value.string;
    return 0;
}

int rf_line_read(struct rf_line *line, const char *where, const char *text, size_t bytes,
                 size_t *at)
{
    /* The memory of a line is limited only by its bytes. */
    const struct rf_template_limits limits = {SIZE_MAX / 4, UINT64_MAX};
    rf_room_init(&line->room, where, &limits);
    RETURN_IF_ERROR(rf_json_read(&line->room, text, bytes, at, &line->value));
    if (line->value.kind != RF_V_DICT)
        return rf_fail(RF_ECORRUPT, "%s is no JSON object", where);
    RETURN_IF_ERROR(find_kind(line, where));
    RETURN_IF_ERROR(check_keys(line, where));
    return line->kind == RF_LINE_TEXT ? text_of(line->value.dict, where, "text", &line->text) : 0;
}

/* ---- prompts and completions ----------------------------------------------------------------- */

static void drop_end(struct rf_token_list *ids, int32_t end)
{
    if (ids->count > 0 && ids->ids[ids->count - 1] == end)
        ids->count--;
}

static int learn_completion(struct rf_line *line, const struct rf_tokenizer *tokenizer, int32_t end,
                            const char *where)
{
    const struct rf_encode_opts opts = {.add_special = true};
    struct rf_learned *out = &line->learned;
    struct rf_token_list *ids = &out->ids, *prompt = &line->prompt;
    struct rf_string *given = NULL, *completion = NULL;
    size_t same = 0;
    RETURN_IF_ERROR(text_of(line->value.dict, where, "prompt", &given));
    RETURN_IF_ERROR(text_of(line->value.dict, where, "completion", &completion));
    line->whole.count = ids->count = prompt->count = 0;
    RETURN_IF_ERROR(rf_text_add(&line->whole, given->bytes, given->count));
    RETURN_IF_ERROR(rf_text_add(&line->whole, completion->bytes, completion->count));
    RETURN_IF_ERROR(rf_tokenizer_encode(tokenizer, line->whole.bytes, given->count, &opts, prompt));
    RETURN_IF_ERROR(
        rf_tokenizer_encode(tokenizer, line->whole.bytes, line->whole.count, &opts, ids));
    drop_end(prompt, end);
    drop_end(ids, end);
    while (same < prompt->count && same < ids->count && prompt->ids[same] == ids->ids[same])
        same++;
    RETURN_IF_ERROR(rf_token_list_add(ids, end));
    RETURN_IF_ERROR(rf_learned_grow(out, where, 0));
    memset(out->flags + same, 1, ids->count - same);
    return 0;
}

int rf_line_learn(struct rf_line *line, const struct rf_data_opts *opts, int32_t end,
                  const char *where)
{
    const struct rf_learned *made = &line->learned;
    if (!opts->tokenizer)
        return rf_fail(RF_EINVAL, "%s: is a document, which needs a tokenizer: that of --from DIR",
                       where);
    if (line->kind == RF_LINE_CHAT && !line->chat) {
        const int rc = rf_line_open(line, opts);
        if (rc < 0)
            return rf_fail(rc, "%s: %s", where, rf_last_error()->message);
    }
    RETURN_IF_ERROR(
        line->kind == RF_LINE_CHAT
            ? rf_chat_learn(line->chat, where, &line->room, line->value.dict, &line->learned)
            : learn_completion(line, opts->tokenizer, end, where));
    /* The first token has no predecessor to be predicted from. */
    if (made->ids.count < 2 || !memchr(made->flags + 1, 1, made->ids.count - 1))
        return rf_fail(RF_ECORRUPT,
                       "%s: has nothing to learn: the assistant has no turn, or each has the "
                       "weight 0; take the line out of the data",
                       where);
    return 0;
}
