/* SPDX-License-Identifier: MIT
 *
 * Decoders: the texts of tokens become one text. As in the reference, each step maps a list of
 * texts to a list of texts. See internal.h.
 */
#include "../base/base.h"
#include "internal.h"
#include "utf8.h"

#define REPLACEMENT "\xef\xbf\xbd"

/* work->words are the texts, spans of work->text; a step writes work->more and work->other. */
static int add_text(struct rf_work *work, const char *bytes, size_t count)
{
    const size_t begin = work->other.count;
    RETURN_IF_ERROR(rf_text_add(&work->other, bytes, count));
    return rf_words_add(&work->more, (struct rf_word){begin, begin + count, -1, false});
}

static int byte_level(struct rf_work *work, bool raw)
{
    struct rf_text bytes = {0};
    int rc = 0;
    for (size_t i = 0; rc >= 0 && i < work->words.count; i++) {
        const struct rf_word word = work->words.list[i];
        const char *text = work->text.bytes + word.begin;
        rc = rf_letters_to_bytes(&bytes, text, word.end - word.begin);
        if (rc == 0)
            rc = rf_text_add(&bytes, text, word.end - word.begin);
    }
    if (rc >= 0)
        rc = raw ? rf_text_add(&work->other, bytes.bytes, bytes.count)
                 : rf_utf8_add_lossy(&work->other, bytes.bytes, bytes.count);
    rf_text_free(&bytes);
    RETURN_IF_ERROR(rc);
    return rf_words_add(&work->more, (struct rf_word){0, work->other.count, -1, false});
}

static int fuse(struct rf_work *work)
{
    for (size_t i = 0; i < work->words.count; i++) {
        const struct rf_word word = work->words.list[i];
        RETURN_IF_ERROR(
            rf_text_add(&work->other, work->text.bytes + word.begin, word.end - word.begin));
    }
    return rf_words_add(&work->more, (struct rf_word){0, work->other.count, -1, false});
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The byte of "<0xAB>"; -1: another token. */
static int byte_of_token(const char *text, size_t bytes)
{
    if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    if (text[3] == '+' && hex_digit(text[4]) >= 0)
        return hex_digit(text[4]); /* Rust accepts a sign */
    return hex_digit(text[3]) < 0 || hex_digit(text[4]) < 0
               ? -1
               : 16 * hex_digit(text[3]) + hex_digit(text[4]);
}

/* Ends a run of bytes: valid UTF-8 becomes a text, otherwise each byte becomes a replacement
 * character. */
static int end_run(struct rf_work *work, struct rf_text *run, bool raw)
{
    int rc = 0;
    if (run->count > 0 && (raw || rf_utf8_valid(run->bytes, run->count) == run->count))
        rc = add_text(work, run->bytes, run->count);
    else
        for (size_t i = 0; rc == 0 && i < run->count; i++)
            rc = add_text(work, REPLACEMENT, 3);
    run->count = 0;
    return rc;
}

static int byte_fallback(struct rf_work *work, bool raw)
{
    struct rf_text run = {0};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < work->words.count; i++) {
        const struct rf_word word = work->words.list[i];
        const char *text = work->text.bytes + word.begin;
        const int byte = byte_of_token(text, word.end - word.begin);
        if (byte >= 0) {
            rc = rf_text_add(&run, &(char){(char)byte}, 1);
            continue;
        }
        rc = end_run(work, &run, raw);
        if (rc == 0)
            rc = add_text(work, text, word.end - word.begin);
    }
    if (rc == 0)
        rc = end_run(work, &run, raw);
    rf_text_free(&run);
    return rc;
}

/* Strips up to `start` and `stop` copies of one character from the ends. */
static int strip(const struct rf_step *step, struct rf_work *work, struct rf_word word)
{
    const char *text = work->text.bytes;
    const size_t length = strlen(step->text);
    for (int i = 0; i < step->start && word.end - word.begin >= length &&
                    memcmp(text + word.begin, step->text, length) == 0;
         i++)
        word.begin += length;
    for (int i = 0; i < step->stop && word.end - word.begin >= length &&
                    memcmp(text + word.end - length, step->text, length) == 0;
         i++)
        word.end -= length;
    return add_text(work, text + word.begin, word.end - word.begin);
}

/* The replacement becomes a space; at the beginning of the first text it is removed. */
static int undo_metaspace(const struct rf_step *step, struct rf_work *work, size_t index)
{
    const struct rf_word word = work->words.list[index];
    const char *text = work->text.bytes + word.begin, *end = work->text.bytes + word.end;
    const size_t begin = work->other.count, length = strlen(step->text);
    while (text < end) {
        const size_t bytes = rf_utf8_length(*text);
        if (bytes != length || memcmp(text, step->text, length) != 0)
            RETURN_IF_ERROR(rf_text_add(&work->other, text, bytes));
        else if (index > 0 || step->prepend == RF_PREPEND_NEVER)
            RETURN_IF_ERROR(rf_text_add(&work->other, " ", 1));
        text += bytes;
    }
    return rf_words_add(&work->more, (struct rf_word){begin, work->other.count, -1, false});
}

static int each_text(const struct rf_step *step, struct rf_work *work)
{
    for (size_t i = 0; i < work->words.count; i++) {
        const struct rf_word word = work->words.list[i];
        const size_t begin = work->other.count;
        if (step->kind == RF_STEP_STRIP) {
            RETURN_IF_ERROR(strip(step, work, word));
        } else if (step->kind == RF_STEP_UNDO_METASPACE) {
            RETURN_IF_ERROR(undo_metaspace(step, work, i));
        } else {
            RETURN_IF_ERROR(rf_replace(step, work->regex, work->text.bytes + word.begin,
                                       word.end - word.begin, &work->other));
            RETURN_IF_ERROR(
                rf_words_add(&work->more, (struct rf_word){begin, work->other.count, -1, false}));
        }
    }
    return 0;
}

static int gather(const struct rf_tokenizer *tokenizer, struct rf_work *work, const int32_t *ids,
                  size_t count, bool skip_special)
{
    work->more.count = work->other.count = 0;
    for (size_t i = 0; i < count; i++) {
        const int32_t id = ids[i];
        const int32_t index =
            id >= 0 && id < tokenizer->vocabulary ? tokenizer->added_at[id] - 1 : -1;
        const struct rf_added *added = index < 0 ? NULL : &tokenizer->added[index];
        if (added && added->special && skip_special)
            continue;
        const char *text = added && added->normalized ? added->normalized
                           : added                    ? added->content
                                   : rf_vocabulary_text(&tokenizer->bpe.vocabulary, id);
        if (!text)
            continue;
        if (!tokenizer->has_decoder && work->more.count > 0)
            RETURN_IF_ERROR(add_text(work, " ", 1));
        RETURN_IF_ERROR(add_text(work, text, strlen(text)));
    }
    return 0;
}

static void swap_texts(struct rf_work *work)
{
    const struct rf_words words = work->words;
    const struct rf_text text = work->text;
    work->words = work->more;
    work->text = work->other;
    work->more = words;
    work->other = text;
}

int rf_decode(const struct rf_tokenizer *tokenizer, struct rf_work *work, const int32_t *ids,
              size_t count, bool skip_special, bool raw, struct rf_text *out)
{
    RETURN_IF_ERROR(gather(tokenizer, work, ids, count, skip_special));
    swap_texts(work);
    for (int i = 0; i < tokenizer->decoder.count; i++) {
        const struct rf_step *step = &tokenizer->decoder.list[i];
        work->more.count = work->other.count = 0;
        RETURN_IF_ERROR(step->kind == RF_STEP_BYTE_LEVEL      ? byte_level(work, raw)
                        : step->kind == RF_STEP_BYTE_FALLBACK ? byte_fallback(work, raw)
                        : step->kind == RF_STEP_FUSE          ? fuse(work)
                                                              : each_text(step, work));
        swap_texts(work);
    }
    for (size_t i = 0; i < work->words.count; i++) {
        const struct rf_word word = work->words.list[i];
        RETURN_IF_ERROR(rf_text_add(out, work->text.bytes + word.begin, word.end - word.begin));
    }
    return rf_text_add(out, "", 0);
}
