/* SPDX-License-Identifier: MIT
 *
 * The sending side of tcp.c. Headers, short payloads and frames without payload are collected in
 * the stage of a connection; a long payload follows the stage directly from its buffer. One system
 * call writes both.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/base.h"
#include "tcp.h"
#include "tcp_wire.h"

enum { MOST_READY = 1 << 16 };

/* ---- the stage ------------------------------------------------------------------------------- */

static void stage_header(struct rf_tcp_peer *peer, const struct rf_tcp_frame *frame)
{
    rf_tcp_write_header(peer->stage + peer->stage_end, frame);
    peer->stage_end += RF_TCP_HEADER;
    peer->staged += RF_TCP_HEADER;
}

static bool has_room(const struct rf_tcp_peer *peer, size_t bytes)
{
    return peer->stage_end + bytes <= RF_TCP_STAGE;
}

static void stage_controls(struct rf_tcp_peer *peer)
{
    size_t count = 0;
    while (count < peer->control_count && has_room(peer, RF_TCP_HEADER))
        stage_header(peer, &peer->controls[count++]);
    peer->control_count -= count;
    memmove(peer->controls, peer->controls + count, peer->control_count * sizeof(*peer->controls));
}

/* Within a host, before the first long message. Across hosts the system's choice stands.
 *
 * Pacing (as by BBR, the default of some systems) halves the speed of long messages, but makes
 * bursts of short ones cheaper. One of the algorithms without pacing is always permitted.
 *
 * The system would let a send buffer grow to some MiB. With this one, 256 to 400 KiB are in
 * transfer, which fit in private caches, although receive buffers still grow. All-gathers of 64 MiB
 * take a fifth less time if cores are far apart. */
static void tune_for_long(struct rf_tcp_peer *peer)
{
    const int buffer = RF_TCP_SEND_BUFFER;
    peer->is_untuned = false;
    if (setsockopt(peer->fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5))
        (void)setsockopt(peer->fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    (void)setsockopt(peer->fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
}

static void stage_message(struct rf_tcp_peer *peer)
{
    struct rf_posted *send = rf_posted_take(&peer->queued);
    if (peer->is_untuned && send->bytes >= RF_TCP_LONG)
        tune_for_long(peer);
    stage_header(peer, &(struct rf_tcp_frame){.tag = send->tag,
                                              .bytes = send->bytes,
                                              .contract = send->contract,
                                              .kind = RF_TCP_DATA});
    if (send->bytes > RF_TCP_COPIED) {
        peer->payload = send;
        peer->moved = 0;
    } else if (send->bytes > 0) {
        memcpy(peer->stage + peer->stage_end, send->buffer, send->bytes);
        peer->stage_end += send->bytes;
    }
    peer->staged += send->bytes;
    send->end = peer->staged;
    rf_posted_append(&peer->writing, send);
}

static void fill_stage(struct rf_tcp_peer *peer)
{
    if (peer->stage_begin == peer->stage_end)
        peer->stage_begin = peer->stage_end = 0;
    if (!peer->payload && peer->control_count > 0)
        stage_controls(peer);
    while (!peer->payload && peer->queued.first) {
        const uint64_t bytes = peer->queued.first->bytes;
        if (!has_room(peer, RF_TCP_HEADER + (bytes > RF_TCP_COPIED ? 0 : bytes)))
            return;
        stage_message(peer);
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

static ssize_t write_some(struct rf_tcp_peer *peer, size_t *offered)
{
    struct iovec parts[2];
    int count = 0;
    *offered = 0;
    if (peer->stage_end > peer->stage_begin)
        parts[count++] =
            (struct iovec){peer->stage + peer->stage_begin, peer->stage_end - peer->stage_begin};
    if (peer->payload)
        parts[count++] = (struct iovec){(char *)peer->payload->buffer + peer->moved,
                                        peer->payload->bytes - peer->moved};
    for (int i = 0; i < count; i++)
        *offered += parts[i].iov_len;
    if (count == 1)
        return send(peer->fd, parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT | MSG_NOSIGNAL);
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
    return sendmsg(peer->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void advance(struct rf_tcp *h, struct rf_tcp_peer *peer, size_t bytes)
{
    const size_t staged = peer->stage_end - peer->stage_begin;
    peer->sent += bytes;
    peer->stage_begin += bytes < staged ? bytes : staged;
    if (bytes > staged)
        peer->moved += bytes - staged;
    if (peer->payload && peer->moved == peer->payload->bytes)
        peer->payload = NULL;
    while (peer->writing.first && peer->writing.first->end <= peer->sent)
        rf_tcp_complete(h, rf_posted_take(&peer->writing), 0);
}

void rf_tcp_flush(struct rf_tcp *h, struct rf_tcp_peer *peer)
{
    for (;;) {
        size_t offered;
        fill_stage(peer);
        peer->full = false;
        if (peer->stage_begin == peer->stage_end && !peer->payload)
            return;
        ssize_t bytes = write_some(peer, &offered);
        if (bytes < 0 && errno == EINTR)
            continue;
        if (bytes < 0 && errno != EAGAIN && errno != ENOBUFS) {
            rf_tcp_lose(h, peer, errno);
            return;
        }
        if (bytes > 0)
            advance(h, peer, (size_t)bytes);
        if (bytes < (ssize_t)offered) {
            peer->full = true;
            peer->writable = false;
            return;
        }
    }
}

static bool has_output(const struct rf_tcp_peer *peer)
{
    return peer->queued.first || peer->control_count > 0 || peer->payload ||
           peer->stage_begin < peer->stage_end;
}

static void note_output(struct rf_tcp *h, struct rf_tcp_peer *peer)
{
    if (peer->sending || !has_output(peer))
        return;
    peer->sending = true;
    peer->next_sending = h->sending;
    h->sending = peer;
}

/* If epoll is called in each turn, it reports when a connection accepts more. */
void rf_tcp_flush_all(struct rf_tcp *h)
{
    const bool tries = h->watched_count <= RF_TCP_TRIED;
    struct rf_tcp_peer **link = &h->sending;
    while (*link) {
        struct rf_tcp_peer *peer = *link;
        if (peer->state == RF_TCP_OPEN && (!peer->full || tries || peer->writable))
            rf_tcp_flush(h, peer);
        if (has_output(peer)) {
            link = &peer->next_sending;
            continue;
        }
        peer->sending = false;
        *link = peer->next_sending;
    }
}

/* ---- posting --------------------------------------------------------------------------------- */

static int grow(void *array, size_t *capacity, size_t element)
{
    void **memory = array;
    const size_t more = 2 * *capacity + 8;
    void *grown = rf_realloc(*memory, more * element);
    if (!grown)
        return rf_fail(RF_ENOMEM, "tcp: no memory for %zu frames", more);
    *memory = grown;
    *capacity = more;
    return 0;
}

int rf_tcp_send_control(struct rf_tcp *h, struct rf_tcp_peer *peer, enum rf_tcp_kind kind,
                        uint64_t tag, uint64_t bytes)
{
    if (peer->control_count == peer->control_capacity)
        RETURN_IF_ERROR(grow(&peer->controls, &peer->control_capacity, sizeof(*peer->controls)));
    peer->controls[peer->control_count++] =
        (struct rf_tcp_frame){.tag = tag, .bytes = bytes, .kind = (uint8_t)kind};
    note_output(h, peer);
    return 0;
}

static bool take_ready(struct rf_tcp_peer *peer, uint64_t tag)
{
    for (size_t i = 0; i < peer->ready_count; i++) {
        if (peer->ready[i] != tag)
            continue;
        peer->ready_count--;
        memmove(peer->ready + i, peer->ready + i + 1,
                (peer->ready_count - i) * sizeof(*peer->ready));
        return true;
    }
    return false;
}

int rf_tcp_post_send(struct rf_tcp *h, struct rf_posted *send)
{
    struct rf_tcp_peer *peer = &h->peers[send->peer];
    if (peer->state == RF_TCP_LOST || peer->left) {
        rf_tcp_complete(h, send, RF_EPEER);
        return 0;
    }
    if (send->bytes > RF_TCP_EAGER && !take_ready(peer, send->tag)) {
        RETURN_IF_ERROR(rf_tcp_send_control(h, peer, RF_TCP_ANNOUNCE, send->tag, send->bytes));
        rf_posted_append(&peer->held, send);
        rf_tcp_expect(h, peer, 1);
        return 0;
    }
    rf_posted_append(&peer->queued, send);
    if (peer->state == RF_TCP_OPEN && !peer->full)
        rf_tcp_flush(h, peer);
    note_output(h, peer);
    return 0;
}

int rf_tcp_receive_is_ready(struct rf_tcp *h, struct rf_tcp_peer *peer, uint64_t tag)
{
    struct rf_posted *send = rf_posted_match(&peer->held, peer->rank, tag);
    if (send) {
        rf_tcp_expect(h, peer, -1);
        rf_posted_append(&peer->queued, send);
        note_output(h, peer);
        return 0;
    }
    if (peer->ready_count == MOST_READY)
        return rf_fail_rank(RF_ECORRUPT, peer->rank,
                            "tcp: rank %d has announced %d receives that nobody sends to",
                            peer->rank, MOST_READY);
    if (peer->ready_count == peer->ready_capacity)
        RETURN_IF_ERROR(grow(&peer->ready, &peer->ready_capacity, sizeof(*peer->ready)));
    peer->ready[peer->ready_count++] = tag;
    return 0;
}

int rf_tcp_send_is_refused(struct rf_tcp *h, struct rf_tcp_peer *peer, uint64_t tag)
{
    struct rf_posted *send = rf_posted_match(&peer->held, peer->rank, tag);
    if (!send)
        return rf_fail_rank(RF_ECORRUPT, peer->rank,
                            "tcp: rank %d refuses a message that it was not sent", peer->rank);
    rf_tcp_expect(h, peer, -1);
    rf_tcp_complete(h, send, 0);
    return 0;
}
