/* SPDX-License-Identifier: MIT
 *
 * The queue of asynchronous calls as a record: made and taken down, read, and waited for. Who
 * queues is async.c, who works it off worker.c; all others ask here.
 */
#include "worker.h"

int rf_async_create(struct rf_comm *comm, struct rf_async **out)
{
    struct rf_async *async = rf_alloc(sizeof(*async));
    if (!async)
        return rf_fail(RF_ENOMEM, "no memory for a communicator's queue");
    async->comm = comm;
    async->brought.end = &async->brought.first;
    async->waiting.end = &async->waiting.first;
    async->inflight.end = &async->inflight.first;
    async->held.end = &async->held.first;
    async->points.end = &async->points.first;
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
        rf_timeline_destroy(async->timelines[i].timeline);
    while (async->own) {
        struct rf_done_row *row = async->own;
        async->own = row->next;
        rf_timeline_destroy(row->timeline);
        rf_free(row);
    }
    rf_request_free(async->failed);
    pthread_mutex_destroy(&async->lock);
    pthread_cond_destroy(&async->changed);
    rf_free(async);
}

uint64_t rf_async_queued(const struct rf_async *async)
{
    return (uint64_t)atomic_load_explicit(&async->queued, memory_order_relaxed);
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
    bool untold = async->failed && !async->asked_failed && !rf_request_was_reported(async->failed);
    async->asked_failed = true;
    return untold;
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

int rf_async_waits(const struct rf_async *async, int *ranks, int count, int room)
{
    for (const struct rf_task *task = async->points.first; task; task = task->next)
        for (size_t i = 0; i < task->p2p_op_count && count < room; i++)
            if (task->p2p_ops[i].state != RF_P2P_OP_DONE)
                ranks[count++] = task->p2p_ops[i].peer;
    for (const struct rf_task *task = async->inflight.first; task && count < room;
         task = task->next)
        if (task->state == RF_TASK_RUNNING)
            ranks[count++] = rf_exec_waiting_for(task->exec);
    return count;
}

struct rf_task *rf_worker_find(struct rf_async *async, uint64_t sequence)
{
    for (struct rf_task *task = async->inflight.first; task; task = task->next)
        if (task->record.contract.sequence == sequence && task->state != RF_TASK_ENDED)
            return task;
    return NULL;
}
