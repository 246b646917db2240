// SPDX-License-Identifier: MIT
//
// Descriptions of calls, and what they send and need, in a line.
#pragma once

extern "C" {
#include <ringforge/comm.h>
}

inline rf_coll_desc call_of(rf_coll_op op, int rank, int ranks, size_t count,
                            rf_dtype dtype = RF_F32, rf_order order = RF_ORDER_ANY, int root = 0)
{
    rf_coll_desc desc = {};
    desc.op = op;
    desc.rank = rank;
    desc.ranks = ranks;
    desc.count = count;
    desc.dtype = dtype;
    desc.order = order;
    desc.root = root;
    return desc;
}

inline rf_coll_desc pieces_of(rf_coll_op op, int rank, int ranks, const size_t *counts,
                              int root = 0, rf_order order = RF_ORDER_ANY)
{
    rf_coll_desc desc = call_of(op, rank, ranks, 0, RF_F32, order, root);
    desc.counts = counts;
    return desc;
}

inline rf_coll_desc forest_of(const rf_forest *forest, int rank, size_t count)
{
    rf_coll_desc desc = call_of(RF_COLL_FOREST_ALL_REDUCE, rank, forest ? forest->ranks : 0, count);
    desc.forest = forest;
    return desc;
}

inline rf_coll_desc scatter_of(const rf_forest *forest, int rank, const size_t *counts)
{
    rf_coll_desc desc = forest_of(forest, rank, 0);
    desc.op = RF_COLL_FOREST_REDUCE_SCATTER;
    desc.counts = counts;
    return desc;
}

inline rf_coll_desc round_of(int leaves, int round, int rank, int ranks, const size_t *counts)
{
    rf_coll_desc desc = pieces_of(RF_COLL_PREFIX_REDUCE_SCATTER, rank, ranks, counts);
    desc.leaves = leaves;
    desc.round = round;
    return desc;
}

inline int usage_of(const rf_coll_desc &desc, unsigned what, uint64_t rf_coll_usage::*figure,
                    uint64_t *out, const char *algorithm)
{
    struct rf_coll_usage usage = {};
    const int rc = rf_coll_usage(&desc, algorithm, what, &usage);
    if (rc == 0)
        *out = usage.*figure;
    return rc;
}

inline int sent_of(const rf_coll_desc &desc, uint64_t *out, const char *algorithm = nullptr)
{
    return usage_of(desc, RF_USES_SENT, &rf_coll_usage::sent_bytes, out, algorithm);
}

inline int staging_of(const rf_coll_desc &desc, uint64_t *out, const char *algorithm = nullptr)
{
    return usage_of(desc, RF_USES_STAGING, &rf_coll_usage::staging_bytes, out, algorithm);
}

inline int temp_of(const rf_coll_desc &desc, uint64_t *out, const char *algorithm = nullptr)
{
    return usage_of(desc, RF_USES_TEMP, &rf_coll_usage::temp_bytes, out, algorithm);
}

// ---- the sums over micro-batches

inline int forest_all_reduce(rf_comm *comm, const rf_forest *forest, rf_tensor parts, size_t stride,
                             rf_tensor out, const rf_coll_opts *opts)
{
    rf_coll_desc desc = forest_of(forest, 0, 0);
    desc.stride = stride;
    return rf_tree_sum_tensor(comm, &desc, parts, out, opts);
}

inline int forest_reduce_scatter(rf_comm *comm, const rf_forest *forest, rf_tensor parts,
                                 size_t stride, rf_tensor out, const size_t *counts,
                                 const rf_coll_opts *opts)
{
    rf_coll_desc desc = scatter_of(forest, 0, counts);
    desc.stride = stride;
    return rf_tree_sum_tensor(comm, &desc, parts, out, opts);
}

inline int prefix_reduce_scatter(rf_comm *comm, int leaves, int round, rf_tensor leaf,
                                 rf_tensor slots, const size_t *counts, const rf_coll_opts *opts)
{
    const rf_coll_desc desc = round_of(leaves, round, 0, 0, counts);
    return rf_tree_sum_tensor(comm, &desc, leaf, slots, opts);
}
