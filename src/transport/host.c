/* SPDX-License-Identifier: MIT
 *
 * Messages between ranks of one host through shared memory: posting, sending, completions. The
 * receiving side is in host_receive.c, the form of the memory in host.h. Calls are serialised by
 * the caller, and nothing moves unless it polls. Nothing blocks, and no call into the system is
 * made.
 */
#include "host.h"

#include "../base/base.h"

enum { SEND_SHARED, SEND_ASKED, SEND_STAGING }; /* rf_host_node.slot of a send with a ticket */

static struct rf_host *host_of(struct rf_transport *t)
{
    return (struct rf_host *)t;
}

void rf_host_append(struct rf_host_list *list, struct rf_host_node *node)
{
    node->next = NULL;
    if (list->first)
        list->last->next = node;
    else
        list->first = node;
    list->last = node;
}

struct rf_host_node *rf_host_take(struct rf_host_list *list)
{
    struct rf_host_node *node = list->first;
    if (node)
        list->first = node->next;
    return node;
}

static int fail_nonsense(int rank, const char *what)
{
    return rf_fail_rank(RF_ECORRUPT, rank, "host: what rank %d says of %s makes no sense", rank,
                        what);
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* 1: there is a free one; 0: not now. */
static int has_line(struct rf_host *h, int rank)
{
    struct rf_host_peer *peer = &h->peers[rank];
    if (peer->sent - peer->consumed < RF_HOST_LINES)
        return 1;
    uint64_t consumed = __atomic_load_n(&peer->heard->consumed, __ATOMIC_ACQUIRE);
    if (consumed < peer->consumed || consumed > peer->sent)
        return fail_nonsense(rank, "what it has read");
    peer->consumed = consumed;
    return peer->sent - consumed < RF_HOST_LINES;
}

static struct rf_host_line *next_line(struct rf_host_peer *peer)
{
    return &peer->out->lines[peer->sent % RF_HOST_LINES];
}

static void publish(struct rf_host_peer *peer)
{
    struct rf_host_line *line = next_line(peer);
    uint32_t turn = (uint32_t)(peer->sent / RF_HOST_LINES) + 1;
    peer->sent++;
    __atomic_store_n(&line->turn, turn, __ATOMIC_RELEASE);
}

static void write_head(struct rf_host_line *line, const struct rf_host_node *send, int kind,
                       uint64_t bytes)
{
    line->contract = send->contract;
    line->tag = send->tag;
    line->kind = (unsigned)kind;
    line->bytes = bytes & 0xffffffffffffull;
    line->ticket = send->ticket;
}

static void send_short(struct rf_host *h, struct rf_host_node *send)
{
    struct rf_host_peer *peer = &h->peers[send->peer];
    struct rf_host_line *line = next_line(peer);
    write_head(line, send, RF_HOST_SHORT, send->bytes);
    if (send->bytes > RF_HOST_INLINE)
        memcpy(peer->out->cells[peer->sent % RF_HOST_LINES], send->buffer, send->bytes);
    else if (send->bytes > 0)
        memcpy(line->data, send->buffer, send->bytes);
    publish(peer);
    rf_host_append(&h->done, send);
}

static void send_long(struct rf_host *h, struct rf_host_node *send)
{
    struct rf_host_peer *peer = &h->peers[send->peer];
    struct rf_host_line *line = next_line(peer);
    unsigned ticket = (unsigned)__builtin_ctzll(~peer->tickets);
    uint64_t bit = 1ull << ticket, offset = 0;
    bool shared = rf_host_locate(&h->transport, send->buffer, send->bytes, &offset);
    send->ticket = (uint8_t)ticket;
    send->slot = shared ? SEND_SHARED : SEND_ASKED;
    peer->sends[ticket] = send;
    peer->tickets |= bit;
    peer->done_bits ^= bit;
    if (!shared) {
        peer->asked |= bit;
        peer->go_bits ^= bit;
    }
    write_head(line, send, shared ? RF_HOST_SHARED : RF_HOST_STAGED, send->bytes);
    memcpy(line->data, &offset, sizeof(offset));
    publish(peer);
}

/* ---- what the peer has done ------------------------------------------------------------------ */

/* The one piece of a staged message that is next, if there is a slot and a line for it. */
static int send_piece(struct rf_host *h, int rank)
{
    struct rf_host_peer *peer = &h->peers[rank];
    uint64_t free = __atomic_load_n(&peer->heard->slots, __ATOMIC_ACQUIRE);
    peer->busy_slots &= free ^ peer->slot_bits;
    uint64_t usable = ~peer->busy_slots & ((1u << RF_HOST_SLOTS) - 1);
    int room = usable ? has_line(h, rank) : 0;
    if (room <= 0)
        return room;
    struct rf_host_node *send = peer->staging.first;
    unsigned slot = (unsigned)__builtin_ctzll(usable);
    uint64_t left = send->bytes - send->moved;
    size_t bytes = left < RF_HOST_SLOT ? (size_t)left : RF_HOST_SLOT;
    memcpy(peer->out->slots[slot], (const unsigned char *)send->buffer + send->moved, bytes);
    peer->busy_slots |= 1u << slot;
    peer->slot_bits ^= 1u << slot;
    struct rf_host_line *line = next_line(peer);
    write_head(line, send, RF_HOST_PIECE, bytes);
    line->slot = slot & 0xfu;
    publish(peer);
    send->moved += bytes;
    if (send->moved == send->bytes) {
        peer->sends[send->ticket] = NULL; /* the ticket stays taken until the peer is done */
        rf_host_append(&h->done, rf_host_take(&peer->staging));
    }
    return 0;
}

/* Tickets that the peer has used up, and those whose pieces it waits for. It writes `done` before
 * `go` where it wants nothing of a staged message. */
static int check_tickets(struct rf_host *h, int rank)
{
    struct rf_host_peer *peer = &h->peers[rank];
    uint64_t go = ~(__atomic_load_n(&peer->heard->go, __ATOMIC_ACQUIRE) ^ peer->go_bits);
    uint64_t done = ~(__atomic_load_n(&peer->heard->done, __ATOMIC_ACQUIRE) ^ peer->done_bits);
    for (uint64_t ended = peer->tickets & done & go; ended; ended &= ended - 1) {
        struct rf_host_node *send = peer->sends[__builtin_ctzll(ended)];
        if (!send)
            continue;
        if (send->slot == SEND_STAGING)
            return fail_nonsense(rank, "a message that it has not yet got");
        peer->sends[send->ticket] = NULL;
        rf_host_append(&h->done, send);
    }
    peer->asked &= ~(done & go);
    for (uint64_t wanted = peer->asked & go; wanted; wanted &= wanted - 1) {
        struct rf_host_node *send = peer->sends[__builtin_ctzll(wanted)];
        send->slot = SEND_STAGING;
        send->moved = 0;
        rf_host_append(&peer->staging, send);
    }
    peer->asked &= ~go;
    peer->tickets &= ~(done & go);
    return 0;
}

static int send_waiting(struct rf_host *h, int rank)
{
    struct rf_host_peer *peer = &h->peers[rank];
    int room;
    while (peer->waiting_short.first && (room = has_line(h, rank)) != 0) {
        if (room < 0)
            return room;
        send_short(h, rf_host_take(&peer->waiting_short));
    }
    while (peer->waiting_long.first && ~peer->tickets && (room = has_line(h, rank)) != 0) {
        if (room < 0)
            return room;
        send_long(h, rf_host_take(&peer->waiting_long));
    }
    return 0;
}

/* ---- posting --------------------------------------------------------------------------------- */

static int check_post(struct rf_host *h, int peer, size_t bytes)
{
    if (h->cancelled)
        return rf_fail(RF_EABORT, "host: the transport has been cancelled");
    if (peer < 0 || peer >= h->transport.size)
        return rf_fail(RF_EINVAL, "host: there is no rank %d in a world of %d", peer,
                       h->transport.size);
    if (bytes >> 48)
        return rf_fail(RF_ENOTSUP, "host: a message of %zu bytes", bytes);
    return 0;
}

static int host_post_send(struct rf_transport *t, int peer, uint64_t tag, uint32_t contract,
                          const void *buffer, size_t bytes, void *context)
{
    struct rf_host *h = host_of(t);
    RETURN_IF_ERROR(check_post(h, peer, bytes));
    if (peer == t->rank) {
        int rc = h->self->ops->post_send(h->self, 0, tag, contract, buffer, bytes, context);
        h->self_pending += rc == 0;
        return rc;
    }
    struct rf_host_node *send = context;
    *send = (struct rf_host_node){.tag = tag,
                                  .buffer = (void *)(uintptr_t)buffer,
                                  .bytes = bytes,
                                  .contract = contract,
                                  .peer = (int16_t)peer};
    struct rf_host_peer *to = &h->peers[peer];
    bool is_short = bytes <= RF_HOST_CELL;
    int room = has_line(h, peer);
    if (room < 0)
        return room;
    if (is_short && room && !to->waiting_short.first)
        send_short(h, send);
    else if (!is_short && room && !to->waiting_long.first && ~to->tickets)
        send_long(h, send);
    else
        rf_host_append(is_short ? &to->waiting_short : &to->waiting_long, send);
    t->sent_bytes += bytes;
    t->sent_messages++;
    return 0;
}

static int post_recv(struct rf_transport *t, int peer, uint64_t tag, void *buffer, size_t bytes,
                     bool may_borrow, void *context)
{
    struct rf_host *h = host_of(t);
    RETURN_IF_ERROR(check_post(h, peer, bytes));
    if (peer == t->rank) {
        int rc = h->self->ops->post_recv(h->self, 0, tag, buffer, bytes, context);
        h->self_pending += rc == 0;
        return rc;
    }
    struct rf_host_node *recv = context;
    *recv = (struct rf_host_node){.tag = tag,
                                  .buffer = buffer,
                                  .bytes = bytes,
                                  .peer = (int16_t)peer,
                                  .is_recv = 1,
                                  .may_borrow = may_borrow};
    return rf_host_post_recv(h, recv);
}

static int host_post_recv(struct rf_transport *t, int peer, uint64_t tag, void *buffer,
                          size_t bytes, void *context)
{
    return post_recv(t, peer, tag, buffer, bytes, false, context);
}

static int host_post_borrow(struct rf_transport *t, int peer, uint64_t tag, void *buffer,
                            size_t bytes, void *context)
{
    return post_recv(t, peer, tag, buffer, bytes, true, context);
}

/* ---- progress -------------------------------------------------------------------------------- */

static int progress_peer(struct rf_host *h, int rank)
{
    struct rf_host_peer *peer = &h->peers[rank];
    RETURN_IF_ERROR(rf_host_receive(h, rank));
    if (peer->tickets)
        RETURN_IF_ERROR(check_tickets(h, rank));
    if (peer->staging.first)
        RETURN_IF_ERROR(send_piece(h, rank));
    if (peer->waiting_short.first || peer->waiting_long.first)
        RETURN_IF_ERROR(send_waiting(h, rank));
    return 0;
}

/* Goes round the peers until something has ended. */
static int progress(struct rf_host *h)
{
    if (h->pulls.first)
        rf_host_pull(h);
    for (int i = 0; i < h->transport.size; i++) {
        int rank = h->next_peer;
        h->next_peer = rank + 1 < h->transport.size ? rank + 1 : 0;
        if (rank != h->transport.rank)
            RETURN_IF_ERROR(progress_peer(h, rank));
        if (h->done.first)
            return 0;
    }
    return 0;
}

static void fill(const struct rf_host_node *node, struct rf_completion *out)
{
    *out = (struct rf_completion){.context = (void *)(uintptr_t)node,
                                  .peer = node->peer,
                                  .status = node->status,
                                  .is_recv = node->is_recv};
    if (!node->is_recv)
        return;
    out->contract = node->contract;
    out->bytes = node->bytes;
    if (node->lent) {
        out->data = node->buffer;
        out->loan = 1u | (uint32_t)node->ticket << 8 | (uint32_t)node->slot << 16;
    }
    if (node->status < 0)
        rf_fail_rank(node->status, node->peer, "rank %d sent %llu bytes where %llu were expected",
                     node->peer, (unsigned long long)node->moved, (unsigned long long)node->bytes);
}

static int host_poll(struct rf_transport *t, struct rf_completion *out, int max)
{
    struct rf_host *h = host_of(t);
    if (h->cancelled)
        return rf_fail(RF_EABORT, "host: the transport has been cancelled");
    if (h->self_pending > 0) {
        int found = h->self->ops->poll(h->self, out, max);
        for (int i = 0; i < found; i++)
            out[i].peer = t->rank;
        h->self_pending -= found > 0 ? (uint64_t)found : 0;
        if (found != 0)
            return found;
    }
    if (!h->done.first)
        RETURN_IF_ERROR(progress(h));
    int count = 0;
    while (count < max && h->done.first)
        fill(rf_host_take(&h->done), &out[count++]);
    return count;
}

static int host_register(struct rf_transport *t, void *base, size_t bytes, void **handle)
{
    *handle = NULL; /* memory of any kind can be sent */
    return 0;
}

static void host_deregister(struct rf_transport *t, void *handle)
{
}

static void host_cancel_all(struct rf_transport *t)
{
    struct rf_host *h = host_of(t);
    h->cancelled = true;
    if (h->self)
        h->self->ops->cancel_all(h->self);
    rf_host_forget_early(h);
}

static void host_destroy(struct rf_transport *t)
{
    if (t)
        rf_host_close(host_of(t));
}

static const struct rf_transport_ops host_ops = {
    .post_send = host_post_send,
    .post_recv = host_post_recv,
    .poll = host_poll,
    .register_memory = host_register,
    .deregister_memory = host_deregister,
    .cancel_all = host_cancel_all,
    .destroy = host_destroy,
    .post_borrow = host_post_borrow,
    .give_back = rf_host_give_back,
    .alloc = rf_host_alloc,
    .free = rf_host_free,
    .locate = rf_host_locate,
    .reach = rf_host_reach,
    .idle = rf_host_idle,
};

/* ---- opening and closing --------------------------------------------------------------------- */

int rf_host_open(int rank, int size, struct rf_host **out)
{
    struct rf_host *h = rf_alloc(sizeof(*h));
    if (!h)
        return rf_fail(RF_ENOMEM, "no memory for a transport");
    h->transport = (struct rf_transport){.ops = &host_ops,
                                         .name = "host",
                                         .rank = rank,
                                         .size = size,
                                         .segment_bytes = RF_HOST_SLOT};
    h->fd = -1;
    pthread_mutex_init(&h->lock, NULL);
    h->peers = rf_alloc((size_t)size * sizeof(*h->peers));
    for (int peer = 0; h->peers && peer < size; peer++)
        h->peers[peer].fd = -1;
    int rc = h->peers ? rf_self_transport(&h->self)
                      : rf_fail(RF_ENOMEM, "host: no memory for %d ranks", size);
    if (rc < 0) {
        rf_host_close(h);
        return rc;
    }
    *out = h;
    return 0;
}

void rf_host_close(struct rf_host *h)
{
    if (!h)
        return;
    rf_host_forget_early(h);
    rf_host_segment_destroy(h);
    if (h->self)
        h->self->ops->destroy(h->self);
    pthread_mutex_destroy(&h->lock);
    rf_free(h->peers);
    rf_free(h);
}
