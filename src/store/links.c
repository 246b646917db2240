/* SPDX-License-Identifier: MIT
 *
 * The connections between workers and servers; see links.h.
 */
#include "links.h"

/* In round k worker w meets server (w + k) modulo the larger number: each pair once. */
int rf_store_links_open(struct rf_store *store, struct rf_comm *comm)
{
    const int workers = store->workers, servers = store->opts.servers;
    const int rounds = workers > servers ? workers : servers;
    const bool serves = store->rank >= workers;
    store->links = rf_alloc((size_t)rounds * sizeof(struct rf_comm *));
    if (!store->links)
        return rf_fail(RF_ENOMEM, "out of memory for the connections of a store");
    for (int k = 0; k < rounds; k++) {
        const int mine = serves ? store->rank - workers : store->rank;
        const int peer = (serves ? mine - k + rounds : mine + k) % rounds;
        const bool meets = peer < (serves ? workers : servers);
        struct rf_comm *link = NULL;
        RETURN_IF_ERROR(
            rf_comm_split(comm, meets ? (serves ? mine : peer) : -1, serves ? 0 : 1, &link));
        if (!meets)
            continue;
        rf_comm_set_track(link, "store");
        store->links[peer] = link;
    }
    return RF_OK;
}

void rf_store_links_close(struct rf_store *store)
{
    const int servers = store->opts.servers;
    const int count = store->rank >= store->workers ? store->workers : servers;
    for (int k = 0; store->links && k < count; k++)
        if (store->links[k])
            (void)rf_comm_close(store->links[k]); /* what was wrong has been said */
    rf_free(store->links);
    store->links = NULL;
}

static struct rf_coll_opts options(const struct rf_store *store)
{
    return (struct rf_coll_opts){.label = "store", .timeout_s = store->opts.timeout_s};
}

static int peer_of(const struct rf_store *store)
{
    return store->rank >= store->workers ? 1 : 0;
}

int rf_store_send(const struct rf_store *store, int link, const void *data, uint64_t bytes)
{
    const struct rf_coll_opts opts = options(store);
    return bytes == 0 ? RF_OK
                      : rf_send(store->links[link], data, bytes, RF_U8, peer_of(store), 0, &opts);
}

int rf_store_receive(const struct rf_store *store, int link, void *data, uint64_t bytes)
{
    const struct rf_coll_opts opts = options(store);
    return bytes == 0 ? RF_OK
                      : rf_recv(store->links[link], data, bytes, RF_U8, peer_of(store), 0, &opts);
}
