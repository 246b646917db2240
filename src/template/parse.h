/* SPDX-License-Identifier: MIT
 *
 * The parser of templates: the grammar of Jinja2 3.1. Constructs that no published template uses
 * are refused by name.
 */
#ifndef RF_TEMPLATE_PARSE_H
#define RF_TEMPLATE_PARSE_H

#include "ast.h"
#include "lex.h"

struct rf_parser {
    struct rf_room *room;
    const struct rf_token *token; /* the next token; the last is RF_T_END */
};

/* parse.c: parses the whole template. RF_ECORRUPT: not a template; RF_ENOTSUP: a statement or
 * operator that is not implemented. */
RF_MUST_CHECK int rf_parse(struct rf_room *room, const struct rf_tokens *tokens,
                           struct rf_nodes *out);

/* ---- parse_expression.c ---------------------------------------------------------------------- */

/* "a", "a if b else c". */
RF_MUST_CHECK int rf_parse_expression(struct rf_parser *p, struct rf_node **out);
/* The same, or several expressions separated by commas, as a tuple. choices: "a if b" is allowed.
 */
RF_MUST_CHECK int rf_parse_tuple(struct rf_parser *p, bool choices, struct rf_node **out);
/* A name, or a tuple of names; namespaces: also name.attribute. */
RF_MUST_CHECK int rf_parse_target(struct rf_parser *p, bool namespaces, struct rf_node **out);
/* "|a|b(c)" after a block's tag: the innermost filter has no first. *out NULL: none. named: the
 * first filter has no "|". */
RF_MUST_CHECK int rf_parse_filters(struct rf_parser *p, bool named, struct rf_node **out);
/* "(a, b=1)" of a macro. */
RF_MUST_CHECK int rf_parse_parameters(struct rf_parser *p, struct rf_node *node);

/* ---- parse_words.c --------------------------------------------------------------------------- */

RF_MUST_CHECK int rf_node_make(struct rf_parser *p, enum rf_node_kind kind, struct rf_node **out);
RF_MUST_CHECK int rf_nodes_add(struct rf_room *room, struct rf_nodes *nodes, struct rf_node *node);
/* Whether the next token is this name or operator. */
bool rf_at_name(const struct rf_parser *p, const char *name);
bool rf_at_operator(const struct rf_parser *p, const char *sign);
/* The same, and passes the token if it matches. */
bool rf_pass_name(struct rf_parser *p, const char *name);
bool rf_pass_operator(struct rf_parser *p, const char *sign);
/* Passes the token. RF_ECORRUPT: another token is next. */
RF_MUST_CHECK int rf_expect_operator(struct rf_parser *p, const char *sign);
RF_MUST_CHECK int rf_expect(struct rf_parser *p, enum rf_token_kind kind, const char *what);
/* Describes the next token for messages; returns out. */
const char *rf_describe_word(const struct rf_parser *p, char out[48]);
/* Reports an error at the next token. Returns status. */
int rf_parse_fail(struct rf_parser *p, int status, const char *format, ...) RF_PRINTF(3, 4);

#endif
