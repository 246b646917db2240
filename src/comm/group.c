/* SPDX-License-Identifier: MIT
 *
 * Groups of calls: what is called between rf_group_start and rf_group_end is noted, and runs at the
 * end: sends and receives all at once, then the collectives.
 */
#include <ringforge/ringforge.h>

#include "point_to_point.h"

struct rf_group {
    int depth;
    double timeout_s; /* the longest that a send or receive asked for */
    struct rf_half *halves;
    size_t half_count, half_room;
    struct rf_task *first, **end; /* collectives, and what has a request, in the calls' order */
};

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
    rf_free(group->halves);
    rf_free(group);
}

int rf_group_refuse(const struct rf_comm *comm, const char *what)
{
    return comm && comm->group ? rf_fail(RF_EINVAL, "a group of calls cannot have %s in it", what)
                               : 0;
}

int rf_group_add_halves(struct rf_comm *comm, const struct rf_half *halves, size_t count,
                        double timeout_s)
{
    struct rf_group *group = comm->group;
    if (group->half_count + count > group->half_room) {
        size_t room = 2 * group->half_room + 16;
        struct rf_half *grown = rf_realloc(group->halves, room * sizeof(*grown));
        if (!grown)
            return rf_fail(RF_ENOMEM, "no memory for a group of %zu messages", room);
        group->halves = grown;
        group->half_room = room;
    }
    memcpy(group->halves + group->half_count, halves, count * sizeof(*halves));
    group->half_count += count;
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

/* The receive of this rank's own message `send`; NULL = there is none. */
static struct rf_half *counterpart(struct rf_group *group, int rank, const struct rf_half *send)
{
    for (size_t i = 0; i < group->half_count; i++) {
        struct rf_half *half = &group->halves[i];
        if (!half->is_send && half->peer == rank && half->tag == send->tag && !half->paired)
            return half;
    }
    return NULL;
}

/* Messages to this rank itself are copied, and leave the list. */
static int run_own(struct rf_comm *comm, struct rf_group *group)
{
    size_t kept = 0;
    for (size_t i = 0; i < group->half_count; i++) {
        struct rf_half *send = &group->halves[i];
        if (!send->is_send || send->peer != comm->rank)
            continue;
        struct rf_half *recv = counterpart(group, comm->rank, send);
        if (!recv || !rf_contract_equal(&recv->contract, &send->contract))
            return rf_fail(RF_EINVAL, "group: a message of this rank to itself with tag %u %s",
                           send->tag,
                           recv ? "differs from its receive in count, type or label"
                                : "is not received in the same group");
        recv->paired = true;
        if (send->bytes > 0)
            memmove(recv->buffer, send->buffer, send->bytes);
    }
    for (size_t i = 0; i < group->half_count; i++) {
        struct rf_half *half = &group->halves[i];
        if (half->peer != comm->rank)
            group->halves[kept++] = *half;
        else if (!half->is_send && !half->paired)
            return rf_fail(RF_EINVAL,
                           "group: a receive of this rank from itself with tag %u has no send in "
                           "the same group",
                           half->tag);
    }
    group->half_count = kept;
    return 0;
}

/* Hands on sends and receives that have a request. */
static void push_requests(struct rf_comm *comm, struct rf_group *group)
{
    for (struct rf_task **link = &group->first; *link;) {
        struct rf_task *task = *link;
        if (!task->request || !task->halves) {
            link = &task->next;
            continue;
        }
        *link = task->next;
        rf_async_push_task(comm, task);
    }
}

static int run_halves(struct rf_comm *comm, struct rf_group *group)
{
    const struct rf_task job = {.halves = group->halves,
                                .half_count = group->half_count,
                                .call.timeout_s = group->timeout_s};
    if (group->half_count == 0)
        return 0;
    if (rf_async_busy(comm->async))
        return rf_async_run(comm, &job);
    RETURN_IF_ERROR(rf_comm_enter(comm));
    return rf_p2p_exchange(comm, group->halves, group->half_count, group->timeout_s);
}

/* The first collective, which is taken off the group. */
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
        rc = comm->failed ? rf_comm_report(comm) : rf_comm_run(comm, &task->call);
    rf_task_free(task);
    return rc;
}

static int run(struct rf_comm *comm, struct rf_group *group)
{
    if (!rf_async_busy(comm->async))
        RETURN_IF_ERROR(rf_comm_enter(comm));
    RETURN_IF_ERROR(run_own(comm, group));
    push_requests(comm, group);
    RETURN_IF_ERROR(run_halves(comm, group));
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
    rf_family_enter(comm);
    comm->group = NULL;
    int rc = run(comm, group);
    rf_group_destroy(group);
    return rc;
}
