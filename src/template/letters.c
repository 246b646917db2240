/* SPDX-License-Identifier: MIT
 *
 * Character properties as in Python, by utf8proc; see letters.h. Case conversion equals Python
 * 3.11's for all characters that are not refused.
 */
#include "letters.h"

#include <utf8proc.h>

#include "../base/base.h"
#include "../tokenizer/utf8.h"

bool rf_letter_is_space(uint32_t letter)
{
    return rf_utf8_is_space(letter) || (letter >= 0x1c && letter <= 0x1f);
}

bool rf_letter_ends_line(uint32_t letter)
{
    return (letter >= 0xa && letter <= 0xd) || (letter >= 0x1c && letter <= 0x1e) ||
           letter == 0x85 || letter == 0x2028 || letter == 0x2029;
}

bool rf_letter_is_printable(uint32_t letter)
{
    if (letter < 0x7f)
        return letter >= ' ';
    switch (utf8proc_category((utf8proc_int32_t)letter)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return letter == ' ';
    default:
        return true;
    }
}

/* Letters whose case conversion gives several letters (Unicode's SpecialCasing.txt), with some of
 * their neighbours. */
static bool is_special(uint32_t letter, enum rf_case wanted)
{
    static const uint32_t ranges[][2] = {
        {0xdf, 0xdf},   {0x149, 0x149},   {0x1f0, 0x1f0},   {0x390, 0x390},   {0x3b0, 0x3b0},
        {0x587, 0x587}, {0x1e96, 0x1e9a}, {0x1f50, 0x1fff}, {0xfb00, 0xfb17},
    };
    if (wanted == RF_CASE_LOWER) /* the capital I with a dot; sigma, which has a final form */
        return letter == 0x130 || letter == 0x3a3;
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        if (letter >= ranges[i][0] && letter <= ranges[i][1])
            return true;
    return false;
}

int rf_letter_write(uint32_t letter, char out[4])
{
    return (int)utf8proc_encode_char((utf8proc_int32_t)letter, (utf8proc_uint8_t *)out);
}

int rf_letter_cased(struct rf_room *room, uint32_t letter, enum rf_case wanted, char out[4])
{
    const utf8proc_int32_t from = (utf8proc_int32_t)letter;
    if (is_special(letter, wanted))
        return rf_room_fail(room, RF_ENOTSUP, "changing the case of U+%04X is not implemented",
                            (unsigned)letter);
    return rf_letter_write((uint32_t)(wanted == RF_CASE_LOWER   ? utf8proc_tolower(from)
                                      : wanted == RF_CASE_UPPER ? utf8proc_toupper(from)
                                                                : utf8proc_totitle(from)),
                           out);
}

bool rf_letter_has_case(uint32_t letter)
{
    const utf8proc_int32_t from = (utf8proc_int32_t)letter;
    return utf8proc_toupper(from) != from || utf8proc_tolower(from) != from ||
           utf8proc_totitle(from) != from;
}
