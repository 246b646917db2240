/* SPDX-License-Identifier: MIT
 *
 * The sum of micro-batches in an order that no number of ranks can change: pairwise over their
 * global index. A rank brings the maximal aligned subtrees of its range; chunk by chunk they meet
 * at the chunk's owner, who adds them along the tree, and sends the sum to all (all-reduce) or
 * keeps it (reduce-scatter). Called by table.c; its sizes are public.
 */
#include "direct.h"

#include "../base/base.h"

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

static void build(struct rf_sched *sched, const struct rf_coll_desc *desc, int *counts,
                  uint8_t *levels)
{
    const bool scatters = desc->op == RF_COLL_FOREST_REDUCE_SCATTER;
    int parts = 0;
    for (int r = 0; r < desc->ranks; r++) {
        struct rf_forest_node nodes[62];
        counts[r] = rf_forest_nodes(desc->forest, r, nodes);
        for (int i = 0; i < counts[r]; i++)
            levels[parts++] = (uint8_t)nodes[i].level;
    }
    struct rf_coll_desc own = *desc;
    if (own.segment_bytes == 0)
        own.segment_bytes = RF_TREE_SEGMENT;
    rf_direct_build(
        sched, &own,
        &(struct rf_direct){.count = desc->count,
                            .ranks = desc->ranks,
                            .element_bytes = sched->element_bytes,
                            .chunk = scatters ? rf_direct_share_chunk : rf_direct_ragged_chunk,
                            .counts = desc->counts,
                            .part_counts = counts,
                            .levels = levels,
                            .stride_bytes = desc->stride * sched->element_bytes,
                            .tree = true,
                            .sums = scatters ? RF_SUMS_STAY : RF_SUMS_TO_ALL});
}

void rf_build_forest(struct rf_sched *sched, const struct rf_coll_desc *desc)
{
    size_t parts = 0;
    for (int r = 0; r < desc->ranks; r++)
        parts += (size_t)rf_forest_nodes(desc->forest, r, NULL);
    int *counts = rf_sched_scratch(sched, (size_t)desc->ranks, sizeof(int));
    uint8_t *levels = rf_sched_scratch(sched, parts, 1);
    if (counts && levels)
        build(sched, desc, counts, levels);
    rf_free(counts);
    rf_free(levels);
}
