/* SPDX-License-Identifier: MIT
 *
 * The queue of asynchronous calls: creation, destruction, queries and waiting. async.c appends to
 * it, and worker.c runs its tasks.
 */
#include "../worker.h"

int rf_async_create(struct rf_comm *comm, struct rf_async **out)
{
    struct rf_async *async = rf_alloc(sizeof(*async));
    if (!async)
        return rf_fail(RF_ENOMEM, "no memory for a communicator's queue");
    async->comm = comm;
    async->submitted.end = &async->submitted.first;
    async->unrecorded.end = &async->unrecorded.first;
    async->inflight.end = &async->inflight.first;
    async->held_p2p.end = &async->held_p2p.first;
    async->running_p2p.end = &async->running_p2p.first;
    pthread_mutex_init(&async->lock, NULL);
    rf_cond_init(&async->changed);
    *out = async;
    return 0;
}

void rf_async_destroy(struct rf_async *async)
{
    if (!async)
        return;
    if (async->joinable)
        pthread_join(async->thread, NULL);
    for (int i = 0; i < RF_ASYNC_DEVICES; i++)
        rf_timeline_destroy(async->collective_timelines[i].timeline);
    while (async->p2p_timelines) {
        struct rf_signal_timeline *signal = async->p2p_timelines;
        async->p2p_timelines = signal->next;
        rf_timeline_destroy(signal->timeline);
        rf_free(signal);
    }
    rf_request_free(async->failed_request);
    pthread_mutex_destroy(&async->lock);
    pthread_cond_destroy(&async->changed);
    rf_free(async);
}

uint64_t rf_async_queued(const struct rf_async *async)
{
    return (uint64_t)atomic_load_explicit(&async->unrecorded_count, memory_order_relaxed);
}

int rf_async_status(const struct rf_async *async)
{
    return atomic_load_explicit(&async->status, memory_order_acquire);
}

bool rf_async_busy(const struct rf_async *async)
{
    return atomic_load_explicit(&async->outstanding, memory_order_acquire) > 0;
}

bool rf_async_unreported(struct rf_async *async)
{
    bool unreported = async->failed_request && !async->failure_was_read &&
                      !rf_request_was_reported(async->failed_request);
    async->failure_was_read = true;
    return unreported;
}

bool rf_async_drain(struct rf_async *async, double timeout_s)
{
    const uint64_t until_ns = timeout_s > 0 ? rf_after_s(timeout_s) : UINT64_MAX;
    pthread_mutex_lock(&async->lock);
    while (rf_async_busy(async) && rf_cond_wait(&async->changed, &async->lock, until_ns))
        ;
    bool empty = !rf_async_busy(async);
    pthread_mutex_unlock(&async->lock);
    return empty;
}

int rf_async_waits(const struct rf_async *async, int *ranks, int count, int capacity)
{
    for (const struct rf_task *task = async->running_p2p.first; task; task = task->next)
        for (size_t i = 0; i < task->p2p_op_count && count < capacity; i++)
            if (task->p2p_ops[i].state != RF_P2P_OP_DONE)
                ranks[count++] = task->p2p_ops[i].peer;
    for (const struct rf_task *task = async->inflight.first; task && count < capacity;
         task = task->next)
        if (task->state == RF_TASK_RUNNING)
            ranks[count++] = rf_exec_waiting_for(task->exec);
    return count;
}

struct rf_task *rf_async_find(struct rf_async *async, uint64_t sequence)
{
    for (struct rf_task *task = async->inflight.first; task; task = task->next)
        if (task->record.contract.sequence == sequence && task->state != RF_TASK_ENDED)
            return task;
    return NULL;
}
