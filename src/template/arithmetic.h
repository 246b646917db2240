/* SPDX-License-Identifier: MIT
 *
 * Operators of Python on values. Used by eval.c.
 */
#ifndef RF_TEMPLATE_ARITHMETIC_H
#define RF_TEMPLATE_ARITHMETIC_H

#include "ast.h"
#include "text.h"

/* RF_N_ADD, RF_N_SUBTRACT, RF_N_MULTIPLY or RF_N_MODULO. RF_ECORRUPT: the kinds do not fit, or an
 * operand is undefined; RF_ENOTSUP: numbers of more than 64 bits, texts with "%". */
RF_MUST_CHECK int rf_calculate(struct rf_room *room, enum rf_node_kind operation,
                               const struct rf_value *a, const struct rf_value *b,
                               struct rf_value *out);
/* -a, +a. */
RF_MUST_CHECK int rf_sign(struct rf_room *room, bool negate, const struct rf_value *a,
                          struct rf_value *out);
RF_MUST_CHECK int rf_compare(struct rf_room *room, enum rf_comparison comparison,
                             const struct rf_value *a, const struct rf_value *b, bool *out);

#endif
