/* SPDX-License-Identifier: MIT
 *
 * The bytes of a transfer, from the schedule that will run. Used by plans and by runs.
 */
#include "../../base/base.h"
#include "../../coll/table.h"
#include "compress.h"
#include "plan.h"
#include "traffic.h"

/* count is the sum of the counts, if there are any. */
static struct rf_coll_desc describe(const struct rf_plan *plan, const struct rf_transfer *t)
{
    const bool sums_leaves = t->op == RF_COLL_FOREST_ALL_REDUCE ||
                             t->op == RF_COLL_FOREST_REDUCE_SCATTER ||
                             t->op == RF_COLL_PREFIX_REDUCE_SCATTER;
    return (struct rf_coll_desc){.op = t->op,
                                 .rank = plan->groups[t->group].rank,
                                 .ranks = plan->groups[t->group].size,
                                 .count = t->count,
                                 .counts = t->counts,
                                 .dtype = t->dtype,
                                 .order = sums_leaves ? RF_ORDER_TREE : t->order,
                                 .root = t->root,
                                 .forest = &plan->forest,
                                 .most_parts = plan->most_parts,
                                 .stride = t->count,
                                 .leaves = (int)plan->policy.micro_batches,
                                 .round = t->round,
                                 .window_bytes = RF_WINDOW_BYTES};
}

int rf_transfer_sent(const struct rf_plan *plan, const struct rf_transfer *t, uint64_t *out)
{
    if (t->compressed)
        return rf_plan_compressed(plan, t->compressed - 1, out, NULL);
    const struct rf_coll_desc desc = describe(plan, t);
    *out = t->op == RF_COLL_SEND ? t->count * rf_dtype_bytes(t->dtype) : 0;
    return desc.ranks <= 1 /* a message has no group */ ? 0
                                                        : rf_coll_count_sent(&desc, t->algorithm,
                                                                             out);
}

int rf_transfer_rounds(const struct rf_plan *plan, const struct rf_transfer *t, uint64_t *out)
{
    if (t->compressed)
        return rf_plan_compressed(plan, t->compressed - 1, NULL, out);
    const struct rf_coll_desc desc = describe(plan, t);
    *out = !rf_lane_collects((int)t->group);
    return desc.ranks <= 1 ? 0 : rf_coll_count_rounds(&desc, t->algorithm, out);
}

int rf_transfer_carried(const struct rf_plan *plan, const struct rf_transfer *t, uint64_t *out)
{
    const struct rf_plan_group *group = &plan->groups[t->group];
    const bool all_to_root =
        t->op == RF_COLL_REDUCE && t->algorithm && strcmp(t->algorithm, RF_TO_RANK_0) == 0;
    RETURN_IF_ERROR(rf_transfer_sent(plan, t, out));
    if (t->op == RF_COLL_RECV)
        *out = t->count * rf_dtype_bytes(t->dtype);
    if (all_to_root && group->rank == t->root)
        *out = (uint64_t)(group->size - 1) * t->count * rf_dtype_bytes(t->dtype);
    return 0;
}

int rf_transfer_staging(const struct rf_plan *plan, const struct rf_transfer *t, uint64_t *out)
{
    struct rf_coll_desc desc = describe(plan, t);
    desc.staged = RF_STAGED_IN | RF_STAGED_OUT;
    *out = 0;
    if (t->compressed) /* in host memory */
        return 0;
    return desc.ranks <= 1 ? 0 : rf_sched_staging_bytes(&desc, t->algorithm, out);
}
