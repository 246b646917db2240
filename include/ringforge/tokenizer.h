/* SPDX-License-Identifier: MIT
 *
 * Tokenizers described by a file tokenizer.json (the format of the `tokenizers` library): BPE on
 * bytes (GPT-2, Llama 3, Qwen) and BPE with a fallback to bytes (Llama 2, Mistral). The ids are
 * those of the `tokenizers` library.
 *
 * Thread safety: a tokenizer does not change after it was opened; any thread may use it, also
 * several at once. A decoder belongs to one thread at a time. No call blocks.
 */
#ifndef RINGFORGE_TOKENIZER_H
#define RINGFORGE_TOKENIZER_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rf_tokenizer;

/* A growing list of token ids. Zeroed at first; the caller frees it with rf_token_list_free and may
 * set count to 0 to reuse its memory. */
struct rf_token_list {
    int32_t *ids;
    size_t count, capacity;
};

/* A growing text, used in the same way. It is zero-terminated once something was appended; `count`
 * does not include the zero. */
struct rf_text {
    char *bytes;
    size_t count, capacity;
};

RF_EXPORT void rf_token_list_free(struct rf_token_list *list);

RF_EXPORT void rf_text_free(struct rf_text *text);

/* ---- tokenizers ------------------------------------------------------------------------------ */

/* Reads a file tokenizer.json, or the one in a folder. In a folder, tokenizer_config.json, if
 * present, determines the tokens that begin and end a text.
 *   Everything in the file is checked. Errors: RF_EIO (cannot be read), RF_ECORRUPT (damaged; the
 * message names the field), RF_ENOTSUP (a kind of model, normalizer, pre-tokenizer, post-processor
 * or decoder that is not implemented; the message names the field and the kind), RF_EINVAL,
 * RF_ENOMEM. The caller closes the tokenizer. */
RF_API int rf_tokenizer_open(const char *path, struct rf_tokenizer **out);

/* NULL is allowed. No call may be using the tokenizer. */
RF_EXPORT void rf_tokenizer_close(struct rf_tokenizer *tokenizer);

/* The highest id plus one, including added tokens. */
RF_EXPORT int32_t rf_tokenizer_vocabulary(const struct rf_tokenizer *tokenizer);

/* The id of a token by its text in the file, special or not; -1 if absent. In byte-level
 * vocabularies the text of a model's token is written in GPT-2's alphabet of bytes ("\u0120the").
 */
RF_EXPORT int32_t rf_tokenizer_id(const struct rf_tokenizer *tokenizer, const char *token);

/* The text of a token in the file; NULL if the id has none. Valid while the tokenizer is open. */
RF_EXPORT const char *rf_tokenizer_token(const struct rf_tokenizer *tokenizer, int32_t id);

/* Whether it is an added token that the file marks as special. */
RF_EXPORT bool rf_tokenizer_is_special(const struct rf_tokenizer *tokenizer, int32_t id);

/* The tokens with a role. They are read from tokenizer_config.json. If it is absent or does not
 * name them, the families' usual names are used (<s>, <|begin_of_text|>, </s>, <|endoftext|>,
 * <|end_of_text|>, ...). -1: none. */
enum rf_token_role { RF_TOKEN_BEGIN, RF_TOKEN_END, RF_TOKEN_PADDING, RF_TOKEN_UNKNOWN };
RF_EXPORT int32_t rf_tokenizer_role(const struct rf_tokenizer *tokenizer, enum rf_token_role role);

/* ---- encoding -------------------------------------------------------------------------------- */

struct rf_encode_opts {
    bool add_special; /* the tokens that the file's post-processor puts around a text */
    bool plain;       /* special tokens that appear in the text are encoded like other text */
};

/* Appends the ids of `bytes` bytes of text. opts: NULL means zeros. Bytes that are not UTF-8 are
 * replaced by U+FFFD, one for each maximal part of a character (the Unicode Standard, 3.9, U+FFFD
 * Substitution of Maximal Subparts; the same as Python's errors="replace"). Zero bytes are text.
 *   A character without a token is omitted, as in the reference, if the vocabulary has neither
 * bytes nor an unknown token. Characters added in Unicode 15 or later may be divided differently
 * from the reference: the installed PCRE2 determines letters and digits.
 *   Errors: RF_EINVAL (more than 1 GiB), RF_ENOTSUP (the regular expression needs too much work on
 * this text), RF_ENOMEM; the list is then as before. */
RF_API int rf_tokenizer_encode(const struct rf_tokenizer *tokenizer, const char *text, size_t bytes,
                               const struct rf_encode_opts *opts, struct rf_token_list *out);

/* ---- decoding -------------------------------------------------------------------------------- */

/* Appends the text of `count` ids as UTF-8. Bytes that are not UTF-8 become U+FFFD. skip_special:
 * special tokens are omitted. Ids without a token are omitted. Errors: RF_EINVAL, RF_ENOMEM. */
RF_API int rf_tokenizer_decode(const struct rf_tokenizer *tokenizer, const int32_t *ids,
                               size_t count, bool skip_special, struct rf_text *out);

/* Decodes a sequence token by token, for output during generation. */
struct rf_decoder;

/* The caller closes the decoder, before the tokenizer. */
RF_API int rf_decoder_open(const struct rf_tokenizer *tokenizer, bool skip_special,
                           struct rf_decoder **out);

/* NULL is allowed. */
RF_EXPORT void rf_decoder_close(struct rf_decoder *decoder);

/* Takes the next id. *text, with *bytes bytes and a zero after them, is the new text: whole
 * characters only, and "" while a character is incomplete. It is valid until the next call. The
 * concatenated parts equal rf_tokenizer_decode of all ids, if the ids' bytes are UTF-8. */
RF_API int rf_decoder_next(struct rf_decoder *decoder, int32_t id, const char **text,
                           size_t *bytes);

/* Ends the sequence: *text is the remaining text, with U+FFFD for an incomplete character. The
 * decoder may then be used for another sequence. */
RF_API int rf_decoder_end(struct rf_decoder *decoder, const char **text, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
