/* SPDX-License-Identifier: MIT
 *
 * The outer optimizer of rounds, and of a coordinator.
 */
#ifndef RF_ROUNDS_OUTER_H
#define RF_ROUNDS_OUTER_H

#include <ringforge/host_step.h>
#include <ringforge/rounds.h>

/* The rule's optimizer updates the parameters, with their mean difference as the gradient. */
RF_MUST_CHECK int rf_rounds_outer_step(const struct rf_rounds_rule *rule,
                                       const struct rf_host_part *update,
                                       struct rf_step_scalars *scalars);

#endif
