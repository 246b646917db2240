/* SPDX-License-Identifier: MIT
 *
 * The thread that works off asynchronous calls: collectives (flights.c), and sends and receives,
 * all at once. Each request is ended, and each point signalled, also after an error, so nothing
 * that waits hangs.
 */
#include "worker.h"

#define AFTER_SLICE_NS 1000000ull

/* ---- ends ------------------------------------------------------------------------------------ */

/* Its caller may have gone on long ago, so every error fails the communicator. */
static int note_failure(struct rf_comm *comm, struct rf_task *task, int rc)
{
    if (!comm->failed && !task->blocking) {
        struct rf_error error = *rf_last_error();
        char text[128];
        struct rf_contract mine = task->halves ? task->halves[0].contract : (struct rf_contract){0};
        if (!task->halves)
            rf_contract_fill(&mine, &task->call);
        mine.sequence = comm->sequence;
        rc = rf_comm_fail_text(comm, rc, error.rank, &mine, "asynchronous %s on rank %d: %.150s",
                               rf_contract_text(&mine, text, 80), comm->rank, error.message);
    }
    if (!comm->failed)
        return rc;
    comm->unreported = comm->unreported || !task->request;
    if (task->request && !comm->async->failed) {
        comm->async->failed = task->request;
        rf_request_hold(task->request);
    }
    atomic_store_explicit(&comm->async->status, rc, memory_order_release);
    return rc;
}

void rf_worker_end(struct rf_async *async, struct rf_task *task, int rc)
{
    const bool is_point = task->halves != NULL;
    if (rc < 0)
        rc = note_failure(async->comm, task, rc);
    if (task->request)
        rf_request_end(task->request, rc);
    else if (rf_timeline_signal(task->done, task->done_value) < 0)
        rf_log("comm", 0, "a finished call could not be signalled: %s", rf_last_error()->message);
    if (!is_point && task->state == RF_TASK_QUEUED)
        atomic_fetch_sub_explicit(&async->queued, 1, memory_order_relaxed);
    rf_task_free(task);
    async->ended[is_point]++;
}

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
    struct rf_task_list *lists[] = {&async->flights, &async->waiting, &async->held, &async->points};
    if (async->held.first || async->points.first)
        rf_staging_abandon_all(async->comm);
    for (int i = 0; i < 4; i++)
        while (lists[i]->first) {
            struct rf_task *task = rf_task_remove(lists[i], &lists[i]->first);
            int rc = task->state == RF_TASK_ENDED ? 0 : rf_fail_error(why);
            if (i == 0 && rc < 0)
                rf_flight_land(async->comm, task, rc);
            rf_worker_end(async, task, rc);
        }
    async->flight_count = 0;
}

/* ---- sends and receives ---------------------------------------------------------------------- */

/* What this rank sends to itself comes before any receive has its turn, so that messages and
 * receives meet in the order of the calls. */
static int keep_own(struct rf_async *async)
{
    struct rf_comm *comm = async->comm;
    for (struct rf_task *task = async->points.first; task; task = task->next)
        for (size_t i = 0; i < task->half_count; i++)
            if (task->halves[i].is_send && task->halves[i].peer == comm->rank)
                RETURN_IF_ERROR(rf_p2p_keep_own(comm->p2p, &task->halves[i]));
    async->new_own = false;
    return 0;
}

/* Whether they carry messages one way, with one tag, and so keep the order of the calls. */
static bool same_way(const struct rf_task *a, const struct rf_task *b)
{
    for (size_t i = 0; i < a->half_count; i++)
        for (size_t j = 0; j < b->half_count; j++) {
            const struct rf_half *x = &a->halves[i], *y = &b->halves[j];
            if (x->peer == y->peer && x->tag == y->tag && x->is_send == y->is_send)
                return true;
        }
    return false;
}

static void count_held(struct rf_async *async, const struct rf_task *task, bool held)
{
    for (size_t i = 0; i < task->half_count; i++) {
        struct rf_p2p_peer *peer = &async->comm->p2p->peers[task->halves[i].peer];
        peer->held += held ? 1 : (size_t)-1;
    }
}

static void begin(struct rf_async *async, struct rf_task *task)
{
    rf_task_append(&async->points, task);
    task->start_ns = rf_trace_enabled() ? rf_now_ns() : 0;
    rf_watch_begin(async->comm, &task->watch, &task->halves[0].contract, task->call.timeout_s,
                   NULL);
    task->watch.blocking = task->blocking;
    for (size_t i = 0; i < task->half_count; i++)
        async->new_own = async->new_own || task->halves[i].peer == async->comm->rank;
}

/* A new one: it begins, or is held until its point is reached, its data are here, and nobody whose
 * order it has to keep stands before it. */
static void bring(struct rf_async *async, struct rf_task *task)
{
    if (!async->held.first && !task->after.timeline &&
        !rf_p2p_must_fetch(async->comm->p2p, &task->halves[0])) {
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
    return rf_p2p_fetch(async->comm->p2p, &task->halves[0]);
}

static int begin_held(struct rf_async *async)
{
    struct rf_comm *comm = async->comm;
    for (struct rf_task **link = &async->held.first; *link;) {
        struct rf_task *task = *link;
        int rc = may_begin(async, task);
        if (rc < 0)
            return rf_comm_fail_operation(comm, rc, -1, &task->halves[0].contract);
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
        struct rf_half *open;
        int rc = rf_p2p_advance(comm->p2p, task->halves, task->half_count, &full, &open);
        if (rc < 0)
            return comm->failed ? rc : rf_comm_fail_operation(comm, rc, -1, &open->contract);
        if (!open) {
            if (task->start_ns > 0)
                rf_comm_trace(comm, task->halves[0].is_send ? RF_COLL_SEND : RF_COLL_RECV,
                              task->halves[0].bytes, task->start_ns);
            rf_task_remove(&async->points, link);
            rf_worker_end(async, task, 0);
            continue;
        }
        task->watch.peer = open->peer;
        task->watch.mine = &open->contract;
        RETURN_IF_ERROR(rf_watch_look(comm, &task->watch, comm->p2p->activity));
        link = &task->next;
    }
    if (!async->points.first)
        rf_p2p_trim(comm->p2p);
    return 0;
}

int rf_async_waits(const struct rf_async *async, int *ranks, int count, int room)
{
    for (const struct rf_task *task = async->points.first; task; task = task->next)
        for (size_t i = 0; i < task->half_count && count < room; i++)
            if (task->halves[i].state != RF_HALF_DONE)
                ranks[count++] = task->halves[i].peer;
    for (const struct rf_task *task = async->flights.first; task && count < room; task = task->next)
        if (task->state == RF_TASK_RUNNING)
            ranks[count++] = rf_exec_waiting_for(task->exec);
    return count;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void take(struct rf_async *async)
{
    if (atomic_load_explicit(&async->fresh, memory_order_acquire) == 0)
        return;
    pthread_mutex_lock(&async->lock);
    while (async->brought.first) {
        struct rf_task *task = rf_task_remove(&async->brought, &async->brought.first);
        if (task->halves)
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
        return async->flights.first;
    return async->flights.first || held->next ? NULL : held;
}

/* Negative: the communicator has failed. */
static int turn(struct rf_async *async)
{
    struct rf_comm *comm = async->comm;
    uint64_t activity = 0;
    bool any = false;
    /* First, so that a failure is heard of in the call that it is an error of. */
    RETURN_IF_ERROR(rf_flights_record(async));
    if (rf_comm_has_news(comm))
        RETURN_IF_ERROR(rf_comm_events(comm));
    RETURN_IF_ERROR(rf_flights_advance(async, &activity, &any));
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
    rf_watch_rest(comm, &async->rest, activity + comm->p2p->activity + async->settled);
    return 0;
}

static bool idle(struct rf_async *async)
{
    return !async->flights.first && !async->waiting.first && !async->held.first &&
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
        if (comm->failed) { /* before these were called */
            rf_comm_report(comm);
            const struct rf_error error = *rf_last_error();
            end_all(async, &error);
            settle(async);
            continue;
        }
        int rc = turn(async);
        if (rc < 0) {
            if (!comm->failed)
                rf_comm_fail_operation(comm, rc, -1, NULL);
            take(async);
            end_all(async, &comm->error);
        }
        settle(async);
    }
}
