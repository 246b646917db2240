/* SPDX-License-Identifier: MIT
 *
 * Evaluates expressions of a template during rendering. Used by run.c.
 */
#ifndef RF_TEMPLATE_EVAL_H
#define RF_TEMPLATE_EVAL_H

#include "render.h"

/* block: the input of a filter without an operand; NULL: none. Errors: those of the room;
 * RF_ECORRUPT: Python would raise an exception; RF_ENOTSUP: not implemented. */
RF_MUST_CHECK int rf_eval(struct rf_render *r, const struct rf_node *node, struct rf_value *out);
RF_MUST_CHECK int rf_eval_block(struct rf_render *r, const struct rf_node *node,
                                const struct rf_value *block, struct rf_value *out);
/* Evaluates a call, with a block as its argument "caller"; NULL: none. */
RF_MUST_CHECK int rf_eval_call(struct rf_render *r, const struct rf_node *node,
                               const struct rf_value *caller, struct rf_value *out);

/* The slot of a variable. */
struct rf_value *rf_variable(struct rf_render *r, struct rf_ref ref);

#endif
