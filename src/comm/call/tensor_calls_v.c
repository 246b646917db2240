/* SPDX-License-Identifier: MIT
 *
 * The public collectives on device tensors with a count for each rank. tensor_calls.c checks and
 * runs them.
 */
#include <ringforge/ringforge.h>

#include "../communicator.h"
#include "../task.h"

static int uneven(struct rf_comm *comm, enum rf_coll_op op, struct rf_tensor in,
                  struct rf_tensor out, const size_t *counts, enum rf_redop redop, int root,
                  const struct rf_coll_opts *opts)
{
    struct rf_task job = {.in = in, .out = out};
    if (!comm)
        return rf_fail(RF_EINVAL, "%s: the communicator is NULL", rf_coll_op_name(op));
    job.call = (struct rf_call){.desc = {.op = op, .counts = counts, .redop = redop, .root = root}};
    RETURN_IF_ERROR(rf_call_sum(comm, op, counts, &job.call.desc.count));
    return rf_task_start(comm, &job, opts);
}

int rf_all_gather_v_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                           const size_t *counts, const struct rf_coll_opts *opts)
{
    return uneven(comm, RF_COLL_ALL_GATHER, in, out, counts, RF_SUM, -1, opts);
}

int rf_reduce_scatter_v_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                               const size_t *counts, enum rf_redop redop,
                               const struct rf_coll_opts *opts)
{
    return uneven(comm, RF_COLL_REDUCE_SCATTER, in, out, counts, redop, -1, opts);
}

int rf_gather_v_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                       const size_t *counts, int root, const struct rf_coll_opts *opts)
{
    return uneven(comm, RF_COLL_GATHER, in, out, counts, RF_SUM, root, opts);
}

int rf_scatter_v_tensor(struct rf_comm *comm, struct rf_tensor in, struct rf_tensor out,
                        const size_t *counts, int root, const struct rf_coll_opts *opts)
{
    return uneven(comm, RF_COLL_SCATTER, in, out, counts, RF_SUM, root, opts);
}

int rf_all_to_all_v_tensor(struct rf_comm *comm, struct rf_tensor in, const size_t *send_counts,
                           struct rf_tensor out, const size_t *recv_counts,
                           const struct rf_coll_opts *opts)
{
    struct rf_task job = {.in = in, .out = out};
    size_t expected;
    if (!comm)
        return rf_fail(RF_EINVAL, "all_to_all: the communicator is NULL");
    job.call = (struct rf_call){.desc = {.op = RF_COLL_ALL_TO_ALL,
                                         .counts = send_counts,
                                         .recv_counts = recv_counts,
                                         .root = -1}};
    RETURN_IF_ERROR(rf_call_sum(comm, RF_COLL_ALL_TO_ALL, recv_counts, &expected));
    RETURN_IF_ERROR(rf_call_sum(comm, RF_COLL_ALL_TO_ALL, send_counts, &job.call.desc.count));
    RETURN_IF_ERROR(rf_task_check(comm, &job, opts));
    RETURN_IF_ERROR(rf_call_exchange_counts(comm, &job.call, opts));
    return rf_task_start(comm, &job, opts);
}
