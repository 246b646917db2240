/* SPDX-License-Identifier: MIT
 *
 * A transport made of two: one for the ranks of this host, which shares memory, and one for all
 * others. A peer is reached by only one of them, so matching is as exact as that of each. Created
 * by choose.c; independent of the kinds of the two.
 */
#include "base/base.h"
#include "matching.h"
#include "providers.h"

struct hybrid {
    struct rf_transport transport; /* first member */
    struct rf_transport *intra_host, *inter_host;
    bool *here;             /* [size]: the ranks that intra_host reaches */
    uint64_t inter_pending; /* posted there, and not ended; at 0 it need not be polled */
    bool inter_next;
    char name[64];
};

static struct hybrid *hybrid_of(struct rf_transport *t)
{
    return (struct hybrid *)t;
}

static bool is_here(const struct hybrid *b, int peer)
{
    /* The first one refuses a rank that does not exist. */
    return peer < 0 || peer >= b->transport.size || b->here[peer];
}

static int hybrid_post_send(struct rf_transport *t, int peer, uint64_t tag, uint32_t contract,
                            const void *buffer, size_t bytes, void *context)
{
    struct hybrid *b = hybrid_of(t);
    const bool here = is_here(b, peer);
    struct rf_transport *part = here ? b->intra_host : b->inter_host;
    RETURN_IF_ERROR(part->ops->post_send(part, peer, tag, contract, buffer, bytes, context));
    b->inter_pending += !here;
    if (peer != t->rank)
        rf_count_sent(t, bytes);
    return 0;
}

static int hybrid_send_at_once(struct rf_transport *t, int peer, uint64_t tag, uint32_t contract,
                               const void *buffer, size_t bytes)
{
    struct hybrid *b = hybrid_of(t);
    struct rf_transport *part = is_here(b, peer) ? b->intra_host : b->inter_host;
    if (!part->ops->send_at_once)
        return 0;
    int done = part->ops->send_at_once(part, peer, tag, contract, buffer, bytes);
    if (done > 0)
        rf_count_sent(t, bytes);
    return done;
}

static int hybrid_recv_at_once(struct rf_transport *t, int peer, uint64_t tag, void *buffer,
                               size_t bytes, struct rf_completion *out)
{
    struct hybrid *b = hybrid_of(t);
    struct rf_transport *part = is_here(b, peer) ? b->intra_host : b->inter_host;
    return part->ops->recv_at_once ? part->ops->recv_at_once(part, peer, tag, buffer, bytes, out)
                                   : 0;
}

static int post_inter(struct hybrid *b, int peer, uint64_t tag, void *buffer, size_t bytes,
                      void *context)
{
    RETURN_IF_ERROR(
        b->inter_host->ops->post_recv(b->inter_host, peer, tag, buffer, bytes, context));
    b->inter_pending++;
    return 0;
}

static struct rf_transport *intra_of(struct rf_transport *t)
{
    return hybrid_of(t)->intra_host;
}

typedef int post_recv(struct rf_transport *t, int peer, uint64_t tag, void *buffer, size_t bytes,
                      void *context);

/* intra: the function that receives within the host. */
static int post_recv_by(struct rf_transport *t, post_recv *intra, int peer, uint64_t tag,
                        void *buffer, size_t bytes, void *context)
{
    struct hybrid *b = hybrid_of(t);
    return is_here(b, peer) ? intra(b->intra_host, peer, tag, buffer, bytes, context)
                            : post_inter(b, peer, tag, buffer, bytes, context);
}

static int hybrid_post_recv(struct rf_transport *t, int peer, uint64_t tag, void *buffer,
                            size_t bytes, void *context)
{
    return post_recv_by(t, intra_of(t)->ops->post_recv, peer, tag, buffer, bytes, context);
}

static int hybrid_post_recv_zero_copy(struct rf_transport *t, int peer, uint64_t tag, void *buffer,
                                      size_t bytes, void *context)
{
    return post_recv_by(t, intra_of(t)->ops->post_recv_zero_copy, peer, tag, buffer, bytes,
                        context);
}

static int hybrid_post_recv_exchange(struct rf_transport *t, int peer, uint64_t tag, void *buffer,
                                     size_t bytes, void *context)
{
    return post_recv_by(t, intra_of(t)->ops->post_recv_exchange, peer, tag, buffer, bytes, context);
}

/* Polls the two alternately, so that neither waits while the other is busy. */
static int hybrid_poll(struct rf_transport *t, struct rf_completion *out, int max)
{
    struct hybrid *b = hybrid_of(t);
    for (int i = 0; i < 2; i++) {
        const bool inter = b->inter_next;
        struct rf_transport *part = inter ? b->inter_host : b->intra_host;
        b->inter_next = !inter;
        if (inter && b->inter_pending == 0)
            continue;
        int count = part->ops->poll(part, out, max);
        if (inter && count > 0)
            b->inter_pending -= (uint64_t)count;
        if (count != 0)
            return count;
    }
    return 0;
}

/* Shared memory needs no registration. */
static int hybrid_register(struct rf_transport *t, void *base, size_t bytes, void **handle)
{
    struct rf_transport *inter = hybrid_of(t)->inter_host;
    return inter->ops->register_memory ? inter->ops->register_memory(inter, base, bytes, handle)
                                       : 0;
}

static void hybrid_deregister(struct rf_transport *t, void *handle)
{
    struct hybrid *b = hybrid_of(t);
    b->inter_host->ops->deregister_memory(b->inter_host, handle);
}

static void hybrid_cancel_all(struct rf_transport *t)
{
    struct hybrid *b = hybrid_of(t);
    b->intra_host->lost_peer = b->inter_host->lost_peer = t->lost_peer;
    b->intra_host->ops->cancel_all(b->intra_host);
    b->inter_host->ops->cancel_all(b->inter_host);
}

static void hybrid_destroy(struct rf_transport *t)
{
    if (!t)
        return;
    struct hybrid *b = hybrid_of(t);
    rf_log("transport", 2, "%s: sent %llu bytes within the host and %llu to others", t->name,
           (unsigned long long)b->intra_host->sent_bytes,
           (unsigned long long)b->inter_host->sent_bytes);
    b->inter_host->ops->destroy(b->inter_host);
    b->intra_host->ops->destroy(b->intra_host);
    rf_free(b->here);
    rf_free(b);
}

/* ---- memory, which only the ranks of this host share ------------------------------------------
 */

static void hybrid_release_zero_copy(struct rf_transport *t, int peer, uint32_t token)
{
    intra_of(t)->ops->release_zero_copy(intra_of(t), peer, token);
}

static int hybrid_alloc(struct rf_transport *t, size_t bytes, void **out)
{
    return intra_of(t)->ops->alloc(intra_of(t), bytes, out);
}

static void hybrid_free(struct rf_transport *t, void *memory)
{
    intra_of(t)->ops->free(intra_of(t), memory);
}

static bool hybrid_locate(struct rf_transport *t, const void *memory, size_t bytes,
                          uint64_t *offset)
{
    return intra_of(t)->ops->locate(intra_of(t), memory, bytes, offset);
}

static int hybrid_reach(struct rf_transport *t, int peer, uint64_t offset, size_t bytes,
                        unsigned char **out)
{
    if (!is_here(hybrid_of(t), peer))
        return rf_fail_rank(RF_ECORRUPT, peer, "%s: rank %d is on another host", t->name, peer);
    return intra_of(t)->ops->reach(intra_of(t), peer, offset, bytes, out);
}

static bool hybrid_idle(struct rf_transport *t)
{
    return intra_of(t)->ops->idle(intra_of(t));
}

static const struct rf_transport_ops hybrid_ops = {
    .post_send = hybrid_post_send,
    .post_recv = hybrid_post_recv,
    .send_at_once = hybrid_send_at_once,
    .recv_at_once = hybrid_recv_at_once,
    .poll = hybrid_poll,
    .register_memory = hybrid_register,
    .deregister_memory = hybrid_deregister,
    .cancel_all = hybrid_cancel_all,
    .destroy = hybrid_destroy,
    .post_recv_zero_copy = hybrid_post_recv_zero_copy,
    .release_zero_copy = hybrid_release_zero_copy,
    .post_recv_exchange = hybrid_post_recv_exchange,
    .alloc = hybrid_alloc,
    .free = hybrid_free,
    .locate = hybrid_locate,
    .reach = hybrid_reach,
    .idle = hybrid_idle,
};

int rf_hybrid_create(struct rf_transport *intra_host, struct rf_transport *inter_host,
                     const uint64_t *hosts, struct rf_transport **out)
{
    const int rank = intra_host->rank, size = intra_host->size;
    struct hybrid *b = rf_alloc(sizeof(*b));
    bool *here = rf_alloc((size_t)size * sizeof(*here));
    if (!b || !here) {
        rf_free(b);
        rf_free(here);
        inter_host->ops->destroy(inter_host);
        intra_host->ops->destroy(intra_host);
        return rf_fail(RF_ENOMEM, "no memory for a transport");
    }
    snprintf(b->name, sizeof(b->name), "%s+%s", intra_host->name, inter_host->name);
    for (int r = 0; r < size; r++)
        here[r] = hosts[r] == hosts[rank];
    b->intra_host = intra_host;
    b->inter_host = inter_host;
    b->here = here;
    /* Containers of one machine share its cores, but not its memory: only the network knows. */
    intra_host->yield = intra_host->yield || inter_host->yield;
    const size_t most[] = {intra_host->segment_bytes, inter_host->segment_bytes};
    b->transport = (struct rf_transport){.ops = &hybrid_ops,
                                         .name = b->name,
                                         .rank = rank,
                                         .size = size,
                                         .yield = intra_host->yield,
                                         .stalls = intra_host->stalls || inter_host->stalls,
                                         .takes_early = inter_host->takes_early,
                                         .streams = intra_host->streams,
                                         .own_memory = intra_host->own_memory,
                                         .segment_bytes = most[0] < most[1] ? most[0] : most[1]};
    *out = &b->transport;
    return 0;
}
