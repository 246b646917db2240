/* SPDX-License-Identifier: MIT
 *
 * The passes that make a plan, in the order in which plan.c calls them. Each fills its own part of
 * the plan from the parts before it, or makes a new list from the one before. No pass touches a
 * device or communicates.
 */
#ifndef RF_PARALLEL_PASSES_H
#define RF_PARALLEL_PASSES_H

#include "plan.h"

typedef int rf_plan_pass(struct rf_plan *plan);

/* Every pass, in order: rf_pass_NAME in NAME.c where no other file is named. A new pass is its file
 * and a row here. */
#define RF_PASSES(PASS)                                                                            \
    PASS(policy)      /* mesh, policy and batch fit each other; defaults are filled in */          \
    PASS(stage_costs) /* plan.c: what blocks cost, for stages of equal cost */                     \
    PASS(stages)      /* which rank has which blocks */                                            \
    PASS(partition)   /* divides the micro-batches among the data-parallel ranks */                \
    PASS(layout)      /* the flat buffers, decay words and norm chunks */                          \
    PASS(pieces)      /* what is reduced and updated together */                                   \
    PASS(sizes)       /* bytes.c: what each block needs, keeps and gives */                        \
    PASS(expand)      /* forward and backward passes, and the lists of evaluation */               \
    PASS(recompute)   /* forward passes once more, for what is not kept; rf_policy.recompute */    \
    PASS(gradients)   /* memory of gradients, clearing, merging, reducing */                       \
    PASS(rounds)      /* the same with sharded gradients */                                        \
    PASS(update)      /* losses, ties, norm, optimizer */                                          \
    PASS(gather)      /* sharded parameters, when they are needed */                               \
    PASS(bytes)       /* the sizes of memory that lives as long as the run */                      \
    PASS(spill)       /* activations that leave for memory of the host, and come back */           \
    PASS(place)       /* where values lie in the regions */                                        \
    PASS(lifetimes)   /* where values lie that come and go; more regions */                        \
    PASS(edges)       /* what waits for what, and where work is submitted */                       \
    PASS(sums)        /* bytes.c: sums of memory by category, and the bytes sent */                \
    PASS(fit)         /* plan.c: the policy's limit of device memory */

#define RF_PASS_DECLARE(name) RF_MUST_CHECK int rf_pass_##name(struct rf_plan *plan);
RF_PASSES(RF_PASS_DECLARE)
#undef RF_PASS_DECLARE

/* plan.c: rf_plan_build, but only up to a pass, and with it; NULL: all. */
RF_MUST_CHECK int rf_plan_build_until(const struct rf_block *blocks, int block_count,
                                      const struct rf_mesh *mesh, const struct rf_policy *policy,
                                      int rank, rf_plan_pass *last, struct rf_plan **out);

/* place.c */
void rf_place_value(const struct rf_plan *plan, struct rf_value *value);
/* lifetimes.c */
bool rf_value_comes_and_goes(const struct rf_plan *plan, enum rf_value_kind kind);

/* What the plan would need with this policy; false: there is no such plan. */
typedef bool rf_plan_needs(const struct rf_plan *plan, const struct rf_policy *policy,
                           struct rf_bytes *out);
/* fit.c: an error that says what to change where the plan needs more than the policy's limit. */
RF_MUST_CHECK int rf_plan_fit(const struct rf_plan *plan, rf_plan_needs *needs);

/* ranks.c: plans of ranks of the same job, one of each kind that this plan's rank is not of; where
 * so many ranks that follow each other are on one host (0: all), tensor ranks are alike only if
 * their groups lie on hosts alike. They and the array are the caller's. */
RF_MUST_CHECK int rf_plan_other_kinds(const struct rf_plan *plan, int host_ranks,
                                      struct rf_plan ***others, int *count);

/* values.c */
void rf_values_free(struct rf_plan *plan);

#endif
