/* SPDX-License-Identifier: MIT
 *
 * The bytes that transfers of a plan send, and their duration on links between ranks. Implemented
 * by transfer.c and links.c; used by bytes.c, search, simulator and executor.
 */
#ifndef RF_PARALLEL_TRAFFIC_H
#define RF_PARALLEL_TRAFFIC_H

#include "plan.h"

/* Bytes that this rank sends in a transfer. */
RF_MUST_CHECK int rf_transfer_sent(const struct rf_plan *plan, const struct rf_transfer *transfer,
                                   uint64_t *out);

/* Bytes that this rank sends in one run of a list. */
RF_MUST_CHECK int rf_plan_list_sent(const struct rf_plan *plan, enum rf_list_id id, uint64_t *out);

/* Bytes of staging memory that the transfer needs if the host cannot map the values. */
RF_MUST_CHECK int rf_transfer_staging(const struct rf_plan *plan,
                                      const struct rf_transfer *transfer, uint64_t *out);

/* The number of dependent messages of a transfer, and the maximum number of bytes through this rank
 * in one direction. 0 on one rank. */
RF_MUST_CHECK int rf_transfer_rounds(const struct rf_plan *plan, const struct rf_transfer *transfer,
                                     uint64_t *out);
RF_MUST_CHECK int rf_transfer_carried(const struct rf_plan *plan,
                                      const struct rf_transfer *transfer, uint64_t *out);

/* links.c. Whether all ranks of a group are on one host; and the seconds of a transfer between
 * them: `rounds` dependent messages, and `bytes` through the rank that transfers most. */
bool rf_link_is_intra_host(const struct rf_sim_rates *rates, const struct rf_plan_group *group);
/* Whether hosts split some of the job's tensor groups unevenly. All ranks wait for the slowest of
 * these. */
bool rf_link_cuts_tensor(const struct rf_sim_rates *rates, const struct rf_plan *plan);
double rf_link_s(const struct rf_sim_rates *rates, const struct rf_plan_group *group,
                 enum rf_coll_op op, uint64_t rounds, uint64_t bytes);

/* Bytes that another rank of the mesh sends in a step. Transfers are the same on all ranks. */
RF_MUST_CHECK int rf_plan_sent_by(const struct rf_plan *plan, int rank, uint64_t *out);

#endif
