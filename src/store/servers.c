/* SPDX-License-Identifier: MIT
 *
 * Stores on servers: how they are opened, closed, saved and asked.
 */
#include "call.h"
#include "shard.h"

/* ---- opening --------------------------------------------------------------------------------- */

/* With SYNC all servers continue from one version: the latest that all of them have. */
static int restore(struct rf_store *store, struct rf_comm *comm)
{
    int64_t versions[2] = {INT64_MAX, INT64_MAX}, latest;
    if (store->shard)
        rf_store_shard_find(store->shard, versions);
    latest = versions[0] > versions[1] ? versions[0] : versions[1];
    int64_t oldest = latest;
    RETURN_IF_ERROR(rf_all_reduce(comm, &oldest, &oldest, 1, RF_I64, RF_MIN, NULL));
    if (oldest < 0 && !(store->shard && latest < 0))
        return rf_fail(RF_EIO, "restore: a server of the store has no sound state in its folder");
    if (!store->shard)
        return RF_OK;
    return rf_store_shard_restore(store->shard,
                                  store->opts.rule == RF_STORE_SYNC ? oldest : latest);
}

/* Rank 0, which is a worker, sends each server its range of an array, if it has the array. */
static int fill_array(struct rf_store *store, struct rf_comm *comm, const float *from, float *to)
{
    int32_t given = from != NULL;
    RETURN_IF_ERROR(rf_broadcast(comm, &given, 1, RF_I32, 0, NULL));
    for (int s = 0; given && store->rank == 0 && s < store->opts.servers; s++) {
        int64_t first, count;
        rf_store_shard(&store->opts, s, &first, &count);
        RETURN_IF_ERROR(rf_store_send(store, s, from + first, 4 * (uint64_t)count));
    }
    if (!given || !store->shard)
        return RF_OK;
    return rf_store_receive(store, 0, to, 4 * (uint64_t)store->shard->count);
}

static int fill(struct rf_store *store, struct rf_comm *comm)
{
    const struct rf_store_state none = {0}, *state = store->opts.state;
    struct rf_store_shards *shard = store->shard;
    state = store->rank == 0 && state ? state : &none;
    int64_t numbers[2] = {state->version, state->updates};
    RETURN_IF_ERROR(rf_broadcast(comm, numbers, 2, RF_I64, 0, NULL));
    RETURN_IF_ERROR(fill_array(store, comm, store->opts.initial, shard ? shard->param : NULL));
    for (int k = 0; k < RF_STATE_COUNT; k++)
        if (rf_optimizer_has(&store->optimizer, (enum rf_optimizer_state)k))
            RETURN_IF_ERROR(
                fill_array(store, comm, state->states[k], shard ? shard->state[k] : NULL));
    if (!shard)
        return RF_OK;
    rf_store_shard_continue(shard, numbers[0], (uint32_t)numbers[1]);
    return RF_OK;
}

static int open_server(struct rf_store *store)
{
    RETURN_IF_ERROR(rf_store_shard_create(store, &store->shard));
    return store->folder && !store->opts.restore ? rf_store_shard_prepare(store->shard) : RF_OK;
}

static int open_servers(struct rf_store *store, struct rf_comm *comm)
{
    static const char cannot[] = "cannot open it";
    store->numbers = rf_alloc((size_t)store->opts.servers * sizeof *store->numbers);
    int status = store->numbers ? RF_OK : rf_fail(RF_ENOMEM, "out of memory for a store");
    if (status == RF_OK && store->rank >= store->workers)
        status = open_server(store);
    RETURN_IF_ERROR(rf_store_agree(comm, status, cannot));
    RETURN_IF_ERROR(rf_store_links_open(store, comm));
    return rf_store_agree(comm, store->opts.restore ? restore(store, comm) : fill(store, comm),
                          cannot);
}

static void close_servers(struct rf_store *store)
{
    const bool tells = store->rank < store->workers && store->links;
    for (int s = 0; tells && s < store->opts.servers; s++)
        if (store->links[s] && rf_comm_async_error(store->links[s]) == RF_OK &&
            rf_store_tell(store, s, &(struct rf_store_head){.kind = RF_STORE_BYE}) < 0)
            rf_log("store", 1, "server %d did not hear that this worker leaves", s);
    rf_store_links_close(store);
    rf_store_shard_destroy(store->shard);
    rf_free(store->numbers);
    rf_free(store->pieces);
}

static int finish(struct rf_store *store, int note)
{
    const struct rf_store_head head = {.kind = RF_STORE_REST, .status = note};
    RETURN_IF_ERROR(rf_store_check_worker(store, "finish"));
    for (int s = 0; s < store->opts.servers; s++) {
        const int status = rf_store_tell(store, s, &head);
        if (status < 0)
            return rf_store_lose(store, s, status);
    }
    return RF_OK;
}

static int get_stats(struct rf_store *store, struct rf_store_stats *out)
{
    *out = store->stats;
    return RF_OK;
}

static void give_up(struct rf_store *store, const char *why)
{
    const int count = store->rank < store->workers ? store->opts.servers : store->workers;
    for (int k = 0; store->links && k < count; k++)
        if (store->links[k])
            rf_comm_abort(store->links[k], why);
}

static const char *path(const struct rf_store *store)
{
    (void)store;
    return "messages to servers";
}

const struct rf_store_kind rf_store_on_servers = {.has_servers = true,
                                                  .open = open_servers,
                                                  .close = close_servers,
                                                  .push = rf_store_send_push,
                                                  .pull = rf_store_fetch,
                                                  .finish = finish,
                                                  .get_stats = get_stats,
                                                  .give_up = give_up,
                                                  .path = path};

/* ---- calls of their own ---------------------------------------------------------------------- */

int rf_store_save(struct rf_store *store)
{
    if (!store || !store->kind->has_servers)
        return rf_fail(RF_EINVAL, "save: only servers of a store save their state; pull that of a "
                                  "store in shared memory");
    RETURN_IF_ERROR(rf_store_check_worker(store, "save"));
    for (int s = 0; s < store->opts.servers; s++)
        RETURN_IF_ERROR(rf_store_ask_for(store, s, RF_STORE_SAVE, RF_STORE_DONE, NULL, 0));
    return RF_OK;
}

int rf_store_ask(struct rf_store *store, int server, struct rf_store_server_stats *out)
{
    struct rf_store_server_stats stats;
    if (!store || !out || !store->kind->has_servers || server < 0 || server >= store->opts.servers)
        return rf_fail(RF_EINVAL, "ask: a store, one of its servers and room are needed");
    RETURN_IF_ERROR(rf_store_check_worker(store, "ask"));
    RETURN_IF_ERROR(
        rf_store_ask_for(store, server, RF_STORE_STATS, RF_STORE_REPORT, &stats, sizeof stats));
    *out = stats;
    return RF_OK;
}

/* All servers' numbers, and then one state after the other. */
int rf_store_read_state(struct rf_store *store, struct rf_store_state *out)
{
    struct rf_store_server_stats now;
    if (!store || !out || !store->kind->has_servers)
        return rf_fail(RF_EINVAL, "read_state: a store on servers and room are needed");
    RETURN_IF_ERROR(rf_store_check_worker(store, "read_state"));
    for (int k = 0; k < RF_STATE_COUNT; k++)
        if (out->states[k])
            RETURN_IF_ERROR(rf_store_fetch_state(store, k, out->states[k]));
    out->version = out->updates = 0;
    for (int s = 0; s < store->opts.servers; s++) {
        RETURN_IF_ERROR(rf_store_ask(store, s, &now));
        out->version = now.version > out->version ? now.version : out->version;
        out->updates = now.updates > out->updates ? now.updates : out->updates;
    }
    return RF_OK;
}
