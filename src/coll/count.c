/* SPDX-License-Identifier: MIT
 *
 * Predictions: the bytes that a collective sends and needs. Called by plans and tests; needs no
 * communicator.
 */
#include "../base/base.h"
#include "table.h"

/* Refuses operations on leaves, which the arguments do not describe. */
static int refuse_leaves(const char *function, enum rf_coll_op op)
{
    if (!rf_coll_adds_leaves(op))
        return 0;
    return rf_fail(RF_EINVAL, "%s: %s has a function of its own", function, rf_coll_op_name(op));
}

int rf_coll_staging_bytes(enum rf_coll_op op, int rank, int ranks, size_t elements,
                          enum rf_dtype dtype, enum rf_order order, int root, uint64_t *out)
{
    return rf_coll_staging_bytes_as(op, NULL, rank, ranks, elements, dtype, order, root, out);
}

int rf_coll_staging_bytes_as(enum rf_coll_op op, const char *algorithm, int rank, int ranks,
                             size_t elements, enum rf_dtype dtype, enum rf_order order, int root,
                             uint64_t *out)
{
    RETURN_IF_ERROR(refuse_leaves("rf_coll_staging_bytes", op));
    const struct rf_coll_desc desc = {.op = op,
                                      .rank = rank,
                                      .ranks = ranks,
                                      .count = elements,
                                      .dtype = dtype,
                                      .order = order,
                                      .root = root,
                                      .window_bytes = RF_WINDOW_BYTES,
                                      .staged = RF_STAGED_IN | RF_STAGED_OUT};
    return rf_sched_staging_bytes(&desc, algorithm, out);
}

int rf_coll_sent_bytes(enum rf_coll_op op, int rank, int ranks, size_t elements,
                       enum rf_dtype dtype, enum rf_order order, int root, uint64_t *out)
{
    return rf_coll_sent_bytes_as(op, NULL, rank, ranks, elements, dtype, order, root, out);
}

int rf_coll_sent_bytes_as(enum rf_coll_op op, const char *algorithm, int rank, int ranks,
                          size_t elements, enum rf_dtype dtype, enum rf_order order, int root,
                          uint64_t *out)
{
    RETURN_IF_ERROR(refuse_leaves("rf_coll_sent_bytes", op));
    const struct rf_coll_desc desc = {.op = op,
                                      .rank = rank,
                                      .ranks = ranks,
                                      .count = elements,
                                      .dtype = dtype,
                                      .order = order,
                                      .root = root};
    return rf_coll_count_sent(&desc, algorithm, out);
}

static struct rf_coll_desc forest_desc(const struct rf_forest *forest, int rank, size_t elements)
{
    return (struct rf_coll_desc){.op = RF_COLL_FOREST_ALL_REDUCE,
                                 .rank = rank,
                                 .ranks = forest ? forest->ranks : 0,
                                 .count = elements,
                                 .order = RF_ORDER_TREE,
                                 .forest = forest,
                                 .stride = elements,
                                 .window_bytes = RF_WINDOW_BYTES};
}

int rf_forest_sent_bytes(const struct rf_forest *forest, int rank, size_t elements, uint64_t *out)
{
    struct rf_coll_desc desc = forest_desc(forest, rank, elements);
    return rf_coll_count_sent(&desc, NULL, out);
}

int rf_forest_count_sent(const struct rf_forest *forest, int most_parts, int rank, size_t elements,
                         uint64_t *out)
{
    struct rf_coll_desc desc = forest_desc(forest, rank, elements);
    desc.most_parts = most_parts;
    return rf_coll_count_sent(&desc, NULL, out);
}

static int temp_of(const struct rf_coll_desc *desc, uint64_t *out)
{
    struct rf_sched *sched;
    RETURN_IF_ERROR(rf_sched_build(desc, &sched));
    *out = sched->temp_bytes;
    rf_sched_destroy(sched);
    return 0;
}

int rf_forest_temp_bytes(const struct rf_forest *forest, int rank, size_t elements, uint64_t *out)
{
    struct rf_coll_desc desc = forest_desc(forest, rank, elements);
    return temp_of(&desc, out);
}

int rf_forest_staging_bytes(const struct rf_forest *forest, int rank, size_t elements,
                            uint64_t *out)
{
    struct rf_coll_desc desc = forest_desc(forest, rank, elements);
    desc.staged = RF_STAGED_IN | RF_STAGED_OUT;
    return rf_sched_staging_bytes(&desc, NULL, out);
}

/* ---- a sum in pieces ------------------------------------------------------------------------- */

static int scatter_desc(const struct rf_forest *forest, int rank, const size_t *counts,
                        struct rf_coll_desc *out)
{
    size_t elements;
    RETURN_IF_ERROR(rf_coll_sum_counts(RF_COLL_FOREST_REDUCE_SCATTER, counts,
                                       forest ? forest->ranks : 0, &elements));
    *out = forest_desc(forest, rank, elements);
    out->op = RF_COLL_FOREST_REDUCE_SCATTER;
    out->counts = counts;
    return 0;
}

int rf_forest_scatter_sent_bytes(const struct rf_forest *forest, int rank, const size_t *counts,
                                 uint64_t *out)
{
    struct rf_coll_desc desc;
    RETURN_IF_ERROR(scatter_desc(forest, rank, counts, &desc));
    return rf_coll_count_sent(&desc, NULL, out);
}

int rf_forest_scatter_temp_bytes(const struct rf_forest *forest, int rank, const size_t *counts,
                                 uint64_t *out)
{
    struct rf_coll_desc desc;
    RETURN_IF_ERROR(scatter_desc(forest, rank, counts, &desc));
    return temp_of(&desc, out);
}

int rf_forest_scatter_staging_bytes(const struct rf_forest *forest, int rank, const size_t *counts,
                                    uint64_t *out)
{
    struct rf_coll_desc desc;
    RETURN_IF_ERROR(scatter_desc(forest, rank, counts, &desc));
    desc.staged = RF_STAGED_IN | RF_STAGED_OUT;
    return rf_sched_staging_bytes(&desc, NULL, out);
}

static int prefix_desc(int leaves, int round, int rank, int ranks, const size_t *counts,
                       struct rf_coll_desc *out)
{
    *out = (struct rf_coll_desc){.op = RF_COLL_PREFIX_REDUCE_SCATTER,
                                 .rank = rank,
                                 .ranks = ranks,
                                 .order = RF_ORDER_TREE,
                                 .counts = counts,
                                 .leaves = leaves,
                                 .round = round,
                                 .window_bytes = RF_WINDOW_BYTES};
    return rf_coll_sum_counts(out->op, counts, ranks, &out->count);
}

int rf_prefix_sent_bytes(int leaves, int round, int rank, int ranks, const size_t *counts,
                         uint64_t *out)
{
    struct rf_coll_desc desc;
    RETURN_IF_ERROR(prefix_desc(leaves, round, rank, ranks, counts, &desc));
    return rf_coll_count_sent(&desc, NULL, out);
}

int rf_prefix_temp_bytes(int leaves, int round, int rank, int ranks, const size_t *counts,
                         uint64_t *out)
{
    struct rf_coll_desc desc;
    RETURN_IF_ERROR(prefix_desc(leaves, round, rank, ranks, counts, &desc));
    return temp_of(&desc, out);
}

int rf_prefix_staging_bytes(int leaves, int round, int rank, int ranks, const size_t *counts,
                            uint64_t *out)
{
    struct rf_coll_desc desc;
    RETURN_IF_ERROR(prefix_desc(leaves, round, rank, ranks, counts, &desc));
    desc.staged = RF_STAGED_IN | RF_STAGED_OUT;
    return rf_sched_staging_bytes(&desc, NULL, out);
}

static int counts_desc(const char *function, struct rf_coll_desc *desc, const size_t *counts)
{
    if (!rf_coll_has_shares(desc->op) || desc->op == RF_COLL_ALL_TO_ALL)
        return rf_fail(RF_EINVAL, "%s: %s does not take one count for each rank", function,
                       rf_coll_op_name(desc->op));
    if (!counts)
        return rf_fail(RF_EINVAL, "%s: the counts of %d ranks are NULL", function, desc->ranks);
    desc->counts = counts;
    return rf_coll_sum_counts(desc->op, counts, desc->ranks, &desc->count);
}

int rf_coll_sent_bytes_v(enum rf_coll_op op, int rank, int ranks, const size_t *counts,
                         enum rf_dtype dtype, enum rf_order order, int root, uint64_t *out)
{
    struct rf_coll_desc desc = {
        .op = op, .rank = rank, .ranks = ranks, .dtype = dtype, .order = order, .root = root};
    RETURN_IF_ERROR(counts_desc("rf_coll_sent_bytes_v", &desc, counts));
    return rf_coll_count_sent(&desc, NULL, out);
}

int rf_coll_staging_bytes_v(enum rf_coll_op op, int rank, int ranks, const size_t *counts,
                            enum rf_dtype dtype, enum rf_order order, int root, uint64_t *out)
{
    struct rf_coll_desc desc = {.op = op,
                                .rank = rank,
                                .ranks = ranks,
                                .dtype = dtype,
                                .order = order,
                                .root = root,
                                .window_bytes = RF_WINDOW_BYTES,
                                .staged = RF_STAGED_IN | RF_STAGED_OUT};
    RETURN_IF_ERROR(counts_desc("rf_coll_staging_bytes_v", &desc, counts));
    return rf_sched_staging_bytes(&desc, NULL, out);
}
