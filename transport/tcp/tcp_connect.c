/* SPDX-License-Identifier: MIT
 *
 * The connections of tcp.c: opening, proof that both ends belong to the job, and closing.
 *
 * A rank that has a message to send dials. Both ends prove the key of the job, as when joining
 * (bootstrap/handshake.h), and the connection is open once the dialed side has agreed. If two ranks
 * dial each other, the connection of the lower rank is kept: the lower rank refuses the other one,
 * and the higher rank gives up its own when the lower rank's arrives.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../control/frame.h"
#include "../control/socket.h"
#include "base/base.h"
#include "tcp.h"

enum {
    MAGIC = 0x50435452,               /* "RTCP" */
    HELLO_BYTES = 8 + RF_HELLO_BYTES, /* magic, the rank that is dialed, rf_handshake_hello */
    MOST_STRANGERS = 64,              /* greetings beyond one for each rank */
    EVENTS = 64
};
static const double GREETING_S = 20, GIVE_UP_S = 5, AGAIN_S = 0.05, GOODBYE_S = 2;
static const char FILES[] = "each rank needs one for every rank that it exchanges messages with";

/* A connection that is not open yet. */
struct rf_tcp_greeting {
    enum rf_tcp_watch watch; /* first member */
    struct rf_tcp_greeting *next;
    int fd, rank; /* rank: -1 until it is known */
    bool is_ours; /* this rank dials */
    enum { CONNECTS, AWAITS_HELLO, AWAITS_CHALLENGE, AWAITS_PROOF, AWAITS_WELCOME } step;
    struct rf_handshake handshake;
    uint8_t in[HELLO_BYTES];
    size_t in_bytes;
    uint64_t deadline_ns;
};

/* ---- states ---------------------------------------------------------------------------------- */

static void end_greeting(struct rf_tcp *h, struct rf_tcp_greeting *greeting, bool closes)
{
    struct rf_tcp_greeting **link = &h->greetings;
    while (*link != greeting)
        link = &(*link)->next;
    *link = greeting->next;
    if (closes && greeting->fd >= 0)
        close(greeting->fd);
    rf_free(greeting);
}

static void end_own_greeting(struct rf_tcp *h, int rank)
{
    struct rf_tcp_greeting *greeting = h->greetings;
    while (greeting && !(greeting->is_ours && greeting->rank == rank))
        greeting = greeting->next;
    if (greeting)
        end_greeting(h, greeting, true);
}

/* Whether the other end is on this host, by its address. */
static bool is_here(int fd)
{
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t here_bytes = sizeof(here), there_bytes = sizeof(there);
    if (getsockname(fd, (struct sockaddr *)&here, &here_bytes) ||
        getpeername(fd, (struct sockaddr *)&there, &there_bytes) || here_bytes != there_bytes)
        return false;
    if (here.ss_family == AF_INET)
        ((struct sockaddr_in *)&here)->sin_port = ((struct sockaddr_in *)&there)->sin_port;
    else if (here.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&here)->sin6_port = ((struct sockaddr_in6 *)&there)->sin6_port;
    return memcmp(&here, &there, here_bytes) == 0;
}

static int open_connection(struct rf_tcp *h, struct rf_tcp_peer *peer, int fd)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.ptr = peer};
    peer->fd = fd;
    if (!peer->stage)
        peer->stage = rf_alloc(RF_TCP_STAGE);
    if (!peer->stage)
        return rf_fail(RF_ENOMEM, "tcp: no memory for the connection to rank %d", peer->rank);
    if (epoll_ctl(h->epoll, EPOLL_CTL_MOD, fd, &event))
        return rf_fail(RF_ENET, "tcp: epoll_ctl failed: %s", strerror(errno));
    peer->is_here = peer->is_untuned = is_here(fd);
    peer->readable = peer->writable = true;
    rf_tcp_set_state(h, peer, RF_TCP_OPEN);
    rf_tcp_flush(h, peer);
    return 0;
}

/* ---- dialing --------------------------------------------------------------------------------- */

/* Retries later, unless the peer has been unreachable for some time. A peer that was reached may
 * have refused, or closed an idle connection. */
static void dial_failed(struct rf_tcp *h, struct rf_tcp_peer *peer, int reason, bool was_reached)
{
    if (was_reached)
        peer->give_up_ns = rf_after_s(GIVE_UP_S);
    if (rf_now_ns() >= peer->give_up_ns) {
        rf_tcp_lose(h, peer, reason);
        return;
    }
    peer->dial_ns = rf_after_s(AGAIN_S);
    rf_tcp_set_state(h, peer, RF_TCP_WAITING);
}

static int watch(struct rf_tcp *h, struct rf_tcp_greeting *greeting, int operation, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = greeting};
    return epoll_ctl(h->epoll, operation, greeting->fd, &event) ? errno : 0;
}

static int add_greeting(struct rf_tcp *h, int fd, int rank, struct rf_tcp_greeting **out)
{
    struct rf_tcp_greeting *greeting = rf_alloc(sizeof(*greeting));
    if (!greeting) {
        close(fd);
        return rf_fail(RF_ENOMEM, "tcp: no memory for a connection");
    }
    *greeting = (struct rf_tcp_greeting){.watch = RF_TCP_GREETING,
                                         .next = h->greetings,
                                         .fd = fd,
                                         .rank = rank,
                                         .is_ours = rank >= 0,
                                         .step = rank >= 0 ? CONNECTS : AWAITS_HELLO,
                                         .deadline_ns = rf_after_s(GREETING_S)};
    h->greetings = greeting;
    if (watch(h, greeting, EPOLL_CTL_ADD, rank >= 0 ? EPOLLOUT : EPOLLIN)) {
        end_greeting(h, greeting, true);
        return rf_fail(RF_ENET, "tcp: epoll_ctl failed: %s", strerror(errno));
    }
    *out = greeting;
    return 0;
}

/* Returns errno. */
static int begin_connect(const struct rf_tcp_address *address, int *out)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                             .ai_socktype = SOCK_STREAM},
                    *list = NULL;
    char port[16];
    snprintf(port, sizeof(port), "%d", (int)address->port);
    if (getaddrinfo(address->host, port, &hints, &list))
        return EADDRNOTAVAIL;
    int fd = socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int error = fd < 0 || connect(fd, list->ai_addr, list->ai_addrlen) ? errno : 0;
    freeaddrinfo(list);
    if (error && error != EINPROGRESS) {
        if (fd >= 0)
            close(fd);
        return error;
    }
    *out = fd;
    return 0;
}

int rf_tcp_dial(struct rf_tcp *h, struct rf_tcp_peer *peer)
{
    struct rf_tcp_greeting *greeting;
    int fd = -1;
    if (peer->state == RF_TCP_IDLE)
        peer->give_up_ns = rf_after_s(GIVE_UP_S);
    const int error = begin_connect(&h->addresses[peer->rank], &fd);
    if (error == EMFILE || error == ENFILE)
        return rf_socket_fail_files(FILES);
    if (error) {
        dial_failed(h, peer, error, false);
        return 0;
    }
    RETURN_IF_ERROR(add_greeting(h, fd, peer->rank, &greeting));
    rf_tcp_set_state(h, peer, RF_TCP_DIALING);
    h->turns = 0;
    return 0;
}

/* ---- greetings ------------------------------------------------------------------------------- */

/* They are shorter than any connection's initial window. */
static bool write_all(int fd, const void *data, size_t bytes)
{
    return send(fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)bytes;
}

static int say_hello(struct rf_tcp *h, struct rf_tcp_greeting *greeting)
{
    int error = 0, one = 1;
    socklen_t length = sizeof(error);
    uint8_t hello[HELLO_BYTES];
    if (getsockopt(greeting->fd, SOL_SOCKET, SO_ERROR, &error, &length) || error)
        return error ? error : errno;
    setsockopt(greeting->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    greeting->handshake = (struct rf_handshake){.version = RF_TCP_VERSION,
                                                .rank = (uint32_t)h->transport.rank,
                                                .size = (uint32_t)h->transport.size};
    rf_random(greeting->handshake.joiner, RF_NONCE_BYTES);
    rf_put32(hello, MAGIC);
    rf_put32(hello + 4, (uint32_t)greeting->rank);
    rf_handshake_hello(&greeting->handshake, hello + 8);
    greeting->step = AWAITS_CHALLENGE;
    return write_all(greeting->fd, hello, sizeof(hello))
               ? watch(h, greeting, EPOLL_CTL_MOD, EPOLLIN)
               : EPIPE;
}

static int answer_hello(struct rf_tcp *h, struct rf_tcp_greeting *greeting)
{
    struct rf_handshake *handshake = &greeting->handshake;
    rf_handshake_read_hello(handshake, greeting->in + 8);
    if (rf_get32(greeting->in) != MAGIC ||
        rf_get32(greeting->in + 4) != (uint32_t)h->transport.rank ||
        handshake->version != RF_TCP_VERSION || handshake->size != (uint32_t)h->transport.size ||
        handshake->rank >= handshake->size || handshake->rank == (uint32_t)h->transport.rank)
        return EPROTO;
    greeting->rank = (int)handshake->rank;
    rf_random(handshake->listener, RF_NONCE_BYTES);
    greeting->step = AWAITS_PROOF;
    return write_all(greeting->fd, handshake->listener, RF_NONCE_BYTES) ? 0 : EPIPE;
}

static int answer_challenge(struct rf_tcp *h, struct rf_tcp_greeting *greeting)
{
    uint8_t proof[RF_PROOF_BYTES];
    memcpy(greeting->handshake.listener, greeting->in, RF_NONCE_BYTES);
    rf_handshake_prove(&h->key, &greeting->handshake, 'D', proof);
    greeting->step = AWAITS_WELCOME;
    return write_all(greeting->fd, proof, sizeof(proof)) ? 0 : EPIPE;
}

/* Between two ranks, the connection of the lower one is kept. */
static bool is_wanted(const struct rf_tcp *h, const struct rf_tcp_peer *peer)
{
    return peer->state < RF_TCP_OPEN &&
           !(peer->state == RF_TCP_DIALING && h->transport.rank < peer->rank);
}

static int answer_proof(struct rf_tcp *h, struct rf_tcp_greeting *greeting)
{
    struct rf_tcp_peer *peer = &h->peers[greeting->rank];
    uint8_t proof[RF_PROOF_BYTES];
    if (!rf_handshake_check(&h->key, &greeting->handshake, 'D', greeting->in) ||
        !is_wanted(h, peer))
        return EPROTO;
    rf_handshake_prove(&h->key, &greeting->handshake, 'A', proof);
    if (!write_all(greeting->fd, proof, sizeof(proof)))
        return EPIPE;
    if (peer->state == RF_TCP_DIALING)
        end_own_greeting(h, peer->rank);
    return 0;
}

/* Whether the other end is the rank that was dialed. */
static int check_welcome(struct rf_tcp *h, struct rf_tcp_greeting *greeting)
{
    return rf_handshake_check(&h->key, &greeting->handshake, 'A', greeting->in) ? 0 : EPROTO;
}

/* The number of bytes that the other end sends next; no more may be read. */
static size_t awaited(const struct rf_tcp_greeting *greeting)
{
    switch (greeting->step) {
    case AWAITS_HELLO:
        return HELLO_BYTES;
    case AWAITS_CHALLENGE:
        return RF_NONCE_BYTES;
    default:
        return RF_PROOF_BYTES;
    }
}

/* -1: incomplete. */
static int read_awaited(struct rf_tcp_greeting *greeting)
{
    const size_t all = awaited(greeting);
    ssize_t bytes = recv(greeting->fd, greeting->in + greeting->in_bytes, all - greeting->in_bytes,
                         MSG_DONTWAIT);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
        return -1;
    if (bytes <= 0)
        return bytes < 0 ? errno : ECONNRESET;
    greeting->in_bytes += (size_t)bytes;
    if (greeting->in_bytes < all)
        return -1;
    greeting->in_bytes = 0;
    return 0;
}

/* Returns errno; 0: it continues. *opens: it is complete. */
static int step(struct rf_tcp *h, struct rf_tcp_greeting *greeting, bool *opens)
{
    *opens = false;
    if (greeting->step == CONNECTS)
        return say_hello(h, greeting);
    const int error = read_awaited(greeting);
    if (error)
        return error < 0 ? 0 : error;
    *opens = greeting->step == AWAITS_PROOF || greeting->step == AWAITS_WELCOME;
    switch (greeting->step) {
    case AWAITS_HELLO:
        return answer_hello(h, greeting);
    case AWAITS_CHALLENGE:
        return answer_challenge(h, greeting);
    case AWAITS_PROOF:
        return answer_proof(h, greeting);
    default:
        return check_welcome(h, greeting);
    }
}

static void greeting_failed(struct rf_tcp *h, struct rf_tcp_greeting *greeting, int error)
{
    struct rf_tcp_peer *peer = greeting->is_ours ? &h->peers[greeting->rank] : NULL;
    const bool was_reached = greeting->step != CONNECTS;
    end_greeting(h, greeting, true);
    if (peer)
        dial_failed(h, peer, error, was_reached);
}

static int advance(struct rf_tcp *h, struct rf_tcp_greeting *greeting)
{
    bool opens;
    const int error = step(h, greeting, &opens);
    if (error) {
        greeting_failed(h, greeting, error);
        return 0;
    }
    if (!opens)
        return 0;
    struct rf_tcp_peer *peer = &h->peers[greeting->rank];
    const int fd = greeting->fd;
    end_greeting(h, greeting, false);
    return open_connection(h, peer, fd);
}

/* ---- events of epoll ------------------------------------------------------------------------- */

static int accept_all(struct rf_tcp *h)
{
    int count = 0;
    struct rf_tcp_greeting *greeting;
    for (greeting = h->greetings; greeting; greeting = greeting->next)
        count += !greeting->is_ours;
    for (; count < h->transport.size + MOST_STRANGERS; count++) {
        errno = 0;
        const int fd = rf_socket_accept(h->listener);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE))
            return rf_socket_fail_files(FILES);
        if (fd < 0)
            return 0;
        RETURN_IF_ERROR(add_greeting(h, fd, -1, &greeting));
    }
    return 0;
}

/* A peer that was dialed may be busy for any time; one that has dialed must prove its identity, or
 * is closed. */
static void end_overdue(struct rf_tcp *h)
{
    const uint64_t now = rf_now_ns();
    struct rf_tcp_greeting *next;
    for (struct rf_tcp_greeting *greeting = h->greetings; greeting; greeting = next) {
        next = greeting->next;
        if (!greeting->is_ours && now >= greeting->deadline_ns)
            greeting_failed(h, greeting, ETIMEDOUT);
    }
}

static int dial_again(struct rf_tcp *h)
{
    const uint64_t now = rf_now_ns();
    for (int r = 0; r < h->transport.size; r++)
        if (h->peers[r].state == RF_TCP_WAITING && now >= h->peers[r].dial_ns)
            RETURN_IF_ERROR(rf_tcp_dial(h, &h->peers[r]));
    return 0;
}

static bool is_greeting(const struct rf_tcp *h, const void *what)
{
    const struct rf_tcp_greeting *greeting = h->greetings;
    while (greeting && greeting != what)
        greeting = greeting->next;
    return greeting != NULL;
}

static int take_event(struct rf_tcp *h, const struct epoll_event *event)
{
    enum rf_tcp_watch *what = event->data.ptr;
    if (what == &h->listener_watch)
        return accept_all(h);
    struct rf_tcp_peer *peer = event->data.ptr;
    if (peer >= h->peers && peer < h->peers + h->transport.size) {
        peer->readable = peer->readable || (event->events & ~(uint32_t)EPOLLOUT);
        peer->writable = peer->writable || (event->events & EPOLLOUT);
        return 0;
    }
    /* An earlier event may have ended it. */
    return is_greeting(h, what) ? advance(h, (struct rf_tcp_greeting *)what) : 0;
}

int rf_tcp_look(struct rf_tcp *h)
{
    struct epoll_event events[EVENTS];
    const int count = epoll_wait(h->epoll, events, EVENTS, 0);
    for (int i = 0; i < count; i++)
        RETURN_IF_ERROR(take_event(h, &events[i]));
    if (h->greetings)
        end_overdue(h);
    return h->waiting > 0 ? dial_again(h) : 0;
}

int rf_tcp_listen(struct rf_tcp *h, const char *address, int *port)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &h->listener_watch};
    RETURN_IF_ERROR(rf_socket_listen(address, 0, false, &h->listener, port));
    h->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (h->epoll < 0 || epoll_ctl(h->epoll, EPOLL_CTL_ADD, h->listener, &event))
        return rf_fail(RF_ENET, "tcp: epoll failed: %s", strerror(errno));
    return 0;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void read_and_drop(struct rf_tcp *h, struct rf_tcp_peer *peer)
{
    ssize_t bytes;
    while ((bytes = recv(peer->fd, h->input, RF_TCP_INPUT, MSG_DONTWAIT)) > 0)
        continue;
    if (bytes == 0 || errno != EAGAIN)
        rf_tcp_lose(h, peer, bytes < 0 ? errno : 0);
}

/* Closing a connection with unread data resets the other end, which then may lose data that it has
 * not received yet. */
static bool has_got_all(struct rf_tcp *h, struct rf_tcp_peer *peer)
{
    int queued = 0;
    if (peer->control_count > 0 || peer->stage_begin < peer->stage_end)
        rf_tcp_flush(h, peer);
    if (peer->state == RF_TCP_OPEN)
        read_and_drop(h, peer);
    if (peer->state != RF_TCP_OPEN)
        return true;
    return peer->control_count == 0 && peer->stage_begin == peer->stage_end &&
           ioctl(peer->fd, SIOCOUTQ, &queued) == 0 && queued == 0;
}

void rf_tcp_say_goodbye(struct rf_tcp *h)
{
    const uint64_t deadline = rf_after_s(GOODBYE_S);
    for (int r = 0; r < h->transport.size; r++) {
        struct rf_tcp_peer *peer = &h->peers[r];
        if (peer->state == RF_TCP_OPEN && !peer->payload && !peer->queued.first)
            (void)!rf_tcp_send_control(h, peer, RF_TCP_BYE, 0, 0);
    }
    for (int left = 1, pause_ns = 20000; left > 0 && rf_now_ns() < deadline;) {
        left = 0;
        for (int r = 0; r < h->transport.size; r++)
            if (h->peers[r].state == RF_TCP_OPEN && !has_got_all(h, &h->peers[r]))
                left++;
        if (left > 0)
            rf_sleep_ns((uint64_t)pause_ns);
        pause_ns = pause_ns < 1000000 ? 2 * pause_ns : pause_ns;
    }
}

void rf_tcp_close_all(struct rf_tcp *h)
{
    while (h->greetings)
        end_greeting(h, h->greetings, true);
    for (int r = 0; h->peers && r < h->transport.size; r++) {
        struct rf_tcp_peer *peer = &h->peers[r];
        if (peer->fd >= 0)
            close(peer->fd);
        rf_tcp_drop_early(h, peer);
        rf_free(peer->controls);
        rf_free(peer->ready);
        rf_free(peer->stage);
        *peer = (struct rf_tcp_peer){.watch = RF_TCP_PEER, .rank = r, .fd = -1, .place = -1};
    }
    while (h->spare) {
        struct rf_tcp_early *early = h->spare;
        h->spare = early->next;
        rf_free(early);
    }
    h->spare_count = h->watched_count = 0;
    h->sending = NULL;
    if (h->listener >= 0)
        close(h->listener);
    if (h->epoll >= 0)
        close(h->epoll);
    h->listener = h->epoll = -1;
}
