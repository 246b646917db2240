/* SPDX-License-Identifier: MIT
 *
 * Sums over micro-batches on tensors, in tree order: checks, then the common path of tensor calls.
 */
#include "../communicator.h"
#include "../task.h"

static int check_forest(const struct rf_comm *comm, const char *op, const struct rf_forest *forest)
{
    if (!comm)
        return rf_fail(RF_EINVAL, "%s: the communicator is NULL", op);
    if (!forest || !forest->first)
        return rf_fail(RF_EINVAL, "%s: the forest is NULL", op);
    if (forest->ranks != comm->size)
        return rf_fail(RF_EINVAL, "%s: the forest is for %d ranks, the communicator has %d", op,
                       forest->ranks, comm->size);
    if (forest->leaves < 1)
        return rf_fail(RF_EINVAL, "%s: %d leaves; at least one is needed", op, forest->leaves);
    for (int rank = 0; rank < forest->ranks; rank++)
        if (forest->first[rank] > forest->first[rank + 1])
            return rf_fail(RF_EINVAL, "%s: rank %d would own leaves %d to %d", op, rank,
                           forest->first[rank], forest->first[rank + 1]);
    if (forest->first[0] != 0 || forest->first[forest->ranks] != forest->leaves)
        return rf_fail(RF_EINVAL, "%s: the ranks own leaves %d to %d of %d", op, forest->first[0],
                       forest->first[forest->ranks], forest->leaves);
    return 0;
}

/* own: the number of parts. With at most one part the stride is irrelevant. */
static int check_stride(const char *op, int own, size_t count, size_t *stride)
{
    size_t end;
    if (own > 1 && (*stride < count || __builtin_mul_overflow((size_t)own, *stride, &end)))
        return rf_fail(RF_EINVAL, "%s: parts of %zu elements lie %zu apart", op, count, *stride);
    *stride = own > 1 ? *stride : count;
    return 0;
}

static int check_type(const char *op, struct rf_tensor tensor)
{
    if (tensor.buffer && tensor.dtype != RF_F32)
        return rf_fail(RF_EINVAL, "%s: elements are f32, not %s", op, rf_dtype_name(tensor.dtype));
    return 0;
}

int rf_forest_all_reduce_tensor(struct rf_comm *comm, const struct rf_forest *forest,
                                struct rf_tensor parts, size_t stride, struct rf_tensor out,
                                const struct rf_coll_opts *opts)
{
    const char *op = rf_coll_op_name(RF_COLL_FOREST_ALL_REDUCE);
    RETURN_IF_ERROR(check_forest(comm, op, forest));
    RETURN_IF_ERROR(check_type(op, out));
    const int64_t elements = rf_tensor_count(out);
    const size_t count = elements > 0 ? (size_t)elements : 0;
    const int own = rf_forest_nodes(forest, comm->rank, NULL);
    RETURN_IF_ERROR(check_stride(op, own, count, &stride));
    struct rf_task job = {.in = own > 0 ? parts : out, .out = out};
    job.call = (struct rf_call){.desc = {.op = RF_COLL_FOREST_ALL_REDUCE,
                                         .count = count,
                                         .redop = RF_SUM,
                                         .order = RF_ORDER_TREE,
                                         .root = -1,
                                         .forest = forest,
                                         .stride = stride}};
    return rf_task_start(comm, &job, opts);
}

int rf_forest_reduce_scatter_tensor(struct rf_comm *comm, const struct rf_forest *forest,
                                    struct rf_tensor parts, size_t stride, struct rf_tensor out,
                                    const size_t *counts, const struct rf_coll_opts *opts)
{
    const char *op = rf_coll_op_name(RF_COLL_FOREST_REDUCE_SCATTER);
    RETURN_IF_ERROR(check_forest(comm, op, forest));
    RETURN_IF_ERROR(check_type(op, parts));
    RETURN_IF_ERROR(check_type(op, out));
    struct rf_task job = {.in = parts, .out = out};
    job.call = (struct rf_call){.desc = {.op = RF_COLL_FOREST_REDUCE_SCATTER,
                                         .counts = counts,
                                         .redop = RF_SUM,
                                         .order = RF_ORDER_TREE,
                                         .root = -1,
                                         .forest = forest}};
    RETURN_IF_ERROR(rf_call_sum(comm, job.call.desc.op, counts, &job.call.desc.count));
    const int own = rf_forest_nodes(forest, comm->rank, NULL);
    RETURN_IF_ERROR(check_stride(op, own, job.call.desc.count, &stride));
    job.call.desc.stride = stride;
    return rf_task_start(comm, &job, opts);
}

int rf_prefix_reduce_scatter_tensor(struct rf_comm *comm, int leaves, int round,
                                    struct rf_tensor leaf, struct rf_tensor slots,
                                    const size_t *counts, const struct rf_coll_opts *opts)
{
    const char *op = rf_coll_op_name(RF_COLL_PREFIX_REDUCE_SCATTER);
    if (!comm)
        return rf_fail(RF_EINVAL, "%s: the communicator is NULL", op);
    if (leaves < 1)
        return rf_fail(RF_EINVAL, "%s: %d leaves; at least one is needed", op, leaves);
    const int rounds = rf_prefix_rounds(leaves, comm->size);
    if (round < 0 || round >= rounds)
        return rf_fail(RF_EINVAL, "%s: %d leaves on %d ranks come in rounds 0 to %d, not in %d", op,
                       leaves, comm->size, rounds - 1, round);
    RETURN_IF_ERROR(check_type(op, leaf));
    RETURN_IF_ERROR(check_type(op, slots));
    struct rf_task job = {.in = leaf, .out = slots};
    job.call = (struct rf_call){.desc = {.op = RF_COLL_PREFIX_REDUCE_SCATTER,
                                         .counts = counts,
                                         .redop = RF_SUM,
                                         .order = RF_ORDER_TREE,
                                         .root = -1,
                                         .leaves = leaves,
                                         .round = round}};
    RETURN_IF_ERROR(rf_call_sum(comm, job.call.desc.op, counts, &job.call.desc.count));
    return rf_task_start(comm, &job, opts);
}
