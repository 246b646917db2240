/* SPDX-License-Identifier: MIT
 *
 * The thread that works off asynchronous calls: collectives (inflight.c), and sends and receives,
 * all at once. Each request is ended, and each point signalled, also after an error, so nothing
 * that waits hangs.
 */
#include "worker.h"

#define AFTER_SLICE_NS 1000000ull

/* ---- ends ------------------------------------------------------------------------------------ */

/* Once nothing is outstanding the communicator is the owner's again: so this comes last. */
static void settle(struct rf_async *async)
{
    const int collectives = async->ended[false], points = async->ended[true];
    if (collectives + points == 0)
        return;
    async->ended[false] = async->ended[true] = 0;
    async->settled += (uint64_t)(collectives + points);
    pthread_mutex_lock(&async->lock);
    async->collectives -= collectives;
    atomic_fetch_sub_explicit(&async->outstanding, collectives + points, memory_order_release);
    pthread_cond_broadcast(&async->changed);
    pthread_mutex_unlock(&async->lock);
}

/* The communicator has failed: all that is outstanding hears the same. */
static void end_all(struct rf_async *async, const struct rf_error *why)
{
    struct rf_task_list *lists[] = {&async->inflight, &async->waiting, &async->held,
                                    &async->points};
    if (async->held.first || async->points.first)
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

/* What this rank sends to itself comes before any receive has its turn, so that messages and
 * receives meet in the order of the calls. */
static int keep_own(struct rf_async *async)
{
    struct rf_comm *comm = async->comm;
    for (struct rf_task *task = async->points.first; task; task = task->next)
        for (size_t i = 0; i < task->p2p_op_count; i++)
            if (task->p2p_ops[i].is_send && task->p2p_ops[i].peer == comm->rank)
                RETURN_IF_ERROR(rf_p2p_keep_own(comm->p2p, &task->p2p_ops[i]));
    async->new_own = false;
    return 0;
}

/* Whether they carry messages one way, with one tag, and so keep the order of the calls. */
static bool same_way(const struct rf_task *a, const struct rf_task *b)
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
        peer->held += held ? 1 : (size_t)-1;
    }
}

static void begin(struct rf_async *async, struct rf_task *task)
{
    rf_task_append(&async->points, task);
    task->start_ns = rf_trace_enabled() ? rf_now_ns() : 0;
    rf_wait_monitor_begin(async->comm, &task->monitor, &task->p2p_ops[0].contract,
                          task->call.timeout_s, NULL);
    task->monitor.blocking = task->blocking;
    for (size_t i = 0; i < task->p2p_op_count; i++)
        async->new_own = async->new_own || task->p2p_ops[i].peer == async->comm->rank;
}

/* A new one: it begins, or is held until its point is reached, its data are here, and nobody whose
 * order it has to keep stands before it. */
static void bring(struct rf_async *async, struct rf_task *task)
{
    if (!async->held.first && !task->after.timeline &&
        !rf_p2p_must_fetch(async->comm->p2p, &task->p2p_ops[0])) {
        begin(async, task);
        return;
    }
    rf_task_append(&async->held, task);
    count_held(async, task, true);
}

/* 1: it may begin. */
static int may_begin(struct rf_async *async, struct rf_task *task)
{
    int rc = rf_after_reached(task->after);
    if (rc <= 0)
        return rc;
    for (const struct rf_task *older = async->held.first; older != task; older = older->next)
        if (same_way(older, task))
            return 0;
    return rf_p2p_fetch(async->comm->p2p, &task->p2p_ops[0]);
}

static int begin_held(struct rf_async *async)
{
    struct rf_comm *comm = async->comm;
    for (struct rf_task **link = &async->held.first; *link;) {
        struct rf_task *task = *link;
        int rc = may_begin(async, task);
        if (rc < 0)
            return rf_comm_fail_operation(comm, rc, -1, &task->p2p_ops[0].contract);
        if (rc == 0) {
            link = &task->next;
            continue;
        }
        rf_task_remove(&async->held, link);
        count_held(async, task, false);
        begin(async, task);
    }
    return 0;
}

static int advance_points(struct rf_async *async)
{
    struct rf_comm *comm = async->comm;
    bool full = false;
    if (async->new_own)
        RETURN_IF_ERROR(keep_own(async));
    for (struct rf_task **link = &async->points.first; *link;) {
        struct rf_task *task = *link;
        struct rf_p2p_op *open;
        int rc = rf_p2p_advance(comm->p2p, task->p2p_ops, task->p2p_op_count, &full, &open);
        if (rc < 0)
            return comm->failure.failed ? rc
                                        : rf_comm_fail_operation(comm, rc, -1, &open->contract);
        if (!open) {
            if (task->start_ns > 0)
                rf_comm_trace(comm, task->p2p_ops[0].is_send ? RF_COLL_SEND : RF_COLL_RECV,
                              task->p2p_ops[0].bytes, task->start_ns);
            rf_task_remove(&async->points, link);
            rf_task_end(async, task, 0);
            continue;
        }
        task->monitor.peer = open->peer;
        task->monitor.mine = &open->contract;
        RETURN_IF_ERROR(rf_wait_monitor_check(comm, &task->monitor, comm->p2p->activity));
        link = &task->next;
    }
    if (!async->points.first)
        rf_p2p_trim(comm->p2p);
    return 0;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void take(struct rf_async *async)
{
    if (atomic_load_explicit(&async->fresh, memory_order_acquire) == 0)
        return;
    pthread_mutex_lock(&async->lock);
    while (async->brought.first) {
        struct rf_task *task = rf_task_remove(&async->brought, &async->brought.first);
        if (task->p2p_ops)
            bring(async, task);
        else
            rf_task_append(&async->waiting, task);
    }
    atomic_store_explicit(&async->fresh, 0, memory_order_relaxed);
    pthread_mutex_unlock(&async->lock);
}

/* The one whose point is all that there is to wait for, where nothing has begun; NULL: there are
 * several. */
static const struct rf_task *only(const struct rf_async *async)
{
    const struct rf_task *held = async->held.first;
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
    /* First, so that a failure is heard of in the call that it is an error of. */
    RETURN_IF_ERROR(rf_inflight_record(async));
    if (rf_comm_has_news(comm))
        RETURN_IF_ERROR(rf_comm_events(comm));
    RETURN_IF_ERROR(rf_inflight_advance(async, &activity, &any));
    /* A running collective takes in what is sent meanwhile. */
    if (!any)
        RETURN_IF_ERROR(rf_p2p_poll(comm->p2p));
    if (async->held.first)
        RETURN_IF_ERROR(begin_held(async));
    if (async->points.first)
        RETURN_IF_ERROR(advance_points(async));
    const struct rf_task *first = only(async);
    if (!any && !async->points.first && first && first->after.timeline &&
        rf_point_wait(first->after, AFTER_SLICE_NS) < 0)
        return 0; /* the next turn finds out why */
    rf_wait_monitor_backoff(comm, &async->backoff, activity + comm->p2p->activity + async->settled);
    return 0;
}

static bool idle(struct rf_async *async)
{
    return !async->inflight.first && !async->waiting.first && !async->held.first &&
           !async->points.first;
}

void *rf_worker(void *argument)
{
    struct rf_async *async = argument;
    struct rf_comm *comm = async->comm;
    rf_set_thread_rank(rf_comm_in_job(comm, comm->rank));
    for (;;) {
        take(async);
        if (idle(async)) {
            pthread_mutex_lock(&async->lock);
            bool over = !async->brought.first;
            if (over)
                async->running = false;
            pthread_mutex_unlock(&async->lock);
            if (over)
                return NULL;
            continue;
        }
        if (comm->failure.failed) { /* before these were called */
            rf_comm_report(comm);
            const struct rf_error error = *rf_last_error();
            end_all(async, &error);
            settle(async);
            continue;
        }
        int rc = turn(async);
        if (rc < 0) {
            if (!comm->failure.failed)
                rf_comm_fail_operation(comm, rc, -1, NULL);
            take(async);
            end_all(async, &comm->failure.error);
        }
        settle(async);
    }
}
