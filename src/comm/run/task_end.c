/* SPDX-License-Identifier: MIT
 *
 * The end of a queued call: its request is ended, or its point signalled, even after an error, so
 * no waiter hangs. Called by worker.c and inflight.c.
 */
#include "../worker.h"

/* The call returned long ago, so every error fails the communicator. */
static int record_failure(struct rf_comm *comm, struct rf_task *task, int rc)
{
    if (!comm->failure.failed && !task->blocking) {
        struct rf_error error = *rf_last_error();
        char text[128];
        struct rf_contract mine =
            task->p2p_ops ? task->p2p_ops[0].contract : (struct rf_contract){0};
        if (!task->p2p_ops)
            rf_contract_fill(&mine, &task->call);
        mine.sequence = comm->history.next_sequence;
        rc = rf_comm_fail_text(comm, rc, error.rank, &mine, "asynchronous %s on rank %d: %.150s",
                               rf_contract_text(&mine, text, 80), comm->rank, error.message);
    }
    if (!comm->failure.failed)
        return rc;
    comm->failure.unreported = comm->failure.unreported || !task->request;
    if (task->request && !comm->async->failed_request) {
        comm->async->failed_request = task->request;
        rf_request_hold(task->request);
    }
    atomic_store_explicit(&comm->async->status, rc, memory_order_release);
    return rc;
}

void rf_task_end(struct rf_async *async, struct rf_task *task, int rc)
{
    const bool is_p2p = task->p2p_ops != NULL;
    if (rc < 0)
        rc = record_failure(async->comm, task, rc);
    if (task->request)
        rf_request_end(task->request, rc);
    else if (rf_timeline_signal(task->done, task->done_value) < 0)
        rf_log("comm", 0, "a finished call could not be signalled: %s", rf_last_error()->message);
    if (!is_p2p && task->state == RF_TASK_QUEUED)
        atomic_fetch_sub_explicit(&async->unrecorded_count, 1, memory_order_relaxed);
    rf_task_free(task);
    async->ended[is_p2p]++;
}
