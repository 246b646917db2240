/* SPDX-License-Identifier: MIT
 *
 * For callers that work in several groups of a communicator's ranks at once: makes the failure of
 * one group a failure of all ranks.
 */
#ifndef RF_COMM_FAILURE_BROADCAST_H
#define RF_COMM_FAILURE_BROADCAST_H

#include <ringforge/comm.h>

#include "../../base/base.h"

/* Fails `comm` on all its ranks if one of these groups, which were split off it, has failed: with
 * the group's status, and `comm`'s number of the rank that is to blame. NULL groups are skipped.
 * Returns 0 where none has failed, else the error of comm, which another rank may have sent.
 *
 * Where a rank did not come to a group in time, it is sent a wait query, as it may itself wait for
 * a rank of another group. This blocks for 0.6 s, for up to 2 s where all ranks reply, and for
 * longer only where the core is busy. The groups stay open, and nothing is sent in them. Call it
 * from the thread that calls comm, while nothing is under way on comm. */
RF_MUST_CHECK int rf_comm_broadcast_failure(struct rf_comm *comm, struct rf_comm *const *groups,
                                            int count);

#endif
