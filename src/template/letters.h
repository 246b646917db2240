/* SPDX-License-Identifier: MIT
 *
 * Character properties as in Python: white space, printable characters, upper and lower case.
 */
#ifndef RF_TEMPLATE_LETTERS_H
#define RF_TEMPLATE_LETTERS_H

#include <stdint.h>

#include "room.h"

/* str.isspace, which str.strip and str.split use: White_Space of Unicode, and U+001C to U+001F. */
bool rf_letter_is_space(uint32_t letter);

/* Whether str.splitlines divides here. */
bool rf_letter_ends_line(uint32_t letter);

/* str.isprintable: repr writes others as escapes. */
bool rf_letter_is_printable(uint32_t letter);

enum rf_case { RF_CASE_LOWER, RF_CASE_UPPER, RF_CASE_TITLE };

/* Writes the letter in that case to `out`, and returns the number of bytes. RF_ENOTSUP: it becomes
 * several letters, or depends on its neighbours. */
int rf_letter_cased(struct rf_room *room, uint32_t letter, enum rf_case wanted, char out[4]);

/* Whether the letter has a case, for str.title. */
bool rf_letter_has_case(uint32_t letter);

/* Writes the letter as UTF-8 and returns the number of bytes. */
int rf_letter_write(uint32_t letter, char out[4]);

#endif
