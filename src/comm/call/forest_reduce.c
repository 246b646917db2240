/* SPDX-License-Identifier: MIT
 *
 * Sums over micro-batches on tensors, in tree order: checks, then the common path of tensor calls.
 */
#include "../communicator.h"
#include "../task.h"

static int check_forest(const struct rf_comm *comm, const char *op, const struct rf_forest *forest)
{
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

static int start(struct rf_comm *comm, const struct rf_coll_desc *desc, struct rf_tensor in,
                 struct rf_tensor out, const struct rf_coll_opts *opts)
{
    struct rf_task job = {.in = in, .out = out, .call = {.desc = *desc}};
    return rf_task_start(comm, &job, opts);
}

static int start_forest(struct rf_comm *comm, struct rf_coll_desc *desc, struct rf_tensor in,
                        struct rf_tensor out, const struct rf_coll_opts *opts)
{
    const char *op = rf_coll_op_name(desc->op);
    const bool scatters = desc->op == RF_COLL_FOREST_REDUCE_SCATTER;
    RETURN_IF_ERROR(check_forest(comm, op, desc->forest));
    if (scatters)
        RETURN_IF_ERROR(check_type(op, in));
    RETURN_IF_ERROR(check_type(op, out));
    const int64_t elements = rf_tensor_count(out);
    desc->count = elements > 0 ? (size_t)elements : 0;
    if (scatters)
        RETURN_IF_ERROR(rf_call_sum(comm, desc->op, desc->counts, &desc->count));
    const int own = rf_forest_nodes(desc->forest, comm->rank, NULL);
    RETURN_IF_ERROR(check_stride(op, own, desc->count, &desc->stride));
    return start(comm, desc, own > 0 || scatters ? in : out, out, opts);
}

static int start_prefix(struct rf_comm *comm, struct rf_coll_desc *desc, struct rf_tensor leaf,
                        struct rf_tensor slots, const struct rf_coll_opts *opts)
{
    const char *op = rf_coll_op_name(desc->op);
    if (desc->leaves < 1)
        return rf_fail(RF_EINVAL, "%s: %d leaves; at least one is needed", op, desc->leaves);
    const int rounds = rf_prefix_rounds(desc->leaves, comm->size);
    if (desc->round < 0 || desc->round >= rounds)
        return rf_fail(RF_EINVAL, "%s: %d leaves on %d ranks come in rounds 0 to %d, not in %d", op,
                       desc->leaves, comm->size, rounds - 1, desc->round);
    RETURN_IF_ERROR(check_type(op, leaf));
    RETURN_IF_ERROR(check_type(op, slots));
    RETURN_IF_ERROR(rf_call_sum(comm, desc->op, desc->counts, &desc->count));
    return start(comm, desc, leaf, slots, opts);
}

int rf_tree_sum_tensor(struct rf_comm *comm, const struct rf_coll_desc *desc, struct rf_tensor in,
                       struct rf_tensor out, const struct rf_coll_opts *opts)
{
    if (!desc || !rf_coll_adds_leaves(desc->op))
        return rf_fail(RF_EINVAL,
                       "rf_tree_sum_tensor: %s is no sum over micro-batches; describe an "
                       "RF_COLL_FOREST_... or RF_COLL_PREFIX_...",
                       desc ? rf_coll_op_name(desc->op) : "NULL");
    if (!comm)
        return rf_fail(RF_EINVAL, "%s: the communicator is NULL", rf_coll_op_name(desc->op));
    struct rf_coll_desc own = {.op = desc->op, .redop = RF_SUM, .order = RF_ORDER_TREE, .root = -1};
    if (desc->op == RF_COLL_PREFIX_REDUCE_SCATTER) {
        own.counts = desc->counts;
        own.leaves = desc->leaves;
        own.round = desc->round;
        return start_prefix(comm, &own, in, out, opts);
    }
    own.forest = desc->forest;
    own.stride = desc->stride;
    if (desc->op == RF_COLL_FOREST_REDUCE_SCATTER)
        own.counts = desc->counts;
    return start_forest(comm, &own, in, out, opts);
}
