/* SPDX-License-Identifier: MIT
 *
 * Resolves names of a template to variables. Called after the parser.
 */
#ifndef RF_TEMPLATE_SCOPE_H
#define RF_TEMPLATE_SCOPE_H

#include "ast.h"

/* Completes the tree: the slot of each name, what each frame does with its variables, the row of
 * each filter and test. *context: the names that are looked up among the caller's variables.
 * RF_ENOTSUP: a filter, test, method or function that is not implemented; RF_ECORRUPT: one that
 * does not exist and would be called unconditionally; Jinja2 refuses it, too. */
RF_MUST_CHECK int rf_scope_resolve(struct rf_room *room, const struct rf_nodes *body,
                                   struct rf_scope *out, struct rf_list *context);

#endif
