/* SPDX-License-Identifier: MIT
 *
 * The bytes of a transfer, from the schedule that will run. Used by plans and by runs.
 */
#include "../../base/base.h"
#include "../../coll/table.h"
#include "plan.h"
#include "traffic.h"

static struct rf_coll_desc describe(const struct rf_plan *plan, const struct rf_transfer *t)
{
    return (struct rf_coll_desc){.op = t->op,
                                 .rank = plan->groups[t->group].rank,
                                 .ranks = plan->groups[t->group].size,
                                 .count = t->count,
                                 .counts = t->counts,
                                 .dtype = t->dtype,
                                 .order = t->order,
                                 .root = t->root};
}

/* Does not add the counts of all ranks, because their sum is known. */
static int sent_by_counts(const struct rf_plan *plan, const struct rf_transfer *t, uint64_t *out)
{
    const struct rf_coll_desc desc = describe(plan, t);
    return rf_coll_count_sent(&desc, NULL, out);
}

int rf_transfer_sent(const struct rf_plan *plan, const struct rf_transfer *t, uint64_t *out)
{
    const int rank = plan->groups[t->group].rank, ranks = plan->groups[t->group].size;
    *out = t->op == RF_COLL_SEND ? t->count * rf_dtype_bytes(t->dtype) : 0;
    if (ranks <= 1) /* a message has no group */
        return 0;
    if (t->op == RF_COLL_FOREST_ALL_REDUCE)
        return rf_forest_count_sent(&plan->forest, plan->most_parts, rank, t->count, out);
    if (t->op == RF_COLL_FOREST_REDUCE_SCATTER)
        return rf_forest_scatter_sent_bytes(&plan->forest, rank, t->counts, out);
    if (t->op == RF_COLL_PREFIX_REDUCE_SCATTER)
        return rf_prefix_sent_bytes((int)plan->policy.micro_batches, t->round, rank, ranks,
                                    t->counts, out);
    if (t->counts)
        return sent_by_counts(plan, t, out);
    return rf_coll_sent_bytes_as(t->op, t->algorithm, rank, ranks, t->count, t->dtype, t->order,
                                 t->root, out);
}

int rf_transfer_rounds(const struct rf_plan *plan, const struct rf_transfer *t, uint64_t *out)
{
    struct rf_coll_desc desc = describe(plan, t);
    *out = !rf_lane_collects((int)t->group);
    if (desc.ranks <= 1)
        return 0;
    desc.forest = &plan->forest;
    desc.most_parts = plan->most_parts;
    desc.stride = t->count;
    desc.leaves = (int)plan->policy.micro_batches;
    desc.round = t->round;
    return rf_coll_count_rounds(&desc, t->algorithm, out);
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
    const int rank = plan->groups[t->group].rank, ranks = plan->groups[t->group].size;
    *out = 0;
    if (ranks <= 1)
        return 0;
    if (t->op == RF_COLL_FOREST_ALL_REDUCE)
        return rf_forest_staging_bytes(&plan->forest, rank, t->count, out);
    if (t->op == RF_COLL_FOREST_REDUCE_SCATTER)
        return rf_forest_scatter_staging_bytes(&plan->forest, rank, t->counts, out);
    if (t->op == RF_COLL_PREFIX_REDUCE_SCATTER)
        return rf_prefix_staging_bytes((int)plan->policy.micro_batches, t->round, rank, ranks,
                                       t->counts, out);
    if (t->counts)
        return rf_coll_staging_bytes_v(t->op, rank, ranks, t->counts, t->dtype, t->order, t->root,
                                       out);
    return rf_coll_staging_bytes_as(t->op, t->algorithm, rank, ranks, t->count, t->dtype, t->order,
                                    t->root, out);
}
