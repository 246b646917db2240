/* SPDX-License-Identifier: MIT
 *
 * Byte-pair encoding (Sennrich et al. 2016): the model of tokenizer.json. Words, which the
 * pre-tokenizer makes, become ids. Used by load.c and encode.c.
 */
#ifndef RF_TOKENIZER_BPE_H
#define RF_TOKENIZER_BPE_H

#include "vocabulary.h"

enum { RF_DIRECT_LETTERS = 0x3000 };

struct rf_merge {
    uint64_t pair; /* ids of left << 32 | right */
    int32_t rank;  /* plus 1; 0 = a free slot */
    int32_t id;
};

struct rf_bpe {
    struct rf_vocabulary vocabulary;
    bool on_bytes; /* words are bytes, and the vocabulary is written in GPT-2's alphabet */
    bool byte_fallback, fuse_unknown, ignore_merges;
    int32_t unknown;          /* -1: none */
    int32_t byte_tokens[256]; /* "<0x00>" ...; -1: none */
    int32_t letters[256];     /* on_bytes: the id of each byte's letter; -1: none */
    int32_t *direct;          /* else: ids of the characters below RF_DIRECT_LETTERS */
    struct rf_merge *merges;  /* open addressing */
    uint64_t merge_mask, merge_count;
    uint64_t *joints; /* else: pairs of characters that a merge may join; 0 = free */
    uint64_t joint_mask, joint_count;
    bool no_cuts; /* words must not be cut */
};

/* Working memory and the cache of words; one thread at a time. */
struct rf_bpe_state;

void rf_bpe_free(struct rf_bpe *bpe);

/* Adds the next merge of the list, `index` from 0. RF_ECORRUPT: one of the three texts is not a
 * token. */
RF_MUST_CHECK int rf_bpe_add_merge(struct rf_bpe *bpe, int32_t index, const char *left,
                                   size_t left_bytes, const char *right, size_t right_bytes);

/* Call after the vocabulary and the flags are set, before the merges. */
RF_MUST_CHECK int rf_bpe_prepare(struct rf_bpe *bpe);

RF_MUST_CHECK int rf_bpe_state_open(struct rf_bpe_state **out);
void rf_bpe_state_close(struct rf_bpe_state *state);

/* Appends the ids of one word: bytes, or valid UTF-8. */
RF_MUST_CHECK int rf_bpe_encode(const struct rf_bpe *bpe, struct rf_bpe_state *state,
                                const char *word, size_t bytes, struct rf_token_list *out);

/* The number of bytes of the word that each id stands for, as the reference counts them.
 * RF_ENOTSUP: byte tokens were merged. */
RF_MUST_CHECK int rf_bpe_measure(const struct rf_bpe *bpe, const char *word, size_t bytes,
                                 const int32_t *ids, size_t count, uint32_t *lengths);

/* bpe_merge.c: merges the symbols of one word. */
struct rf_symbol {
    int32_t id;             /* -1: merged into the symbol before it */
    int32_t previous, next; /* indices; -1: none */
};
struct rf_symbols {
    struct rf_symbol *list;
    size_t count, capacity;
    struct rf_candidate {
        uint64_t order; /* rank << 32 | index of the left symbol: smallest first */
        int32_t id;
    } * heap;
    size_t heap_count, heap_capacity;
};
const struct rf_merge *rf_bpe_merge_of(const struct rf_bpe *bpe, int32_t left, int32_t right);
/* Merges until no pair of neighbours has a merge; appends the remaining ids to `out`. */
RF_MUST_CHECK int rf_bpe_merge_all(const struct rf_bpe *bpe, struct rf_symbols *symbols,
                                   struct rf_token_list *out);
void rf_symbols_free(struct rf_symbols *symbols);

#endif
