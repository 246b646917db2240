/* SPDX-License-Identifier: MIT
 *
 * The passes that make a plan, in the order in which build.c calls them. Each fills its own part of
 * the plan from the earlier parts, or makes a new list from the previous one. No pass uses a device
 * or communicates.
 */
#ifndef RF_PARALLEL_PASSES_H
#define RF_PARALLEL_PASSES_H

#include "../plan/plan.h"

typedef int rf_plan_pass(struct rf_plan *plan);

/* Every pass, in order. rf_pass_NAME is in NAME.c unless another file is named. A new pass needs a
 * file and a row here. */
#define RF_PASSES(PASS)                                                                            \
    PASS(policy)      /* checks that mesh, policy and batch are compatible; fills in defaults */   \
    PASS(stage_costs) /* build.c: costs of blocks, for stages of equal cost */                     \
    PASS(stages)      /* the blocks of each rank */                                                \
    PASS(partition)   /* divides the micro-batches among the data-parallel ranks */                \
    PASS(layout)      /* the flat buffers, decay words and norm chunks */                          \
    PASS(pieces)      /* the parts that are reduced and updated together */                        \
    PASS(places)      /* the numbers by which elements draw random words */                        \
    PASS(sizes)       /* bytes.c: the sizes of each block's memory and results */                  \
    PASS(expand)      /* forward and backward passes, and the lists of evaluation */               \
    PASS(recompute) /* repeats forward passes for values that are not kept; rf_policy.recompute */ \
    PASS(gradients) /* slots of gradients, clearing, merging, reducing */                          \
    PASS(rounds)    /* the same with sharded gradients */                                          \
    PASS(update)    /* losses, ties, norm, optimizer */                                            \
    PASS(in_backward) /* the same, with updates in the backward pass */                            \
    PASS(disk)        /* copies of states between a disk and host memory */                        \
    PASS(gather)      /* gathers sharded parameters when they are needed */                        \
    PASS(bytes)       /* the sizes of memory that lives as long as the run */                      \
    PASS(spill)       /* copies activations to host memory and back */                             \
    PASS(place)       /* bytes.c: the place of each value in its region */                         \
    PASS(lifetimes)   /* the places of temporary values, in additional regions */                  \
    PASS(edges)       /* waits, and submissions */                                                 \
    PASS(sums)        /* bytes.c: sums of memory by category, and the bytes sent */                \
    PASS(fit)         /* build.c: the policy's limit of device memory */

#define RF_PASS_DECLARE(name) RF_MUST_CHECK int rf_pass_##name(struct rf_plan *plan);
RF_PASSES(RF_PASS_DECLARE)
#undef RF_PASS_DECLARE

/* build.c. rf_plan_build up to and including a pass; NULL: all passes. */
RF_MUST_CHECK int rf_plan_build_until(struct rf_blocks blocks, const struct rf_mesh *mesh,
                                      const struct rf_policy *policy, int rank, rf_plan_pass *last,
                                      struct rf_plan **out);

/* The bytes of the plan with this policy; false: no such plan. */
typedef bool rf_plan_needs(const struct rf_plan *plan, const struct rf_policy *policy,
                           struct rf_bytes *out);
/* fit.c. Fails if the plan needs more than the policy's limit. The error says what to change. */
RF_MUST_CHECK int rf_plan_fit(const struct rf_plan *plan, rf_plan_needs *needs);

/* values.c */
void rf_values_free(struct rf_plan *plan);

#endif
