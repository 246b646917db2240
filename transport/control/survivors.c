/* SPDX-License-Identifier: MIT
 *
 * Recovery: makes a job of the remaining ranks of a broken one. They connect to the recovery
 * listener of the leader, the lowest rank that can be reached, which sends them the member list.
 * Called by comm (rf_comm_shrink); for loopback ranks see loopback_survivors.c.
 *
 * A dead rank is found by connecting to it: an ended process refuses connections, and the control
 * link has detected a lost host. The leader waits for a rank that is alive and does not connect
 * until the timeout. Ranks that may still run then count: a minority is refused (quorum.h).
 */
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../bootstrap/join.h"
#include "../loopback/loopback.h"
#include "base/base.h"
#include "control.h"
#include "member_list.h"
#include "quorum.h"
#include "recovery_listener.h"
#include "socket.h"

#define HEARTBEAT_NS 500000000ull /* from the leader to waiting ranks */
#define PROBE_NS 200000000ull     /* between checks whether a missing rank still runs */
#define CONNECT_NS 3000000000ull
#define SLICE_NS 100000000ull

/* One rank's part in one recovery. Ranks are those of the broken job. */
struct recovery {
    struct rf_socket_control *old;
    struct rf_recovery_listener *recovery;
    int rank, size;
    double timeout_s;
    struct rf_link *links; /* [size], the leader's, to the connected ranks */
    uint64_t *probed_ns;   /* [size] */
    bool *gone;            /* [size], not waited for */
    bool *ended, *here;    /* [size], the leader's: has certainly ended; has connected */
    bool refused;          /* by the leader: no majority */
    struct rf_listener listener;
};

static int endpoint_index(const struct recovery *s, int rank)
{
    return s->old->endpoint_index ? s->old->endpoint_index[rank] : rank;
}

static int rank_of_endpoint(const struct recovery *s, int index)
{
    for (int r = 0; r < s->size; r++)
        if (endpoint_index(s, r) == index)
            return r;
    return -1;
}

static struct rf_member_space space_of(const struct recovery *s)
{
    return (struct rf_member_space){.endpoint_index = s->old->endpoint_index,
                                    .size = s->size,
                                    .endpoint_count = s->recovery->size};
}

static const struct rf_endpoint *endpoint_of(const struct recovery *s, int rank)
{
    return &s->recovery->endpoints[endpoint_index(s, rank)];
}

static bool is_known_dead(const struct recovery *s, int rank)
{
    pthread_mutex_lock(&s->old->lock);
    bool dead = s->old->peers[rank].dead;
    pthread_mutex_unlock(&s->old->lock);
    return dead;
}

/* Whether the rank has certainly ended, and is not merely silent. */
static bool has_ended(const struct recovery *s, int rank)
{
    pthread_mutex_lock(&s->old->lock);
    bool ended = s->old->peers[rank].left || s->old->peers[rank].ended;
    pthread_mutex_unlock(&s->old->lock);
    return ended;
}

/* ---- the leader ------------------------------------------------------------------------------ */

static int admit(void *owner, int index, struct rf_link *link)
{
    struct recovery *s = owner;
    int rank = rank_of_endpoint(s, index);
    if (rank <= s->rank)
        return rf_fail(RF_EBUSY, "the others have gone on without this rank");
    rf_link_close(&s->links[rank]); /* the rank gave up an earlier attempt */
    s->links[rank] = *link;
    s->links[rank].max_payload = RF_FRAME_MAX_PAYLOAD;
    return 0;
}

/* A connected rank may die before the last one connects. */
static void check_present(struct recovery *s, bool heartbeat)
{
    for (int r = s->rank + 1; r < s->size; r++) {
        struct rf_link *link = &s->links[r];
        uint8_t byte;
        if (link->fd < 0)
            continue;
        bool lost = recv(link->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
        if (heartbeat && !lost)
            lost = rf_link_queue(link, RF_FRAME_HEARTBEAT, 0, 0, NULL, 0) < 0;
        if (lost || rf_link_flush(link) < 0)
            rf_link_close(link);
    }
}

static bool is_gone(struct recovery *s, int rank)
{
    const struct rf_endpoint *endpoint = endpoint_of(s, rank);
    uint64_t now = rf_now_ns();
    if (s->gone[rank] || endpoint->port == 0 || is_known_dead(s, rank))
        return true;
    if (now < s->probed_ns[rank])
        return false;
    s->gone[rank] = rf_socket_is_deserted(endpoint->host, endpoint->port, now + SLICE_NS);
    s->probed_ns[rank] = rf_now_ns() + PROBE_NS;
    return s->gone[rank];
}

static bool is_complete(struct recovery *s)
{
    bool complete = true;
    for (int r = s->rank + 1; r < s->size; r++)
        if (s->links[r].fd < 0 && !is_gone(s, r))
            complete = false;
    return complete;
}

static int wait_for_all(struct recovery *s)
{
    uint64_t now = rf_now_ns(), deadline = rf_add_ns(now, rf_seconds_to_ns(s->timeout_s));
    uint64_t next_heartbeat = now + HEARTBEAT_NS;
    struct pollfd *polls = rf_alloc(((size_t)s->size + RF_LISTENER_POLLS) * sizeof(*polls));
    if (!polls)
        return rf_fail(RF_ENOMEM, "no memory to wait for %d ranks", s->size);
    for (int r = 0; r < s->size; r++)
        s->probed_ns[r] = now + PROBE_NS / 2; /* most connect without being probed */
    while (!is_complete(s) && now < deadline) {
        int count = rf_listener_polls(&s->listener, polls);
        for (int r = s->rank + 1; r < s->size; r++)
            if (s->links[r].fd >= 0)
                polls[count++] = (struct pollfd){.fd = s->links[r].fd, .events = POLLIN};
        poll(polls, (nfds_t)count, (int)(SLICE_NS / 4 / 1000000));
        rf_listener_serve(&s->listener);
        now = rf_now_ns();
        check_present(s, now >= next_heartbeat);
        if (now >= next_heartbeat)
            next_heartbeat = now + HEARTBEAT_NS;
    }
    rf_free(polls);
    return 0;
}

/* Missing ranks are probed once more if there is no majority: one whose host answers that nobody
 * listens there has ended, and does not count. */
static int check_quorum(struct recovery *s)
{
    for (int r = 0; r < s->size; r++)
        s->here[r] = r == s->rank || s->links[r].fd >= 0;
    for (int r = 0; r < s->size && !rf_quorum_has(s->here, s->ended, s->size); r++) {
        const struct rf_endpoint *endpoint = endpoint_of(s, r);
        if (s->here[r])
            continue;
        check_present(s, true);
        s->ended[r] = has_ended(s, r) ||
                      (endpoint->port > 0 && rf_socket_is_deserted(endpoint->host, endpoint->port,
                                                                   rf_now_ns() + SLICE_NS));
    }
    if (rf_quorum_has(s->here, s->ended, s->size))
        return 0;
    return rf_quorum_fail(s->here, s->ended, s->size);
}

/* Sends the reason to all connected ranks. */
static int refuse_all(struct recovery *s)
{
    const struct rf_error error = *rf_last_error();
    const uint64_t deadline = rf_now_ns() + CONNECT_NS;
    for (int r = s->rank + 1; r < s->size; r++) {
        struct rf_link *link = &s->links[r];
        if (link->fd >= 0 &&
            (rf_link_queue_refusal(link, error.rank, error.status, error.message) < 0 ||
             rf_link_flush_by(link, deadline) < 0))
            rf_log("transport", 1, "rank %d went away before it could be refused", r);
    }
    return rf_fail_error(&error);
}

/* Makes the new job's name and member list, and sends them. */
static int send_member_list(struct recovery *s, int *members, int *count, struct rf_job_key *key)
{
    const struct rf_member_space space = space_of(s);
    uint8_t *list = rf_alloc(rf_member_list_bytes(s->size));
    if (!list)
        return rf_fail(RF_ENOMEM, "no memory to list %d ranks", s->size);
    rf_random(key->job, RF_JOB_BYTES);
    *count = 0;
    for (int r = s->rank; r < s->size; r++)
        if (r == s->rank || s->links[r].fd >= 0)
            members[(*count)++] = r;
    rf_member_list_write(&space, key->job, members, *count, list);
    const size_t bytes = rf_member_list_bytes(*count);
    uint64_t deadline = rf_now_ns() + CONNECT_NS;
    /* The new control link detects an unreachable rank like any death. */
    for (int i = 1; i < *count; i++)
        if (rf_link_queue(&s->links[members[i]], RF_FRAME_MEMBERS, 0, 0, list, bytes) < 0 ||
            rf_link_flush_by(&s->links[members[i]], deadline) < 0)
            rf_log("transport", 1, "rank %d went away before it got the member list", members[i]);
    rf_free(list);
    return 0;
}

static int lead(struct recovery *s, int *members, int *count, struct rf_control **out)
{
    struct rf_job_key key = s->recovery->key;
    rf_listener_init(&s->listener, s->recovery->fd, s->recovery->size, &s->recovery->key);
    s->listener.admit = admit;
    s->listener.owner = s;
    int rc = wait_for_all(s);
    s->listener.fd = -1; /* the recovery listener keeps it */
    rf_listener_close(&s->listener);
    if (rc == 0 && check_quorum(s) < 0)
        rc = refuse_all(s);
    if (rc == 0)
        rc = send_member_list(s, members, count, &key);
    if (rc < 0)
        return rc;
    if (*count == 1)
        return rf_self_control(out);
    for (int i = 1; i < *count; i++) { /* members[i] >= i, so nothing is overwritten */
        s->links[i] = s->links[members[i]];
        if (members[i] != i)
            rf_link_init(&s->links[members[i]], -1, 0);
    }
    rc = rf_control_create(0, *count, s->links, -1, &key, out);
    for (int i = 1; i < *count; i++)
        rf_link_init(&s->links[i], -1, 0); /* taken even if the call fails */
    return rc;
}

/* ---- everybody else -------------------------------------------------------------------------- */

/* The leader's next frame other than a heartbeat. RF_ETIMEOUT: the leader was silent for the whole
 * timeout, or is dead. */
static int wait_for_member_list(struct recovery *s, int leader, struct rf_link *link,
                                struct rf_frame *frame)
{
    uint64_t last_ns = rf_now_ns(), patience = rf_seconds_to_ns(s->timeout_s);
    for (;;) {
        int rc = rf_link_next_by(link, frame, rf_now_ns() + SLICE_NS);
        if (rc < 0 && rc != RF_ETIMEOUT)
            return rc;
        if (rc > 0 && frame->kind == RF_FRAME_REFUSE) {
            char text[401];
            s->refused = true;
            rf_frame_text(frame->payload + 4, frame->bytes - 4, text, sizeof(text));
            return rf_fail_rank(RF_EPEER, frame->rank, "%s", text);
        }
        if (rc > 0 && frame->kind != RF_FRAME_HEARTBEAT)
            return frame->kind == RF_FRAME_MEMBERS
                       ? 0
                       : rf_fail(RF_ECORRUPT, "shrink: rank %d sent a frame of kind %d", leader,
                                 frame->kind);
        if (rc > 0)
            last_ns = rf_now_ns();
        if (rf_now_ns() - last_ns > patience || is_known_dead(s, leader))
            return rf_fail_rank(RF_ETIMEOUT, leader, "shrink: rank %d is silent", leader);
    }
}

/* RF_EAGAIN: this leader is absent; try the next. */
static int follow(struct recovery *s, int leader, int *members, int *count, struct rf_control **out)
{
    const struct rf_endpoint *endpoint = endpoint_of(s, leader);
    struct rf_rendezvous target = {.rank = endpoint_index(s, s->rank), .size = s->recovery->size};
    struct rf_link link;
    struct rf_frame frame;
    const struct rf_member_space space = space_of(s);
    struct rf_job_key key = s->recovery->key;
    int fd = -1, here = -1;
    uint64_t now = rf_now_ns();
    if (endpoint->port == 0 || is_known_dead(s, leader) ||
        rf_socket_connect(endpoint->host, endpoint->port, now + CONNECT_NS, &fd) < 0)
        return RF_EAGAIN;
    rf_link_init(&link, fd, RF_FRAME_MAX_PAYLOAD);
    snprintf(target.host, sizeof(target.host), "%s", endpoint->host);
    target.port = endpoint->port;
    target.key = key;
    /* The leader answers only once it also takes part in the recovery. */
    int rc = rf_join_authenticate(&target, &link, rf_add_ns(now, rf_seconds_to_ns(s->timeout_s)));
    if (rc == 0)
        rc = wait_for_member_list(s, leader, &link, &frame);
    if (rc == 0)
        rc =
            rf_member_list_read(&space, s->rank, frame.payload, frame.bytes, members, count, &here);
    if (rc < 0) {
        rf_link_close(&link);
        if (s->refused)
            return rc;
        if (rc == RF_EBUSY)
            return rf_fail_rank(RF_EPEER, s->rank,
                                "shrink: the others have gone on without rank %d", s->rank);
        return rc == RF_ETIMEOUT || rc == RF_EPEER ? RF_EAGAIN : rc;
    }
    memcpy(key.job, frame.payload, RF_JOB_BYTES);
    return rf_control_create(here, *count, &link, -1, &key, out);
}

/* ---- every rank ------------------------------------------------------------------------------ */

/* The new job's ranks keep their endpoints. */
static int keep_endpoints(struct recovery *s, const int *members, int count,
                          struct rf_control *control)
{
    if (!rf_control_key(control))
        return 0; /* alone */
    struct rf_socket_control *c = (struct rf_socket_control *)control;
    c->endpoint_index = rf_alloc((size_t)count * sizeof(*c->endpoint_index));
    if (!c->endpoint_index)
        return rf_fail(RF_ENOMEM, "no memory for %d survivors", count);
    for (int i = 0; i < count; i++)
        c->endpoint_index[i] = endpoint_index(s, members[i]);
    c->recovery = rf_recovery_listener_retain(s->recovery);
    return 0;
}

static int recover(struct recovery *s, int *members, int *count, struct rf_control **out)
{
    int rc = RF_EAGAIN;
    for (int leader = 0; leader < s->rank && rc == RF_EAGAIN; leader++)
        rc = follow(s, leader, members, count, out);
    if (rc == RF_EAGAIN)
        rc = lead(s, members, count, out);
    if (rc < 0)
        return rc;
    (*out)->host = s->old->control.host;
    rc = keep_endpoints(s, members, *count, *out);
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
    if (c->recovery)
        return 0;
    char address[64];
    rf_control_local_address(control, address, sizeof(address));
    return rf_recovery_listener_open(control, rf_control_key(control), address, timeout_s,
                                     &c->recovery);
}

int rf_survivors_join(struct rf_control *parent, double timeout_s, int *members, int *count,
                      struct rf_control **out)
{
    if (rf_loop_world(parent))
        return rf_loop_survivors(parent, timeout_s, members, count, out);
    const size_t size = (size_t)parent->size;
    struct recovery *s = rf_alloc(sizeof(*s));
    if (!s)
        return rf_fail(RF_ENOMEM, "no memory to find the survivors of %zu ranks", size);
    s->old = (struct rf_socket_control *)parent;
    s->recovery = s->old->recovery;
    s->rank = parent->rank;
    s->size = parent->size;
    s->timeout_s = timeout_s;
    s->links = rf_alloc(size * sizeof(*s->links));
    s->probed_ns = rf_alloc(size * sizeof(*s->probed_ns));
    s->gone = rf_alloc(size * sizeof(*s->gone));
    s->ended = rf_alloc(size * sizeof(*s->ended));
    s->here = rf_alloc(size * sizeof(*s->here));
    int rc = s->links && s->probed_ns && s->gone && s->ended && s->here
                 ? 0
                 : rf_fail(RF_ENOMEM, "no memory to find the survivors of %zu ranks", size);
    for (size_t r = 0; s->links && r < size; r++)
        rf_link_init(&s->links[r], -1, 0);
    if (rc == 0) {
        pthread_mutex_lock(&s->recovery->lock);
        rc = recover(s, members, count, out);
        pthread_mutex_unlock(&s->recovery->lock);
    }
    for (size_t r = 0; s->links && r < size; r++)
        rf_link_close(&s->links[r]);
    rf_free(s->links);
    rf_free(s->probed_ns);
    rf_free(s->gone);
    rf_free(s->ended);
    rf_free(s->here);
    rf_free(s);
    return rc;
}
