/* SPDX-License-Identifier: MIT
 *
 * The thread that serves a control link: it sleeps in poll(), reads frames, relays at rank 0,
 * detects deaths (a closed socket or an ended process of this host at once, silence after ten
 * seconds) and refuses late ranks. It checks all input; a peer that sends invalid frames is treated
 * as dead.
 */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"
#include "control.h"
#include "processes.h"

/* Many ranks say goodbye at about the same time. Rank 0 relays goodbyes together, after the last
 * one or after this time; one by one they would be N^2 frames. */
#define BATCH_NS 10000000ull

/* Limits the memory of events that nobody fetches. */
enum { MOST_EVENTS = 65536 };

static struct rf_control_event *new_event(int kind, int rank, const void *payload, size_t bytes,
                                          const char *text)
{
    const size_t most = sizeof(((struct rf_event *)0)->text) - 1;
    const size_t length = text ? strnlen(text, most) : 0;
    struct rf_control_event *item = rf_alloc(sizeof(*item) + bytes + length);
    if (!item)
        return NULL;
    item->kind = kind;
    item->rank = rank;
    item->bytes = (uint32_t)bytes;
    item->text_bytes = (uint32_t)length;
    if (bytes > 0)
        memcpy(item->data, payload, bytes);
    if (length > 0)
        memcpy(item->data + bytes, text, length);
    return item;
}

void rf_control_push(struct rf_socket_control *c, int kind, int rank, const void *payload,
                     size_t bytes, const char *text)
{
    if (c->leaving) {
        /* Only the last goodbye ends a wait. */
        if (kind != RF_EVENT_LEFT || c->gone == c->control.size - 1)
            pthread_cond_broadcast(&c->changed);
        return;
    }
    struct rf_control_event *item =
        c->event_count < MOST_EVENTS ? new_event(kind, rank, payload, bytes, text) : NULL;
    if (!item) {
        /* A silently lost event could become a hang. */
        c->aborted = true;
    } else {
        *c->events_end = item;
        c->events_end = &item->next;
        c->event_count++;
    }
    __atomic_store_n(&c->control.pending, 1, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&c->changed);
}

void rf_control_send_all(struct rf_socket_control *c, int except, int kind, int rank,
                         const void *payload, size_t bytes)
{
    int count = c->control.rank == 0 ? c->control.size : 1;
    for (int r = 0; r < count; r++) {
        struct rf_link *link = &c->peers[r].link;
        if (r == except || link->fd < 0)
            continue;
        /* The link is broken; the thread sees the closed socket and reports it. */
        if (rf_link_queue(link, kind, rank, 0, payload, bytes) < 0)
            shutdown(link->fd, SHUT_RDWR);
    }
}

/* ---- frames of ranks ---------------------------------------------------------------------------
 */

static void rank_died(struct rf_socket_control *c, int rank, const char *text)
{
    struct rf_control_peer *peer = &c->peers[rank];
    if (peer->dead || peer->left)
        return;
    peer->dead = true;
    c->gone++;
    rf_log("transport", 1, "rank %d is dead: %s", rank, text);
    if (c->control.rank == 0)
        rf_control_send_all(c, rank, RF_FRAME_DEAD, rank, text, strnlen(text, 255));
    rf_control_push(c, RF_EVENT_DEAD, rank, NULL, 0, text);
    pthread_cond_broadcast(&c->changed);
}

static void rank_left(struct rf_socket_control *c, int rank)
{
    struct rf_control_peer *peer = &c->peers[rank];
    if (peer->dead || peer->left)
        return;
    peer->left = true;
    c->gone++;
    if (c->control.rank == 0) {
        peer->unannounced = true;
        if (c->unannounced++ == 0)
            c->unannounced_since_ns = rf_now_ns();
    }
    rf_control_push(c, RF_EVENT_LEFT, rank, NULL, 0, "left");
}

static uint64_t announce_deadline(const struct rf_socket_control *c)
{
    return c->unannounced > 0 ? c->unannounced_since_ns + BATCH_NS : UINT64_MAX;
}

/* On rank 0. Without memory for the list they are sent one by one. */
static void announce_left(struct rf_socket_control *c, uint64_t now)
{
    bool all = c->gone == c->control.size - 1;
    if (c->unannounced == 0 || (!all && !c->stopping && now < announce_deadline(c)))
        return;
    uint8_t one[4], *list = rf_alloc(4 * (size_t)c->unannounced);
    size_t bytes = 0;
    for (int r = 1; r < c->control.size; r++) {
        if (!c->peers[r].unannounced)
            continue;
        c->peers[r].unannounced = false;
        rf_put32(list ? list + bytes : one, (uint32_t)r);
        bytes += 4;
        if (!list)
            rf_control_send_all(c, r, RF_FRAME_LEFT, 0, one, 4);
    }
    if (list)
        rf_control_send_all(c, -1, RF_FRAME_LEFT, 0, list, bytes);
    c->unannounced = 0;
    rf_free(list);
}

/* A list from rank 0. */
static int receive_left(struct rf_socket_control *c, const struct rf_frame *frame)
{
    if (frame->bytes % 4)
        return rf_fail(RF_ECORRUPT, "control: rank 0 sent a list of %u bytes", frame->bytes);
    for (uint32_t at = 0; at < frame->bytes; at += 4) {
        uint32_t rank = rf_get32(frame->payload + at);
        if (rank == 0 || rank >= (uint32_t)c->control.size)
            return rf_fail(RF_ECORRUPT, "control: rank 0 speaks of rank %u", rank);
        if ((int)rank != c->control.rank)
            rank_left(c, (int)rank);
    }
    return 0;
}

/* Handles frames of a rank about itself; rank 0 relays them. */
static void receive_of_rank(struct rf_socket_control *c, int rank, const struct rf_frame *frame)
{
    char text[256];
    switch (frame->kind) {
    case RF_FRAME_MESSAGE:
        rf_control_call_observer(&c->control, frame->payload, frame->bytes);
        rf_control_push(c, RF_EVENT_MESSAGE, rank, frame->payload, frame->bytes, NULL);
        break;
    case RF_FRAME_ABORT:
        c->aborted = true;
        rf_frame_text(frame->payload, frame->bytes, text, sizeof(text));
        rf_control_push(c, RF_EVENT_ABORT, rank, NULL, 0, text);
        break;
    default:
        rank_left(c, rank);
        return;
    }
    if (c->control.rank == 0)
        rf_control_send_all(c, rank, frame->kind, rank, frame->payload, frame->bytes);
}

static int receive_at_rank_0(struct rf_socket_control *c, int from, const struct rf_frame *frame)
{
    char text[256];
    switch (frame->kind) {
    case RF_FRAME_HEARTBEAT:
        return 0;
    case RF_FRAME_DEAD:
        if (frame->rank == 0 || frame->rank == from || frame->rank >= c->control.size)
            return rf_fail(RF_ECORRUPT, "control: rank %d says that rank %d is dead", from,
                           frame->rank);
        rf_frame_text(frame->payload, frame->bytes, text, sizeof(text));
        rf_link_close(&c->peers[frame->rank].link);
        rank_died(c, frame->rank, text);
        return 0;
    case RF_FRAME_GATHER:
        return rf_gather_part(c, from, frame->number, frame->payload, frame->bytes);
    case RF_FRAME_MESSAGE:
    case RF_FRAME_ABORT:
    case RF_FRAME_LEFT:
        receive_of_rank(c, from, frame); /* identified by its link, not by the rank in the frame */
        return 0;
    default:
        return rf_fail(RF_ECORRUPT, "control: rank %d sent a frame of kind %d", from, frame->kind);
    }
}

static int receive_from_rank_0(struct rf_socket_control *c, const struct rf_frame *frame)
{
    char text[256];
    if (frame->rank >= c->control.size || (frame->rank == c->control.rank && frame->rank != 0))
        return rf_fail(RF_ECORRUPT, "control: rank 0 speaks of rank %d", frame->rank);
    switch (frame->kind) {
    case RF_FRAME_HEARTBEAT:
        return 0;
    case RF_FRAME_GATHERED:
        rf_gather_result(c, frame->number, 0, frame->payload, frame->bytes);
        return 0;
    case RF_FRAME_GATHER_FAILED:
        rf_gather_result(c, frame->number, RF_EMISMATCH, frame->payload, frame->bytes);
        return 0;
    case RF_FRAME_DEAD:
        rf_frame_text(frame->payload, frame->bytes, text, sizeof(text));
        rank_died(c, frame->rank, text);
        return 0;
    case RF_FRAME_LEFT:
        if (frame->bytes > 0)
            return receive_left(c, frame);
        rank_left(c, 0);
        return 0;
    case RF_FRAME_MESSAGE:
    case RF_FRAME_ABORT:
        receive_of_rank(c, frame->rank, frame);
        return 0;
    default:
        return rf_fail(RF_ECORRUPT, "control: rank 0 sent a frame of kind %d", frame->kind);
    }
}

/* ---- links ----------------------------------------------------------------------------------- */

static void close_link(struct rf_socket_control *c, int index, int status)
{
    char text[256];
    if (status == RF_ECORRUPT || status == RF_ENOMEM)
        snprintf(text, sizeof(text), "%.255s", rf_last_error()->message);
    else
        snprintf(text, sizeof(text), "its control connection closed without a goodbye");
    rf_link_close(&c->peers[index].link);
    rank_died(c, index, text);
    pthread_cond_broadcast(&c->changed);
}

static void serve_link(struct rf_socket_control *c, int index)
{
    struct rf_control_peer *peer = &c->peers[index];
    struct rf_frame frame;
    int rc = rf_link_flush(&peer->link);
    int sent = rc;
    /* Keeps reading after a failed send: the last frame may be a goodbye. */
    while ((rc = rf_link_fill(&peer->link)) > 0) {
        peer->received_ns = rf_now_ns();
        while (rc > 0 && (rc = rf_link_next(&peer->link, &frame)) > 0) {
            int handled = c->control.rank == 0 ? receive_at_rank_0(c, index, &frame)
                                               : receive_from_rank_0(c, &frame);
            rc = handled < 0 ? handled : 1;
        }
        if (rc < 0)
            break;
    }
    if (rc == 0)
        rc = sent;
    if (rc < 0)
        close_link(c, index, rc);
}

/* After rank 0 has left, nobody relays goodbyes, so a process that has ended may have said goodbye.
 */
static void watch_processes(struct rf_socket_control *c)
{
    for (int r; (r = rf_processes_next(c->processes, rf_now_ns())) >= 0;) {
        struct rf_control_peer *peer = &c->peers[r];
        if (peer->left || (c->control.rank != 0 && c->peers[0].left))
            continue;
        peer->ended = true;
        if (c->control.rank == 0 || r == 0)
            rf_link_close(&peer->link);
        /* Sent before any frame that this rank sends because of the death. */
        const char text[] = "its process has ended";
        if (c->control.rank != 0)
            rf_control_send_all(c, -1, RF_FRAME_DEAD, r, text, sizeof(text) - 1);
        rank_died(c, r, text);
    }
}

static void heartbeat(struct rf_socket_control *c, uint64_t now)
{
    if (now < c->next_heartbeat_ns)
        return;
    /* This process itself was suspended, so no other rank was silent. */
    bool overslept = c->next_heartbeat_ns && now - c->next_heartbeat_ns > c->suspicion_ns / 2;
    c->next_heartbeat_ns = rf_add_ns(now, c->heartbeat_ns);
    rf_control_send_all(c, -1, RF_FRAME_HEARTBEAT, c->control.rank, NULL, 0);
    int count = c->control.rank == 0 ? c->control.size : 1;
    for (int r = 0; r < count; r++) {
        struct rf_control_peer *peer = &c->peers[r];
        if (peer->link.fd < 0)
            continue;
        if (overslept)
            peer->received_ns = now;
        if (now - peer->received_ns <= c->suspicion_ns)
            continue;
        char text[256];
        snprintf(text, sizeof(text), "it has been silent for %.3g s",
                 (double)(now - peer->received_ns) * 1e-9);
        rf_link_close(&peer->link);
        rank_died(c, r, text);
    }
}

/* ---- the loop -------------------------------------------------------------------------------- */

static int fill_polls(struct rf_socket_control *c)
{
    int count = 0, links = c->control.rank == 0 ? c->control.size : 1;
    c->polls[count++] = (struct pollfd){.fd = c->wake_fd, .events = POLLIN};
    for (int r = 0; r < links; r++) {
        short events = POLLIN;
        if (rf_link_has_output(&c->peers[r].link))
            events |= POLLOUT;
        /* poll() ignores the entries of closed links, whose fd is -1. */
        c->polls[count++] = (struct pollfd){.fd = c->peers[r].link.fd, .events = events};
    }
    c->polls[count++] = (struct pollfd){.fd = rf_processes_fd(c->processes), .events = POLLIN};
    return count + rf_listener_polls(&c->listener, c->polls + count);
}

/* Whether every link is flushed and closed by the other end, or the time is over. */
static bool is_finished(struct rf_socket_control *c, uint64_t now)
{
    bool open = false;
    int links = c->control.rank == 0 ? c->control.size : 1;
    for (int r = 0; r < links; r++) {
        struct rf_link *link = &c->peers[r].link;
        if (link->fd < 0)
            continue;
        open = true;
        if (!rf_link_has_output(link))
            shutdown(link->fd, SHUT_WR);
    }
    return !open || now >= c->stop_by_ns;
}

/* Only ready links cost rank 0 a system call. */
static void serve_links(struct rf_socket_control *c)
{
    int links = c->control.rank == 0 ? c->control.size : 1;
    for (int r = 0; r < links; r++)
        if (c->peers[r].link.fd >= 0 && c->polls[1 + r].revents)
            serve_link(c, r);
    announce_left(c, rf_now_ns());
    /* Sends the relayed frames, all of this round at once. */
    for (int r = 0; r < links; r++)
        if (rf_link_has_output(&c->peers[r].link) && rf_link_flush(&c->peers[r].link) < 0)
            shutdown(c->peers[r].link.fd, SHUT_WR); /* the next read reports it */
}

void *rf_control_thread(void *control)
{
    struct rf_socket_control *c = control;
    rf_set_thread_rank(c->control.rank);
    pthread_mutex_lock(&c->lock);
    /* Frames that arrived together with the last one of joining are already in the buffers, which
     * poll() does not see. */
    for (int r = 0; r < (c->control.rank == 0 ? c->control.size : 1); r++)
        if (c->peers[r].link.fd >= 0)
            serve_link(c, r);
    for (;;) {
        uint64_t now = rf_now_ns();
        if (!c->stopping)
            heartbeat(c, now);
        else if (is_finished(c, now))
            break;
        int count = fill_polls(c);
        uint64_t until = c->stopping ? c->stop_by_ns : c->next_heartbeat_ns;
        uint64_t pending = rf_listener_deadline(&c->listener);
        uint64_t ends = rf_processes_deadline(c->processes);
        if (pending < until)
            until = pending;
        if (ends < until)
            until = ends;
        if (announce_deadline(c) < until)
            until = announce_deadline(c);
        int timeout_ms = rf_poll_ms(until, now);
        pthread_mutex_unlock(&c->lock);
        int ready = poll(c->polls, (nfds_t)count, timeout_ms);
        pthread_mutex_lock(&c->lock);
        for (int i = 0; i < count && ready < 0; i++)
            c->polls[i].revents = 0; /* interrupted: these are not valid */
        uint64_t drained;
        while (read(c->wake_fd, &drained, sizeof(drained)) > 0)
            continue;
        serve_links(c);
        watch_processes(c);
        rf_listener_serve(&c->listener);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}
