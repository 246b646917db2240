/* SPDX-License-Identifier: MIT
 *
 * The receiving side of tcp.c: parses frames from the bytes of a connection, matches them, and
 * moves payloads to their destination. Data from a peer is checked before use: RF_ECORRUPT, which
 * names the rank.
 */
#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/base.h"
#include "tcp.h"
#include "tcp_wire.h"

static int fail_invalid(const struct rf_tcp_peer *peer, const char *what)
{
    return rf_fail_rank(RF_ECORRUPT, peer->rank, "tcp: rank %d has sent %s", peer->rank, what);
}

/* ---- messages before their receives ---------------------------------------------------------- */

static int add_early(struct rf_tcp *h, struct rf_tcp_peer *peer, const struct rf_tcp_frame *frame,
                     struct rf_tcp_early **out)
{
    const size_t bytes = frame->kind == RF_TCP_DATA ? frame->bytes : 0;
    struct rf_tcp_early *early = rf_tcp_allocate_early(h, bytes);
    if (!early)
        return rf_fail(RF_ENOMEM, "tcp: no memory for a message of %zu bytes from rank %d", bytes,
                       peer->rank);
    early->next = NULL;
    early->frame = *frame;
    if (peer->early)
        peer->last_early->next = early;
    else
        peer->early = early;
    peer->last_early = early;
    *out = early;
    return 0;
}

/* Removes the first one with this tag from the list. */
static struct rf_tcp_early *take_early(struct rf_tcp_peer *peer, uint64_t tag)
{
    struct rf_tcp_early *early = peer->early;
    while (early && early->frame.tag != tag)
        early = early->next;
    if (early)
        rf_tcp_unlink_early(peer, early);
    return early;
}

/* ---- a message and its receive --------------------------------------------------------------- */

static void end_recv(struct rf_tcp *h, struct rf_tcp_peer *peer, struct rf_posted *recv, int status)
{
    rf_tcp_expect(h, peer, -1);
    rf_tcp_complete(h, recv, status);
}

/* Nothing is kept of a message that is longer than its receive. */
static bool fits(struct rf_posted *recv, const struct rf_tcp_frame *frame)
{
    const bool fits = frame->bytes <= recv->bytes;
    recv->contract = frame->contract;
    recv->moved = frame->bytes;
    recv->bytes = fits ? frame->bytes : recv->bytes;
    recv->status = fits ? 0 : RF_EMISMATCH;
    return fits;
}

static void begin_payload(struct rf_tcp_peer *peer, struct rf_posted *recv,
                          const struct rf_tcp_frame *frame)
{
    peer->into = fits(recv, frame) ? recv->buffer : NULL;
    peer->arriving = recv;
    peer->left_bytes = frame->bytes;
}

static void end_payload(struct rf_tcp *h, struct rf_tcp_peer *peer)
{
    if (peer->arriving)
        end_recv(h, peer, peer->arriving, peer->arriving->status);
    peer->arriving = NULL;
    peer->arriving_early = NULL;
    peer->into = NULL;
}

static int refuse(struct rf_tcp *h, struct rf_tcp_peer *peer, struct rf_posted *recv,
                  const struct rf_tcp_frame *frame)
{
    fits(recv, frame);
    end_recv(h, peer, recv, RF_EMISMATCH);
    return rf_tcp_send_control(h, peer, RF_TCP_REFUSED, frame->tag, 0);
}

/* The message has arrived, partly or completely, before this receive. */
static void join_early(struct rf_tcp *h, struct rf_tcp_peer *peer, struct rf_posted *recv,
                       struct rf_tcp_early *early)
{
    const bool is_arriving = peer->arriving_early == early;
    const size_t here = early->frame.bytes - (is_arriving ? peer->left_bytes : 0);
    const bool is_kept = fits(recv, &early->frame);
    if (is_kept && here > 0)
        memcpy(recv->buffer, early->data, here);
    if (is_arriving) {
        peer->arriving_early = NULL;
        peer->arriving = recv;
        peer->into = is_kept ? (unsigned char *)recv->buffer + here : NULL;
    } else {
        end_recv(h, peer, recv, recv->status);
    }
}

int rf_tcp_post_recv(struct rf_tcp *h, struct rf_posted *recv)
{
    struct rf_tcp_peer *peer = &h->peers[recv->peer];
    struct rf_tcp_early *early = peer->early ? take_early(peer, recv->tag) : NULL;
    int rc = 0;
    rf_tcp_expect(h, peer, 1);
    if (early && early->frame.kind == RF_TCP_DATA)
        join_early(h, peer, recv, early);
    else if (early && recv->bytes <= RF_TCP_EAGER)
        rc = refuse(h, peer, recv, &early->frame);
    else if (peer->state == RF_TCP_LOST && !peer->left)
        end_recv(h, peer, recv, RF_EPEER);
    else {
        rf_posted_append(&peer->recvs, recv);
        if (recv->bytes > RF_TCP_EAGER && !peer->left)
            rc = rf_tcp_send_control(h, peer, RF_TCP_READY, recv->tag, recv->bytes);
    }
    rf_tcp_free_early(h, early);
    return rc;
}

/* ---- frames ---------------------------------------------------------------------------------- */

static int begin_data(struct rf_tcp *h, struct rf_tcp_peer *peer, const struct rf_tcp_frame *frame)
{
    struct rf_posted *recv = rf_posted_match(&peer->recvs, peer->rank, frame->tag);
    peer->is_long = frame->bytes >= 2 * RF_TCP_DIRECT;
    if (recv) {
        begin_payload(peer, recv, frame);
        return 0;
    }
    if (frame->bytes > RF_TCP_EAGER)
        return fail_invalid(peer, "a long message that nobody has asked for");
    RETURN_IF_ERROR(add_early(h, peer, frame, &peer->arriving_early));
    peer->into = peer->arriving_early->data;
    peer->left_bytes = frame->bytes;
    return 0;
}

static int take_announcement(struct rf_tcp *h, struct rf_tcp_peer *peer,
                             const struct rf_tcp_frame *frame)
{
    struct rf_tcp_early *early;
    struct rf_posted *recv = peer->recvs.first;
    while (recv && recv->tag != frame->tag)
        recv = recv->next;
    if (!recv)
        return add_early(h, peer, frame, &early);
    if (recv->bytes > RF_TCP_EAGER)
        return 0; /* READY has been sent */
    return refuse(h, peer, rf_posted_match(&peer->recvs, peer->rank, frame->tag), frame);
}

static int begin_frame(struct rf_tcp *h, struct rf_tcp_peer *peer, const unsigned char *head)
{
    struct rf_tcp_frame frame;
    if (!rf_tcp_read_header(head, &frame) || peer->left)
        return fail_invalid(peer, "a message that makes no sense");
    switch (frame.kind) {
    case RF_TCP_DATA:
        RETURN_IF_ERROR(begin_data(h, peer, &frame));
        if (frame.bytes == 0)
            end_payload(h, peer);
        return 0;
    case RF_TCP_ANNOUNCE:
        return take_announcement(h, peer, &frame);
    case RF_TCP_READY:
        return rf_tcp_receive_is_ready(h, peer, frame.tag);
    case RF_TCP_REFUSED:
        return rf_tcp_send_is_refused(h, peer, frame.tag);
    default:
        peer->left = true;
        return 0;
    }
}

static void take_payload(struct rf_tcp *h, struct rf_tcp_peer *peer, size_t bytes)
{
    if (peer->into)
        peer->into += bytes;
    peer->left_bytes -= bytes;
    if (peer->left_bytes == 0)
        end_payload(h, peer);
}

int rf_tcp_take_in(struct rf_tcp *h, struct rf_tcp_peer *peer, const unsigned char *data,
                   size_t bytes)
{
    while (bytes > 0) {
        size_t part;
        if (peer->left_bytes > 0) {
            part = bytes < peer->left_bytes ? bytes : (size_t)peer->left_bytes;
            if (peer->into)
                memmove(peer->into, data, part);
            take_payload(h, peer, part);
        } else if (peer->head_bytes == 0 && bytes >= RF_TCP_HEADER) {
            part = RF_TCP_HEADER;
            RETURN_IF_ERROR(begin_frame(h, peer, data));
        } else {
            const size_t missing = RF_TCP_HEADER - peer->head_bytes;
            part = bytes < missing ? bytes : missing;
            memcpy(peer->head + peer->head_bytes, data, part);
            peer->head_bytes += part;
            if (peer->head_bytes == RF_TCP_HEADER) {
                peer->head_bytes = 0;
                RETURN_IF_ERROR(begin_frame(h, peer, peer->head));
            }
        }
        data += part;
        bytes -= part;
    }
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The receive whose message probably comes next; some are posted long before theirs. Short messages
 * are cheaper to copy, many with one call. */
static struct rf_posted *guess(const struct rf_tcp_peer *peer)
{
    struct rf_posted *recv = peer->recvs.first;
    while (recv && (recv->was_wrong || recv->bytes < RF_TCP_DIRECT * 2))
        recv = recv->next;
    return recv;
}

/* Reads header and payload with one call, each into its place. Another message may have arrived, or
 * frames without payload and then a message. Then the other bytes are in the receive's buffer, and
 * are moved to their destination, which may be the start of that buffer. Each part ends before the
 * next one begins, so none is overwritten. */
static ssize_t read_guessed(struct rf_tcp *h, struct rf_tcp_peer *peer, struct rf_posted *recv,
                            size_t *asked, int *rc)
{
    struct iovec parts[2] = {{peer->head, RF_TCP_HEADER}, {recv->buffer, recv->bytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    *asked = RF_TCP_HEADER + recv->bytes;
    ssize_t count = recvmsg(peer->fd, &message, MSG_DONTWAIT);
    if (count < RF_TCP_HEADER) {
        peer->head_bytes = count > 0 ? (size_t)count : 0;
        return count;
    }
    const size_t bytes = (size_t)count - RF_TCP_HEADER;
    const unsigned char *data = recv->buffer;
    *rc = begin_frame(h, peer, peer->head);
    if (*rc < 0)
        return count;
    if (peer->arriving == recv && peer->left_bytes >= bytes) {
        take_payload(h, peer, bytes);
        return count;
    }
    recv->was_wrong = peer->left_bytes > 0 && peer->arriving != recv;
    *rc = rf_tcp_take_in(h, peer, data, bytes);
    return count;
}

/* Reads no more of long messages than is expected: their receives may be posted by the time the
 * rest is read. If a sender is far ahead, 64 KiB at once would be copied twice more. */
static ssize_t read_some(struct rf_tcp *h, struct rf_tcp_peer *peer, size_t *asked, int *rc)
{
    struct rf_posted *guessed;
    if (peer->into && (peer->left_bytes >= RF_TCP_DIRECT || (peer->is_long && peer->left_bytes))) {
        *asked = peer->left_bytes;
        ssize_t count = recv(peer->fd, peer->into, *asked, MSG_DONTWAIT);
        if (count > 0)
            take_payload(h, peer, (size_t)count);
        return count;
    }
    if (peer->left_bytes == 0 && peer->head_bytes == 0 && (guessed = guess(peer)) != NULL)
        return read_guessed(h, peer, guessed, asked, rc);
    *asked = peer->left_bytes == 0 && peer->is_long ? RF_TCP_HEADER - peer->head_bytes
                                                    : (size_t)RF_TCP_INPUT;
    ssize_t count = recv(peer->fd, h->input, *asked, MSG_DONTWAIT);
    if (count > 0)
        *rc = rf_tcp_take_in(h, peer, h->input, (size_t)count);
    return count;
}

/* A core that only waits for a long message would fetch every few packets with a separate call,
 * which also delays their sender: 1 MiB within a host takes 155 us this way and 222 otherwise. A
 * core that also sends is busy, and one that yields comes back late enough. */
static void coalesce(const struct rf_tcp *h, struct rf_tcp_peer *peer)
{
    if (!h->transport.yield && !h->sending && peer->left_bytes >= RF_TCP_COALESCE)
        peer->again_ns = rf_now_ns() + RF_TCP_COALESCE_NS;
}

static bool is_too_early(struct rf_tcp_peer *peer)
{
    if (peer->again_ns == 0)
        return false;
    if (rf_now_ns() < peer->again_ns)
        return true;
    peer->again_ns = 0;
    return false;
}

int rf_tcp_receive(struct rf_tcp *h, struct rf_tcp_peer *peer)
{
    if (is_too_early(peer))
        return 0;
    while (!h->done.first && peer->expected > 0) {
        size_t asked = 0;
        int rc = 0;
        ssize_t count = read_some(h, peer, &asked, &rc);
        if (rc < 0)
            return rc;
        if (count < 0 && errno == EINTR)
            continue;
        if (count == 0 || (count < 0 && errno != EAGAIN)) {
            rf_tcp_lose(h, peer, count == 0 ? 0 : errno);
            return 0;
        }
        if (count < (ssize_t)asked) {
            peer->readable = false;
            coalesce(h, peer);
            return 0;
        }
    }
    return 0;
}
