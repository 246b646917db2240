/* SPDX-License-Identifier: MIT
 *
 * Pre-tokenizers: they divide a text into words, within which the model merges. See internal.h.
 */
#include "../base/base.h"
#include "internal.h"
#include "utf8.h"

int rf_words_add(struct rf_words *spans, struct rf_word span)
{
    if (spans->count == spans->capacity) {
        const size_t capacity = 2 * spans->capacity + 64;
        struct rf_word *list = rf_realloc(spans->list, capacity * sizeof(*list));
        if (!list)
            return rf_fail(RF_ENOMEM, "tokenizer: out of memory for the words of a text");
        spans->list = list;
        spans->capacity = capacity;
    }
    spans->list[spans->count++] = span;
    return 0;
}

void rf_words_free(struct rf_words *spans)
{
    rf_free(spans->list);
    *spans = (struct rf_words){0};
}

/* ---- splitting ------------------------------------------------------------------------------- */

struct splitter {
    enum rf_split_behavior behavior;
    struct rf_words *out;
    size_t first;      /* index in `out` of the first part of the current word */
    bool last_matched; /* the part before this one is a match */
};

/* Adds a part of a word: a match, or the text between two. Empty parts count when neighbours are
 * joined, as in the reference, and are removed at the end. */
static int add_part(struct splitter *s, size_t begin, size_t end, bool matched)
{
    const bool before = s->last_matched, any = s->out->count > s->first;
    s->last_matched = matched;
    bool join = false;
    if (s->behavior == RF_SPLIT_CONTIGUOUS)
        join = matched == before;
    else if (s->behavior == RF_SPLIT_MERGED_WITH_PREVIOUS)
        join = matched && !before;
    if (join && any) {
        s->out->list[s->out->count - 1].end = end;
        return 0;
    }
    return rf_words_add(s->out, (struct rf_word){begin, end, matched, false});
}

/* The same for parts from last to first; `token`: the part is a match. */
static void merge_with_next(struct rf_words *spans, size_t first)
{
    bool after = false;
    size_t kept = spans->count;
    for (size_t i = spans->count; i-- > first;) {
        const struct rf_word part = spans->list[i];
        if (part.token && !after && kept < spans->count)
            spans->list[kept].begin = part.begin;
        else
            spans->list[--kept] = part;
        after = part.token;
    }
    memmove(spans->list + first, spans->list + kept, (spans->count - kept) * sizeof(*spans->list));
    spans->count -= kept - first;
}

static int split_word(const struct rf_step *step, struct rf_work *work, struct rf_word word)
{
    struct splitter s = {step->behavior, &work->more, work->more.count, false};
    struct rf_regex_walk walk = {0};
    const char *text = work->text.bytes + word.begin;
    const size_t bytes = word.end - word.begin, first = s.first;
    size_t done = 0, begin, end, kept = first;
    int found;
    while ((found = rf_regex_next(step->regex, work->regex, text, bytes, &walk, &begin, &end)) >
           0) {
        if (done != begin)
            RETURN_IF_ERROR(add_part(&s, word.begin + done, word.begin + begin, step->invert));
        RETURN_IF_ERROR(add_part(&s, word.begin + begin, word.begin + end, !step->invert));
        done = end;
    }
    RETURN_IF_ERROR(found);
    if (done != bytes)
        RETURN_IF_ERROR(add_part(&s, word.begin + done, word.end, step->invert));
    if (step->behavior == RF_SPLIT_MERGED_WITH_NEXT)
        merge_with_next(&work->more, first);
    for (size_t i = first; i < work->more.count; i++) {
        struct rf_word part = work->more.list[i];
        const bool removed = step->behavior == RF_SPLIT_REMOVED && part.token;
        part.first = word.first && part.begin == word.begin;
        part.token = -1;
        if (part.begin < part.end && !removed)
            work->more.list[kept++] = part;
    }
    work->more.count = kept;
    return 0;
}

/* ---- steps that change the text -------------------------------------------------------------- */

/* Prepends a space to each word that has none. */
static int prefix_space(struct rf_work *work, struct rf_word word)
{
    const char *text = work->text.bytes + word.begin;
    const size_t begin = work->other.count;
    if (text[0] != ' ') {
        RETURN_IF_ERROR(rf_text_add(&work->other, " ", 1));
        RETURN_IF_ERROR(rf_places_put(work, word.begin, 1));
    }
    RETURN_IF_ERROR(rf_text_add(&work->other, text, word.end - word.begin));
    RETURN_IF_ERROR(rf_places_keep(work, word.begin, word.end - word.begin));
    return rf_words_add(&work->more, (struct rf_word){begin, work->other.count, -1, word.first});
}

/* Replaces spaces in each word, and may prepend a replacement. */
static int metaspace(const struct rf_step *step, struct rf_work *work, struct rf_word word)
{
    const char *text = work->text.bytes + word.begin, *end = work->text.bytes + word.end;
    const size_t begin = work->other.count, length = strlen(step->text);
    const bool has =
        text[0] == ' ' || ((size_t)(end - text) >= length && memcmp(text, step->text, length) == 0);
    if (!has &&
        (step->prepend == RF_PREPEND_ALWAYS || (step->prepend == RF_PREPEND_FIRST && word.first))) {
        RETURN_IF_ERROR(rf_text_add(&work->other, step->text, length));
        RETURN_IF_ERROR(rf_places_put(work, word.begin, length));
    }
    while (text < end) {
        const char *space = memchr(text, ' ', (size_t)(end - text));
        const size_t at = (size_t)(text - work->text.bytes);
        const size_t plain = (size_t)((space ? space : end) - text);
        RETURN_IF_ERROR(rf_text_add(&work->other, text, plain));
        RETURN_IF_ERROR(rf_places_keep(work, at, plain));
        if (space) {
            RETURN_IF_ERROR(rf_text_add(&work->other, step->text, length));
            RETURN_IF_ERROR(rf_places_put(work, at + plain, length));
        }
        text = space ? space + 1 : end;
    }
    return rf_words_add(&work->more, (struct rf_word){begin, work->other.count, -1, word.first});
}

int rf_pretokenize(const struct rf_steps *steps, struct rf_work *work, bool first)
{
    work->words.count = 0;
    if (work->text.count == 0)
        return 0;
    RETURN_IF_ERROR(rf_words_add(&work->words, (struct rf_word){0, work->text.count, -1, first}));
    for (int k = 0; k < steps->count; k++) {
        const struct rf_step *step = &steps->list[k];
        work->more.count = work->other.count = work->other_from.count = 0;
        for (size_t i = 0; i < work->words.count; i++) {
            const struct rf_word word = work->words.list[i];
            RETURN_IF_ERROR(step->kind == RF_STEP_SPLIT       ? split_word(step, work, word)
                            : step->kind == RF_STEP_METASPACE ? metaspace(step, work, word)
                                                              : prefix_space(work, word));
        }
        const struct rf_words words = work->words;
        work->words = work->more;
        work->more = words;
        if (step->kind == RF_STEP_SPLIT)
            continue;
        const struct rf_text swap = work->text;
        work->text = work->other;
        work->other = swap;
        rf_places_swap(work);
    }
    return 0;
}
