/* SPDX-License-Identifier: MIT
 *
 * JSON as Python's json.loads reads it: whole numbers stay whole, 1.0 stays 1.0, a text may contain
 * zeros. cJSON, which reads model files, has one kind of number and ends texts at zeros; templates
 * would show the difference. Used for lines of data and for tools.
 */
#ifndef RF_TEMPLATE_JSON_H
#define RF_TEMPLATE_JSON_H

#include "value.h"

/* Reads one value at text[*at], and moves *at past it and the white space after it. text is valid
 * UTF-8 and must last as long as the room, because texts without escapes point into it.
 * RF_ECORRUPT: not JSON, a duplicate key, half of a surrogate pair, or a whole number of more than
 * 64 bits; the message begins with room->where and names the byte. */
RF_MUST_CHECK int rf_json_read(struct rf_room *room, const char *text, size_t bytes, size_t *at,
                               struct rf_value *out);

/* Moves *at past white space. */
void rf_json_skip(const char *text, size_t bytes, size_t *at);

#endif
