/* SPDX-License-Identifier: MIT
 *
 * The listening side of joining. Everything here faces unauthenticated input: buffers are small,
 * time is short, and whatever is odd closes that one connection.
 */
#include "door.h"

#include <inttypes.h>
#include <ringforge/ringforge.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../control/socket.h"
#include "base/base.h"

static const uint64_t PATIENCE_NS = 2000000000;
/* A joiner of ours is through in milliseconds, so who is older than this may be pushed out. */
static const uint64_t YOUNG_NS = 100000000;
enum { MAX_GUEST_PAYLOAD = 64, ACCEPTS_PER_TURN = 16 };

void rf_door_init(struct rf_door *door, int listener, int size, const struct rf_job_key *key)
{
    memset(door, 0, sizeof(*door));
    door->listener = listener;
    door->size = size;
    door->key = *key;
}

static void drop_guest(struct rf_door *door, int index)
{
    rf_link_close(&door->guests[index].link);
    door->guests[index] = door->guests[--door->guest_count];
}

void rf_door_close(struct rf_door *door)
{
    while (door->guest_count > 0)
        drop_guest(door, door->guest_count - 1);
    if (door->listener >= 0)
        close(door->listener);
    door->listener = -1;
}

static int oldest_guest(const struct rf_door *door)
{
    int oldest = -1;
    for (int i = 0; i < door->guest_count; i++)
        if (oldest < 0 || door->guests[i].since_ns < door->guests[oldest].since_ns)
            oldest = i;
    return oldest;
}

static bool has_room(const struct rf_door *door)
{
    return door->guest_count < RF_DOOR_GUESTS ||
           rf_now_ns() - door->guests[oldest_guest(door)].since_ns > YOUNG_NS;
}

int rf_door_polls(const struct rf_door *door, struct pollfd *polls)
{
    int count = 0;
    if (door->listener >= 0 && has_room(door))
        polls[count++] = (struct pollfd){.fd = door->listener, .events = POLLIN};
    for (int i = 0; i < door->guest_count; i++) {
        short events = POLLIN;
        if (rf_link_has_output(&door->guests[i].link))
            events |= POLLOUT;
        polls[count++] = (struct pollfd){.fd = door->guests[i].link.fd, .events = events};
    }
    return count;
}

uint64_t rf_door_deadline(const struct rf_door *door)
{
    if (door->guest_count == 0)
        return UINT64_MAX;
    uint64_t oldest = door->guests[oldest_guest(door)].since_ns;
    return oldest + (has_room(door) ? PATIENCE_NS : YOUNG_NS);
}

static void accept_guests(struct rf_door *door)
{
    for (int i = 0; i < ACCEPTS_PER_TURN && door->listener >= 0 && has_room(door); i++) {
        int fd = rf_socket_accept(door->listener);
        if (fd < 0)
            return;
        if (!door->key.present && !rf_socket_peer_is_loopback(fd)) {
            close(fd);
            continue;
        }
        if (door->guest_count == RF_DOOR_GUESTS)
            drop_guest(door, oldest_guest(door));
        struct rf_door_guest *guest = &door->guests[door->guest_count++];
        memset(guest, 0, sizeof(*guest));
        rf_link_init(&guest->link, fd, MAX_GUEST_PAYLOAD);
        guest->since_ns = rf_now_ns();
    }
}

/* The connection stays until the other end has read why, which closing at once could destroy. */
static int refuse(struct rf_door_guest *guest, int status, const char *text)
{
    uint8_t payload[4 + 400];
    size_t length = strnlen(text, sizeof(payload) - 4);
    rf_put32(payload, (uint32_t)-status);
    memcpy(payload + 4, text, length);
    guest->refused = true;
    RETURN_IF_ERROR(rf_link_queue(&guest->link, RF_FRAME_REFUSE, 0, 0, payload, 4 + length));
    RETURN_IF_ERROR(rf_link_flush(&guest->link));
    shutdown(guest->link.fd, SHUT_WR);
    return 0;
}

static int hear_hello(struct rf_door_guest *guest, const struct rf_frame *frame)
{
    rf_handshake_read_hello(&guest->handshake, frame->payload);
    rf_random(guest->handshake.host, RF_NONCE_BYTES);
    return rf_link_queue(&guest->link, RF_FRAME_CHALLENGE, 0, 0, guest->handshake.host,
                         RF_NONCE_BYTES);
}

/* 1 when the owner has taken the connection. */
static int hear_proof(struct rf_door *door, struct rf_door_guest *guest,
                      const struct rf_frame *frame)
{
    const struct rf_handshake *h = &guest->handshake;
    char text[400];
    if (!rf_handshake_check(&door->key, h, 'J', frame->payload)) {
        if (!door->warned)
            rf_log("transport", 0,
                   "a connection with a wrong job key was refused; the job goes on without it");
        door->warned = true; /* once: a stranger must not fill the log */
        return refuse(guest, RF_EAUTH,
                      "the job key is wrong; set RF_JOB_KEY to the same on every rank");
    }
    if (h->version != RF_FRAME_VERSION) {
        snprintf(text, sizeof(text),
                 "rank %" PRIu32 " speaks control protocol %" PRIu32
                 ", rank 0 speaks %d; give every rank the same version of ringforge",
                 h->rank, h->version, RF_FRAME_VERSION);
        return refuse(guest, RF_EINVAL, text);
    }
    if (h->size != (uint32_t)door->size) {
        snprintf(text, sizeof(text), "rank %" PRIu32 " was told of %" PRIu32 " ranks, rank 0 of %d",
                 h->rank, h->size, door->size);
        return refuse(guest, RF_EINVAL, text);
    }
    if (h->rank == 0 || h->rank >= h->size) {
        snprintf(text, sizeof(text), "rank %" PRIu32 " is %s", h->rank,
                 h->rank ? "outside the world" : "taken: rank 0 is the one that listens here");
        return refuse(guest, h->rank ? RF_EINVAL : RF_EBUSY, text);
    }
    uint8_t proof[RF_PROOF_BYTES];
    rf_handshake_prove(&door->key, h, 'H', proof);
    RETURN_IF_ERROR(rf_link_queue(&guest->link, RF_FRAME_WELCOME, 0, 0, proof, sizeof(proof)));
    struct rf_link taken = guest->link;
    int rc = door->admit(door->owner, (int)h->rank, &taken);
    if (rc < 0) {
        guest->link.out_end = guest->link.out_start = 0; /* no welcome after all */
        return refuse(guest, rc, rf_last_error()->message);
    }
    rf_link_init(&guest->link, -1, 0); /* the owner's now, buffers and all */
    return 1;
}

/* One frame of a guest, in the only order there is. */
static int hear(struct rf_door *door, struct rf_door_guest *guest, const struct rf_frame *frame)
{
    static const uint8_t none[RF_NONCE_BYTES];
    bool greeted = memcmp(guest->handshake.host, none, sizeof(none)) != 0;
    if (frame->kind == RF_FRAME_HELLO && !greeted)
        return hear_hello(guest, frame);
    if (frame->kind == RF_FRAME_PROOF && greeted)
        return hear_proof(door, guest, frame);
    return rf_fail(RF_ECORRUPT, "control: a joiner sent frames out of order");
}

/* Negative or 1: the guest is to be dropped. */
static int serve_guest(struct rf_door *door, struct rf_door_guest *guest)
{
    struct rf_frame frame;
    RETURN_IF_ERROR(rf_link_flush(&guest->link));
    if (guest->refused) {
        uint8_t ignored[64];
        ssize_t got = recv(guest->link.fd, ignored, sizeof(ignored), MSG_DONTWAIT);
        return got == 0;
    }
    int rc = rf_link_fill(&guest->link);
    while (rc > 0 && !guest->refused && (rc = rf_link_next(&guest->link, &frame)) > 0) {
        rc = hear(door, guest, &frame);
        if (rc != 0)
            return rc;
        rc = 1;
    }
    return rc < 0 ? rc : rf_link_flush(&guest->link);
}

void rf_door_serve(struct rf_door *door)
{
    uint64_t now = rf_now_ns();
    /* From the back, as dropping moves the last one into the gap. */
    for (int i = door->guest_count - 1; i >= 0; i--)
        if (serve_guest(door, &door->guests[i]) != 0 ||
            now - door->guests[i].since_ns > PATIENCE_NS)
            drop_guest(door, i);
    accept_guests(door);
}
