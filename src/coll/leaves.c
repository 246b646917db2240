/* SPDX-License-Identifier: MIT
 *
 * How the leaves of a forest are divided among ranks: the maximal aligned subtrees of each rank,
 * and whether a call makes sense. forest.c builds the list.
 */
#include "../base/base.h"
#include "sched.h"

int rf_forest_nodes(const struct rf_forest *forest, int rank, struct rf_forest_node *nodes)
{
    int count = 0;
    int64_t leaf = forest->first[rank], end = forest->first[rank + 1];
    while (leaf < end) {
        int level = 0;
        while (leaf % ((int64_t)2 << level) == 0 && leaf + ((int64_t)2 << level) <= end)
            level++;
        if (nodes)
            nodes[count] = (struct rf_forest_node){.level = level, .index = (int)(leaf >> level)};
        count++;
        leaf += (int64_t)1 << level;
    }
    return count;
}

int rf_forest_most_parts(const struct rf_forest *forest)
{
    int most = 1;
    for (int r = 0; r < forest->ranks; r++) {
        int parts = rf_forest_nodes(forest, r, NULL);
        most = parts > most ? parts : most;
    }
    return most;
}

int rf_forest_check(const struct rf_coll_desc *desc)
{
    const struct rf_forest *forest = desc->forest;
    const char *op = rf_coll_op_name(desc->op);
    const int rank = desc->rank, ranks = desc->ranks;
    if (!forest || !forest->first)
        return rf_fail(RF_EINVAL, "%s: no forest given", op);
    if (forest->ranks != ranks)
        return rf_fail(RF_EINVAL, "%s: rank %d of %d, but the forest has %d ranks", op, rank, ranks,
                       forest->ranks);
    bool ordered =
        desc->most_parts > 0 || (forest->first[0] == 0 && forest->first[ranks] == forest->leaves);
    for (int r = 0; desc->most_parts == 0 && r < ranks; r++)
        ordered = ordered && forest->first[r] <= forest->first[r + 1];
    if (!ordered || forest->leaves < 1)
        return rf_fail(RF_EINVAL, "%s: the shares must divide leaves 0..%d among %d ranks in order",
                       op, forest->leaves, ranks);
    if (desc->dtype != RF_F32 || desc->redop != RF_SUM || desc->stride < desc->count)
        return rf_fail(RF_EINVAL,
                       "%s: sums of f32 only, and parts %zu elements apart must not overlap", op,
                       desc->stride);
    if (desc->op == RF_COLL_FOREST_REDUCE_SCATTER && !desc->counts)
        return rf_fail(RF_EINVAL, "%s: the counts of %d ranks are NULL", op, ranks);
    return 0;
}
