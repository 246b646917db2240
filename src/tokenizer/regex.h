/* SPDX-License-Identifier: MIT
 *
 * Regular expressions with the meaning that they have in tokenizer.json, whose reference uses
 * Oniguruma. Searched by PCRE2, with its JIT compiler if available. Used by pretokenize.c,
 * normalize.c and decode.c.
 */
#ifndef RF_TOKENIZER_REGEX_H
#define RF_TOKENIZER_REGEX_H

#include "lists.h"

struct rf_regex;

/* The working memory of a search; one thread at a time. */
struct rf_regex_state;

/* field: for messages. literal: search for the text itself. RF_ECORRUPT (not an expression),
 * RF_ENOTSUP (a construct that the two libraries interpret differently). */
RF_MUST_CHECK int rf_regex_open(const char *field, const char *pattern, bool literal,
                                struct rf_regex **out);
void rf_regex_close(struct rf_regex *regex); /* NULL is allowed */

RF_MUST_CHECK int rf_regex_state_open(struct rf_regex_state **out);
void rf_regex_state_close(struct rf_regex_state *state);

/* A walk over all matches of an expression in valid UTF-8; zeroed at first. */
struct rf_regex_walk {
    size_t from, last_end;
    bool any;
};

/* The next match: 1 and its bounds, or 0. An empty match directly after the last match does not
 * count. RF_ENOTSUP: the limit of work was reached. */
RF_MUST_CHECK int rf_regex_next(const struct rf_regex *regex, struct rf_regex_state *state,
                                const char *text, size_t bytes, struct rf_regex_walk *walk,
                                size_t *begin, size_t *end);

#endif
