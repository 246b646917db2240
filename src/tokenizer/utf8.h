/* SPDX-License-Identifier: MIT
 *
 * UTF-8, and GPT-2's alphabet of bytes. Used by every file of this layer.
 */
#ifndef RF_TOKENIZER_UTF8_H
#define RF_TOKENIZER_UTF8_H

#include "lists.h"

/* The length of the prefix that is valid UTF-8. */
size_t rf_utf8_valid(const char *text, size_t bytes);

/* Appends text; each maximal part of a character that is not UTF-8 becomes U+FFFD. */
RF_MUST_CHECK int rf_utf8_add_lossy(struct rf_text *out, const char *text, size_t bytes);

/* The number of bytes at the end, 0 to 3, that may begin a character. */
size_t rf_utf8_incomplete(const char *text, size_t bytes);

/* The length of the character that begins with this byte of valid text. */
static inline size_t rf_utf8_length(char first)
{
    const uint8_t byte = (uint8_t)first;
    return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

/* The character at the beginning of valid text. */
static inline uint32_t rf_utf8_read(const char *text)
{
    const uint8_t *at = (const uint8_t *)text;
    if (at[0] < 0x80)
        return at[0];
    if (at[0] < 0xe0)
        return (at[0] & 0x1fu) << 6 | (at[1] & 0x3fu);
    if (at[0] < 0xf0)
        return (at[0] & 0xfu) << 12 | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu);
    return (at[0] & 7u) << 18 | (at[1] & 0x3fu) << 12 | (at[2] & 0x3fu) << 6 | (at[3] & 0x3fu);
}

/* White_Space of Unicode. */
static inline bool rf_utf8_is_space(uint32_t code)
{
    return (code >= 9 && code <= 13) || code == 32 || code == 0x85 || code == 0xa0 ||
           code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
           code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

/* The character before `at`, which is not at the beginning of valid text. */
static inline const char *rf_utf8_before(const char *at)
{
    do
        at--;
    while (((uint8_t)*at & 0xc0) == 0x80);
    return at;
}

/* The character of GPT-2's alphabet for a byte: below 512, so one or two bytes of UTF-8. Returns
 * their number (https://github.com/openai/gpt-2/blob/master/src/encoder.py). */
size_t rf_byte_to_letter(uint8_t byte, char out[2]);

/* Appends the bytes that `text` stands for in the alphabet. Returns 0 and appends nothing if a
 * character is not in it, else 1; RF_ENOMEM. */
RF_MUST_CHECK int rf_letters_to_bytes(struct rf_text *out, const char *text, size_t bytes);

#endif
