/* SPDX-License-Identifier: MIT
 *
 * The tokens of a template. Used by the parser.
 */
#ifndef RF_TEMPLATE_LEX_H
#define RF_TEMPLATE_LEX_H

#include "value.h"

enum rf_token_kind {
    RF_T_END,
    RF_T_DATA,
    RF_T_BLOCK_BEGIN,
    RF_T_BLOCK_END,
    RF_T_VARIABLE_BEGIN,
    RF_T_VARIABLE_END,
    RF_T_NAME,
    RF_T_STRING,
    RF_T_INTEGER,
    RF_T_OPERATOR
};

struct rf_token {
    enum rf_token_kind kind;
    char sign[3];             /* "==", "(" */
    unsigned line;            /* from 1 */
    int64_t whole;            /* of an integer */
    struct rf_string *string; /* data, name, string */
};

struct rf_tokens {
    struct rf_token *list; /* the last one is RF_T_END */
    size_t count, capacity;
};

/* Divides a template as Jinja2 does with trim_blocks and lstrip_blocks. text is valid UTF-8.
 * RF_ECORRUPT: not a template; RF_ENOTSUP: numbers with a fraction, names beyond ASCII. */
RF_MUST_CHECK int rf_lex(struct rf_room *room, const char *text, size_t bytes,
                         struct rf_tokens *out);

#endif
