/* SPDX-License-Identifier: MIT
 *
 * A queued call: its own copy of everything that it points to, except data.
 */
#include "../worker.h"

void rf_task_free(struct rf_task *job)
{
    if (!job)
        return;
    for (size_t i = 0; job->p2p_ops && i < job->p2p_op_count; i++)
        rf_free(job->p2p_ops[i].copy);
    rf_free(job->p2p_ops);
    rf_free(job->blocked);
    rf_free(job->copies);
    rf_free(job);
}

/* Copies `bytes` bytes to *at, and advances it. */
static const void *copy_into(char **at, const void *from, size_t bytes)
{
    void *to = *at;
    memcpy(to, from, bytes);
    *at += (bytes + 7) / 8 * 8;
    return to;
}

int rf_task_copy(const struct rf_comm *comm, const struct rf_task *job, struct rf_task **out)
{
    const struct rf_call *call = &job->call;
    const size_t counts = (size_t)comm->size * sizeof(*call->desc.counts);
    const size_t first =
        call->desc.forest ? ((size_t)call->desc.forest->ranks + 1) * sizeof(int) : 0;
    struct rf_task *copy = rf_alloc(sizeof(*copy));
    char *at = rf_alloc(2 * counts + first + 8);
    if (!copy || !at) {
        rf_free(copy);
        rf_free(at);
        return rf_fail(RF_ENOMEM, "no memory to queue a call");
    }
    *copy = *job;
    copy->next = NULL;
    copy->copies = at;
    if (job->p2p_ops) {
        copy->p2p_ops = rf_alloc(job->p2p_op_count * sizeof(*copy->p2p_ops));
        if (!copy->p2p_ops) {
            rf_task_free(copy);
            return rf_fail(RF_ENOMEM, "no memory to queue %zu messages", job->p2p_op_count);
        }
        memcpy(copy->p2p_ops, job->p2p_ops, job->p2p_op_count * sizeof(*copy->p2p_ops));
    }
    if (call->desc.counts)
        copy->call.desc.counts = copy_into(&at, call->desc.counts, counts);
    if (call->desc.recv_counts)
        copy->call.desc.recv_counts = copy_into(&at, call->desc.recv_counts, counts);
    if (call->desc.forest) {
        copy->forest = *call->desc.forest;
        copy->forest.first = copy_into(&at, call->desc.forest->first, first);
        copy->call.desc.forest = &copy->forest;
    }
    if (call->label) {
        snprintf(copy->label, sizeof(copy->label), "%s", call->label);
        copy->call.label = copy->label;
    }
    if (call->algorithm) {
        snprintf(copy->algorithm, sizeof(copy->algorithm), "%s", call->algorithm);
        copy->call.algorithm = copy->algorithm;
    }
    *out = copy;
    return 0;
}
