/* SPDX-License-Identifier: MIT
 *
 * The bytes that transfers of a plan send. Used by passes, search, simulator and executor.
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

/* Bytes that another rank of the mesh sends in a step. Transfers are the same on all ranks. */
RF_MUST_CHECK int rf_plan_sent_by(const struct rf_plan *plan, int rank, uint64_t *out);

#endif
