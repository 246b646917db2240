/* SPDX-License-Identifier: MIT
 *
 * The public calls of a tokenizer that was opened; see tokenizer.h. Encoding: added tokens are
 * taken out of the text, what is between is normalized, divided into words, and encoded by the
 * model.
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

/* Encodes work->text, which has no added tokens any more. */
static int encode_text(const struct rf_tokenizer *tokenizer, struct rf_work *work, bool first,
                       struct rf_token_list *out)
{
    RETURN_IF_ERROR(rf_pretokenize(&tokenizer->pre, work, first));
    for (size_t i = 0; i < work->words.count; i++) {
        const struct rf_word word = work->words.list[i];
        RETURN_IF_ERROR(rf_bpe_encode(&tokenizer->bpe, work->bpe, work->text.bytes + word.begin,
                                      word.end - word.begin, out));
    }
    return 0;
}

/* Encodes a part of the text between added tokens that are not normalized. */
static int encode_part(const struct rf_tokenizer *tokenizer, struct rf_work *work, const char *text,
                       struct rf_word part, bool plain, struct rf_token_list *out)
{
    work->text.count = 0;
    RETURN_IF_ERROR(rf_text_add(&work->text, text + part.begin, part.end - part.begin));
    RETURN_IF_ERROR(rf_normalize(&tokenizer->normalizer, work));
    if (tokenizer->normalized.count == 0)
        return encode_text(tokenizer, work, part.first, out);
    struct rf_text normalized = {0}; /* encode_text changes work->text */
    RETURN_IF_ERROR(rf_text_add(&normalized, work->text.bytes, work->text.count));
    int rc = rf_find_added(tokenizer, &tokenizer->normalized, normalized.bytes, normalized.count,
                           plain, &work->inner);
    for (size_t i = 0; rc == 0 && i < work->inner.count; i++) {
        const struct rf_word span = work->inner.list[i];
        if (span.token >= 0) {
            rc = rf_token_list_add(out, span.token);
            continue;
        }
        work->text.count = 0;
        rc = rf_text_add(&work->text, normalized.bytes + span.begin, span.end - span.begin);
        if (rc == 0)
            rc = encode_text(tokenizer, work, part.first && span.first, out);
    }
    rf_text_free(&normalized);
    return rc;
}

static int add_template(const int32_t *ids, int count, bool wanted, struct rf_token_list *out)
{
    for (int i = 0; wanted && i < count; i++)
        RETURN_IF_ERROR(rf_token_list_add(out, ids[i]));
    return 0;
}

static int encode(const struct rf_tokenizer *tokenizer, struct rf_work *work, const char *text,
                  size_t bytes, const struct rf_encode_opts *opts, struct rf_token_list *out)
{
    if (rf_utf8_valid(text, bytes) < bytes) {
        work->valid.count = 0;
        RETURN_IF_ERROR(rf_utf8_add_lossy(&work->valid, text, bytes));
        text = work->valid.bytes;
        bytes = work->valid.count;
    }
    RETURN_IF_ERROR(
        add_template(tokenizer->before, tokenizer->before_count, opts->add_special, out));
    RETURN_IF_ERROR(
        rf_find_added(tokenizer, &tokenizer->plain, text, bytes, opts->plain, &work->outer));
    for (size_t i = 0; i < work->outer.count; i++) {
        const struct rf_word part = work->outer.list[i];
        if (part.token >= 0)
            RETURN_IF_ERROR(rf_token_list_add(out, part.token));
        else
            RETURN_IF_ERROR(encode_part(tokenizer, work, text, part, opts->plain, out));
    }
    return add_template(tokenizer->after, tokenizer->after_count, opts->add_special, out);
}

int rf_tokenizer_encode(const struct rf_tokenizer *tokenizer, const char *text, size_t bytes,
                        const struct rf_encode_opts *opts, struct rf_token_list *out)
{
    const struct rf_encode_opts none = {0};
    struct rf_work *work;
    if (!tokenizer || (!text && bytes > 0) || !out)
        return rf_fail(RF_EINVAL, "tokenizer: a tokenizer, a text and a list are needed");
    if (bytes > MAX_TEXT)
        return rf_fail(RF_EINVAL,
                       "tokenizer: the text has %zu bytes; at most %zu are encoded at once", bytes,
                       MAX_TEXT);
    RETURN_IF_ERROR(rf_work_take(tokenizer, &work));
    const size_t before = out->count;
    const int rc = encode(tokenizer, work, text ? text : "", bytes, opts ? opts : &none, out);
    if (rc < 0)
        out->count = before;
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
