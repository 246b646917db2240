/* SPDX-License-Identifier: MIT
 *
 * Asynchronous collectives from recording to their end. They are recorded in the order of the
 * calls, a few at a time. The oldest runs, and so does each younger one whose memory does not
 * depend on an older one, and whose messages cannot block theirs (flow_control.c). Only the worker
 * calls this.
 */
#include "../worker.h"

enum { LONG_AT_ONCE = 4 };

/* ---- on record ------------------------------------------------------------------------------- */

static struct rf_extent range_of(const void *host, struct rf_tensor tensor, size_t bytes)
{
    const uint64_t begin = host ? (uintptr_t)host : tensor.offset;
    return (struct rf_extent){host ? NULL : tensor.buffer, begin, begin + bytes};
}

static bool overlap(struct rf_extent a, struct rf_extent b)
{
    return a.space == b.space && a.begin < b.end && b.begin < a.end;
}

static bool depends_on(const struct rf_task *task, const struct rf_task *older)
{
    return overlap(task->writes, older->reads) || overlap(task->writes, older->writes) ||
           overlap(task->reads, older->writes);
}

static void prepare(struct rf_comm *comm, struct rf_task *task)
{
    size_t in, out, element = rf_dtype_bytes(task->call.desc.dtype);
    if (task->on_tensors)
        rf_task_prepare(comm, task);
    else
        task->plain = rf_convert_plain(&task->call);
    rf_call_counts(comm, &task->call, &in, &out);
    task->reads = range_of(task->plain.in, task->in, in * element);
    task->writes = range_of(task->plain.out, task->out, out * element);
}

/* RF_EAGAIN: later. */
static int record(struct rf_async *async, struct rf_task *task)
{
    struct rf_comm *comm = async->comm;
    prepare(comm, task);
    RETURN_IF_ERROR(rf_cache_find(comm, &task->plain, &task->cached));
    rf_cache_hold(task->cached);
    task->record = *rf_call_begin(comm, task->cached, task->call.label);
    task->state = RF_TASK_RECORDED;
    atomic_fetch_sub_explicit(&async->unrecorded_count, 1, memory_order_relaxed);
    if (comm->history.recorder)
        rf_recorder_begin(comm->history.recorder, &task->record);
    return 0;
}

int rf_inflight_record(struct rf_async *async)
{
    struct rf_comm *comm = async->comm;
    while (async->unrecorded.first && async->inflight_count < RF_INFLIGHT) {
        struct rf_task *task = async->unrecorded.first;
        int rc = record(async, task);
        if (rc == RF_EAGAIN)
            return 0;
        rf_task_remove(&async->unrecorded, &async->unrecorded.first);
        if (rc < 0) {
            rf_task_end(async, task, rc);
            if (comm->failure.failed)
                return rf_fail_error(&comm->failure.error);
            continue;
        }
        rf_task_append(&async->inflight, task);
        async->inflight_count++;
        if (comm->peers.announced > 0)
            RETURN_IF_ERROR(rf_comm_compare_announced(comm, &task->record));
    }
    return 0;
}

void rf_inflight_complete(struct rf_comm *comm, struct rf_task *task, int rc)
{
    if (task->state == RF_TASK_RUNNING) {
        if (rc < 0 && task->plain.mover)
            rf_staging_abandon(task->plain.mover);
        if (rc == 0 && rf_call_converts(&task->call))
            rf_convert_end(comm, &task->call, &task->plain);
        if (comm->history.running == &task->record.contract)
            comm->history.running = NULL;
        if (task->start_ns > 0)
            rf_comm_trace(comm, task->call.desc.op,
                          task->plain.desc.count * rf_dtype_bytes(task->plain.desc.dtype),
                          task->start_ns);
    }
    if (comm->history.recorder)
        rf_recorder_end(comm->history.recorder, task->record.contract.sequence, rc);
    rf_cache_release(task->cached);
    task->state = RF_TASK_ENDED;
}

/* ---- running --------------------------------------------------------------------------------- */

static int exec_for(struct rf_async *async, struct rf_exec **out)
{
    struct rf_comm *comm = async->comm;
    for (int i = 0; i < RF_INFLIGHT; i++) {
        const struct rf_task *user = async->inflight.first;
        if (!comm->executors.all[i])
            RETURN_IF_ERROR(rf_exec_create(comm->links.demux, &comm->executors.all[i]));
        while (user && !(user->state == RF_TASK_RUNNING && user->exec == comm->executors.all[i]))
            user = user->next;
        if (!user) {
            *out = comm->executors.all[i];
            return 0;
        }
    }
    return rf_fail(RF_ENOMEM, "more than %d collectives run at once", RF_INFLIGHT);
}

/* Whether its receives cannot all be posted at once. */
static bool is_long(const struct rf_task *task)
{
    return !rf_sched_can_prepost(task->cached->sched);
}

static bool can_overtake(const struct rf_comm *comm, const struct rf_task *task)
{
    if (task->plain.desc.staged || rf_call_converts(&task->call))
        return false;
    return !is_long(task) ||
           (comm->links.transport->takes_early && !rf_sched_shares_memory(task->cached->sched));
}

/* Whether it may run beside the older ones. Several long ones would only share the same links. */
static bool may_overtake(const struct rf_async *async, const struct rf_task *task)
{
    int longs = is_long(task);
    if (!can_overtake(async->comm, task))
        return false;
    for (const struct rf_task *older = async->inflight.first; older != task; older = older->next) {
        if (older->state == RF_TASK_ENDED)
            continue;
        if (depends_on(task, older))
            return false;
        longs += is_long(older);
    }
    return !is_long(task) || longs <= LONG_AT_ONCE;
}

static int start(struct rf_async *async, struct rf_task *task, bool oldest)
{
    struct rf_comm *comm = async->comm;
    RETURN_IF_ERROR(exec_for(async, &task->exec));
    if (task->plain.desc.staged)
        RETURN_IF_ERROR(rf_task_stage(comm, task));
    else if (rf_call_converts(&task->call))
        RETURN_IF_ERROR(rf_convert_begin(comm, &task->call, &task->plain));
    RETURN_IF_ERROR(rf_flow_control_request(comm, task, oldest));
    struct rf_exec_args args = rf_call_args(comm, &task->plain, &task->record);
    args.blocked = task->blocked;
    task->start_ns = rf_trace_enabled() ? rf_now_ns() : 0;
    rf_wait_monitor_begin(comm, &task->monitor, &task->record.contract, task->call.timeout_s,
                          task->exec);
    task->monitor.blocking = task->blocking;
    if (task->blocking)
        comm->history.running = &task->record.contract;
    task->state = RF_TASK_RUNNING;
    return rf_exec_start(task->exec, task->cached->sched, &args);
}

int rf_after_reached(struct rf_point after)
{
    if (!after.timeline)
        return 1;
    if (!rf_point_reached(after))
        return 0;
    RETURN_IF_ERROR(rf_point_wait(after, 0));
    return 1;
}

/* One turn. activity: of this collective and all older ones. */
static int advance(struct rf_async *async, struct rf_task *task, bool oldest, uint64_t activity)
{
    struct rf_comm *comm = async->comm;
    int rc = 0;
    if (task->state == RF_TASK_RECORDED) {
        rc = rf_after_reached(task->after);
        if (rc == 0 || (rc > 0 && !oldest && !may_overtake(async, task)))
            return 0;
        if (rc > 0)
            rc = start(async, task, oldest);
    }
    if (rc == 0 && oldest && task->blocked && !task->awaits_begun) {
        task->awaits_begun = true;
        rc = rf_flow_control_request(comm, task, true);
    }
    if (rc == 0)
        rc = rf_exec_progress(task->exec);
    if (rc == 0)
        return rf_wait_monitor_check(comm, &task->monitor, activity);
    if (rc > 0) {
        rf_inflight_complete(comm, task, 0);
        return 0;
    }
    if (task->state != RF_TASK_RUNNING)
        return rf_comm_fail_operation(comm, rc, -1, &task->record.contract);
    return rf_comm_fail_operation(comm, rc, rf_exec_mismatch_peer(task->exec),
                                  &task->record.contract);
}

/* Ends completed collectives, in order for each timeline: a point implies that all earlier ones are
 * reached. */
static void retire(struct rf_async *async)
{
    for (struct rf_task **link = &async->inflight.first; *link;) {
        struct rf_task *task = *link;
        bool held = task->state != RF_TASK_ENDED;
        for (struct rf_task *older = async->inflight.first; !held && older != task;
             older = older->next)
            held = task->done && older->done == task->done;
        if (held) {
            link = &task->next;
            continue;
        }
        rf_task_remove(&async->inflight, link);
        async->inflight_count--;
        rf_task_end(async, task, 0);
    }
}

int rf_inflight_advance(struct rf_async *async, uint64_t *activity, bool *any)
{
    bool oldest = true;
    for (struct rf_task *task = async->inflight.first; task; task = task->next) {
        if (task->state == RF_TASK_ENDED)
            continue;
        if (task->state == RF_TASK_RUNNING)
            *activity += rf_exec_activity(task->exec);
        RETURN_IF_ERROR(advance(async, task, oldest, *activity));
        oldest = false;
        *any = *any || task->state == RF_TASK_RUNNING;
    }
    retire(async);
    return 0;
}
