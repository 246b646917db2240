/* SPDX-License-Identifier: MIT
 *
 * The bytes of a transfer, by the schedule that will run. Asked by plans and by runs.
 */
#include "../base/base.h"
#include "../coll/table.h"
#include "plan.h"

/* Without adding up the counts of all ranks, whose sum is known. */
static int sent_by_counts(const struct rf_plan *plan, const struct rf_transfer *t, uint64_t *out)
{
    const struct rf_coll_desc desc = {.op = t->op,
                                      .rank = plan->groups[t->group].rank,
                                      .ranks = plan->groups[t->group].size,
                                      .count = t->count,
                                      .counts = t->counts,
                                      .dtype = t->dtype,
                                      .order = t->order,
                                      .root = t->root};
    return rf_coll_count_sent(&desc, NULL, out);
}

int rf_transfer_sent(const struct rf_plan *plan, const struct rf_transfer *t, uint64_t *out)
{
    const int rank = plan->groups[t->group].rank, ranks = plan->groups[t->group].size;
    *out = 0;
    if (ranks == 1)
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

int rf_transfer_staging(const struct rf_plan *plan, const struct rf_transfer *t, uint64_t *out)
{
    const int rank = plan->groups[t->group].rank, ranks = plan->groups[t->group].size;
    *out = 0;
    if (ranks == 1)
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
