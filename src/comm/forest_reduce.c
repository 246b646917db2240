/* SPDX-License-Identifier: MIT
 *
 * The tree-ordered gradient reduction on tensors: checks of the forest, then the path of all tensor
 * calls.
 */
#include "communicator.h"

static int check_forest(const struct rf_comm *comm, const struct rf_forest *forest)
{
    if (!comm)
        return rf_fail(RF_EINVAL, "forest_all_reduce: the communicator is NULL");
    if (!forest || !forest->first)
        return rf_fail(RF_EINVAL, "forest_all_reduce: the forest is NULL");
    if (forest->ranks != comm->size)
        return rf_fail(RF_EINVAL,
                       "forest_all_reduce: the forest is for %d ranks, the communicator has %d",
                       forest->ranks, comm->size);
    if (forest->leaves < 1)
        return rf_fail(RF_EINVAL, "forest_all_reduce: %d leaves; at least one is needed",
                       forest->leaves);
    for (int rank = 0; rank < forest->ranks; rank++)
        if (forest->first[rank] > forest->first[rank + 1])
            return rf_fail(RF_EINVAL, "forest_all_reduce: rank %d would own leaves %d to %d", rank,
                           forest->first[rank], forest->first[rank + 1]);
    if (forest->first[0] != 0 || forest->first[forest->ranks] != forest->leaves)
        return rf_fail(RF_EINVAL, "forest_all_reduce: the ranks own leaves %d to %d of %d",
                       forest->first[0], forest->first[forest->ranks], forest->leaves);
    return 0;
}

int rf_forest_all_reduce_tensor(struct rf_comm *comm, const struct rf_forest *forest,
                                struct rf_tensor parts, size_t stride, struct rf_tensor out,
                                const struct rf_coll_opts *opts)
{
    RETURN_IF_ERROR(check_forest(comm, forest));
    int64_t count = rf_tensor_count(out);
    if (out.dtype != RF_F32)
        return rf_fail(RF_EINVAL, "forest_all_reduce: elements are f32, not %s",
                       rf_dtype_name(out.dtype));
    int own = rf_forest_nodes(forest, comm->rank, NULL);
    if (own > 1 && (count < 0 || stride < (size_t)count))
        return rf_fail(RF_EINVAL, "forest_all_reduce: parts of %lld elements lie %zu apart",
                       (long long)count, stride);
    struct rf_task job = {.in = own > 0 ? parts : out, .out = out};
    job.call = (struct rf_call){.op = RF_COLL_FOREST_ALL_REDUCE,
                                .count = count > 0 ? (size_t)count : 0,
                                .redop = RF_SUM,
                                .order = RF_ORDER_TREE,
                                .root = -1,
                                .forest = forest,
                                .stride = stride};
    return rf_task_start(comm, &job, opts);
}
