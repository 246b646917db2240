/* SPDX-License-Identifier: MIT
 *
 * The sum of micro-batches in an order that no number of ranks can change: pairwise over their
 * global index. A rank brings the maximal aligned subtrees of its range; chunk by chunk they meet
 * at the chunk's owner, who adds them along the tree, and sends the sum to all (all-reduce) or
 * keeps it (reduce-scatter). Its sizes are public.
 */
#include "direct.h"
#include "windows.h"

#include "../base/base.h"

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

static void build_forest(struct rf_sched *sched, const struct rf_coll_desc *desc)
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

/* ---- the records ----------------------------------------------------------------------------- */

/* In each window, every other chunk of each of its parts to the chunk's owner, and the sum of its
 * own chunk to all. Windows are equal except the last. */
static uint64_t sent_forest_all_reduce(const struct rf_coll_desc *desc)
{
    const uint64_t parts = (uint64_t)rf_forest_nodes(desc->forest, desc->rank, NULL);
    const uint64_t all = rf_coll_bytes(desc);
    struct rf_windows windows = {.desc = desc};
    rf_windows_cut(&windows, desc, all, true);
    struct rf_coll_desc window = *desc, last = *desc;
    const uint64_t before = windows.count - 1;
    if (before > 0)
        window.count = windows.width / rf_dtype_bytes(desc->dtype);
    last.count = desc->count - before * window.count;
    const uint64_t own =
        before * rf_chunk_bytes(&window, desc->rank) + rf_chunk_bytes(&last, desc->rank);
    return parts * (all - own) + ((uint64_t)desc->ranks - 1) * own;
}

static uint64_t sent_forest_reduce_scatter(const struct rf_coll_desc *desc)
{
    const uint64_t parts = (uint64_t)rf_forest_nodes(desc->forest, desc->rank, NULL);
    return parts * (desc->count - desc->counts[desc->rank]) * rf_dtype_bytes(desc->dtype);
}

const struct rf_algorithm rf_forest_all_reduce = {
    .op = RF_COLL_FOREST_ALL_REDUCE,
    .name = "forest",
    .note = "every size",
    .bytes = "2 (N-1)/N K of one subtree a rank",
    .build = build_forest,
    .sent = sent_forest_all_reduce,
    .rounds = {.fixed = 2},
};

const struct rf_algorithm rf_forest_reduce_scatter = {
    .op = RF_COLL_FOREST_REDUCE_SCATTER,
    .name = "forest",
    .note = "every size",
    .bytes = "(N-1)/N K of each subtree",
    .build = build_forest,
    .sent = sent_forest_reduce_scatter,
    .rounds = {.fixed = 1},
};
