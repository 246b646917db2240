/* SPDX-License-Identifier: MIT
 *
 * The thread that runs asynchronous calls: collectives (inflight.c), and sends and receives, all
 * concurrently. Every request is ended, and every point signalled, even after an error, so no
 * waiter hangs.
 */
#include "../worker.h"

#define AFTER_SLICE_NS 1000000ull

/* ---- ends ------------------------------------------------------------------------------------ */

/* Counts the operations that ended in this turn. Comes last in a turn: once nothing is outstanding,
 * the owner uses the communicator again. */
static void count_ended(struct rf_async *async)
{
    const int collectives = async->ended[false], p2p = async->ended[true];
    if (collectives + p2p == 0)
        return;
    async->ended[false] = async->ended[true] = 0;
    async->ended_total += (uint64_t)(collectives + p2p);
    pthread_mutex_lock(&async->lock);
    async->outstanding_collectives -= collectives;
    atomic_fetch_sub_explicit(&async->outstanding, collectives + p2p, memory_order_release);
    pthread_cond_broadcast(&async->changed);
    pthread_mutex_unlock(&async->lock);
}

/* Ends all outstanding tasks with the error of the communicator. */
static void end_all(struct rf_async *async, const struct rf_error *why)
{
    struct rf_task_list *lists[] = {&async->inflight, &async->unrecorded, &async->held_p2p,
                                    &async->running_p2p};
    if (async->held_p2p.first || async->running_p2p.first)
        rf_staging_abandon_all(async->comm);
    for (int i = 0; i < 4; i++)
        while (lists[i]->first) {
            struct rf_task *task = rf_task_remove(lists[i], &lists[i]->first);
            int rc = task->state == RF_TASK_ENDED ? 0 : rf_fail_error(why);
            if (i == 0 && rc < 0)
                rf_inflight_complete(async->comm, task, rc);
            rf_task_end(async, task, rc);
        }
    async->inflight_count = 0;
}

/* ---- sends and receives ---------------------------------------------------------------------- */

/* Messages of this rank to itself are stored before any receive has its turn, so that messages and
 * receives match in the order of the calls. */
static int send_to_self(struct rf_async *async)
{
    struct rf_comm *comm = async->comm;
    for (struct rf_task *task = async->running_p2p.first; task; task = task->next)
        for (size_t i = 0; i < task->p2p_op_count; i++)
            if (task->p2p_ops[i].is_send && task->p2p_ops[i].peer == comm->rank)
                RETURN_IF_ERROR(rf_p2p_send_to_self(comm->p2p, &task->p2p_ops[i]));
    async->new_self_messages = false;
    return 0;
}

/* Whether they send or receive with the same peer and tag, and so keep the order of the calls. */
static bool are_ordered(const struct rf_task *a, const struct rf_task *b)
{
    for (size_t i = 0; i < a->p2p_op_count; i++)
        for (size_t j = 0; j < b->p2p_op_count; j++) {
            const struct rf_p2p_op *x = &a->p2p_ops[i], *y = &b->p2p_ops[j];
            if (x->peer == y->peer && x->tag == y->tag && x->is_send == y->is_send)
                return true;
        }
    return false;
}

static void count_held(struct rf_async *async, const struct rf_task *task, bool held)
{
    for (size_t i = 0; i < task->p2p_op_count; i++) {
        struct rf_p2p_peer *peer = &async->comm->p2p->peers[task->p2p_ops[i].peer];
        peer->held_tasks += held ? 1 : (size_t)-1;
    }
}

static void begin(struct rf_async *async, struct rf_task *task)
{
    rf_task_append(&async->running_p2p, task);
    task->start_ns = rf_trace_enabled() ? rf_now_ns() : 0;
    rf_wait_monitor_begin(async->comm, &task->monitor, &task->p2p_ops[0].contract,
                          task->call.timeout_s, NULL);
    task->monitor.blocking = task->blocking;
    for (size_t i = 0; i < task->p2p_op_count; i++)
        async->new_self_messages =
            async->new_self_messages || task->p2p_ops[i].peer == async->comm->rank;
}

/* Begins a new task, or holds it until its point is reached, its data have been fetched, and all
 * tasks that it must not overtake have begun. */
static void begin_or_hold(struct rf_async *async, struct rf_task *task)
{
    if (!async->held_p2p.first && !task->after.timeline &&
        !rf_p2p_must_fetch(async->comm->p2p, &task->p2p_ops[0])) {
        begin(async, task);
        return;
    }
    rf_task_append(&async->held_p2p, task);
    count_held(async, task, true);
}

/* 1: it may begin. */
static int may_begin(struct rf_async *async, struct rf_task *task)
{
    int rc = rf_after_reached(task->after);
    if (rc <= 0)
        return rc;
    for (const struct rf_task *older = async->held_p2p.first; older != task; older = older->next)
        if (are_ordered(older, task))
            return 0;
    return rf_p2p_fetch(async->comm->p2p, &task->p2p_ops[0]);
}

static int begin_held(struct rf_async *async)
{
    struct rf_comm *comm = async->comm;
    for (struct rf_task **link = &async->held_p2p.first; *link;) {
        struct rf_task *task = *link;
        int rc = may_begin(async, task);
        if (rc < 0)
            return rf_comm_fail_operation(comm, rc, -1, &task->p2p_ops[0].contract);
        if (rc == 0) {
            link = &task->next;
            continue;
        }
        rf_task_remove(&async->held_p2p, link);
        count_held(async, task, false);
        begin(async, task);
    }
    return 0;
}

static int advance_p2p(struct rf_async *async)
{
    struct rf_comm *comm = async->comm;
    bool send_blocked = false;
    if (async->new_self_messages)
        RETURN_IF_ERROR(send_to_self(async));
    for (struct rf_task **link = &async->running_p2p.first; *link;) {
        struct rf_task *task = *link;
        struct rf_p2p_op *unfinished;
        int rc = rf_p2p_advance(comm->p2p, task->p2p_ops, task->p2p_op_count, &send_blocked,
                                &unfinished);
        if (rc < 0)
            return comm->failure.failed
                       ? rc
                       : rf_comm_fail_operation(comm, rc, -1, &unfinished->contract);
        if (!unfinished) {
            if (task->start_ns > 0)
                rf_comm_trace(comm, task->p2p_ops[0].is_send ? RF_COLL_SEND : RF_COLL_RECV,
                              task->p2p_ops[0].bytes, task->start_ns);
            rf_task_remove(&async->running_p2p, link);
            rf_task_end(async, task, 0);
            continue;
        }
        task->monitor.peer = unfinished->peer;
        task->monitor.mine = &unfinished->contract;
        RETURN_IF_ERROR(rf_wait_monitor_check(comm, &task->monitor, comm->p2p->activity));
        link = &task->next;
    }
    if (!async->running_p2p.first)
        rf_p2p_trim(comm->p2p);
    return 0;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void take_submitted(struct rf_async *async)
{
    if (atomic_load_explicit(&async->submitted_count, memory_order_acquire) == 0)
        return;
    pthread_mutex_lock(&async->lock);
    while (async->submitted.first) {
        struct rf_task *task = rf_task_remove(&async->submitted, &async->submitted.first);
        if (task->p2p_ops)
            begin_or_hold(async, task);
        else
            rf_task_append(&async->unrecorded, task);
    }
    atomic_store_explicit(&async->submitted_count, 0, memory_order_relaxed);
    pthread_mutex_unlock(&async->lock);
}

/* If nothing has begun: the only task with a point to wait for. NULL: there are several. */
static const struct rf_task *single_waiting_task(const struct rf_async *async)
{
    const struct rf_task *held = async->held_p2p.first;
    if (!held)
        return async->inflight.first;
    return async->inflight.first || held->next ? NULL : held;
}

/* Negative: the communicator has failed. */
static int turn(struct rf_async *async)
{
    struct rf_comm *comm = async->comm;
    uint64_t activity = 0;
    bool any = false;
    /* First, so that a failure is reported by the call in which it happened. */
    RETURN_IF_ERROR(rf_inflight_record(async));
    if (rf_comm_has_events(comm))
        RETURN_IF_ERROR(rf_comm_events(comm));
    RETURN_IF_ERROR(rf_inflight_advance(async, &activity, &any));
    /* A running collective polls the transport itself. */
    if (!any)
        RETURN_IF_ERROR(rf_p2p_poll(comm->p2p));
    if (async->held_p2p.first)
        RETURN_IF_ERROR(begin_held(async));
    if (async->running_p2p.first)
        RETURN_IF_ERROR(advance_p2p(async));
    const struct rf_task *first = single_waiting_task(async);
    if (!any && !async->running_p2p.first && first && first->after.timeline &&
        rf_point_wait(first->after, AFTER_SLICE_NS) < 0)
        return 0; /* the next turn finds the reason */
    rf_wait_monitor_backoff(comm, &async->backoff,
                            activity + comm->p2p->activity + async->ended_total);
    return 0;
}

static bool is_idle(struct rf_async *async)
{
    return !async->inflight.first && !async->unrecorded.first && !async->held_p2p.first &&
           !async->running_p2p.first;
}

void *rf_worker(void *argument)
{
    struct rf_async *async = argument;
    struct rf_comm *comm = async->comm;
    rf_set_thread_rank(rf_comm_job_rank(comm, comm->rank));
    for (;;) {
        take_submitted(async);
        if (is_idle(async)) {
            pthread_mutex_lock(&async->lock);
            bool over = !async->submitted.first;
            if (over)
                async->running = false;
            pthread_mutex_unlock(&async->lock);
            if (over)
                return NULL;
            continue;
        }
        if (comm->failure.failed) { /* before these tasks were submitted */
            rf_comm_failed_earlier(comm);
            const struct rf_error error = *rf_last_error();
            end_all(async, &error);
            count_ended(async);
            continue;
        }
        int rc = turn(async);
        if (rc < 0) {
            if (!comm->failure.failed)
                rf_comm_fail_operation(comm, rc, -1, NULL);
            take_submitted(async);
            end_all(async, &comm->failure.error);
        }
        count_ended(async);
    }
}
