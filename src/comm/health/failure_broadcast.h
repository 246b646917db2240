/* SPDX-License-Identifier: MIT
 *
 * For callers that use several groups of a communicator's ranks at once: makes the failure of one
 * group a failure of all ranks.
 */
#ifndef RF_COMM_FAILURE_BROADCAST_H
#define RF_COMM_FAILURE_BROADCAST_H

#include <ringforge/comm.h>

#include "../../base/base.h"

/* Fails `comm` on all its ranks if one of these groups, which were split off it, has failed: with
 * the group's status, and `comm`'s number of the rank to blame. NULL groups are skipped. Returns 0
 * if none has failed, otherwise the error of comm, which another rank may have sent.
 *
 * If a rank did not join a group's call in time, it is sent a wait query, because it may be waiting
 * for a rank of another group. This blocks for 0.6 s, for up to 2 s if all ranks reply, and longer
 * only if the core is busy. The groups stay open, and nothing is sent in them. Call it from the
 * thread that calls comm, while no operation is in progress on comm. */
RF_MUST_CHECK int rf_comm_broadcast_failure(struct rf_comm *comm, struct rf_comm *const *groups,
                                            int count);

#endif
