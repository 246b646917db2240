/* SPDX-License-Identifier: MIT
 *
 * Predictions: what a collective will send and need. Called by plans and tests; needs no
 * communicator.
 */
#include "../base/base.h"
#include "table.h"

int rf_coll_staging_bytes(enum rf_coll_op op, int rank, int ranks, size_t elements,
                          enum rf_dtype dtype, enum rf_order order, int root, uint64_t *out)
{
    return rf_coll_staging_bytes_as(op, NULL, rank, ranks, elements, dtype, order, root, out);
}

int rf_coll_staging_bytes_as(enum rf_coll_op op, const char *algorithm, int rank, int ranks,
                             size_t elements, enum rf_dtype dtype, enum rf_order order, int root,
                             uint64_t *out)
{
    if (op == RF_COLL_FOREST_ALL_REDUCE)
        return rf_fail(RF_EINVAL,
                       "rf_coll_staging_bytes: use rf_forest_staging_bytes for a forest");
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
    if (op == RF_COLL_FOREST_ALL_REDUCE)
        return rf_fail(RF_EINVAL, "rf_coll_sent_bytes: use rf_forest_sent_bytes for a forest");
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

int rf_forest_temp_bytes(const struct rf_forest *forest, int rank, size_t elements, uint64_t *out)
{
    struct rf_coll_desc desc = forest_desc(forest, rank, elements);
    struct rf_sched *sched;
    RETURN_IF_ERROR(rf_sched_build(&desc, &sched));
    *out = sched->temp_bytes;
    rf_sched_destroy(sched);
    return 0;
}

int rf_forest_staging_bytes(const struct rf_forest *forest, int rank, size_t elements,
                            uint64_t *out)
{
    struct rf_coll_desc desc = forest_desc(forest, rank, elements);
    desc.staged = RF_STAGED_IN | RF_STAGED_OUT;
    return rf_sched_staging_bytes(&desc, NULL, out);
}
