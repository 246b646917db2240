/* SPDX-License-Identifier: MIT
 *
 * For callers that work in groups of a communicator's ranks at once: a failure of one group becomes
 * one of all ranks.
 */
#ifndef RF_COMM_SPREAD_H
#define RF_COMM_SPREAD_H

#include <ringforge/comm.h>

#include "../base/base.h"

/* Fails `comm` on all its ranks with what one of these groups of its ranks, which were split off
 * it, has failed with: the status, and `comm`'s number of the rank that it is about. NULL groups
 * are skipped; returns 0 where none has failed. Otherwise comm's error, which is another one where
 * a rank has told it before. Where a rank did not come to a group in time it is asked for whom it
 * waits, as that may be a rank of another group: this blocks for 0.6 s, for up to 2 s where all
 * say so, and for longer only where the core is busy. The groups stay open; nothing is told in
 * them. Call it from the thread that calls comm, in which nothing may be under way. */
RF_MUST_CHECK int rf_comm_spread(struct rf_comm *comm, struct rf_comm *const *groups, int count);

#endif
