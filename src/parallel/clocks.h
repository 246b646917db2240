/* SPDX-License-Identifier: MIT
 *
 * What has happened when an instruction begins: the last access to every byte, and vector clocks of
 * the lanes under the list's waits (Mattern 1989). edges.c derives waits with it, check.c verifies
 * them.
 */
#ifndef RF_PARALLEL_CLOCKS_H
#define RF_PARALLEL_CLOCKS_H

#include "plan.h"

struct rf_clocks;
RF_MUST_CHECK int rf_clocks_open(const struct rf_plan *plan, const struct rf_list *list,
                                 struct rf_clocks **out);
void rf_clocks_close(struct rf_clocks *c); /* NULL is allowed */

/* For each lane the last place that must have been passed when `i` begins, by the bytes that it
 * touches; -1: none. Notes the accesses of i, which is the next of the list. */
RF_MUST_CHECK int rf_clocks_needs(struct rf_clocks *c, const struct rf_instruction *i,
                                  int need[RF_LANE_COUNT]);

/* What the next instruction of a lane knows to have been passed without any wait. */
const int *rf_clocks_now(const struct rf_clocks *c, int lane);

/* What is known to have been passed when the instruction at this place of a lane has ended. */
const int *rf_clocks_at(const struct rf_clocks *c, int lane, int position);

/* Advances by the next instruction of the list with its waits. RF_EINVAL: one of them is for what
 * comes later in the list, so it would wait for ever. */
RF_MUST_CHECK int rf_clocks_pass(struct rf_clocks *c, const struct rf_instruction *i);

#endif
