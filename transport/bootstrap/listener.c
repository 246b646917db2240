/* SPDX-License-Identifier: MIT
 *
 * The listening side of joining a job. It reads unauthenticated input: buffers are small, times are
 * short, and unexpected input closes only its connection.
 */
#include "listener.h"

#include <errno.h>
#include <inttypes.h>
#include <ringforge/ringforge.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../control/socket.h"
#include "base/base.h"

static const uint64_t HANDSHAKE_NS = 2000000000;
/* The handshake of a rank takes milliseconds, so an older connection may be closed for a new one.
 */
static const uint64_t PROTECTED_NS = 100000000;
enum { RANKS_PROTECTED = 256 }; /* with more, they share rank 0's processor, and take longer */
enum { MAX_PENDING_PAYLOAD = RF_HELLO_BYTES + RF_NAME_BYTES, ACCEPTS_PER_TURN = 16 };

void rf_listener_init(struct rf_listener *listener, int fd, int size, const struct rf_job_key *key)
{
    memset(listener, 0, sizeof(*listener));
    listener->fd = fd;
    listener->size = size;
    listener->key = *key;
}

static void drop_pending(struct rf_listener *listener, int index)
{
    rf_link_close(&listener->pending[index].link);
    listener->pending[index] = listener->pending[--listener->pending_count];
}

void rf_listener_close(struct rf_listener *listener)
{
    while (listener->pending_count > 0)
        drop_pending(listener, listener->pending_count - 1);
    if (listener->fd >= 0)
        close(listener->fd);
    listener->fd = -1;
}

static int oldest_pending(const struct rf_listener *listener)
{
    int oldest = -1;
    for (int i = 0; i < listener->pending_count; i++)
        if (oldest < 0 || listener->pending[i].since_ns < listener->pending[oldest].since_ns)
            oldest = i;
    return oldest;
}

static uint64_t protected_ns(const struct rf_listener *listener)
{
    return PROTECTED_NS * (1 + (uint64_t)listener->size / RANKS_PROTECTED);
}

static bool has_capacity(const struct rf_listener *listener)
{
    return listener->pending_count < RF_LISTENER_MAX_PENDING ||
           rf_now_ns() - listener->pending[oldest_pending(listener)].since_ns >
               protected_ns(listener);
}

int rf_listener_polls(const struct rf_listener *listener, struct pollfd *polls)
{
    int count = 0;
    if (listener->fd >= 0 && has_capacity(listener))
        polls[count++] = (struct pollfd){.fd = listener->fd, .events = POLLIN};
    for (int i = 0; i < listener->pending_count; i++) {
        short events = POLLIN;
        if (rf_link_has_output(&listener->pending[i].link))
            events |= POLLOUT;
        polls[count++] = (struct pollfd){.fd = listener->pending[i].link.fd, .events = events};
    }
    return count;
}

uint64_t rf_listener_deadline(const struct rf_listener *listener)
{
    if (listener->pending_count == 0)
        return UINT64_MAX;
    uint64_t oldest = listener->pending[oldest_pending(listener)].since_ns;
    return oldest + (has_capacity(listener) ? HANDSHAKE_NS : protected_ns(listener));
}

static void accept_pending(struct rf_listener *listener)
{
    for (int i = 0; i < ACCEPTS_PER_TURN && listener->fd >= 0 && has_capacity(listener); i++) {
        int fd = rf_socket_accept(listener->fd);
        if (fd < 0) {
            listener->out_of_files = errno == EMFILE || errno == ENFILE;
            return;
        }
        if (!listener->key.present && !rf_socket_peer_is_loopback(fd)) {
            close(fd);
            continue;
        }
        if (listener->pending_count == RF_LISTENER_MAX_PENDING)
            drop_pending(listener, oldest_pending(listener));
        struct rf_pending_connection *connection = &listener->pending[listener->pending_count++];
        memset(connection, 0, sizeof(*connection));
        rf_link_init(&connection->link, fd, MAX_PENDING_PAYLOAD);
        connection->since_ns = rf_now_ns();
    }
}

/* The connection stays open until the other end has read the reason, because closing it at once
 * could discard it. */
static int refuse(struct rf_pending_connection *connection, int status, const char *text)
{
    connection->refused = true;
    RETURN_IF_ERROR(rf_link_queue_refusal(&connection->link, 0, status, text));
    RETURN_IF_ERROR(rf_link_flush(&connection->link));
    shutdown(connection->link.fd, SHUT_WR);
    return 0;
}

/* A client has a name, and a rank has none. For a name that nobody has the handshake continues,
 * with a random key: a stranger does not learn the names. */
static int receive_name(struct rf_listener *listener, struct rf_pending_connection *connection,
                        const struct rf_frame *frame)
{
    const char *name = (const char *)frame->payload + RF_HELLO_BYTES;
    const size_t bytes = frame->bytes - RF_HELLO_BYTES;
    if ((bytes > 0) != (listener->key_of != NULL))
        return refuse(connection, RF_EINVAL,
                      bytes > 0 ? "this is a rank of a job, and no coordinator of clients"
                                : "this is a coordinator of clients, and no rank of a job");
    if (bytes == 0)
        return 0;
    if (!rf_handshake_is_name(name, bytes))
        return rf_fail(RF_ECORRUPT, "control: a connection gave a name that none can be");
    memcpy(connection->handshake.name, name, bytes);
    connection->number =
        listener->key_of(listener->owner, connection->handshake.name, &connection->key);
    if (connection->number < 0)
        rf_random(connection->key.key, sizeof(connection->key.key));
    return 0;
}

static int receive_hello(struct rf_listener *listener, struct rf_pending_connection *connection,
                         const struct rf_frame *frame)
{
    RETURN_IF_ERROR(receive_name(listener, connection, frame));
    if (connection->refused)
        return 0;
    rf_handshake_read_hello(&connection->handshake, frame->payload);
    rf_random(connection->handshake.listener, RF_NONCE_BYTES);
    return rf_link_queue(&connection->link, RF_FRAME_CHALLENGE, 0, 0,
                         connection->handshake.listener, RF_NONCE_BYTES);
}

static int refuse_proof(struct rf_listener *listener, struct rf_pending_connection *connection)
{
    char text[400];
    if (listener->key_of) {
        if (listener->refused)
            listener->refused(listener->owner, connection->handshake.name);
        snprintf(text, sizeof(text),
                 "there is no client \"%s\" here with this key; name and key must be in the "
                 "coordinator's list",
                 connection->handshake.name);
        return refuse(connection, RF_EAUTH, text);
    }
    if (!listener->warned)
        rf_log("transport", 0,
               "a connection with a wrong job key was refused; the job continues without it");
    listener->warned = true; /* once, so that others cannot fill the log */
    return refuse(connection, RF_EAUTH,
                  "the job key is wrong; set RF_JOB_KEY to the same on every rank");
}

/* 1: the owner has taken the connection. */
static int receive_proof(struct rf_listener *listener, struct rf_pending_connection *connection,
                         const struct rf_frame *frame)
{
    const struct rf_handshake *h = &connection->handshake;
    const uint32_t rank = h->rank & ~RF_HELLO_DECLINES;
    const bool declines = rank != h->rank;
    const struct rf_job_key *key = listener->key_of ? &connection->key : &listener->key;
    char text[400];
    if (!rf_handshake_check(key, h, 'J', frame->payload))
        return refuse_proof(listener, connection);
    if (h->version != RF_FRAME_VERSION) {
        snprintf(text, sizeof(text),
                 "rank %" PRIu32 " speaks control protocol %" PRIu32
                 ", rank 0 speaks %d; give every rank the same version of ringforge",
                 rank, h->version, RF_FRAME_VERSION);
        return refuse(connection, RF_EINVAL, text);
    }
    /* The size may be the reason why it declines. */
    const bool heard = declines && listener->decline;
    if (h->size != (uint32_t)listener->size && !heard) {
        snprintf(text, sizeof(text), "rank %" PRIu32 " was told of %" PRIu32 " ranks, rank 0 of %d",
                 rank, h->size, listener->size);
        return refuse(connection, RF_EINVAL, text);
    }
    if (rank == 0 || rank >= (uint32_t)listener->size) {
        snprintf(text, sizeof(text), "rank %" PRIu32 " is %s", rank,
                 rank ? "outside the world" : "taken: rank 0 is the one that listens here");
        return refuse(connection, rank ? RF_EINVAL : RF_EBUSY, text);
    }
    if (declines && !heard)
        return refuse(connection, RF_EBUSY, "the job has begun");
    uint8_t proof[RF_PROOF_BYTES];
    rf_handshake_prove(key, h, 'H', proof);
    RETURN_IF_ERROR(rf_link_queue(&connection->link, RF_FRAME_WELCOME, 0, 0, proof, sizeof(proof)));
    struct rf_link taken = connection->link;
    listener->admitting = connection;
    const int number = listener->key_of ? connection->number : (int)rank;
    int rc = (declines ? listener->decline : listener->admit)(listener->owner, number, &taken);
    listener->admitting = NULL;
    if (rc < 0) {
        connection->link.out_end = connection->link.out_start = 0; /* withdraws the welcome */
        return refuse(connection, rc, rf_last_error()->message);
    }
    rf_link_init(&connection->link, -1, 0); /* the owner has it now, with its buffers */
    return 1;
}

/* Frames are accepted in one order only: HELLO, then PROOF. */
static int receive_frame(struct rf_listener *listener, struct rf_pending_connection *connection,
                         const struct rf_frame *frame)
{
    static const uint8_t none[RF_NONCE_BYTES];
    bool greeted = memcmp(connection->handshake.listener, none, sizeof(none)) != 0;
    if (frame->kind == RF_FRAME_HELLO && !greeted)
        return receive_hello(listener, connection, frame);
    if (frame->kind == RF_FRAME_PROOF && greeted)
        return receive_proof(listener, connection, frame);
    return rf_fail(RF_ECORRUPT, "control: a connection sent frames out of order");
}

/* Not 0: the connection must be closed. */
static int serve_pending(struct rf_listener *listener, struct rf_pending_connection *connection)
{
    struct rf_frame frame;
    RETURN_IF_ERROR(rf_link_flush(&connection->link));
    if (connection->refused) {
        uint8_t ignored[64];
        ssize_t got = recv(connection->link.fd, ignored, sizeof(ignored), MSG_DONTWAIT);
        return got == 0;
    }
    int rc = rf_link_fill(&connection->link);
    while (rc > 0 && !connection->refused && (rc = rf_link_next(&connection->link, &frame)) > 0) {
        rc = receive_frame(listener, connection, &frame);
        if (rc != 0)
            return rc;
        rc = 1;
    }
    return rc < 0 ? rc : rf_link_flush(&connection->link);
}

void rf_listener_serve(struct rf_listener *listener)
{
    uint64_t now = rf_now_ns();
    /* Backwards, because dropping one moves the last one into its slot. */
    for (int i = listener->pending_count - 1; i >= 0; i--)
        if (serve_pending(listener, &listener->pending[i]) != 0 ||
            now - listener->pending[i].since_ns > HANDSHAKE_NS)
            drop_pending(listener, i);
    accept_pending(listener);
}
