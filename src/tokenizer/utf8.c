/* SPDX-License-Identifier: MIT
 *
 * UTF-8, and GPT-2's alphabet of bytes; see utf8.h.
 */
#include "utf8.h"

#include "../base/base.h"

/* The bytes of the valid character at `at`. If there is none: 0, and *part is the length of the
 * maximal part of a character, at least 1 (the Unicode Standard, 3.9, table 3-7). */
static size_t character(const uint8_t *at, size_t left, size_t *part)
{
    uint8_t low = 0x80, high = 0xbf;
    size_t more;
    *part = 1;
    if (at[0] < 0x80)
        return 1;
    if (at[0] >= 0xc2 && at[0] <= 0xdf)
        more = 1;
    else if (at[0] >= 0xe0 && at[0] <= 0xef)
        more = 2;
    else if (at[0] >= 0xf0 && at[0] <= 0xf4)
        more = 3;
    else
        return 0;
    if (at[0] == 0xe0)
        low = 0xa0; /* no longer forms than needed */
    if (at[0] == 0xed)
        high = 0x9f; /* no surrogates */
    if (at[0] == 0xf0)
        low = 0x90;
    if (at[0] == 0xf4)
        high = 0x8f; /* nothing beyond U+10FFFF */
    for (size_t i = 1; i <= more; i++) {
        if (i >= left || at[i] < low || at[i] > high)
            return 0;
        *part = i + 1;
        low = 0x80, high = 0xbf;
    }
    return more + 1;
}

size_t rf_utf8_valid(const char *text, size_t bytes)
{
    const uint8_t *at = (const uint8_t *)text;
    size_t i = 0, part;
    while (i < bytes) {
        uint64_t eight;
        if (bytes - i >= 8 && (memcpy(&eight, at + i, 8), !(eight & 0x8080808080808080u))) {
            i += 8;
            continue;
        }
        const size_t length = character(at + i, bytes - i, &part);
        if (length == 0)
            break;
        i += length;
    }
    return i;
}

int rf_utf8_add_lossy(struct rf_text *out, const char *text, size_t bytes)
{
    RETURN_IF_ERROR(rf_text_reserve(out, bytes));
    for (size_t i = 0; i < bytes;) {
        const size_t valid = rf_utf8_valid(text + i, bytes - i);
        size_t part = 0;
        RETURN_IF_ERROR(rf_text_add(out, text + i, valid));
        i += valid;
        if (i == bytes)
            break;
        character((const uint8_t *)text + i, bytes - i, &part);
        RETURN_IF_ERROR(rf_text_add(out, "\xef\xbf\xbd", 3));
        i += part;
    }
    return rf_text_add(out, "", 0);
}

size_t rf_utf8_incomplete(const char *text, size_t bytes)
{
    for (size_t n = 1; n < 4 && n <= bytes; n++) {
        const uint8_t *at = (const uint8_t *)text + bytes - n;
        size_t part;
        if ((at[0] & 0xc0) != 0x80)
            return at[0] >= 0xc2 && at[0] <= 0xf4 && character(at, n, &part) == 0 && part == n ? n
                                                                                               : 0;
    }
    return 0;
}

static bool is_itself(unsigned byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* Bytes without a letter of their own get the characters from 256 on, in order: 0 to 32, 127 to
 * 160, and 173. */
static unsigned letter_of(unsigned byte)
{
    if (is_itself(byte))
        return byte;
    return 256 + (byte <= 32 ? byte : byte <= 160 ? byte - 127 + 33 : 67);
}

static int byte_of(unsigned letter)
{
    if (letter < 256)
        return is_itself(letter) ? (int)letter : -1;
    letter -= 256;
    return letter < 33    ? (int)letter
           : letter < 67  ? (int)letter - 33 + 127
           : letter == 67 ? 173
                          : -1;
}

size_t rf_byte_to_letter(uint8_t byte, char out[2])
{
    const unsigned letter = letter_of(byte);
    if (letter < 0x80) {
        out[0] = (char)letter;
        return 1;
    }
    out[0] = (char)(0xc0 | letter >> 6);
    out[1] = (char)(0x80 | (letter & 0x3f));
    return 2;
}

int rf_letters_to_bytes(struct rf_text *out, const char *text, size_t bytes)
{
    const size_t before = out->count;
    RETURN_IF_ERROR(rf_text_reserve(out, bytes));
    for (size_t i = 0; i < bytes; i += rf_utf8_length(text[i])) {
        const uint32_t letter = rf_utf8_read(text + i);
        const int byte = letter < 512 ? byte_of(letter) : -1;
        if (byte < 0) {
            out->count = before;
            out->bytes[before] = 0;
            return 0;
        }
        out->bytes[out->count++] = (char)byte;
    }
    out->bytes[out->count] = 0;
    return 1;
}
