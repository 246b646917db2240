/* SPDX-License-Identifier: MIT
 *
 * What a worker says to a server and hears from it, and what becomes of the store if it hears
 * nothing.
 */
#include "call.h"

#include <ringforge/ringforge.h>

/* ---- failure --------------------------------------------------------------------------------- */

/* The last call on the connection to a server has failed: the store is of no use any more. */
int rf_store_lose(struct rf_store *store, int server, int status)
{
    const struct rf_error error = *rf_last_error();
    const int rank = store->workers + server;
    const char *how = status == RF_EPEER      ? "has died or left"
                      : status == RF_ETIMEOUT ? "does not answer"
                      : status == RF_EABORT   ? "has given up on this worker"
                                              : "has sent what makes no sense, or nothing";
    store->failed = true;
    return rf_fail_rank(
        status, rank,
        "server %d of the store, rank %d, %s: %.400s; start again, and restore what "
        "its servers have saved",
        server, rank, how, error.message);
}

int rf_store_check_worker(const struct rf_store *store, const char *call)
{
    if (store->rank >= store->workers)
        return rf_fail(RF_EINVAL, "%s: rank %d is a server of the store; it calls rf_store_serve",
                       call, store->rank);
    if (store->failed)
        return rf_fail(RF_EABORT, "%s: this store has lost a server: close it, and open one again",
                       call);
    return RF_OK;
}

/* ---- requests -------------------------------------------------------------------------------- */

int rf_store_tell(struct rf_store *store, int server, const struct rf_store_head *fields)
{
    struct rf_store_head head = *fields;
    head.magic = RF_STORE_MAGIC;
    head.number = ++store->numbers[server];
    store->stats.other_bytes += sizeof head;
    return rf_store_send(store, server, &head, sizeof head);
}

/* Waits for the answer of a kind to the last request. A request that was refused leaves the store
 * in order: *refused. */
int rf_store_hear(struct rf_store *store, int server, enum rf_store_message kind,
                  struct rf_store_head *head, bool *refused)
{
    int64_t first, count;
    char text[RF_STORE_TEXT];
    rf_store_shard(&store->opts, server, &first, &count);
    do {
        RETURN_IF_ERROR(rf_store_receive(store, server, head, sizeof *head));
        RETURN_IF_ERROR(rf_store_head_check(head, RF_STORE_VALUES, RF_STORE_REFUSED,
                                            store->numbers[server], count));
        store->stats.other_bytes += sizeof *head;
    } while (head->kind == RF_STORE_WAIT);
    if (head->kind == kind)
        return RF_OK;
    if (head->kind != RF_STORE_REFUSED)
        return rf_fail(RF_ECORRUPT, "server %d of a store has answered another request", server);
    RETURN_IF_ERROR(rf_store_receive(store, server, text, sizeof text));
    text[sizeof text - 1] = 0;
    *refused = true;
    return rf_fail(head->status, "%s", text);
}

/* A request without values, which all servers answer alike. */
int rf_store_ask_for(struct rf_store *store, int server, enum rf_store_message kind,
                     enum rf_store_message answer, void *out, uint64_t bytes)
{
    struct rf_store_head head;
    bool refused = false;
    int status = rf_store_tell(store, server, &(struct rf_store_head){.kind = (uint16_t)kind});
    if (status == RF_OK)
        status = rf_store_hear(store, server, answer, &head, &refused);
    if (status == RF_OK)
        status = rf_store_receive(store, server, out, bytes);
    return status < 0 && !refused ? rf_store_lose(store, server, status) : status;
}
