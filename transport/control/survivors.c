/* SPDX-License-Identifier: MIT
 *
 * A job of the ranks of a broken one that are still there: they meet at the gate of the lowest rank
 * that anybody can reach, who calls the roll. Called by comm; loopback ranks meet in
 * loopback_survivors.c.
 *
 * A dead rank is found by connecting to it: a process that is gone refuses connections, and a host
 * that is gone was missed by the control link. Who is alive and does not come is waited for until
 * the timeout. Who then may still run counts: a minority is refused (quorum.h).
 */
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../bootstrap/join.h"
#include "../loopback/loopback.h"
#include "base/base.h"
#include "control.h"
#include "gate.h"
#include "quorum.h"
#include "roll.h"
#include "socket.h"

#define BEAT_NS 500000000ull  /* the leader tells those who wait that it is still there */
#define PROBE_NS 200000000ull /* between looks whether who is missing still runs */
#define CONNECT_NS 3000000000ull
#define SLICE_NS 100000000ull

/* One rank's part in one meeting. Ranks are those of the broken job. */
struct meeting {
    struct rf_socket_control *old;
    struct rf_gate *gate;
    int rank, size;
    double timeout_s;
    struct rf_link *links; /* [size], the leader's, to who has come */
    uint64_t *probed_ns;   /* [size] */
    bool *gone;            /* [size], not to be waited for */
    bool *ended, *here;    /* [size], the leader's: known to run no more, or to have come */
    bool refused;          /* by the leader: there is no majority */
    struct rf_listener listener;
};

static int seat_of(const struct meeting *m, int rank)
{
    return m->old->seats ? m->old->seats[rank] : rank;
}

static int rank_at(const struct meeting *m, int seat)
{
    for (int r = 0; r < m->size; r++)
        if (seat_of(m, r) == seat)
            return r;
    return -1;
}

static struct rf_roll_room room_of(const struct meeting *m)
{
    return (struct rf_roll_room){
        .seats = m->old->seats, .size = m->size, .seat_count = m->gate->size};
}

static const struct rf_seat *place_of(const struct meeting *m, int rank)
{
    return &m->gate->seats[seat_of(m, rank)];
}

static bool is_known_dead(const struct meeting *m, int rank)
{
    pthread_mutex_lock(&m->old->lock);
    bool dead = m->old->peers[rank].dead;
    pthread_mutex_unlock(&m->old->lock);
    return dead;
}

/* For certain. */
static bool has_ended(const struct meeting *m, int rank)
{
    pthread_mutex_lock(&m->old->lock);
    bool ended = m->old->peers[rank].left || m->old->peers[rank].ended;
    pthread_mutex_unlock(&m->old->lock);
    return ended;
}

/* ---- the leader ------------------------------------------------------------------------------ */

static int admit(void *owner, int seat, struct rf_link *link)
{
    struct meeting *m = owner;
    int rank = rank_at(m, seat);
    if (rank <= m->rank)
        return rf_fail(RF_EBUSY, "the others have gone on without this rank");
    rf_link_close(&m->links[rank]); /* it gave up an earlier attempt */
    m->links[rank] = *link;
    m->links[rank].max_payload = RF_FRAME_MAX_PAYLOAD;
    return 0;
}

/* Who has come may die before the last one does. */
static void watch_those_here(struct meeting *m, bool beat)
{
    for (int r = m->rank + 1; r < m->size; r++) {
        struct rf_link *link = &m->links[r];
        uint8_t byte;
        if (link->fd < 0)
            continue;
        bool lost = recv(link->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
        if (beat && !lost)
            lost = rf_link_queue(link, RF_FRAME_BEAT, 0, 0, NULL, 0) < 0;
        if (lost || rf_link_flush(link) < 0)
            rf_link_close(link);
    }
}

static bool is_gone(struct meeting *m, int rank)
{
    const struct rf_seat *place = place_of(m, rank);
    uint64_t now = rf_now_ns();
    if (m->gone[rank] || place->port == 0 || is_known_dead(m, rank))
        return true;
    if (now < m->probed_ns[rank])
        return false;
    m->gone[rank] = rf_socket_is_deserted(place->host, place->port, now + SLICE_NS);
    m->probed_ns[rank] = rf_now_ns() + PROBE_NS;
    return m->gone[rank];
}

static bool is_complete(struct meeting *m)
{
    bool complete = true;
    for (int r = m->rank + 1; r < m->size; r++)
        if (m->links[r].fd < 0 && !is_gone(m, r))
            complete = false;
    return complete;
}

static int wait_for_all(struct meeting *m)
{
    uint64_t now = rf_now_ns(), deadline = rf_add_ns(now, rf_seconds_to_ns(m->timeout_s));
    uint64_t next_beat = now + BEAT_NS;
    struct pollfd *polls = rf_alloc(((size_t)m->size + RF_LISTENER_POLLS) * sizeof(*polls));
    if (!polls)
        return rf_fail(RF_ENOMEM, "no memory to wait for %d ranks", m->size);
    for (int r = 0; r < m->size; r++)
        m->probed_ns[r] = now + PROBE_NS / 2; /* most come by themselves */
    while (!is_complete(m) && now < deadline) {
        int count = rf_listener_polls(&m->listener, polls);
        for (int r = m->rank + 1; r < m->size; r++)
            if (m->links[r].fd >= 0)
                polls[count++] = (struct pollfd){.fd = m->links[r].fd, .events = POLLIN};
        poll(polls, (nfds_t)count, (int)(SLICE_NS / 4 / 1000000));
        rf_listener_serve(&m->listener);
        now = rf_now_ns();
        watch_those_here(m, now >= next_beat);
        if (now >= next_beat)
            next_beat = now + BEAT_NS;
    }
    rf_free(polls);
    return 0;
}

/* Who is missing is looked for once more, as long as that could make a majority of those here: an
 * answer that nobody listens there is more than no answer. */
static int check_quorum(struct meeting *m)
{
    for (int r = 0; r < m->size; r++)
        m->here[r] = r == m->rank || m->links[r].fd >= 0;
    for (int r = 0; r < m->size && !rf_quorum_has(m->here, m->ended, m->size); r++) {
        const struct rf_seat *place = place_of(m, r);
        if (m->here[r])
            continue;
        watch_those_here(m, true);
        m->ended[r] = has_ended(m, r) ||
                      (place->port > 0 &&
                       rf_socket_is_deserted(place->host, place->port, rf_now_ns() + SLICE_NS));
    }
    if (rf_quorum_has(m->here, m->ended, m->size))
        return 0;
    return rf_quorum_fail(m->here, m->ended, m->size);
}

/* All who have come hear why they may not go on. */
static int refuse_all(struct meeting *m)
{
    const struct rf_error error = *rf_last_error();
    const uint64_t deadline = rf_now_ns() + CONNECT_NS;
    uint8_t payload[4 + 400];
    const size_t length = strnlen(error.message, sizeof(payload) - 4);
    rf_put32(payload, (uint32_t)-error.status);
    memcpy(payload + 4, error.message, length);
    for (int r = m->rank + 1; r < m->size; r++)
        if (m->links[r].fd >= 0 && (rf_link_queue(&m->links[r], RF_FRAME_REFUSE, error.rank, 0,
                                                  error.message, strlen(error.message)) < 0 ||
                                    rf_link_flush_by(&m->links[r], deadline) < 0))
            rf_log("transport", 1, "rank %d went away before it could be refused", r);
    return rf_fail_error(&error);
}

/* The new job's name, and its ranks by their seats. */
static int call_roll(struct meeting *m, int *members, int *count, struct rf_job_key *key)
{
    const struct rf_roll_room room = room_of(m);
    uint8_t *roll = rf_alloc(rf_roll_bytes(m->size));
    if (!roll)
        return rf_fail(RF_ENOMEM, "no memory to call %d ranks", m->size);
    rf_random(key->job, RF_JOB_BYTES);
    *count = 0;
    for (int r = m->rank; r < m->size; r++)
        if (r == m->rank || m->links[r].fd >= 0)
            members[(*count)++] = r;
    rf_roll_write(&room, key->job, members, *count, roll);
    const size_t bytes = rf_roll_bytes(*count);
    uint64_t deadline = rf_now_ns() + CONNECT_NS;
    /* Who cannot be told is noticed by the new control link, as any death is. */
    for (int i = 1; i < *count; i++)
        if (rf_link_queue(&m->links[members[i]], RF_FRAME_ROLL, 0, 0, roll, bytes) < 0 ||
            rf_link_flush_by(&m->links[members[i]], deadline) < 0)
            rf_log("transport", 1, "rank %d went away while the roll was called", members[i]);
    rf_free(roll);
    return 0;
}

static int lead(struct meeting *m, int *members, int *count, struct rf_control **out)
{
    struct rf_job_key key = m->gate->key;
    rf_listener_init(&m->listener, m->gate->listener, m->gate->size, &m->gate->key);
    m->listener.admit = admit;
    m->listener.owner = m;
    int rc = wait_for_all(m);
    m->listener.fd = -1; /* the gate's */
    rf_listener_close(&m->listener);
    if (rc == 0 && check_quorum(m) < 0)
        rc = refuse_all(m);
    if (rc == 0)
        rc = call_roll(m, members, count, &key);
    if (rc < 0)
        return rc;
    if (*count == 1)
        return rf_self_control(out);
    for (int i = 1; i < *count; i++) { /* members[i] >= i, so nothing is overwritten */
        m->links[i] = m->links[members[i]];
        if (members[i] != i)
            rf_link_init(&m->links[members[i]], -1, 0);
    }
    rc = rf_control_create(0, *count, m->links, -1, &key, out);
    for (int i = 1; i < *count; i++)
        rf_link_init(&m->links[i], -1, 0); /* taken, also on failure */
    return rc;
}

/* ---- everybody else -------------------------------------------------------------------------- */

/* The leader's next word that is not a sign of life. RF_ETIMEOUT: it has said nothing for the whole
 * timeout, or is known to be dead. */
static int await_roll(struct meeting *m, int leader, struct rf_link *link, struct rf_frame *frame)
{
    uint64_t heard = rf_now_ns(), patience = rf_seconds_to_ns(m->timeout_s);
    for (;;) {
        int rc = rf_link_next_by(link, frame, rf_now_ns() + SLICE_NS);
        if (rc < 0 && rc != RF_ETIMEOUT)
            return rc;
        if (rc > 0 && frame->kind == RF_FRAME_REFUSE) {
            char text[401];
            m->refused = true;
            rf_frame_text(frame->payload + 4, frame->bytes - 4, text, sizeof(text));
            return rf_fail_rank(RF_EPEER, frame->rank, "%s", text);
        }
        if (rc > 0 && frame->kind != RF_FRAME_BEAT)
            return frame->kind == RF_FRAME_ROLL
                       ? 0
                       : rf_fail(RF_ECORRUPT, "shrink: rank %d sent a frame of kind %d", leader,
                                 frame->kind);
        if (rc > 0)
            heard = rf_now_ns();
        if (rf_now_ns() - heard > patience || is_known_dead(m, leader))
            return rf_fail_rank(RF_ETIMEOUT, leader, "shrink: rank %d is silent", leader);
    }
}

/* RF_EAGAIN: this leader is not there; try the next. */
static int follow(struct meeting *m, int leader, int *members, int *count, struct rf_control **out)
{
    const struct rf_seat *place = place_of(m, leader);
    struct rf_meeting target = {.rank = seat_of(m, m->rank), .size = m->gate->size};
    struct rf_link link;
    struct rf_frame frame;
    const struct rf_roll_room room = room_of(m);
    struct rf_job_key key = m->gate->key;
    int fd = -1, here = -1;
    uint64_t now = rf_now_ns();
    if (place->port == 0 || is_known_dead(m, leader) ||
        rf_socket_connect(place->host, place->port, now + CONNECT_NS, &fd) < 0)
        return RF_EAGAIN;
    rf_link_init(&link, fd, RF_FRAME_MAX_PAYLOAD);
    snprintf(target.host, sizeof(target.host), "%s", place->host);
    target.port = place->port;
    target.key = key;
    /* It may be busy with other things until it comes here itself. */
    int rc = rf_join_authenticate(&target, &link, rf_add_ns(now, rf_seconds_to_ns(m->timeout_s)));
    if (rc == 0)
        rc = await_roll(m, leader, &link, &frame);
    if (rc == 0)
        rc = rf_roll_read(&room, m->rank, frame.payload, frame.bytes, members, count, &here);
    if (rc < 0) {
        rf_link_close(&link);
        if (m->refused)
            return rc;
        if (rc == RF_EBUSY)
            return rf_fail_rank(RF_EPEER, m->rank,
                                "shrink: the others have gone on without rank %d", m->rank);
        return rc == RF_ETIMEOUT || rc == RF_EPEER ? RF_EAGAIN : rc;
    }
    memcpy(key.job, frame.payload, RF_JOB_BYTES);
    return rf_control_create(here, *count, &link, -1, &key, out);
}

/* ---- the meeting ----------------------------------------------------------------------------- */

/* The new job's ranks sit where they sat. */
static int keep_seats(struct meeting *m, const int *members, int count, struct rf_control *control)
{
    if (!rf_control_key(control))
        return 0; /* alone */
    struct rf_socket_control *c = (struct rf_socket_control *)control;
    c->seats = rf_alloc((size_t)count * sizeof(*c->seats));
    if (!c->seats)
        return rf_fail(RF_ENOMEM, "no memory for %d survivors", count);
    for (int i = 0; i < count; i++)
        c->seats[i] = seat_of(m, members[i]);
    c->gate = rf_gate_hold(m->gate);
    return 0;
}

static int meet(struct meeting *m, int *members, int *count, struct rf_control **out)
{
    int rc = RF_EAGAIN;
    for (int leader = 0; leader < m->rank && rc == RF_EAGAIN; leader++)
        rc = follow(m, leader, members, count, out);
    if (rc == RF_EAGAIN)
        rc = lead(m, members, count, out);
    if (rc < 0)
        return rc;
    (*out)->host = m->old->control.host;
    rc = keep_seats(m, members, *count, *out);
    if (rc < 0)
        (*out)->ops->leave(*out, 0);
    return rc;
}

int rf_survivors_prepare(struct rf_control *control, double timeout_s)
{
    struct rf_socket_control *c = (struct rf_socket_control *)control;
    if (control->size == 1 || !rf_control_key(control))
        return 0;
    RETURN_IF_ERROR(rf_control_watch_processes(control, timeout_s));
    if (c->gate)
        return 0;
    char address[64];
    rf_control_local_address(control, address, sizeof(address));
    return rf_gate_open(control, rf_control_key(control), address, timeout_s, &c->gate);
}

int rf_survivors_join(struct rf_control *parent, double timeout_s, int *members, int *count,
                      struct rf_control **out)
{
    if (rf_loop_world(parent))
        return rf_loop_survivors(parent, timeout_s, members, count, out);
    const size_t size = (size_t)parent->size;
    struct meeting *m = rf_alloc(sizeof(*m));
    if (!m)
        return rf_fail(RF_ENOMEM, "no memory for a meeting of survivors");
    m->old = (struct rf_socket_control *)parent;
    m->gate = m->old->gate;
    m->rank = parent->rank;
    m->size = parent->size;
    m->timeout_s = timeout_s;
    m->links = rf_alloc(size * sizeof(*m->links));
    m->probed_ns = rf_alloc(size * sizeof(*m->probed_ns));
    m->gone = rf_alloc(size * sizeof(*m->gone));
    m->ended = rf_alloc(size * sizeof(*m->ended));
    m->here = rf_alloc(size * sizeof(*m->here));
    int rc = m->links && m->probed_ns && m->gone && m->ended && m->here
                 ? 0
                 : rf_fail(RF_ENOMEM, "no memory for a meeting of %zu survivors", size);
    for (size_t r = 0; m->links && r < size; r++)
        rf_link_init(&m->links[r], -1, 0);
    if (rc == 0) {
        pthread_mutex_lock(&m->gate->lock);
        rc = meet(m, members, count, out);
        pthread_mutex_unlock(&m->gate->lock);
    }
    for (size_t r = 0; m->links && r < size; r++)
        rf_link_close(&m->links[r]);
    rf_free(m->links);
    rf_free(m->probed_ns);
    rf_free(m->gone);
    rf_free(m->ended);
    rf_free(m->here);
    rf_free(m);
    return rc;
}
