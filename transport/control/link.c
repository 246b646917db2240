/* SPDX-License-Identifier: MIT
 *
 * Buffered, non-blocking frames over one socket.
 */
#include "link.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/base.h"
#include "socket.h"

enum { FIRST_CAPACITY = 1024, LONG_FRAME = 16 << 10, MAX_BACKLOG = 96 << 20 };

void rf_link_init(struct rf_link *link, int fd, size_t max_payload)
{
    *link = (struct rf_link){.fd = fd, .max_payload = max_payload};
}

void rf_link_close(struct rf_link *link)
{
    if (link->fd >= 0)
        close(link->fd);
    rf_free(link->in);
    rf_free(link->out);
    *link = (struct rf_link){.fd = -1};
}

/* Makes space for `bytes` after [*start, *end) of the buffer. */
static int reserve(uint8_t **buffer, size_t *start, size_t *end, size_t *capacity, size_t bytes)
{
    if (*start > 0) {
        memmove(*buffer, *buffer + *start, *end - *start);
        *end -= *start;
        *start = 0;
    }
    if (*end + bytes <= *capacity)
        return 0;
    size_t grown = *capacity ? *capacity : FIRST_CAPACITY;
    while (grown < *end + bytes)
        grown *= 2;
    uint8_t *moved = rf_realloc(*buffer, grown);
    if (!moved)
        return rf_fail(RF_ENOMEM, "control: no memory for a buffer of %zu bytes", grown);
    *buffer = moved;
    *capacity = grown;
    return 0;
}

/* Sends as much of a frame as the socket accepts without a copy, which matters if one payload goes
 * to a thousand links. rf_link_flush reports a broken connection. */
static size_t send_at_once(struct rf_link *link, uint8_t header[RF_FRAME_HEADER],
                           const void *payload, size_t bytes)
{
    struct iovec pieces[2] = {{header, RF_FRAME_HEADER}, {(void *)(uintptr_t)payload, bytes}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
    ssize_t sent = sendmsg(link->fd, &message, MSG_NOSIGNAL);
    return sent > 0 ? (size_t)sent : 0;
}

int rf_link_queue(struct rf_link *link, int kind, int rank, uint32_t number, const void *payload,
                  size_t bytes)
{
    if (link->fd < 0)
        return 0;
    if (link->out_end - link->out_start > MAX_BACKLOG)
        return rf_fail(RF_EPEER, "control: a peer has stopped reading");
    uint8_t header[RF_FRAME_HEADER];
    rf_frame_header(header, kind, rank, number, (uint32_t)bytes);
    size_t sent = bytes >= LONG_FRAME && link->out_end == link->out_start
                      ? send_at_once(link, header, payload, bytes)
                      : 0;
    size_t begin = sent < RF_FRAME_HEADER ? sent : RF_FRAME_HEADER;
    size_t skip = sent - begin, left = RF_FRAME_HEADER + bytes - sent;
    RETURN_IF_ERROR(
        reserve(&link->out, &link->out_start, &link->out_end, &link->out_capacity, left));
    memcpy(link->out + link->out_end, header + begin, RF_FRAME_HEADER - begin);
    if (bytes > skip)
        memcpy(link->out + link->out_end + RF_FRAME_HEADER - begin, (const uint8_t *)payload + skip,
               bytes - skip);
    link->out_end += left;
    return 0;
}

int rf_link_queue_refusal(struct rf_link *link, int rank, int status, const char *text)
{
    uint8_t payload[4 + RF_FRAME_MAX_TEXT];
    const size_t length = strnlen(text, RF_FRAME_MAX_TEXT);
    rf_put32(payload, (uint32_t)-status);
    memcpy(payload + 4, text, length);
    return rf_link_queue(link, RF_FRAME_REFUSE, rank, 0, payload, 4 + length);
}

bool rf_link_has_output(const struct rf_link *link)
{
    return link->fd >= 0 && link->out_end > link->out_start;
}

int rf_link_flush(struct rf_link *link)
{
    while (rf_link_has_output(link)) {
        ssize_t sent = send(link->fd, link->out + link->out_start, link->out_end - link->out_start,
                            MSG_NOSIGNAL);
        if (sent > 0)
            link->out_start += (size_t)sent;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return 0;
        else if (errno != EINTR)
            return rf_fail(RF_EPEER, "control: sending failed: %s", strerror(errno));
    }
    return 0;
}

int rf_link_fill(struct rf_link *link)
{
    if (link->fd < 0)
        return rf_fail(RF_EPEER, "control: the connection is closed");
    /* At most one frame is needed at a time, so the buffer grows to the size in the header. */
    struct rf_frame ignored;
    size_t have = link->in_end - link->in_start, need = FIRST_CAPACITY;
    if (have > 0 &&
        rf_frame_parse(link->in + link->in_start, have, link->max_payload, &ignored, &need) != 0)
        return 1; /* the buffer holds a frame already, or is damaged: rf_link_next reports it */
    size_t more = need > have ? need - have : 1;
    if (more < FIRST_CAPACITY / 2)
        more = FIRST_CAPACITY / 2;
    RETURN_IF_ERROR(reserve(&link->in, &link->in_start, &link->in_end, &link->in_capacity, more));
    for (;;) {
        ssize_t got = recv(link->fd, link->in + link->in_end, link->in_capacity - link->in_end, 0);
        if (got > 0) {
            link->in_end += (size_t)got;
            return 1;
        }
        if (got == 0)
            return rf_fail(RF_EPEER, "control: the connection was closed");
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            return 0;
        if (errno != EINTR)
            return rf_fail(RF_EPEER, "control: the connection broke: %s", strerror(errno));
    }
}

int rf_link_next(struct rf_link *link, struct rf_frame *out)
{
    size_t have = link->in_end - link->in_start, need = 0;
    if (have == 0)
        return 0;
    int rc = rf_frame_parse(link->in + link->in_start, have, link->max_payload, out, &need);
    if (rc == 1)
        link->in_start += need;
    return rc;
}

int rf_link_flush_by(struct rf_link *link, uint64_t deadline_ns)
{
    for (;;) {
        RETURN_IF_ERROR(rf_link_flush(link));
        if (!rf_link_has_output(link))
            return 0;
        if (!rf_socket_wait(link->fd, POLLOUT, deadline_ns))
            return rf_fail(RF_ETIMEOUT, "control: the other end does not read");
    }
}

int rf_link_next_by(struct rf_link *link, struct rf_frame *out, uint64_t deadline_ns)
{
    for (;;) {
        int rc = rf_link_next(link, out);
        if (rc != 0)
            return rc;
        rc = rf_link_fill(link);
        if (rc < 0)
            return rc;
        if (rc == 0 && !rf_socket_wait(link->fd, POLLIN, deadline_ns))
            return rf_fail(RF_ETIMEOUT, "control: the other end does not answer");
    }
}
