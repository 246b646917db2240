/* SPDX-License-Identifier: MIT
 *
 * Texts of tokens and their ids, in both directions. Used by bpe.c, added.c and load.c.
 */
#ifndef RF_TOKENIZER_VOCABULARY_H
#define RF_TOKENIZER_VOCABULARY_H

#include "lists.h"

#define RF_MAX_TOKEN_ID ((1 << 22) - 1)
#define RF_MAX_TOKEN_BYTES 65535

struct rf_vocabulary {
    struct rf_text texts; /* each followed by a zero */
    uint32_t *begin;      /* of each id: where its text begins, plus 1; 0 = none */
    int32_t ids;          /* the highest id plus 1 */
    int32_t capacity;     /* of begin */
    struct rf_vocabulary_slot {
        uint32_t hash;
        int32_t id; /* plus 1; 0 = free */
    } * slots;
    uint32_t mask, used;
};

void rf_vocabulary_free(struct rf_vocabulary *vocabulary);

/* RF_ECORRUPT: the id is out of range, or the text or the id exists already; `field` is for
 * messages. */
RF_MUST_CHECK int rf_vocabulary_add(struct rf_vocabulary *vocabulary, const char *field,
                                    const char *text, size_t bytes, int64_t id);

/* -1: none. */
int32_t rf_vocabulary_find(const struct rf_vocabulary *vocabulary, const char *text, size_t bytes);

/* NULL: none. */
const char *rf_vocabulary_text(const struct rf_vocabulary *vocabulary, int32_t id);

/* FNV-like, eight bytes at a time; for tables of this layer. */
static inline uint32_t rf_hash_bytes(const char *text, size_t bytes)
{
    uint64_t hash = bytes * 0x9e3779b97f4a7c15u, part;
    for (; bytes >= 8; bytes -= 8, text += 8) {
        __builtin_memcpy(&part, text, 8);
        hash = (hash ^ part) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    part = 0;
    __builtin_memcpy(&part, text, bytes);
    hash = (hash ^ part) * 0xff51afd7ed558ccdu;
    hash = (hash ^ hash >> 32) * 0xc4ceb9fe1a85ec53u;
    return (uint32_t)(hash >> 32);
}

#endif
