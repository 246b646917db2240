/* SPDX-License-Identifier: MIT
 *
 * Groups of calls: calls between rf_group_start and rf_group_end are stored here, and run at the
 * end (group_run.c).
 */
#include <ringforge/ringforge.h>

#include "../group.h"

int rf_group_start(struct rf_comm *comm)
{
    if (!comm)
        return rf_fail(RF_EINVAL, "group: the communicator is NULL");
    if (!comm->group) {
        struct rf_group *group = rf_alloc(sizeof(*group));
        if (!group)
            return rf_fail(RF_ENOMEM, "no memory for a group of calls");
        group->end = &group->first;
        comm->group = group;
    }
    comm->group->depth++;
    return 0;
}

void rf_group_destroy(struct rf_group *group)
{
    if (!group)
        return;
    while (group->first) {
        struct rf_task *task = group->first;
        group->first = task->next;
        if (task->request) {
            rf_fail(RF_EABORT, "the group of this call ended before the call began");
            rf_request_end(task->request, RF_EABORT);
        }
        rf_task_free(task);
    }
    rf_free(group->p2p_ops);
    rf_free(group);
}

int rf_group_refuse(const struct rf_comm *comm, const char *what)
{
    return comm && comm->group ? rf_fail(RF_EINVAL, "a group of calls cannot have %s in it", what)
                               : 0;
}

int rf_group_add_p2p_ops(struct rf_comm *comm, const struct rf_p2p_op *p2p_ops, size_t count,
                         double timeout_s)
{
    struct rf_group *group = comm->group;
    if (group->p2p_op_count + count > group->p2p_op_capacity) {
        size_t capacity = 2 * group->p2p_op_capacity + 16;
        struct rf_p2p_op *grown = rf_realloc(group->p2p_ops, capacity * sizeof(*grown));
        if (!grown)
            return rf_fail(RF_ENOMEM, "no memory for a group of %zu messages", capacity);
        group->p2p_ops = grown;
        group->p2p_op_capacity = capacity;
    }
    memcpy(group->p2p_ops + group->p2p_op_count, p2p_ops, count * sizeof(*p2p_ops));
    group->p2p_op_count += count;
    if (timeout_s > group->timeout_s)
        group->timeout_s = timeout_s;
    return 0;
}

int rf_group_add_task(struct rf_comm *comm, const struct rf_task *job, struct rf_request **request)
{
    struct rf_task *copy = NULL;
    RETURN_IF_ERROR(rf_task_copy(comm, job, &copy));
    int rc = request ? rf_request_create(&copy->request) : 0;
    if (rc < 0) {
        rf_task_free(copy);
        return rc;
    }
    if (request)
        *request = copy->request;
    *comm->group->end = copy;
    comm->group->end = &copy->next;
    return 0;
}

int rf_group_add_call(struct rf_comm *comm, const struct rf_call *call, struct rf_request **request)
{
    const struct rf_task task = {.call = *call};
    return rf_group_add_task(comm, &task, request);
}
