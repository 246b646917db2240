/* SPDX-License-Identifier: MIT
 *
 * Added tokens: found in a text before the model sees it, leftmost first, then longest. See
 * internal.h.
 */
#include <utf8proc.h>

#include "../base/base.h"
#include "internal.h"
#include "utf8.h"

/* ---- the trie -------------------------------------------------------------------------------- */

static int32_t find_child(const struct rf_trie *trie, int32_t first, uint8_t byte)
{
    while (first != 0 && trie->nodes[first].byte != byte)
        first = trie->nodes[first].next;
    return first;
}

int rf_trie_add(struct rf_trie *trie, const char *text, int32_t index)
{
    int32_t node = 0;
    for (size_t i = 0; text[i]; i++) {
        const uint8_t byte = (uint8_t)text[i];
        int32_t next = i == 0 ? trie->first[byte] : find_child(trie, trie->nodes[node].child, byte);
        if (next == 0) {
            if (trie->count + 1 >= trie->capacity) {
                const int32_t capacity = 2 * trie->capacity + 256;
                struct rf_trie_node *nodes =
                    rf_realloc(trie->nodes, (size_t)capacity * sizeof(*nodes));
                if (!nodes)
                    return rf_fail(RF_ENOMEM, "tokenizer: out of memory for added tokens");
                trie->nodes = nodes;
                trie->capacity = capacity;
            }
            next = ++trie->count; /* node 0 means none */
            trie->nodes[next] = (struct rf_trie_node){.byte = byte};
            if (i == 0) {
                trie->first[byte] = next;
            } else {
                trie->nodes[next].next = trie->nodes[node].child;
                trie->nodes[node].child = next;
            }
        }
        node = next;
    }
    trie->nodes[node].token = index + 1;
    return 0;
}

void rf_trie_free(struct rf_trie *trie)
{
    rf_free(trie->nodes);
    *trie = (struct rf_trie){0};
}

/* The longest token at text[0]: its index and *length; -1: none. */
static int32_t longest(const struct rf_trie *trie, const char *text, size_t bytes, size_t *length)
{
    int32_t token = -1;
    int32_t node = trie->first[(uint8_t)text[0]];
    for (size_t i = 1; node != 0; i++) {
        if (trie->nodes[node].token != 0) {
            token = trie->nodes[node].token - 1;
            *length = i;
        }
        node = i < bytes ? find_child(trie, trie->nodes[node].child, (uint8_t)text[i]) : 0;
    }
    return token;
}

/* ---- what is beside a token ------------------------------------------------------------------ */

/* \w of Rust's regex: letters, marks, decimal digits, letter numbers and connectors. */
static bool is_word(const char *at)
{
    const utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)rf_utf8_read(at));
    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NL) || c == UTF8PROC_CATEGORY_PC;
}

/* Extends a match over white space; `done` is the end of the previous match. */
static void widen(const struct rf_added *added, const char *text, size_t bytes, size_t done,
                  size_t *begin, size_t *end)
{
    while (added->left && *begin > done) {
        const char *before = rf_utf8_before(text + *begin);
        if (!rf_utf8_is_space(rf_utf8_read(before)))
            break;
        *begin = (size_t)(before - text);
    }
    while (added->right && *end < bytes && rf_utf8_is_space(rf_utf8_read(text + *end)))
        *end += rf_utf8_length(text[*end]);
}

int rf_find_added(const struct rf_tokenizer *tokenizer, const struct rf_trie *trie,
                  const char *text, size_t bytes, bool plain, struct rf_words *out)
{
    size_t done = 0, length = 0;
    out->count = 0;
    for (size_t i = 0; trie->count > 0 && i < bytes;) {
        const int32_t index =
            trie->first[(uint8_t)text[i]] == 0 ? -1 : longest(trie, text + i, bytes - i, &length);
        if (index < 0) {
            i++;
            continue;
        }
        const struct rf_added *added = &tokenizer->added[index];
        size_t begin = i, end = i + length;
        i = end;
        if (added->special && plain)
            continue;
        if (added->single_word && ((begin > 0 && is_word(rf_utf8_before(text + begin))) ||
                                   (end < bytes && is_word(text + end))))
            continue;
        widen(added, text, bytes, done, &begin, &end);
        if (done < begin)
            RETURN_IF_ERROR(rf_words_add(out, (struct rf_word){done, begin, -1, done == 0}));
        RETURN_IF_ERROR(rf_words_add(out, (struct rf_word){begin, end, added->id, false}));
        done = end;
    }
    if (done < bytes)
        return rf_words_add(out, (struct rf_word){done, bytes, -1, done == 0});
    return 0;
}
