/* SPDX-License-Identifier: MIT
 *
 * Collectives on host memory outside the instruction list (opening, checkpoints). Each adds what
 * its schedule sends to the run's account, so that planned and measured bytes stay equal.
 */
#include "../base/base.h"
#include "run.h"

static int account(struct rf_run *run, enum rf_coll_op op, size_t count, enum rf_dtype dtype,
                   enum rf_order order)
{
    uint64_t sent = 0;
    RETURN_IF_ERROR(rf_coll_sent_bytes(op, rf_comm_rank(run->comm), rf_comm_size(run->comm), count,
                                       dtype, order, 0, &sent));
    run->planned_sent += sent;
    return 0;
}

int rf_run_all_gather(struct rf_run *run, const void *in, void *out, size_t bytes,
                      const char *label)
{
    if (!run->comm || rf_comm_size(run->comm) == 1) {
        memcpy(out, in, bytes);
        return 0;
    }
    const struct rf_coll_opts opts = {.order = RF_ORDER_RING, .label = label};
    RETURN_IF_ERROR(account(run, RF_COLL_ALL_GATHER, bytes, RF_U8, opts.order));
    return rf_all_gather(run->comm, in, out, bytes, RF_U8, &opts);
}

int rf_run_broadcast(struct rf_run *run, void *data, size_t count, enum rf_dtype dtype,
                     const char *label)
{
    if (!run->comm || rf_comm_size(run->comm) == 1)
        return 0;
    const struct rf_coll_opts opts = {.order = RF_ORDER_RING, .label = label};
    RETURN_IF_ERROR(account(run, RF_COLL_BROADCAST, count, dtype, opts.order));
    return rf_broadcast(run->comm, data, count, dtype, 0, &opts);
}

int rf_run_broadcast_status(struct rf_run *run, int status, const char *label)
{
    struct {
        int32_t status;
        char message[508];
    } word = {.status = status};
    if (status < 0)
        snprintf(word.message, sizeof(word.message), "%.507s", rf_last_error()->message);
    RETURN_IF_ERROR(rf_run_broadcast(run, &word, sizeof(word), RF_U8, label));
    if (word.status < 0 && status == 0)
        return rf_fail_rank(word.status, 0, "rank 0: %s", word.message);
    return status;
}
