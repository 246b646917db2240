/* SPDX-License-Identifier: MIT
 *
 * Collectives and messages on host memory outside the instruction list (opening, checkpoints). Each
 * adds the bytes that it sends to the run's account, so that planned and measured bytes stay equal.
 */
#include "../base/base.h"
#include "run.h"

static int account(struct rf_run *run, enum rf_coll_op op, size_t bytes, int root)
{
    const struct rf_coll_desc desc = {.op = op,
                                      .rank = rf_comm_rank(run->comm),
                                      .ranks = rf_comm_size(run->comm),
                                      .count = bytes,
                                      .dtype = RF_U8,
                                      .order = RF_ORDER_RING,
                                      .root = root};
    struct rf_coll_usage usage;
    RETURN_IF_ERROR(rf_coll_usage(&desc, NULL, RF_USES_SENT, &usage));
    run->planned_sent += usage.sent_bytes;
    return 0;
}

int rf_run_ranks(const struct rf_run *run)
{
    return run->comm ? rf_comm_size(run->comm) : 1;
}

uint64_t rf_run_sent(const struct rf_run *run)
{
    uint64_t sent = 0;
    if (run->comm)
        sent = rf_comm_sent_bytes(run->comm);
    for (int lane = RF_LANE_DATA; lane < RF_LANE_COUNT; lane++)
        if (run->comms[lane] && run->comms[lane] != run->comm)
            sent += rf_comm_sent_bytes(run->comms[lane]);
    return sent;
}

int rf_run_all_gather(struct rf_run *run, const void *in, void *out, size_t bytes,
                      const char *label)
{
    if (rf_run_ranks(run) == 1) {
        memcpy(out, in, bytes);
        return 0;
    }
    const struct rf_coll_opts opts = {.order = RF_ORDER_RING, .label = label};
    RETURN_IF_ERROR(account(run, RF_COLL_ALL_GATHER, bytes, 0));
    return rf_all_gather(run->comm, in, out, bytes, RF_U8, &opts);
}

int rf_run_all_to_all(struct rf_run *run, const void *in, void *out, size_t bytes,
                      const char *label)
{
    if (rf_run_ranks(run) == 1) {
        memcpy(out, in, bytes);
        return 0;
    }
    const struct rf_coll_opts opts = {.order = RF_ORDER_RING, .label = label};
    RETURN_IF_ERROR(account(run, RF_COLL_ALL_TO_ALL, bytes, 0));
    return rf_all_to_all(run->comm, in, out, bytes, RF_U8, &opts);
}

static int broadcast(struct rf_run *run, void *data, size_t bytes, int root,
                     const struct rf_coll_opts *opts)
{
    if (rf_run_ranks(run) == 1)
        return 0;
    RETURN_IF_ERROR(account(run, RF_COLL_BROADCAST, bytes, root));
    return rf_broadcast(run->comm, data, bytes, RF_U8, root, opts);
}

int rf_run_broadcast(struct rf_run *run, void *data, size_t bytes, int root, const char *label)
{
    return broadcast(run, data, bytes, root,
                     &(struct rf_coll_opts){.order = RF_ORDER_RING, .label = label});
}

int rf_run_await(struct rf_run *run, void *data, size_t bytes, double timeout_s, const char *label)
{
    return broadcast(
        run, data, bytes, 0,
        &(struct rf_coll_opts){.order = RF_ORDER_RING, .label = label, .timeout_s = timeout_s});
}

int rf_run_share(struct rf_run *run, void *data, size_t bytes)
{
    if (!run || !data)
        return rf_fail(RF_EINVAL, "share: a run and data are needed");
    return rf_run_broadcast(run, data, bytes, 0, "share");
}

int rf_run_send(struct rf_run *run, const void *data, size_t bytes, int peer, const char *label)
{
    run->planned_sent += bytes;
    return rf_send(run->comm, data, bytes, RF_U8, peer, 0, &(struct rf_coll_opts){.label = label});
}

int rf_run_recv(struct rf_run *run, void *data, size_t bytes, int peer, const char *label)
{
    return rf_recv(run->comm, data, bytes, RF_U8, peer, 0, &(struct rf_coll_opts){.label = label});
}

int rf_run_status_of(struct rf_run *run, int status, int root, const char *label)
{
    struct {
        int32_t status;
        char message[508];
    } word = {.status = status};
    const struct rf_error own = *rf_last_error();
    if (status < 0)
        snprintf(word.message, sizeof(word.message), "%.507s", own.message);
    RETURN_IF_ERROR(rf_run_broadcast(run, &word, sizeof(word), root, label));
    if (status < 0)
        return rf_fail_error(&own);
    if (word.status < 0)
        return rf_fail_rank(word.status, root, "rank %d: %s", root, word.message);
    return 0;
}

/* The communicator has failed after this rank's own error. The later failure may have the same
 * cause: for example a file that another rank removed when it learned of the error. */
static int after_own(const struct rf_error *own)
{
    const struct rf_error why = *rf_last_error();
    struct rf_error error = why;
    snprintf(error.message, sizeof(error.message), "%.500s; before that, on this rank: %.200s",
             why.message, own->message);
    return rf_fail_error(&error);
}

int rf_run_agree_status(struct rf_run *run, int local, const char *label)
{
    const int ranks = rf_run_ranks(run);
    const struct rf_error own = *rf_last_error();
    int32_t mine = local;
    if (ranks == 1)
        return local;
    int32_t *all = rf_alloc((size_t)ranks * sizeof(*all));
    if (!all)
        return rf_fail(RF_ENOMEM, "%s: out of host memory", label);
    int rc = rf_run_all_gather(run, &mine, all, sizeof(mine), label), first = 0;
    while (rc == 0 && first < ranks && all[first] == 0)
        first++;
    rf_free(all);
    if (rc < 0)
        return local < 0 ? after_own(&own) : rc;
    if (local < 0)
        rf_fail_error(&own);
    if (first == ranks)
        return 0;
    return rf_run_status_of(run, local, first, label);
}
