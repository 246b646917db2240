/* SPDX-License-Identifier: MIT
 *
 * The end of a group of calls: runs its sends and receives at once, then its collectives in the
 * order of the calls.
 */
#include <ringforge/ringforge.h>

#include "../family.h"
#include "../group.h"

/* The receive that matches `send`, a message of this rank to itself; NULL: none. */
static struct rf_p2p_op *counterpart(struct rf_group *group, int rank, const struct rf_p2p_op *send)
{
    for (size_t i = 0; i < group->p2p_op_count; i++) {
        struct rf_p2p_op *p2p_op = &group->p2p_ops[i];
        if (!p2p_op->is_send && p2p_op->peer == rank && p2p_op->tag == send->tag &&
            !p2p_op->matched)
            return p2p_op;
    }
    return NULL;
}

/* Copies messages of this rank to itself, and removes them from the list. */
static int run_self_messages(struct rf_comm *comm, struct rf_group *group)
{
    size_t kept = 0;
    for (size_t i = 0; i < group->p2p_op_count; i++) {
        struct rf_p2p_op *send = &group->p2p_ops[i];
        if (!send->is_send || send->peer != comm->rank)
            continue;
        struct rf_p2p_op *recv = counterpart(group, comm->rank, send);
        if (!recv || !rf_contract_equal(&recv->contract, &send->contract))
            return rf_fail(RF_EINVAL, "group: a message of this rank to itself with tag %u %s",
                           send->tag,
                           recv ? "differs from its receive in count, type or label"
                                : "is not received in the same group");
        recv->matched = true;
        if (send->bytes > 0)
            memmove(recv->buffer, send->buffer, send->bytes);
    }
    for (size_t i = 0; i < group->p2p_op_count; i++) {
        struct rf_p2p_op *p2p_op = &group->p2p_ops[i];
        if (p2p_op->peer != comm->rank)
            group->p2p_ops[kept++] = *p2p_op;
        else if (!p2p_op->is_send && !p2p_op->matched)
            return rf_fail(RF_EINVAL,
                           "group: a receive of this rank from itself with tag %u has no send in "
                           "the same group",
                           p2p_op->tag);
    }
    group->p2p_op_count = kept;
    return 0;
}

/* Queues sends and receives that have a request. */
static void push_requests(struct rf_comm *comm, struct rf_group *group)
{
    for (struct rf_task **link = &group->first; *link;) {
        struct rf_task *task = *link;
        if (!task->request || !task->p2p_ops) {
            link = &task->next;
            continue;
        }
        *link = task->next;
        rf_async_push_task(comm, task);
    }
}

static int run_p2p_ops(struct rf_comm *comm, struct rf_group *group)
{
    const struct rf_task job = {.p2p_ops = group->p2p_ops,
                                .p2p_op_count = group->p2p_op_count,
                                .call.timeout_s = group->timeout_s};
    if (group->p2p_op_count == 0)
        return 0;
    if (rf_async_busy(comm->async))
        return rf_async_run(comm, &job);
    RETURN_IF_ERROR(rf_comm_enter(comm));
    return rf_p2p_exchange(comm, group->p2p_ops, group->p2p_op_count, group->timeout_s);
}

/* Removes the first collective of the group, and runs it. */
static int run_call(struct rf_comm *comm, struct rf_group *group)
{
    struct rf_task *task = group->first;
    group->first = task->next;
    task->next = NULL;
    if (task->request) {
        rf_async_push_task(comm, task);
        return 0;
    }
    int rc = 0;
    if (rf_async_busy(comm->async))
        rc = rf_async_run(comm, task);
    else
        rc = comm->failure.failed ? rf_comm_failed_earlier(comm) : rf_comm_run(comm, &task->call);
    rf_task_free(task);
    return rc;
}

static int run_group(struct rf_comm *comm, struct rf_group *group)
{
    if (!rf_async_busy(comm->async))
        RETURN_IF_ERROR(rf_comm_enter(comm));
    RETURN_IF_ERROR(run_self_messages(comm, group));
    push_requests(comm, group);
    RETURN_IF_ERROR(run_p2p_ops(comm, group));
    while (group->first)
        RETURN_IF_ERROR(run_call(comm, group));
    return 0;
}

int rf_group_end(struct rf_comm *comm)
{
    if (!comm || !comm->group)
        return rf_fail(RF_EINVAL, "group: there is no rf_group_start for this rf_group_end");
    if (--comm->group->depth > 0)
        return 0;
    struct rf_group *group = comm->group;
    rf_family_enter(comm->membership.family);
    comm->group = NULL;
    int rc = run_group(comm, group);
    rf_group_destroy(group);
    return rc;
}
