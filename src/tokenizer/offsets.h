/* SPDX-License-Identifier: MIT
 *
 * Encoding with the place of each token in the text, by which the part of a conversation that is
 * learned is found. Used by io.
 */
#ifndef RF_TOKENIZER_OFFSETS_H
#define RF_TOKENIZER_OFFSETS_H

#include "lists.h"

struct rf_offset {
    uint32_t begin, end; /* bytes of the text, at the borders of characters */
};

/* Zeroed at first; freed with rf_offsets_free; count may be set to 0 to use its memory again. */
struct rf_offsets {
    struct rf_offset *list;
    size_t count, capacity;
};
void rf_offsets_free(struct rf_offsets *offsets);

/* As rf_tokenizer_encode, with the offsets that the `tokenizers` library gives: an added token
 * covers the white space that it takes, a token of a part of a character covers the whole, and a
 * post-processor may leave spaces at the ends out. They are appended to *offsets, one for each id;
 * the special tokens around a text have none, (0, 0). text is valid UTF-8 of less than 4 GiB. The
 * ids are those of rf_tokenizer_encode. */
RF_MUST_CHECK int rf_tokenizer_encode_offsets(const struct rf_tokenizer *tokenizer,
                                              const char *text, size_t bytes,
                                              const struct rf_encode_opts *opts,
                                              struct rf_token_list *out,
                                              struct rf_offsets *offsets);

/* The first special token that encoding finds in a text; -1: there is none. */
RF_MUST_CHECK int rf_tokenizer_find_special(const struct rf_tokenizer *tokenizer, const char *text,
                                            size_t bytes, int32_t *out);

#endif
