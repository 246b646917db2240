/* SPDX-License-Identifier: MIT
 *
 * Values as text: Python's str and repr, and json.dumps. Used by the filters and by the output.
 */
#ifndef RF_TEMPLATE_SHOW_H
#define RF_TEMPLATE_SHOW_H

#include "text.h"

/* str(): a text itself, with its mark; "None" for None; nothing for undefined. RF_ENOTSUP: a kind
 * whose Python form is not implemented (macros and generators show an address). */
RF_MUST_CHECK int rf_show(struct rf_room *room, const struct rf_value *value,
                          struct rf_string **out);

struct rf_json_style {
    bool ascii, sorted;
    bool indents;
    struct rf_string *indent;     /* one level; NULL: no indentation */
    struct rf_string *item, *key; /* separators */
};

/* Adds json.dumps of the value. RF_ECORRUPT: a kind that JSON lacks. */
RF_MUST_CHECK int rf_show_json(struct rf_room *room, const struct rf_value *value,
                               const struct rf_json_style *style, struct rf_build *out);

/* repr(float): the shortest digits that give the same number. */
enum { RF_REAL_TEXT = 48 };
void rf_show_real(double real, char out[RF_REAL_TEXT]);

#endif
