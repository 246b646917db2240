/* SPDX-License-Identifier: MIT
 *
 * Marks the tokens of a conversation that are learned; see chat.h.
 */
#include "../base/base.h"
#include "chat_render.h"

void rf_learned_free(struct rf_learned *learned)
{
    rf_token_list_free(&learned->ids);
    rf_offsets_free(&learned->offsets);
    rf_free(learned->flags);
    *learned = (struct rf_learned){0};
}

int rf_learned_grow(struct rf_learned *learned, const char *where, size_t from)
{
    if (learned->capacity < learned->ids.count) {
        const size_t wanted = 2 * learned->ids.count;
        uint8_t *grown = rf_realloc(learned->flags, wanted);
        if (!grown)
            return rf_fail(RF_ENOMEM, "%s: out of memory", where);
        learned->flags = grown;
        learned->capacity = wanted;
    }
    if (learned->ids.count > from)
        memset(learned->flags + from, 0, learned->ids.count - from);
    return 0;
}

/* ---- from marks to tokens -------------------------------------------------------------------- */

/* The rule of transformers' return_assistant_tokens_mask, in one pass over tokens and spans. A span
 * that ends at or before the token's begin is passed. The token is learned if it reaches into the
 * next span. */
static void learn(const struct rf_marked *marked, size_t count, struct rf_learned *out)
{
    size_t at = 0;
    for (size_t i = 0; i < out->ids.count; i++) {
        const struct rf_offset token = out->offsets.list[i];
        while (at < count && token.begin >= marked[at].end)
            at++;
        if (at == count)
            return;
        if (token.end > marked[at].begin)
            out->flags[i] = 1;
    }
}

/* Removes the spans of answers with weight 0. */
static int drop_unweighted(const char *where, const struct rf_conversation *c,
                           struct rf_marked *marked, size_t *count)
{
    size_t kept = 0;
    for (size_t i = 0; c->weighted && i < *count; i++) {
        const int message = marked[i].message;
        if (message < 1)
            return rf_fail(RF_ENOTSUP,
                           "%s: has a \"weight\" of 0, and {%% generation %%} of the chat template "
                           "is in no loop over messages, so whose text it marks is not known",
                           where);
        if (c->messages[message - 1].learned)
            marked[kept++] = marked[i];
    }
    *count = c->weighted ? kept : *count;
    return 0;
}

/* ---- templates without marks ----------------------------------------------------------------- */

static int not_a_prefix(const char *where, size_t message, const char *what)
{
    return rf_fail(
        RF_ENOTSUP,
        "%s: the chat template has no {%% generation %%}, and writes another text for the "
        "messages %s message %zu alone, so what the assistant writes there cannot be told "
        "from the rest; put {%% generation %%} and {%% endgeneration %%} around it in a "
        "copy of the template and name that, or give the message the weight 0",
        where, what, message);
}

/* The length of the text of the first `count` messages alone. RF_ENOTSUP: the whole text does not
 * begin with it. */
static int reach(struct rf_chat *chat, struct rf_template *by, const char *where,
                 const struct rf_conversation *c, size_t count, bool prompt, size_t *out)
{
    const struct rf_text *whole = &chat->whole.text, *part = &chat->part.text;
    const bool fits = rf_chat_render(chat, by, where, c, count, prompt, &chat->part) == 0 &&
                      part->count <= whole->count &&
                      memcmp(part->bytes, whole->bytes, part->count) == 0;
    if (!fits)
        return not_a_prefix(where, prompt ? count + 1 : count, prompt ? "before" : "up to");
    *out = part->count;
    return 0;
}

/* An answer is what its message adds to the text of the messages before it. */
static int find_answers(struct rf_chat *chat, struct rf_template *by, const char *where,
                        const struct rf_conversation *c, struct rf_marked **out, size_t *count)
{
    struct rf_marked *marked = rf_room_take(c->room, (c->count + 1) * sizeof(*marked));
    size_t found = 0;
    if (!marked)
        return rf_last_error()->status;
    for (size_t i = 0; i < c->count; i++) {
        struct rf_marked answer = {.end = chat->whole.text.count, .message = (int)i + 1};
        if (!c->messages[i].learned)
            continue;
        RETURN_IF_ERROR(reach(chat, by, where, c, i, true, &answer.begin));
        if (i + 1 < c->count)
            RETURN_IF_ERROR(reach(chat, by, where, c, i + 1, false, &answer.end));
        if (answer.end > answer.begin)
            marked[found++] = answer;
    }
    *out = marked;
    *count = found;
    return 0;
}

/* Text after the last special token of an answer, such as the line end after <|im_end|>, is not
 * learned: generation has ended there. */
static void end_at_specials(const struct rf_tokenizer *tokenizer, const struct rf_marked *marked,
                            size_t count, struct rf_learned *out)
{
    size_t at = 0;
    for (size_t k = 0; k < count; k++) {
        size_t first, last = SIZE_MAX;
        while (at < out->ids.count && out->offsets.list[at].end <= marked[k].begin)
            at++;
        for (first = at; at < out->ids.count && out->offsets.list[at].begin < marked[k].end; at++)
            if (rf_tokenizer_is_special(tokenizer, out->ids.ids[at]))
                last = at;
        for (size_t i = last == SIZE_MAX ? at : last + 1; i < at && i >= first; i++)
            out->flags[i] = 0;
    }
}

/* ---- conversations --------------------------------------------------------------------------- */

int rf_chat_learn(struct rf_chat *chat, const char *where, struct rf_room *room,
                  struct rf_dict *line, struct rf_learned *out)
{
    struct rf_conversation c;
    struct rf_template *by;
    RETURN_IF_ERROR(rf_conversation_read(room, where, line, NULL, &c));
    int rc = rf_chat_pick(chat, &c, &by);
    if (rc < 0)
        return rf_fail(rc, "%s: %s", where, rf_last_error()->message);
    RETURN_IF_ERROR(rf_chat_check(chat, where, &c));
    RETURN_IF_ERROR(rf_chat_render(chat, by, where, &c, c.count, false, &chat->whole));
    RETURN_IF_ERROR(rf_conversation_written(&c, where, by));
    struct rf_marked *marked = chat->whole.marked;
    size_t count = chat->whole.marked_count;
    RETURN_IF_ERROR(rf_template_marks(by) ? drop_unweighted(where, &c, marked, &count)
                                          : find_answers(chat, by, where, &c, &marked, &count));
    out->ids.count = out->offsets.count = 0;
    RETURN_IF_ERROR(rf_tokenizer_encode_offsets(chat->tokenizer, chat->whole.text.bytes,
                                                chat->whole.text.count, NULL, &out->ids,
                                                &out->offsets));
    RETURN_IF_ERROR(rf_learned_grow(out, where, 0));
    learn(marked, count, out);
    if (!rf_template_marks(by))
        end_at_specials(chat->tokenizer, marked, count, out);
    return 0;
}
