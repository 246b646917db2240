/* SPDX-License-Identifier: MIT
 *
 * The parts of a tokenizer: the fields of tokenizer.json as lists of steps. Read by load.c, run by
 * normalize.c, pretokenize.c, added.c and decode.c, which encode.c and stream.c call.
 */
#ifndef RF_TOKENIZER_INTERNAL_H
#define RF_TOKENIZER_INTERNAL_H

#include <pthread.h>

#include "bpe.h"
#include "offsets.h"
#include "regex.h"

enum { RF_MAX_STEPS = 64, RF_MAX_TEMPLATE = 64 };

enum rf_step_kind {
    RF_STEP_NFC, /* normalizers */
    RF_STEP_NFD,
    RF_STEP_NFKC,
    RF_STEP_NFKD,
    RF_STEP_PREPEND,
    RF_STEP_REPLACE, /* also a decoder */
    RF_STEP_STRIP,   /* also a decoder, with start and stop */
    RF_STEP_SPLIT,   /* pre-tokenizers */
    RF_STEP_METASPACE,
    RF_STEP_PREFIX_SPACE,
    RF_STEP_BYTE_LEVEL, /* decoders */
    RF_STEP_BYTE_FALLBACK,
    RF_STEP_FUSE,
    RF_STEP_UNDO_METASPACE
};

enum rf_split_behavior {
    RF_SPLIT_REMOVED,
    RF_SPLIT_ISOLATED,
    RF_SPLIT_MERGED_WITH_PREVIOUS,
    RF_SPLIT_MERGED_WITH_NEXT,
    RF_SPLIT_CONTIGUOUS
};

enum rf_prepend { RF_PREPEND_ALWAYS, RF_PREPEND_FIRST, RF_PREPEND_NEVER };

struct rf_step {
    enum rf_step_kind kind;
    struct rf_regex *regex; /* replace, split */
    char *text;             /* prepended, inserted, stripped, or metaspace's replacement */
    enum rf_split_behavior behavior;
    enum rf_prepend prepend;
    bool invert;      /* split: text that the expression does not match counts as a match */
    bool left, right; /* strip */
    int start, stop;  /* strip, of a decoder */
};

struct rf_steps {
    struct rf_step list[RF_MAX_STEPS];
    int count;
};

struct rf_added {
    char *content, *normalized; /* normalized: as it appears in normalized text; NULL = content */
    int32_t id;
    bool special, in_normalized, single_word, left, right;
};

/* A trie that finds the longest added token at a place. */
struct rf_trie {
    struct rf_trie_node {
        int32_t child, next; /* the first child, and the next sibling; 0 = none */
        int32_t token;       /* index plus 1; 0 = none ends here */
        uint8_t byte;
    } * nodes;
    int32_t count, capacity;
    int32_t first[256]; /* the nodes of depth 1 */
};

struct rf_word {
    size_t begin, end;
    int32_t token; /* an id; -1: text */
    bool first;    /* begins where the text begins */
};

struct rf_words {
    struct rf_word *list;
    size_t count, capacity;
};

/* The origin of each byte of a text: the characters it was made of, as bytes of the encoded text.
 * As in the reference, a character that several were composed to has the origin of the first. */
struct rf_places {
    struct rf_offset *list;
    size_t count, capacity;
};

/* Working memory of one thread. */
struct rf_work {
    struct rf_work *next;
    struct rf_regex_state *regex;
    struct rf_bpe_state *bpe;
    struct rf_text valid, text, other;
    struct rf_words outer, inner, words, more;
    bool places; /* the next two are maintained, for text and other */
    struct rf_places from, other_from;
};

struct rf_tokenizer {
    struct rf_bpe bpe;
    struct rf_steps normalizer, pre, decoder;
    bool has_decoder;
    struct rf_added *added;
    int32_t added_count;
    int32_t *added_at; /* of each id: index plus 1 */
    int32_t vocabulary;
    struct rf_trie plain, normalized;
    int32_t before[RF_MAX_TEMPLATE], after[RF_MAX_TEMPLATE]; /* special tokens around a text */
    int before_count, after_count;
    int trims;         /* the number of post-processors that trim spaces from offsets */
    bool trims_prefix; /* but not the space that a pre-tokenizer has added in front */
    int32_t roles[4];
    pthread_mutex_t lock; /* of `free` */
    struct rf_work *free;
};

/* Takes unused working memory, or makes some. */
RF_MUST_CHECK int rf_work_take(const struct rf_tokenizer *tokenizer, struct rf_work **out);
void rf_work_give(const struct rf_tokenizer *tokenizer, struct rf_work *work);
void rf_work_free(struct rf_work *work);

RF_MUST_CHECK int rf_words_add(struct rf_words *spans, struct rf_word span);
void rf_words_free(struct rf_words *spans);

/* places.c: these do nothing without work->places. Appends the places of `count` bytes of the text
 * from `begin` to those of `other`. */
RF_MUST_CHECK int rf_places_keep(struct rf_work *work, size_t begin, size_t count);
/* Appends `count` new bytes with the place of the byte at `at` of the text; at the end of the text,
 * of the byte before. */
RF_MUST_CHECK int rf_places_put(struct rf_work *work, size_t at, size_t count);
/* Sets the places of a text of `count` bytes that begins at `begin` of the encoded text. */
RF_MUST_CHECK int rf_places_begin(struct rf_work *work, const char *text, size_t begin,
                                  size_t count);
/* Swaps the places of text and other. */
void rf_places_swap(struct rf_work *work);
/* The place of bytes begin to end of the text; begin < end. */
struct rf_offset rf_places_of(const struct rf_places *places, size_t begin, size_t end);

/* normalize.c: applies all steps to work->text, in place. */
RF_MUST_CHECK int rf_normalize(const struct rf_steps *steps, struct rf_work *work);
/* normal_form.c: converts `bytes` bytes of work->text from `begin` to a normal form and appends
 * them to work->other with their places. */
RF_MUST_CHECK int rf_normal_form_places(struct rf_work *work, size_t begin, size_t bytes,
                                        int options);
/* Replaces every match of the step in `from`, and appends the text to `out`. */
RF_MUST_CHECK int rf_replace(const struct rf_step *step, struct rf_regex_state *state,
                             const char *from, size_t bytes, struct rf_text *out);

/* pretokenize.c: divides work->text into work->words. The steps may change work->text. first: the
 * text begins where the user's text begins. */
RF_MUST_CHECK int rf_pretokenize(const struct rf_steps *steps, struct rf_work *work, bool first);

/* added.c */
RF_MUST_CHECK int rf_trie_add(struct rf_trie *trie, const char *text, int32_t index);
void rf_trie_free(struct rf_trie *trie);
/* Divides text into added tokens and the parts between them. plain: special tokens count as text.
 */
RF_MUST_CHECK int rf_find_added(const struct rf_tokenizer *tokenizer, const struct rf_trie *trie,
                                const char *text, size_t bytes, bool plain, struct rf_words *out);

/* load.c, load_added.c and load_steps.c: the fields of tokenizer.json. */
struct cJSON;
RF_MUST_CHECK int rf_load_normalizer(struct rf_tokenizer *tokenizer, const struct cJSON *json);
RF_MUST_CHECK int rf_load_pretokenizer(struct rf_tokenizer *tokenizer, const struct cJSON *json);
RF_MUST_CHECK int rf_load_decoder(struct rf_tokenizer *tokenizer, const struct cJSON *json);
RF_MUST_CHECK int rf_load_template(struct rf_tokenizer *tokenizer, const struct cJSON *json);
RF_MUST_CHECK int rf_load_added(struct rf_tokenizer *tokenizer, const struct cJSON *json);
/* Sets the form of an added token in normalized text. */
RF_MUST_CHECK int rf_normalize_added(struct rf_tokenizer *tokenizer, struct rf_added *added);
/* Rebuilds the table of added tokens by id, and the tries. */
RF_MUST_CHECK int rf_index_added(struct rf_tokenizer *tokenizer);
/* Refuses an add_prefix_space of tokenizer_config.json (or NULL) that contradicts the
 * pre-tokenizer. */
RF_MUST_CHECK int rf_check_prefix(const struct rf_tokenizer *tokenizer, const struct cJSON *json);
RF_MUST_CHECK int rf_load_bpe(struct rf_bpe *bpe, const struct cJSON *json);
void rf_steps_free(struct rf_steps *steps);

/* decode.c: decodes the ids through the decoder's steps, and appends the text. raw: bytes that are
 * not UTF-8 are kept. */
RF_MUST_CHECK int rf_decode(const struct rf_tokenizer *tokenizer, struct rf_work *work,
                            const int32_t *ids, size_t count, bool skip_special, bool raw,
                            struct rf_text *out);

#endif
