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
 * a rank has told it before. Blocks for at most 2 s, where a rank did not come to a group in time:
 * it may itself be waiting for a rank of another group, and says so, as it calls this, too. Ranks
 * that begin to wait more than 0.6 s apart from each other name the rank that they wait for. The
 * groups stay open; nothing is told in them. Call it from the thread that calls comm, in which
 * nothing may be under way. */
RF_MUST_CHECK int rf_comm_spread(struct rf_comm *comm, struct rf_comm *const *groups, int count);

#endif
