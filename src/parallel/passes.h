/* SPDX-License-Identifier: MIT
 *
 * The passes that make a plan, in the order in which plan.c calls them. Each fills its own part of
 * the plan from the parts before it, or makes a new list from the one before; none touches a device
 * or asks a peer.
 */
#ifndef RF_PARALLEL_PASSES_H
#define RF_PARALLEL_PASSES_H

#include "plan.h"

typedef int rf_plan_pass(struct rf_plan *plan);

/* plan.c: rf_plan_build, but only up to a pass, and with it; NULL: all. */
RF_MUST_CHECK int rf_plan_build_until(const struct rf_block *blocks, int block_count,
                                      const struct rf_mesh *mesh, const struct rf_policy *policy,
                                      int rank, rf_plan_pass *last, struct rf_plan **out);

/* policy.c: mesh, policy and batch fit each other; defaults are filled in. */
RF_MUST_CHECK int rf_pass_policy(struct rf_plan *plan);
/* stages.c: which rank has which blocks. */
RF_MUST_CHECK int rf_pass_stages(struct rf_plan *plan);
/* partition.c: divides the micro-batches among the data-parallel ranks. */
RF_MUST_CHECK int rf_pass_partition(struct rf_plan *plan);
/* layout.c: the flat buffers, decay words and norm chunks. */
RF_MUST_CHECK int rf_pass_layout(struct rf_plan *plan);
/* pieces.c: what is reduced and updated together. */
RF_MUST_CHECK int rf_pass_pieces(struct rf_plan *plan);
/* bytes.c: what blocks need, as they say. */
RF_MUST_CHECK int rf_pass_sizes(struct rf_plan *plan);
/* expand.c: forward and backward passes, and the lists of evaluation. */
RF_MUST_CHECK int rf_pass_expand(struct rf_plan *plan);
/* bytes.c: what each block keeps and gives. */
RF_MUST_CHECK int rf_pass_sizes(struct rf_plan *plan);
/* recompute.c: forward passes once more, for what is not kept. Fills in rf_policy.recompute. */
RF_MUST_CHECK int rf_pass_recompute(struct rf_plan *plan);
/* gradients.c: memory of gradients, clearing, merging, reducing. */
RF_MUST_CHECK int rf_pass_gradients(struct rf_plan *plan);
/* rounds.c: the same with sharded gradients. */
RF_MUST_CHECK int rf_pass_rounds(struct rf_plan *plan);
/* update.c: losses, ties, norm, optimizer. */
RF_MUST_CHECK int rf_pass_update(struct rf_plan *plan);
/* gather.c: sharded parameters, when they are needed. */
RF_MUST_CHECK int rf_pass_gather(struct rf_plan *plan);
/* bytes.c: the sizes of memory that lives as long as the run. */
RF_MUST_CHECK int rf_pass_bytes(struct rf_plan *plan);
/* spill.c: activations that leave for memory of the host, and come back. */
RF_MUST_CHECK int rf_pass_spill(struct rf_plan *plan);
/* place.c: where values lie in the regions. */
RF_MUST_CHECK int rf_pass_place(struct rf_plan *plan);
void rf_place_value(const struct rf_plan *plan, struct rf_value *value);
/* lifetimes.c: where values lie that come and go; more regions. */
RF_MUST_CHECK int rf_pass_lifetimes(struct rf_plan *plan);
bool rf_value_comes_and_goes(const struct rf_plan *plan, enum rf_value_kind kind);
/* edges.c: what waits for what, and where work is handed over. */
RF_MUST_CHECK int rf_pass_edges(struct rf_plan *plan);
/* bytes.c: sums of memory by category, and the bytes sent. */
RF_MUST_CHECK int rf_pass_sums(struct rf_plan *plan);
/* fit.c: the policy's limit of device memory. */
/* What the plan would need with this policy; false: there is no such plan. */
typedef bool rf_plan_needs(const struct rf_plan *plan, const struct rf_policy *policy,
                           struct rf_bytes *out);
RF_MUST_CHECK int rf_plan_fit(const struct rf_plan *plan, rf_plan_needs *needs);

/* ranks.c: plans of ranks of the same job, one of each kind that this plan's rank is not of; where
 * so many ranks that follow each other are on one host (0: all), tensor ranks are alike only if
 * their groups lie on hosts alike. They and the array are the caller's. */
RF_MUST_CHECK int rf_plan_other_kinds(const struct rf_plan *plan, int host_ranks,
                                      struct rf_plan ***others, int *count);

/* values.c */
void rf_values_free(struct rf_plan *plan);

#endif
