/* SPDX-License-Identifier: MIT
 *
 * Messages over TCP sockets: posting, progress, completions. The two sides of a message are in
 * tcp_send.c and tcp_receive.c, connections in tcp_connect.c, and the protocol is described in
 * tcp.h. Calls are serialised by the caller, and nothing moves unless it polls. Only destroy
 * blocks.
 */
#include "tcp.h"

#include <sys/socket.h>

#include "base/base.h"

enum {
    SEGMENT_BYTES = 512 << 10,
    LOOK_EVERY = 1024, /* polls, */
    LOOK_OFTEN = 16    /* and while a connection must be opened */
};

static struct rf_tcp *tcp_of(struct rf_transport *t)
{
    return (struct rf_tcp *)t;
}

/* ---- posting --------------------------------------------------------------------------------- */

static int check_post(struct rf_tcp *h, int peer, size_t bytes)
{
    return rf_check_post(&h->transport, h->cancelled, peer, bytes, RF_TCP_MESSAGE);
}

static int tcp_post_send(struct rf_transport *t, int peer, uint64_t tag, uint32_t contract,
                         const void *buffer, size_t bytes, void *context)
{
    struct rf_tcp *h = tcp_of(t);
    RETURN_IF_ERROR(check_post(h, peer, bytes));
    if (peer == t->rank)
        return rf_self_post_send(&h->self, tag, contract, buffer, bytes, context);
    struct rf_posted *send = context;
    *send = rf_posted_send(peer, tag, contract, buffer, bytes);
    if (h->peers[peer].state == RF_TCP_IDLE && !h->peers[peer].left)
        RETURN_IF_ERROR(rf_tcp_dial(h, &h->peers[peer]));
    RETURN_IF_ERROR(rf_tcp_post_send(h, send));
    rf_count_sent(t, bytes);
    return 0;
}

static int tcp_post_recv(struct rf_transport *t, int peer, uint64_t tag, void *buffer, size_t bytes,
                         void *context)
{
    struct rf_tcp *h = tcp_of(t);
    RETURN_IF_ERROR(check_post(h, peer, bytes));
    if (peer == t->rank)
        return rf_self_post_recv(&h->self, tag, buffer, bytes, context);
    struct rf_posted *recv = context;
    *recv = (struct rf_posted){.tag = tag,
                               .buffer = buffer,
                               .bytes = bytes,
                               .peer = peer,
                               .match_rank = peer,
                               .is_recv = 1};
    return rf_tcp_post_recv(h, recv);
}

/* ---- progress -------------------------------------------------------------------------------- */

/* With few connections, reading all costs less than asking which are readable. */
static int receive_all(struct rf_tcp *h)
{
    const bool tries = h->watched_count <= RF_TCP_TRIED;
    for (int i = 0, count = h->watched_count; i < count && !h->done.first; i++) {
        h->next = h->next + 1 < h->watched_count ? h->next + 1 : 0;
        struct rf_tcp_peer *peer = &h->peers[h->watched[h->next]];
        if (tries || peer->readable)
            RETURN_IF_ERROR(rf_tcp_receive(h, peer));
    }
    return 0;
}

static int progress(struct rf_tcp *h)
{
    if (h->watched_count > RF_TCP_TRIED || h->turns-- == 0) {
        h->turns = h->unopened > 0 ? LOOK_OFTEN : LOOK_EVERY;
        RETURN_IF_ERROR(rf_tcp_look(h));
    }
    if (h->sending)
        rf_tcp_flush_all(h);
    return h->done.first ? 0 : receive_all(h);
}

static void complete(const struct rf_tcp *h, const struct rf_posted *posted,
                     struct rf_completion *out)
{
    const struct rf_tcp_peer *peer = &h->peers[posted->peer];
    rf_posted_complete(posted, out);
    if (posted->status == RF_EPEER)
        rf_fail_rank(RF_EPEER, peer->rank, "tcp: the connection to rank %d is lost: %s", peer->rank,
                     peer->left     ? "it has left"
                     : peer->reason ? strerror(peer->reason)
                                    : "the other end has closed it");
}

static int tcp_poll(struct rf_transport *t, struct rf_completion *out, int max)
{
    struct rf_tcp *h = tcp_of(t);
    if (h->cancelled)
        return rf_fail(RF_EABORT, "tcp: the transport has been cancelled");
    if (h->self.pending > 0) {
        const int found = rf_self_poll(&h->self, t->rank, out, max);
        if (found != 0)
            return found;
    }
    if (!h->done.first)
        RETURN_IF_ERROR(progress(h));
    int count = 0;
    while (count < max && h->done.first)
        complete(h, rf_posted_take(&h->done), &out[count++]);
    return count;
}

/* ---- the rest of the interface --------------------------------------------------------------- */

static void tcp_cancel_all(struct rf_transport *t)
{
    struct rf_tcp *h = tcp_of(t);
    h->cancelled = true;
    rf_self_cancel(&h->self);
    rf_tcp_close_all(h);
    h->done = (struct rf_posted_list){0};
}

static void tcp_destroy(struct rf_transport *t)
{
    if (!t)
        return;
    struct rf_tcp *h = tcp_of(t);
    if (!h->cancelled && !t->lost_peer)
        rf_tcp_say_goodbye(h);
    rf_tcp_end_close(h);
}

/* Within a host a message is received on the sending core, which the system reports. */
static int core_of(struct rf_transport *t, int rank)
{
    const struct rf_tcp_peer *peer = &tcp_of(t)->peers[rank];
    int core = -1;
    socklen_t bytes = sizeof(core);
    if (peer->state != RF_TCP_OPEN || !peer->is_here ||
        getsockopt(peer->fd, SOL_SOCKET, SO_INCOMING_CPU, &core, &bytes))
        return -1;
    return core;
}

static bool tcp_idle(struct rf_transport *t)
{
    return rf_cpu_idle(&tcp_of(t)->affinity, t);
}

static const struct rf_transport_ops tcp_ops = {
    .post_send = tcp_post_send,
    .post_recv = tcp_post_recv,
    .poll = tcp_poll,
    .cancel_all = tcp_cancel_all,
    .destroy = tcp_destroy,
    .idle = tcp_idle,
};

int rf_tcp_end_open(int rank, int size, struct rf_tcp **out)
{
    struct rf_tcp *h = rf_alloc(sizeof(*h));
    if (!h)
        return rf_fail(RF_ENOMEM, "tcp: no memory for a transport");
    h->listener = h->epoll = -1;
    h->transport = (struct rf_transport){.ops = &tcp_ops,
                                         .name = "tcp",
                                         .rank = rank,
                                         .size = size,
                                         .takes_early = true,
                                         .segment_bytes = SEGMENT_BYTES};
    h->unopened = size - 1;
    h->affinity.core_of = core_of;
    h->peers = rf_alloc((size_t)size * sizeof(*h->peers));
    h->watched = rf_alloc((size_t)size * sizeof(*h->watched));
    h->addresses = rf_alloc((size_t)size * sizeof(*h->addresses));
    h->input = rf_alloc(RF_TCP_INPUT);
    int rc = h->peers && h->watched && h->addresses && h->input
                 ? rf_self_transport(&h->self.transport)
                 : rf_fail(RF_ENOMEM, "tcp: no memory for %d ranks", size);
    for (int r = 0; h->peers && r < size; r++) {
        h->peers[r].watch = RF_TCP_PEER;
        h->peers[r].rank = r;
        h->peers[r].fd = h->peers[r].place = -1;
    }
    if (rc < 0) {
        rf_tcp_end_close(h);
        return rc;
    }
    *out = h;
    return 0;
}

void rf_tcp_end_close(struct rf_tcp *h)
{
    if (!h)
        return;
    rf_tcp_close_all(h);
    rf_self_close(&h->self);
    rf_free(h->peers);
    rf_free(h->watched);
    rf_free(h->addresses);
    rf_free(h->input);
    rf_free(h);
}
