/* SPDX-License-Identifier: MIT
 *
 * The instructions known to have completed when an instruction begins: the last access to every
 * byte, and vector clocks of the lanes under the list's waits (Mattern 1989). edges.c derives the
 * waits with it, check.c verifies them.
 */
#ifndef RF_PARALLEL_CLOCKS_H
#define RF_PARALLEL_CLOCKS_H

#include "plan.h"

struct rf_clocks;
RF_MUST_CHECK int rf_clocks_open(const struct rf_plan *plan, const struct rf_list *list,
                                 struct rf_clocks **out);
void rf_clocks_close(struct rf_clocks *c); /* NULL is allowed */

/* For each lane, the last position that must have completed when `i` begins, according to the bytes
 * that i accesses; -1: none. Records the accesses of i. Called for the instructions in list order.
 */
RF_MUST_CHECK int rf_clocks_needs(struct rf_clocks *c, const struct rf_instruction *i,
                                  int need[RF_LANE_COUNT]);

/* The positions that are known to have completed when the lane's next instruction begins, without
 * any wait. */
const int *rf_clocks_now(const struct rf_clocks *c, int lane);

/* The positions that are known to have completed when the instruction at this position of a lane
 * has ended. */
const int *rf_clocks_at(const struct rf_clocks *c, int lane, int position);

/* Advances by the next instruction of the list with its waits. RF_EINVAL: one of them is for a
 * later instruction, so it would wait forever. */
RF_MUST_CHECK int rf_clocks_pass(struct rf_clocks *c, const struct rf_instruction *i);

#endif
