/* SPDX-License-Identifier: MIT
 *
 * The passes that make a plan, in the order in which plan.c calls them. Each fills its own part of
 * the plan from the parts before it; none touches a device or asks a peer.
 */
#ifndef RF_PARALLEL_PASSES_H
#define RF_PARALLEL_PASSES_H

#include "../train/plan.h"

/* policy.c: mesh, policy and batch fit each other; defaults are filled in. */
RF_MUST_CHECK int rf_pass_policy(struct rf_plan *plan);
/* shares.c: which rank computes which micro-batches. */
RF_MUST_CHECK int rf_pass_shares(struct rf_plan *plan);
/* layout.c: the flat buffers, decay words, norm chunks and buckets. */
RF_MUST_CHECK int rf_pass_layout(struct rf_plan *plan);
RF_MUST_CHECK int rf_pass_buckets(struct rf_plan *plan);
/* instructions.c: the list, and how many gradient slots it needs. */
RF_MUST_CHECK int rf_pass_instructions(struct rf_plan *plan);
/* bytes.c: the regions of memory, and the bytes sent. */
RF_MUST_CHECK int rf_pass_bytes(struct rf_plan *plan);

#endif
