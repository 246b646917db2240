/* SPDX-License-Identifier: MIT
 *
 * JSON as Python's json.loads reads it: whole numbers stay whole, 1.0 stays 1.0, a text may have
 * zeros. cJSON, which reads the files of models, makes one kind of number of both and ends texts at
 * zeros, and templates write the difference. Used for lines of data and for tools.
 */
#ifndef RF_TEMPLATE_JSON_H
#define RF_TEMPLATE_JSON_H

#include "value.h"

/* Reads one value at text[*at], and moves *at behind it and the white space that follows. text is
 * valid UTF-8 that lasts as long as the room, as texts without escapes are parts of it.
 * RF_ECORRUPT: it is not JSON, has a key twice, half of a surrogate pair, or a whole number of more
 * than 64 bits; the message begins with room->where and names the byte. */
RF_MUST_CHECK int rf_json_read(struct rf_room *room, const char *text, size_t bytes, size_t *at,
                               struct rf_value *out);

/* Moves *at over white space. */
void rf_json_skip(const char *text, size_t bytes, size_t *at);

#endif
