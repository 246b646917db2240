/* SPDX-License-Identifier: MIT
 *
 * The parser of templates: the grammar of Jinja2 3.1, less what no published template uses, which
 * is refused by name.
 */
#ifndef RF_TEMPLATE_PARSE_H
#define RF_TEMPLATE_PARSE_H

#include "ast.h"
#include "lex.h"

struct rf_parser {
    struct rf_room *room;
    const struct rf_token *token; /* the next one; the last is RF_T_END */
};

/* parse.c: the whole template. RF_ECORRUPT: it is no template; RF_ENOTSUP: a statement or an
 * operator that is not implemented. */
RF_MUST_CHECK int rf_parse(struct rf_room *room, const struct rf_tokens *tokens,
                           struct rf_nodes *out);

/* ---- parse_expression.c ---------------------------------------------------------------------- */

/* "a", "a if b else c". */
RF_MUST_CHECK int rf_parse_expression(struct rf_parser *p, struct rf_node **out);
/* The same, or several with commas between, as a tuple. choices: "a if b" may be part of it. */
RF_MUST_CHECK int rf_parse_tuple(struct rf_parser *p, bool choices, struct rf_node **out);
/* A name, or a tuple of names; namespaces: also name.attribute. */
RF_MUST_CHECK int rf_parse_target(struct rf_parser *p, bool namespaces, struct rf_node **out);
/* "|a|b(c)" behind a block's tag: the innermost filter has no first. *out NULL: there is none.
 * named: the first one has no "|". */
RF_MUST_CHECK int rf_parse_filters(struct rf_parser *p, bool named, struct rf_node **out);
/* "(a, b=1)" of a macro. */
RF_MUST_CHECK int rf_parse_parameters(struct rf_parser *p, struct rf_node *node);

/* ---- parse_words.c --------------------------------------------------------------------------- */

RF_MUST_CHECK int rf_node_make(struct rf_parser *p, enum rf_node_kind kind, struct rf_node **out);
RF_MUST_CHECK int rf_nodes_add(struct rf_room *room, struct rf_nodes *nodes, struct rf_node *node);
/* Whether the next word is this name or operator. */
bool rf_at_name(const struct rf_parser *p, const char *name);
bool rf_at_operator(const struct rf_parser *p, const char *sign);
/* Passes it, if it is. */
bool rf_pass_name(struct rf_parser *p, const char *name);
bool rf_pass_operator(struct rf_parser *p, const char *sign);
/* RF_ECORRUPT: something else is next. */
RF_MUST_CHECK int rf_expect_operator(struct rf_parser *p, const char *sign);
RF_MUST_CHECK int rf_expect(struct rf_parser *p, enum rf_token_kind kind, const char *what);
/* What the next word is, for messages; returns out. */
const char *rf_describe_word(const struct rf_parser *p, char out[48]);
/* The error at the next word. Returns status. */
int rf_parse_fail(struct rf_parser *p, int status, const char *format, ...) RF_PRINTF(3, 4);

#endif
