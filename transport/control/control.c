/* SPDX-License-Identifier: MIT
 *
 * The control link of a job of several processes, as comm calls it: events, messages, abort,
 * goodbye. It is a star of TCP connections around rank 0, served by one thread per communicator
 * that sleeps in poll() (control_thread.c). Nothing here is on the data path.
 */
#include "control.h"

#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/base.h"
#include "processes.h"
#include "recovery_listener.h"
#include "socket.h"

static const uint64_t HEARTBEAT_NS = 1000000000, SUSPICION_NS = 10000000000u;
static const uint64_t LAST_FRAMES_NS = 1000000000; /* to send queued frames */

static struct rf_socket_control *control_of(struct rf_control *control)
{
    return (struct rf_socket_control *)control;
}

/* Rank 0 sends to all others; the others send to rank 0, which relays. */
static int send_to_all(struct rf_control *control, int kind, const void *payload, size_t bytes)
{
    struct rf_socket_control *c = control_of(control);
    pthread_mutex_lock(&c->lock);
    if (kind == RF_FRAME_ABORT)
        c->aborted = true;
    rf_control_send_all(c, -1, kind, control->rank, payload, bytes);
    rf_control_wake(c);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return 0;
}

static int socket_notify(struct rf_control *control, const void *payload, size_t bytes)
{
    if (bytes > sizeof(((struct rf_event *)0)->payload))
        return rf_fail(RF_EINVAL, "control: a message of %zu bytes; at most 512 are possible",
                       bytes);
    return send_to_all(control, RF_FRAME_MESSAGE, payload, bytes);
}

static int socket_abort(struct rf_control *control, const char *text)
{
    return send_to_all(control, RF_FRAME_ABORT, text ? text : "", text ? strnlen(text, 255) : 0);
}

static int socket_next_event(struct rf_control *control, struct rf_event *out)
{
    if (__atomic_load_n(&control->pending, __ATOMIC_ACQUIRE) == 0)
        return 0;
    struct rf_socket_control *c = control_of(control);
    pthread_mutex_lock(&c->lock);
    struct rf_control_event *item = c->events;
    if (item) {
        *out = (struct rf_event){.kind = item->kind, .rank = item->rank, .bytes = item->bytes};
        memcpy(out->payload, item->data, item->bytes);
        memcpy(out->text, item->data + item->bytes, item->text_bytes);
        c->events = item->next;
        c->event_count--;
        if (!c->events)
            c->events_end = &c->events;
    }
    if (!c->events)
        __atomic_store_n(&control->pending, 0, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&c->lock);
    rf_free(item);
    return item != NULL;
}

static void destroy(struct rf_socket_control *c)
{
    for (int rank = 0; c->peers && rank < c->control.size; rank++) {
        rf_link_close(&c->peers[rank].link);
        rf_free(c->peers[rank].part);
    }
    rf_listener_close(&c->listener);
    while (c->events) {
        struct rf_control_event *item = c->events;
        c->events = item->next;
        rf_free(item);
    }
    if (c->wake_fd >= 0)
        close(c->wake_fd);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    rf_processes_close(c->processes);
    rf_recovery_listener_release(c->recovery);
    rf_free(c->endpoint_index);
    rf_free(c->polls);
    rf_free(c->peers);
    rf_free(c);
}

/* No other rank is left, or the link to rank 0 is closed. */
static bool nobody_is_left(const struct rf_socket_control *c)
{
    if (c->control.rank != 0 && c->peers[0].link.fd < 0)
        return true;
    return c->gone == c->control.size - 1;
}

static void say_goodbye(struct rf_socket_control *c)
{
    if (!c->said_goodbye)
        send_to_all(&c->control, RF_FRAME_LEFT, NULL, 0);
    c->said_goodbye = true;
}

static int socket_part(struct rf_control *control, uint64_t deadline_ns)
{
    struct rf_socket_control *c = control_of(control);
    say_goodbye(c);
    pthread_mutex_lock(&c->lock);
    while (!c->events && !c->aborted && !nobody_is_left(c))
        if (!rf_cond_wait(&c->changed, &c->lock, deadline_ns))
            break;
    bool has_event = c->events != NULL;
    pthread_mutex_unlock(&c->lock);
    return has_event;
}

static void socket_leave(struct rf_control *control, double timeout_s)
{
    if (!control)
        return;
    struct rf_socket_control *c = control_of(control);
    const uint64_t deadline_ns = rf_after_s(timeout_s);
    say_goodbye(c);
    pthread_mutex_lock(&c->lock);
    c->leaving = true;
    while (!c->aborted && !nobody_is_left(c))
        if (!rf_cond_wait(&c->changed, &c->lock, deadline_ns))
            break;
    c->stopping = true;
    c->stop_by_ns = rf_now_ns() + LAST_FRAMES_NS;
    rf_control_wake(c);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    destroy(c);
}

static const struct rf_control_ops socket_control_ops = {
    .all_gather = rf_control_all_gather,
    .notify = socket_notify,
    .abort = socket_abort,
    .next_event = socket_next_event,
    .part = socket_part,
    .leave = socket_leave,
};

int rf_control_check(struct rf_control *control, const int *members, int count)
{
    if (control->ops != &socket_control_ops)
        return 0;
    struct rf_socket_control *c = control_of(control);
    int lost = -1;
    pthread_mutex_lock(&c->lock);
    for (int k = 0; k < (members ? count : control->size) && lost < 0; k++) {
        const int rank = members ? members[k] : k;
        lost = c->peers[rank].dead || c->peers[rank].left ? rank : -1;
    }
    const bool left = lost >= 0 && c->peers[lost].left, aborted = c->aborted;
    pthread_mutex_unlock(&c->lock);
    if (lost >= 0)
        return rf_fail_rank(RF_EPEER, lost, "rank %d %s while ranks joined a new communicator",
                            lost, left ? "left" : "died");
    return aborted ? rf_fail(RF_EABORT, "a rank aborted while ranks joined a new communicator") : 0;
}

/* ---- starting -------------------------------------------------------------------------------- */

/* A rank that has left, or died, may come back for the next job at the same address before rank 0
 * has closed this one: it must retry until rank 0 listens again. Called with c->lock held. */
static int refuse_latecomer(void *owner, int rank, struct rf_link *link)
{
    const struct rf_socket_control *c = owner;
    if (c->peers[rank].left || c->peers[rank].dead)
        return rf_fail(RF_EAGAIN,
                       "rank %d has left the job at this address, which rank 0 has not left yet",
                       rank);
    return rf_fail(RF_EBUSY, "the job is complete; rank %d has joined it before", rank);
}

static void note_address(struct rf_socket_control *c)
{
    bool loopback = true;
    snprintf(c->address, sizeof(c->address), "127.0.0.1");
    for (int rank = 0; rank < c->control.size && loopback; rank++)
        if (c->peers[rank].link.fd >= 0)
            rf_socket_local_address(c->peers[rank].link.fd, c->address, sizeof(c->address),
                                    &loopback);
    c->local = loopback;
}

static int start_thread(struct rf_socket_control *c)
{
    /* Signals are delivered to the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&c->thread, NULL, rf_control_thread, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return rf_fail(RF_ENOMEM, "the control thread cannot start: %s", strerror(error));
    return 0;
}

static int init(struct rf_socket_control *c, int rank, int size, struct rf_link *links,
                int listener, const struct rf_job_key *key)
{
    c->control = (struct rf_control){
        .ops = &socket_control_ops, .rank = rank, .size = size, .host = rf_host_id(rank)};
    c->events_end = &c->events;
    c->heartbeat_ns = HEARTBEAT_NS;
    c->suspicion_ns = SUSPICION_NS;
    pthread_mutex_init(&c->lock, NULL);
    rf_cond_init(&c->changed);
    rf_listener_init(&c->listener, listener, size, key);
    c->listener.admit = refuse_latecomer;
    c->listener.owner = c;
    c->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    c->peers = rf_alloc((size_t)size * sizeof(*c->peers));
    c->polls = rf_alloc(((size_t)size + 2 + RF_LISTENER_POLLS) * sizeof(*c->polls));
    int count = rank == 0 ? size : 1;
    for (int r = 0; r < count; r++) {
        if (!c->peers) {
            rf_link_close(&links[r]);
            continue;
        }
        c->peers[r].link = links[r];
        c->peers[r].link.max_payload = RF_FRAME_MAX_PAYLOAD;
        c->peers[r].received_ns = rf_now_ns();
    }
    /* Ranks without a link in this process. */
    for (int r = count; c->peers && r < size; r++)
        c->peers[r].link.fd = -1;
    if (!c->peers || !c->polls)
        return rf_fail(RF_ENOMEM, "no memory for the control link of %d ranks", size);
    if (c->wake_fd < 0 && (errno == EMFILE || errno == ENFILE))
        return rf_socket_fail_files("each rank needs 2, and 1 more in the process of rank 0");
    if (c->wake_fd < 0)
        return rf_fail(RF_ENET, "the control link cannot start: %s", strerror(errno));
    note_address(c);
    return start_thread(c);
}

int rf_control_create(int rank, int size, struct rf_link *links, int listener,
                      const struct rf_job_key *key, struct rf_control **out)
{
    struct rf_socket_control *c = rf_alloc(sizeof(*c));
    if (!c) {
        for (int r = 0; r < (rank == 0 ? size : 1); r++)
            rf_link_close(&links[r]);
        if (listener >= 0)
            close(listener);
        return rf_fail(RF_ENOMEM, "no memory for the control link of %d ranks", size);
    }
    int rc = init(c, rank, size, links, listener, key);
    if (rc < 0) {
        destroy(c);
        return rc;
    }
    *out = &c->control;
    return 0;
}

void rf_control_local_address(struct rf_control *control, char *out, size_t bytes)
{
    bool over_sockets = control->ops == &socket_control_ops;
    snprintf(out, bytes, "%s", over_sockets ? control_of(control)->address : "127.0.0.1");
}

bool rf_control_is_local(struct rf_control *control)
{
    return control->ops != &socket_control_ops || control_of(control)->local;
}

const struct rf_job_key *rf_control_key(struct rf_control *control)
{
    return control->ops == &socket_control_ops ? &control_of(control)->listener.key : NULL;
}

int rf_control_watch_processes(struct rf_control *control, double timeout_s)
{
    struct rf_socket_control *c = control_of(control);
    struct rf_processes *processes = NULL;
    RETURN_IF_ERROR(rf_processes_open(control, timeout_s, &processes));
    pthread_mutex_lock(&c->lock);
    c->processes = processes;
    rf_control_wake(c);
    pthread_mutex_unlock(&c->lock);
    return 0;
}

void rf_control_set_suspicion(struct rf_control *control, double seconds)
{
    struct rf_socket_control *c = control_of(control);
    pthread_mutex_lock(&c->lock);
    c->suspicion_ns = rf_seconds_to_ns(seconds);
    c->heartbeat_ns = c->suspicion_ns / 10;
    c->next_heartbeat_ns = 0;
    rf_control_wake(c);
    pthread_mutex_unlock(&c->lock);
}
