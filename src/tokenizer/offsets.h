/* SPDX-License-Identifier: MIT
 *
 * Encoding with the place of each token in the text, to find the learned part of a conversation.
 * Used by io.
 */
#ifndef RF_TOKENIZER_OFFSETS_H
#define RF_TOKENIZER_OFFSETS_H

#include "lists.h"

struct rf_offset {
    uint32_t begin, end; /* bytes of the text, at the borders of characters */
};

/* Zeroed at first; freed with rf_offsets_free; set count to 0 to reuse its memory. */
struct rf_offsets {
    struct rf_offset *list;
    size_t count, capacity;
};
void rf_offsets_free(struct rf_offsets *offsets);

/* Like rf_tokenizer_encode, with the offsets of the `tokenizers` library: an added token covers the
 * white space that it absorbs, a token of a part of a character covers the whole character, and a
 * post-processor may exclude spaces at the ends. One offset per id is appended to *offsets; the
 * special tokens around a text have (0, 0). text is valid UTF-8 of less than 4 GiB. The ids are
 * those of rf_tokenizer_encode. */
RF_MUST_CHECK int rf_tokenizer_encode_offsets(const struct rf_tokenizer *tokenizer,
                                              const char *text, size_t bytes,
                                              const struct rf_encode_opts *opts,
                                              struct rf_token_list *out,
                                              struct rf_offsets *offsets);

/* The first special token that encoding finds in a text; -1: none. */
RF_MUST_CHECK int rf_tokenizer_find_special(const struct rf_tokenizer *tokenizer, const char *text,
                                            size_t bytes, int32_t *out);

#endif
