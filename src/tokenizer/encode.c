/* SPDX-License-Identifier: MIT
 *
 * The public calls of an open tokenizer; see tokenizer.h. Encoding finds added tokens in the text;
 * the text between them is normalized, divided into words, and encoded by the model.
 */
#include "../base/base.h"
#include "internal.h"
#include "utf8.h"

#define MAX_TEXT ((size_t)1 << 30)

/* ---- working memory -------------------------------------------------------------------------- */

void rf_work_free(struct rf_work *work)
{
    if (!work)
        return;
    rf_regex_state_close(work->regex);
    rf_bpe_state_close(work->bpe);
    rf_text_free(&work->valid);
    rf_text_free(&work->text);
    rf_text_free(&work->other);
    rf_words_free(&work->outer);
    rf_words_free(&work->inner);
    rf_words_free(&work->words);
    rf_words_free(&work->more);
    rf_free(work->from.list);
    rf_free(work->other_from.list);
    rf_free(work);
}

int rf_work_take(const struct rf_tokenizer *tokenizer, struct rf_work **out)
{
    struct rf_tokenizer *owner = (struct rf_tokenizer *)tokenizer; /* behind the lock */
    pthread_mutex_lock(&owner->lock);
    struct rf_work *work = owner->free;
    if (work)
        owner->free = work->next;
    pthread_mutex_unlock(&owner->lock);
    if (!work) {
        work = rf_alloc(sizeof(*work));
        int rc = work ? rf_regex_state_open(&work->regex)
                      : rf_fail(RF_ENOMEM, "tokenizer: out of memory");
        if (rc == 0)
            rc = rf_bpe_state_open(&work->bpe);
        if (rc == 0)
            rc = rf_text_reserve(&work->text, 64);
        if (rc == 0)
            rc = rf_text_reserve(&work->other, 64);
        if (rc < 0) {
            rf_work_free(work);
            return rc;
        }
    }
    *out = work;
    return 0;
}

void rf_work_give(const struct rf_tokenizer *tokenizer, struct rf_work *work)
{
    struct rf_tokenizer *owner = (struct rf_tokenizer *)tokenizer;
    pthread_mutex_lock(&owner->lock);
    work->next = owner->free;
    owner->free = work;
    pthread_mutex_unlock(&owner->lock);
}

/* ---- encoding -------------------------------------------------------------------------------- */

/* The output of an encoding, appended. */
struct result {
    struct rf_token_list *ids;
    struct rf_offsets *offsets; /* NULL: not asked for */
    const struct rf_tokenizer *tokenizer;
    const char *text;
    size_t first; /* offsets that existed before */
};

/* The number of spaces at the beginning or the end of a token's text. */
static size_t count_spaces(const char *token, size_t bytes, bool from_end)
{
    const char *const end = token + bytes, *at = from_end ? end : token;
    size_t count = 0;
    while (from_end ? at > token : at < end) {
        const char *letter = from_end ? rf_utf8_before(at) : at;
        const uint32_t code = rf_utf8_read(letter);
        if (code != 0x120 && !rf_utf8_is_space(code)) /* 0x120: GPT-2's letter of a space */
            break;
        at = from_end ? letter : at + rf_utf8_length(*at);
        count++;
    }
    return count;
}

/* Does what the reference's post-processor ByteLevel does with trim_offsets. */
static void trim(const struct result *out, const char *token, size_t bytes,
                 struct rf_offset *offset)
{
    size_t leading = count_spaces(token, bytes, false), trailing = count_spaces(token, bytes, true);
    const bool first = out->offsets->count == out->first || offset->begin == 0;
    if (first && out->tokenizer->trims_prefix && leading == 1)
        leading = 0;
    for (; leading > 0 && offset->begin < offset->end; leading--)
        offset->begin += (uint32_t)rf_utf8_length(out->text[offset->begin]);
    for (; trailing > 0 && offset->end > offset->begin; trailing--)
        offset->end = (uint32_t)(rf_utf8_before(out->text + offset->end) - out->text);
}

/* token: its text of `bytes` bytes, from the vocabulary or as an added token was found. */
static int add_offset(struct result *out, const char *token, size_t bytes, struct rf_offset offset)
{
    struct rf_offsets *offsets = out->offsets;
    if (!offsets)
        return 0;
    if (offsets->count == offsets->capacity) {
        const size_t capacity = 2 * offsets->capacity + 64;
        struct rf_offset *list = rf_realloc(offsets->list, capacity * sizeof(*list));
        if (!list)
            return rf_fail(RF_ENOMEM, "tokenizer: out of memory for offsets");
        offsets->list = list;
        offsets->capacity = capacity;
    }
    for (int i = 0; i < out->tokenizer->trims; i++)
        trim(out, token, bytes, &offset);
    offsets->list[offsets->count++] = offset;
    return 0;
}

void rf_offsets_free(struct rf_offsets *offsets)
{
    rf_free(offsets->list);
    *offsets = (struct rf_offsets){0};
}

/* Adds the offsets of the ids of a word, from index `before` on. */
static int add_word(const struct rf_tokenizer *tokenizer, const struct rf_work *work,
                    struct rf_word word, size_t before, struct result *out)
{
    uint32_t lengths[64];
    size_t at = word.begin;
    for (size_t i = before; i < out->ids->count;) {
        const size_t left = out->ids->count - i, count = left < 64 ? left : 64;
        RETURN_IF_ERROR(rf_bpe_measure(&tokenizer->bpe, work->text.bytes + at, word.end - at,
                                       out->ids->ids + i, count, lengths));
        for (size_t k = 0; k < count; k++, i++) {
            const char *token = rf_vocabulary_text(&tokenizer->bpe.vocabulary, out->ids->ids[i]);
            const size_t end = at + lengths[k];
            RETURN_IF_ERROR(add_offset(out, token, token ? strlen(token) : 0,
                                       end > at ? rf_places_of(&work->from, at, end)
                                                : (struct rf_offset){0, 0}));
            at = end;
        }
    }
    return 0;
}

/* Encodes work->text, which has no more added tokens. */
static int encode_text(const struct rf_tokenizer *tokenizer, struct rf_work *work, bool first,
                       struct result *out)
{
    RETURN_IF_ERROR(rf_pretokenize(&tokenizer->pre, work, first));
    for (size_t i = 0; i < work->words.count; i++) {
        const struct rf_word word = work->words.list[i];
        const size_t before = out->ids->count;
        RETURN_IF_ERROR(rf_bpe_encode(&tokenizer->bpe, work->bpe, work->text.bytes + word.begin,
                                      word.end - word.begin, out->ids));
        if (out->offsets)
            RETURN_IF_ERROR(add_word(tokenizer, work, word, before, out));
    }
    return 0;
}

/* Encodes normalized text, which may contain added tokens. encode_text changes work->text. */
static int encode_normalized(const struct rf_tokenizer *tokenizer, struct rf_work *work,
                             const struct rf_text *normalized, const struct rf_places *from,
                             bool first, bool plain, struct result *out)
{
    RETURN_IF_ERROR(rf_find_added(tokenizer, &tokenizer->normalized, normalized->bytes,
                                  normalized->count, plain, &work->inner));
    for (size_t i = 0; i < work->inner.count; i++) {
        const struct rf_word span = work->inner.list[i];
        if (span.token >= 0) {
            RETURN_IF_ERROR(rf_token_list_add(out->ids, span.token));
            if (out->offsets)
                RETURN_IF_ERROR(add_offset(out, normalized->bytes + span.begin,
                                           span.end - span.begin,
                                           rf_places_of(from, span.begin, span.end)));
            continue;
        }
        work->text.count = work->other_from.count = 0;
        RETURN_IF_ERROR(
            rf_text_add(&work->text, normalized->bytes + span.begin, span.end - span.begin));
        const struct rf_places kept = work->from; /* rf_places_keep copies from it */
        work->from = *from;
        const int rc = rf_places_keep(work, span.begin, span.end - span.begin);
        work->from = kept;
        RETURN_IF_ERROR(rc);
        rf_places_swap(work);
        RETURN_IF_ERROR(encode_text(tokenizer, work, first && span.first, out));
    }
    return 0;
}

/* Encodes a part of the text between added tokens that are not normalized. */
static int encode_part(const struct rf_tokenizer *tokenizer, struct rf_work *work, const char *text,
                       struct rf_word part, bool plain, struct result *out)
{
    work->text.count = 0;
    RETURN_IF_ERROR(rf_text_add(&work->text, text + part.begin, part.end - part.begin));
    RETURN_IF_ERROR(rf_places_begin(work, text, part.begin, part.end - part.begin));
    RETURN_IF_ERROR(rf_normalize(&tokenizer->normalizer, work));
    if (tokenizer->normalized.count == 0)
        return encode_text(tokenizer, work, part.first, out);
    struct rf_text normalized = {0};
    RETURN_IF_ERROR(rf_text_add(&normalized, work->text.bytes, work->text.count));
    struct rf_places from = work->from;
    work->from = (struct rf_places){0};
    const int rc = encode_normalized(tokenizer, work, &normalized, &from, part.first, plain, out);
    rf_text_free(&normalized);
    rf_free(from.list);
    return rc;
}

static int add_template(const int32_t *ids, int count, bool wanted, struct result *out)
{
    for (int i = 0; wanted && i < count; i++) {
        RETURN_IF_ERROR(rf_token_list_add(out->ids, ids[i]));
        RETURN_IF_ERROR(add_offset(out, "", 0, (struct rf_offset){0, 0}));
    }
    return 0;
}

static int encode(const struct rf_tokenizer *tokenizer, struct rf_work *work, const char *text,
                  size_t bytes, const struct rf_encode_opts *opts, struct result *out)
{
    work->places = out->offsets != NULL;
    out->tokenizer = tokenizer;
    out->first = out->offsets ? out->offsets->count : 0;
    if (rf_utf8_valid(text, bytes) < bytes) {
        work->valid.count = 0;
        RETURN_IF_ERROR(rf_utf8_add_lossy(&work->valid, text, bytes));
        text = work->valid.bytes;
        bytes = work->valid.count;
    }
    out->text = text;
    RETURN_IF_ERROR(
        add_template(tokenizer->before, tokenizer->before_count, opts->add_special, out));
    RETURN_IF_ERROR(
        rf_find_added(tokenizer, &tokenizer->plain, text, bytes, opts->plain, &work->outer));
    for (size_t i = 0; i < work->outer.count; i++) {
        const struct rf_word part = work->outer.list[i];
        if (part.token < 0) {
            RETURN_IF_ERROR(encode_part(tokenizer, work, text, part, opts->plain, out));
            continue;
        }
        RETURN_IF_ERROR(rf_token_list_add(out->ids, part.token));
        RETURN_IF_ERROR(add_offset(out, text + part.begin, part.end - part.begin,
                                   (struct rf_offset){(uint32_t)part.begin, (uint32_t)part.end}));
    }
    return add_template(tokenizer->after, tokenizer->after_count, opts->add_special, out);
}

static int encode_checked(const struct rf_tokenizer *tokenizer, const char *text, size_t bytes,
                          const struct rf_encode_opts *opts, struct result *out)
{
    const struct rf_encode_opts none = {0};
    struct rf_work *work;
    if (bytes > MAX_TEXT)
        return rf_fail(RF_EINVAL,
                       "tokenizer: the text has %zu bytes; at most %zu are encoded at once", bytes,
                       MAX_TEXT);
    RETURN_IF_ERROR(rf_work_take(tokenizer, &work));
    const size_t before = out->ids->count, offsets = out->offsets ? out->offsets->count : 0;
    const int rc = encode(tokenizer, work, text ? text : "", bytes, opts ? opts : &none, out);
    if (rc < 0)
        out->ids->count = before;
    if (rc < 0 && out->offsets)
        out->offsets->count = offsets;
    rf_work_give(tokenizer, work);
    return rc;
}

int rf_tokenizer_encode(const struct rf_tokenizer *tokenizer, const char *text, size_t bytes,
                        const struct rf_encode_opts *opts, struct rf_token_list *out)
{
    struct result result = {.ids = out};
    if (!tokenizer || (!text && bytes > 0) || !out)
        return rf_fail(RF_EINVAL, "tokenizer: a tokenizer, a text and a list are needed");
    return encode_checked(tokenizer, text, bytes, opts, &result);
}

int rf_tokenizer_encode_offsets(const struct rf_tokenizer *tokenizer, const char *text,
                                size_t bytes, const struct rf_encode_opts *opts,
                                struct rf_token_list *out, struct rf_offsets *offsets)
{
    struct result result = {.ids = out, .offsets = offsets};
    return encode_checked(tokenizer, text, bytes, opts, &result);
}

int rf_tokenizer_find_special(const struct rf_tokenizer *tokenizer, const char *text, size_t bytes,
                              int32_t *out)
{
    const struct rf_trie *const tries[] = {&tokenizer->plain, &tokenizer->normalized};
    struct rf_work *work;
    int rc = 0;
    RETURN_IF_ERROR(rf_work_take(tokenizer, &work));
    *out = -1;
    for (int k = 0; rc == 0 && k < 2; k++) {
        rc = rf_find_added(tokenizer, tries[k], text, bytes, false, &work->outer);
        for (size_t i = 0; rc == 0 && *out < 0 && i < work->outer.count; i++)
            if (rf_tokenizer_is_special(tokenizer, work->outer.list[i].token))
                *out = work->outer.list[i].token;
    }
    rf_work_give(tokenizer, work);
    return rc;
}

int rf_tokenizer_decode(const struct rf_tokenizer *tokenizer, const int32_t *ids, size_t count,
                        bool skip_special, struct rf_text *out)
{
    struct rf_work *work;
    if (!tokenizer || (!ids && count > 0) || !out)
        return rf_fail(RF_EINVAL, "tokenizer: a tokenizer, ids and a text are needed");
    RETURN_IF_ERROR(rf_work_take(tokenizer, &work));
    const int rc = rf_decode(tokenizer, work, ids, count, skip_special, false, out);
    rf_work_give(tokenizer, work);
    return rc;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static const struct rf_added *added_of(const struct rf_tokenizer *tokenizer, int32_t id)
{
    const bool known = id >= 0 && id < tokenizer->vocabulary && tokenizer->added_at[id] > 0;
    return known ? &tokenizer->added[tokenizer->added_at[id] - 1] : NULL;
}

int32_t rf_tokenizer_vocabulary(const struct rf_tokenizer *tokenizer)
{
    return tokenizer->vocabulary;
}

int32_t rf_tokenizer_id(const struct rf_tokenizer *tokenizer, const char *token)
{
    for (int32_t i = 0; i < tokenizer->added_count; i++)
        if (strcmp(tokenizer->added[i].content, token) == 0)
            return tokenizer->added[i].id;
    return rf_vocabulary_find(&tokenizer->bpe.vocabulary, token, strlen(token));
}

const char *rf_tokenizer_token(const struct rf_tokenizer *tokenizer, int32_t id)
{
    const struct rf_added *added = added_of(tokenizer, id);
    return added ? added->content : rf_vocabulary_text(&tokenizer->bpe.vocabulary, id);
}

bool rf_tokenizer_is_special(const struct rf_tokenizer *tokenizer, int32_t id)
{
    const struct rf_added *added = added_of(tokenizer, id);
    return added && added->special;
}

int32_t rf_tokenizer_role(const struct rf_tokenizer *tokenizer, enum rf_token_role role)
{
    return (unsigned)role < 4 ? tokenizer->roles[role] : -1;
}
