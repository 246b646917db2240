/* SPDX-License-Identifier: MIT
 *
 * Messages between ranks of one host through shared memory: posting, progress, completions. The two
 * sides of a message are in shm_send.c and shm_receive.c, the form of the memory in shm.h. Calls
 * are serialised by the caller, and nothing moves unless it polls. Nothing blocks. System calls are
 * made only to read a peer's memory (shm_read.c).
 */
#include "shm.h"

#include "base/base.h"

static struct rf_shm *shm_of(struct rf_transport *t)
{
    return (struct rf_shm *)t;
}

/* ---- posting --------------------------------------------------------------------------------- */

static int check_post(struct rf_shm *h, int peer, size_t bytes)
{
    RETURN_IF_ERROR(rf_check_post(&h->transport, h->cancelled, peer, bytes, RF_SHM_MESSAGE));
    if (h->index_of[peer] < 0)
        return rf_fail_rank(RF_EINVAL, peer, "shm: rank %d is on another host", peer);
    return 0;
}

static int shm_post_send(struct rf_transport *t, int peer, uint64_t tag, uint32_t contract,
                         const void *buffer, size_t bytes, void *context)
{
    struct rf_shm *h = shm_of(t);
    RETURN_IF_ERROR(check_post(h, peer, bytes));
    if (peer == t->rank)
        return rf_self_post_send(&h->self, tag, contract, buffer, bytes, context);
    struct rf_posted *send = context;
    *send = rf_posted_send(peer, tag, contract, buffer, bytes);
    RETURN_IF_ERROR(rf_shm_post_send(h, send));
    rf_count_sent(t, bytes);
    return 0;
}

static int shm_send_at_once(struct rf_transport *t, int peer, uint64_t tag, uint32_t contract,
                            const void *buffer, size_t bytes)
{
    struct rf_shm *h = shm_of(t);
    RETURN_IF_ERROR(check_post(h, peer, bytes));
    if (peer == t->rank)
        return 0;
    const int done = rf_shm_send_at_once(h, peer, tag, contract, buffer, bytes);
    if (done > 0)
        rf_count_sent(t, bytes);
    return done;
}

static int shm_recv_at_once(struct rf_transport *t, int peer, uint64_t tag, void *buffer,
                            size_t bytes, struct rf_completion *out)
{
    struct rf_shm *h = shm_of(t);
    RETURN_IF_ERROR(check_post(h, peer, bytes));
    return peer == t->rank ? 0 : rf_shm_recv_at_once(h, peer, tag, buffer, bytes, out);
}

enum recv { PLAIN, ZERO_COPY, EXCHANGE };

static int post_recv(struct rf_transport *t, int peer, uint64_t tag, void *buffer, size_t bytes,
                     enum recv how, void *context)
{
    struct rf_shm *h = shm_of(t);
    RETURN_IF_ERROR(check_post(h, peer, bytes));
    if (peer == t->rank)
        return rf_self_post_recv(&h->self, tag, buffer, bytes, context);
    struct rf_posted *recv = context;
    *recv = (struct rf_posted){.tag = tag,
                               .buffer = buffer,
                               .bytes = bytes,
                               .peer = peer,
                               .match_rank = peer,
                               .is_recv = 1,
                               .zero_copy = how == ZERO_COPY,
                               .exchange = how == EXCHANGE};
    return rf_shm_post_recv(h, recv);
}

static int shm_post_recv(struct rf_transport *t, int peer, uint64_t tag, void *buffer, size_t bytes,
                         void *context)
{
    return post_recv(t, peer, tag, buffer, bytes, PLAIN, context);
}

static int shm_post_recv_zero_copy(struct rf_transport *t, int peer, uint64_t tag, void *buffer,
                                   size_t bytes, void *context)
{
    return post_recv(t, peer, tag, buffer, bytes, ZERO_COPY, context);
}

static int shm_post_recv_exchange(struct rf_transport *t, int peer, uint64_t tag, void *buffer,
                                  size_t bytes, void *context)
{
    return post_recv(t, peer, tag, buffer, bytes, EXCHANGE, context);
}

/* ---- progress -------------------------------------------------------------------------------- */

/* Serves the peers in turn until an operation has ended. */
static int progress(struct rf_shm *h)
{
    if (h->pulls.first)
        RETURN_IF_ERROR(rf_shm_pull(h));
    for (int i = 0; i < h->count; i++) {
        int rank = h->ranks[h->next_peer];
        h->next_peer = h->next_peer + 1 < h->count ? h->next_peer + 1 : 0;
        if (rank != h->transport.rank) {
            RETURN_IF_ERROR(rf_shm_receive(h, rank));
            RETURN_IF_ERROR(rf_shm_send_on(h, rank));
        }
        if (h->done.first)
            return 0;
    }
    return 0;
}

static int shm_poll(struct rf_transport *t, struct rf_completion *out, int max)
{
    struct rf_shm *h = shm_of(t);
    if (h->cancelled)
        return rf_fail(RF_EABORT, "shm: the transport has been cancelled");
    if (h->self.pending > 0) {
        const int found = rf_self_poll(&h->self, t->rank, out, max);
        if (found != 0)
            return found;
    }
    if (!h->done.first)
        RETURN_IF_ERROR(progress(h));
    int count = 0;
    while (count < max && h->done.first)
        rf_posted_complete(rf_posted_take(&h->done), &out[count++]);
    return count;
}

static void shm_cancel_all(struct rf_transport *t)
{
    struct rf_shm *h = shm_of(t);
    h->cancelled = true;
    if (h->base) /* before the caller may write to memory that peers still read */
        __atomic_store_n(&((struct rf_shm_header *)h->base)->cancelled, 1, __ATOMIC_SEQ_CST);
    rf_self_cancel(&h->self);
    rf_shm_forget_early(h);
}

static void shm_destroy(struct rf_transport *t)
{
    if (t)
        rf_shm_close(shm_of(t));
}

static void publish_core(struct rf_transport *t, int core)
{
    __atomic_store_n(&((struct rf_shm_header *)shm_of(t)->base)->core, (uint32_t)core + 1,
                     __ATOMIC_RELAXED);
}

static int core_of(struct rf_transport *t, int rank)
{
    const struct rf_shm *h = shm_of(t);
    if (!rf_shm_has(h, rank))
        return -1;
    const struct rf_shm_header *header =
        (const struct rf_shm_header *)rf_shm_peer_of(h, rank)->base;
    const uint32_t published = __atomic_load_n(&header->core, __ATOMIC_RELAXED);
    return published > 0 && published <= RF_CPU_CORES ? (int)published - 1 : -1;
}

static bool shm_idle(struct rf_transport *t)
{
    return rf_cpu_idle(&shm_of(t)->affinity, t);
}

static const struct rf_transport_ops shm_ops = {
    .post_send = shm_post_send,
    .post_recv = shm_post_recv,
    .send_at_once = shm_send_at_once,
    .recv_at_once = shm_recv_at_once,
    .poll = shm_poll,
    .cancel_all = shm_cancel_all,
    .destroy = shm_destroy,
    .post_recv_zero_copy = shm_post_recv_zero_copy,
    .release_zero_copy = rf_shm_release_zero_copy,
    .post_recv_exchange = shm_post_recv_exchange,
    .alloc = rf_shm_alloc,
    .free = rf_shm_free,
    .locate = rf_shm_locate,
    .reach = rf_shm_reach,
    .idle = shm_idle,
};

/* ---- opening and closing --------------------------------------------------------------------- */

/* Lists the ranks of this host. */
static int list_ranks(struct rf_shm *h, const uint64_t *hosts)
{
    const struct rf_transport *t = &h->transport;
    h->index_of = rf_alloc((size_t)t->size * sizeof(*h->index_of));
    h->ranks = rf_alloc((size_t)t->size * sizeof(*h->ranks));
    if (!h->index_of || !h->ranks)
        return rf_fail(RF_ENOMEM, "shm: no memory for %d ranks", t->size);
    for (int r = 0; r < t->size; r++) {
        bool here = !hosts || hosts[r] == hosts[t->rank];
        h->index_of[r] = here ? h->count : -1;
        if (here)
            h->ranks[h->count++] = r;
    }
    h->peers = rf_alloc((size_t)h->count * sizeof(*h->peers));
    if (!h->peers)
        return rf_fail(RF_ENOMEM, "shm: no memory for %d ranks", h->count);
    for (int i = 0; i < h->count; i++)
        h->peers[i].fd = -1;
    return 0;
}

int rf_shm_open(int rank, int size, const uint64_t *hosts, struct rf_shm **out)
{
    struct rf_shm *h = rf_alloc(sizeof(*h));
    if (!h)
        return rf_fail(RF_ENOMEM, "no memory for a transport");
    h->transport = (struct rf_transport){
        .ops = &shm_ops, .name = "shm", .rank = rank, .size = size, .segment_bytes = RF_SHM_SLOT};
    h->affinity = (struct rf_cpu_affinity){.core_of = core_of, .publish = publish_core};
    h->fd = -1;
    pthread_mutex_init(&h->lock, NULL);
    int rc = list_ranks(h, hosts);
    if (rc == 0)
        rc = rf_self_transport(&h->self.transport);
    if (rc < 0) {
        rf_shm_close(h);
        return rc;
    }
    h->transport.one_host = h->count == size;
    h->affinity.index = h->index_of[rank];
    h->affinity.count = h->count;
    *out = h;
    return 0;
}

void rf_shm_close(struct rf_shm *h)
{
    if (!h)
        return;
    rf_shm_forget_early(h);
    rf_shm_segment_destroy(h);
    rf_self_close(&h->self);
    pthread_mutex_destroy(&h->lock);
    rf_free(h->peers);
    rf_free(h->ranks);
    rf_free(h->index_of);
    rf_free(h);
}
