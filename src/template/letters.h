/* SPDX-License-Identifier: MIT
 *
 * What Python says of characters: white space, letters without a picture, upper and lower case.
 */
#ifndef RF_TEMPLATE_LETTERS_H
#define RF_TEMPLATE_LETTERS_H

#include <stdint.h>

#include "room.h"

/* str.isspace, by which str.strip and str.split go: White_Space of Unicode, and U+001C to U+001F.
 */
bool rf_letter_is_space(uint32_t letter);

/* Where str.splitlines divides. */
bool rf_letter_ends_line(uint32_t letter);

/* str.isprintable: repr writes others as escapes. */
bool rf_letter_is_printable(uint32_t letter);

enum rf_case { RF_CASE_LOWER, RF_CASE_UPPER, RF_CASE_TITLE };

/* Appends the letter in that case to 4 bytes of text, and returns how many it has. RF_ENOTSUP: it
 * would become several letters, or depends on those around it. */
int rf_letter_cased(struct rf_room *room, uint32_t letter, enum rf_case wanted, char out[4]);

/* Whether it has a case, for str.title. */
bool rf_letter_has_case(uint32_t letter);

/* Writes it as UTF-8 and returns the bytes. */
int rf_letter_write(uint32_t letter, char out[4]);

#endif
