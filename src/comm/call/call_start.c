/* SPDX-License-Identifier: MIT
 *
 * Starts a checked collective on host memory: runs it at once, queues it, or adds it to its group.
 */
#include <ringforge/ringforge.h>

#include "../communicator.h"
#include "../family.h"
#include "../task.h"

/* Sets the reduction of the call. */
static int take_reduction(struct rf_call *call, const struct rf_coll_opts *opts)
{
    call->wire_dtype = opts->wire_dtype;
    call->scaled = opts->scale != NULL;
    call->scale = opts->scale ? *opts->scale : 1;
    if (!opts->reduction || !rf_coll_reduces(call->desc.op))
        return 0;
    call->reduction = *opts->reduction;
    const char *name = opts->reduction->name ? opts->reduction->name : "";
    call->reduction_hash = rf_hash32(name, strlen(name), 4);
    call->reduction.name = NULL;
    if (call->reduction.commutes)
        return 0;
    if (call->desc.order == RF_ORDER_RING)
        return rf_fail(RF_EINVAL,
                       "%s: a reduction that does not commute keeps the ranks' order, which "
                       "RF_ORDER_RING does not",
                       rf_coll_op_name(call->desc.op));
    call->desc.order = RF_ORDER_TREE;
    return 0;
}

/* Starts a call with a request, or while others are in progress. */
static int start_beside(struct rf_comm *comm, const struct rf_call *call,
                        struct rf_request **request, bool busy)
{
    const struct rf_task job = {.call = *call};
    rf_family_enter(comm->membership.family);
    if (!request)
        return rf_async_run(comm, &job);
    if (!busy)
        RETURN_IF_ERROR(rf_comm_ready(comm));
    return rf_async_push_request(comm, &job, request);
}

/* Whether the arguments of a call with equal pieces describe it completely. */
static bool is_plain(const struct rf_call *call)
{
    return !call->desc.counts && !call->desc.recv_counts && !call->desc.order &&
           !call->desc.forest && !call->desc.leaves && !call->algorithm &&
           !call->reduction.combine && !rf_call_converts(call) && call->timeout_s == 0;
}

/* For a plain call. If the next one is the same, it is neither checked nor looked up. */
static int look_up_and_run(struct rf_comm *comm, const struct rf_call *call)
{
    struct rf_cached *cached;
    RETURN_IF_ERROR(rf_cache_find(comm, call, &cached));
    cached->is_last = true;
    comm->last.call = *call;
    comm->last.cached = cached;
    return rf_comm_run_cached(comm, call, cached);
}

static int run_now(struct rf_comm *comm, const struct rf_call *call)
{
    RETURN_IF_ERROR(rf_comm_ready(comm));
    return is_plain(call) ? look_up_and_run(comm, call) : rf_comm_run(comm, call);
}

int rf_call_repeat(struct rf_comm *comm)
{
    const struct rf_call *call = &comm->last.call;
    if (comm->group)
        return rf_group_add_call(comm, call, NULL);
    if (rf_async_busy(comm->async))
        return start_beside(comm, call, NULL, true);
    RETURN_IF_ERROR(rf_comm_ready(comm));
    /* Read only now: while the worker runs, it owns the table of schedules. */
    if (!comm->last.cached->is_last)
        return look_up_and_run(comm, call);
    return rf_comm_run_cached(comm, call, comm->last.cached);
}

int rf_call_start(struct rf_comm *comm, struct rf_call *call, const struct rf_coll_opts *opts)
{
    if (opts) {
        call->desc.order = opts->order;
        call->label = opts->label;
        call->algorithm = opts->algorithm;
        call->timeout_s = opts->timeout_s;
        RETURN_IF_ERROR(take_reduction(call, opts));
    }
    RETURN_IF_ERROR(rf_call_check(comm, call));
    RETURN_IF_ERROR(rf_call_check_buffers(comm, call));
    struct rf_request **request = opts ? opts->request : NULL;
    if (comm->group)
        return rf_group_add_call(comm, call, request);
    const bool busy = rf_async_busy(comm->async);
    if (request || busy)
        return start_beside(comm, call, request, busy);
    return run_now(comm, call);
}
