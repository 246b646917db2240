/* SPDX-License-Identifier: MIT
 *
 * The listener at which newcomers wait to join a running job: a further listener of rank 0, and a
 * thread that serves it. Errors there never reach the job: a connection that is silent or sends
 * unexpected input is closed. The thread and the job's calls share everything under one lock, which
 * neither holds while it sleeps. Called by comm.
 */
#include "join_listener.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../control/control.h"
#include "../control/socket.h"
#include "../loopback/loopback.h"
#include "../transport.h"
#include "base/base.h"
#include "listener.h"

#define HEARTBEAT_NS 500000000ull
#define ANSWER_NS 500000000ull    /* for an answer to a heartbeat, when newcomers are counted */
#define SILENCE_NS 20000000000ull /* after which a newcomer is dropped */
#define TERMS_NS 3000000000ull    /* for a newcomer's terms */
#define LINGER_NS 2000000000ull   /* for the other end to read the last frame */

struct newcomer {
    struct rf_link link;
    uint64_t since_ns, answered_ns;
    bool agreed;            /* its terms match the job's */
    bool leaving;           /* the last frame is sent; waits for the other end to close */
    uint32_t status_number; /* of the last status it was sent */
};

struct rf_join_listener {
    pthread_mutex_t lock;
    pthread_cond_t answered; /* a newcomer has answered, or is gone */
    pthread_t thread;
    int wake_fd, port;
    bool running, stopping;
    struct rf_listener listener;
    char *terms;
    char status[400];
    uint32_t status_count;
    uint64_t next_heartbeat_ns, asked_ns;         /* asked: the job's question who is present */
    struct newcomer waiting[RF_JOIN_MAX_WAITING]; /* in order of arrival */
    int count;
};

static void wake(struct rf_join_listener *l)
{
    const uint64_t one = 1;
    if (write(l->wake_fd, &one, sizeof(one)) < 0)
        rf_log("transport", 1, "the join_listener cannot be woken: %s", strerror(errno));
}

static void drop(struct rf_join_listener *l, int index)
{
    rf_link_close(&l->waiting[index].link);
    l->count--;
    memmove(&l->waiting[index], &l->waiting[index + 1],
            (size_t)(l->count - index) * sizeof(*l->waiting));
}

/* ---- the thread ------------------------------------------------------------------------------ */

static int admit(void *owner, int rank, struct rf_link *link)
{
    struct rf_join_listener *l = owner;
    (void)rank; /* it has none yet */
    if (l->stopping)
        return rf_fail(RF_EPEER, "the job ends");
    if (l->count == RF_JOIN_MAX_WAITING)
        return rf_fail(RF_EBUSY, "%d newcomers wait for this job already; try again later",
                       RF_JOIN_MAX_WAITING);
    const uint64_t now = rf_now_ns();
    l->waiting[l->count++] = (struct newcomer){.link = *link, .since_ns = now, .answered_ns = now};
    l->waiting[l->count - 1].link.max_payload = RF_TERMS_BYTES;
    return 0;
}

/* Sends the last frame; queued: the status of queueing it. The connection stays until the other end
 * has read it. */
static int dismiss(struct newcomer *n, int queued)
{
    n->leaving = true;
    n->since_ns = rf_now_ns();
    RETURN_IF_ERROR(queued);
    RETURN_IF_ERROR(rf_link_flush(&n->link));
    shutdown(n->link.fd, SHUT_WR);
    return 0;
}

static int refuse(struct newcomer *n, int status, const char *text)
{
    return dismiss(n, rf_link_queue_refusal(&n->link, 0, status, text));
}

static int receive_terms(struct rf_join_listener *l, struct newcomer *n,
                         const struct rf_frame *frame)
{
    char why[400], *text = rf_alloc((size_t)frame->bytes + 1);
    if (!text)
        return rf_fail(RF_ENOMEM, "no memory for the terms of a newcomer");
    memcpy(text, frame->payload, frame->bytes);
    n->agreed = rf_terms_agree(l->terms, text, why, sizeof(why));
    rf_free(text);
    if (n->agreed)
        return 0;
    rf_log("transport", 1, "a newcomer was turned away: %s", why);
    return refuse(n, RF_EINVAL, why);
}

static int receive_frame(struct rf_join_listener *l, struct newcomer *n,
                         const struct rf_frame *frame)
{
    n->answered_ns = rf_now_ns();
    if (frame->kind == RF_FRAME_TERMS && !n->agreed)
        return receive_terms(l, n, frame);
    if (frame->kind == RF_FRAME_HEARTBEAT && n->agreed)
        return 0;
    return rf_fail(RF_ECORRUPT, "control: a newcomer sent frames out of order");
}

static int send_due(struct rf_join_listener *l, struct newcomer *n, bool heartbeat)
{
    if (n->agreed && n->status_number != l->status_count) {
        n->status_number = l->status_count;
        RETURN_IF_ERROR(rf_link_queue(&n->link, RF_FRAME_NOTE, 0, 0, l->status, strlen(l->status)));
    }
    if (n->agreed && heartbeat)
        RETURN_IF_ERROR(rf_link_queue(&n->link, RF_FRAME_HEARTBEAT, 0, 0, NULL, 0));
    return rf_link_flush(&n->link);
}

/* Not 0: the connection must be dropped. */
static int serve_newcomer(struct rf_join_listener *l, struct newcomer *n, bool heartbeat)
{
    struct rf_frame frame;
    if (n->leaving) {
        uint8_t ignored[256];
        RETURN_IF_ERROR(rf_link_flush(&n->link));
        return recv(n->link.fd, ignored, sizeof(ignored), MSG_DONTWAIT) == 0 ||
               rf_now_ns() - n->since_ns > LINGER_NS;
    }
    int rc = rf_link_fill(&n->link);
    while (rc > 0 && !n->leaving && (rc = rf_link_next(&n->link, &frame)) > 0)
        RETURN_IF_ERROR(receive_frame(l, n, &frame));
    if (rc < 0 || n->leaving)
        return rc < 0 ? rc : 0;
    if (rf_now_ns() - n->answered_ns > (n->agreed ? SILENCE_NS : TERMS_NS))
        return rf_fail(RF_ETIMEOUT, "a newcomer fell silent");
    return send_due(l, n, heartbeat);
}

static void turn(struct rf_join_listener *l)
{
    const uint64_t now = rf_now_ns();
    const bool heartbeat = now >= l->next_heartbeat_ns;
    uint64_t ignored;
    if (read(l->wake_fd, &ignored, sizeof(ignored)) < 0 && errno != EAGAIN)
        rf_log("transport", 1, "the join_listener's event: %s", strerror(errno));
    if (heartbeat)
        l->next_heartbeat_ns = now + HEARTBEAT_NS;
    rf_listener_serve(&l->listener);
    for (int i = l->count - 1; i >= 0; i--) {
        struct newcomer *n = &l->waiting[i];
        const bool stays = !n->leaving;
        if (serve_newcomer(l, n, heartbeat) == 0)
            continue;
        if (stays && n->agreed)
            rf_log("transport", 0, "a newcomer that waited for the job is gone: %s",
                   rf_last_error()->message);
        drop(l, i);
    }
}

static void *serve(void *argument)
{
    struct rf_join_listener *l = argument;
    struct pollfd polls[1 + RF_LISTENER_POLLS + RF_JOIN_MAX_WAITING];
    pthread_mutex_lock(&l->lock);
    while (!l->stopping || l->count > 0) {
        turn(l);
        pthread_cond_broadcast(&l->answered);
        int count = 0;
        polls[count++] = (struct pollfd){.fd = l->wake_fd, .events = POLLIN};
        count += rf_listener_polls(&l->listener, polls + count);
        for (int i = 0; i < l->count; i++)
            polls[count++] = (struct pollfd){
                .fd = l->waiting[i].link.fd,
                .events = POLLIN | (rf_link_has_output(&l->waiting[i].link) ? POLLOUT : 0)};
        uint64_t until = l->count > 0 ? l->next_heartbeat_ns : UINT64_MAX;
        if (rf_listener_deadline(&l->listener) < until)
            until = rf_listener_deadline(&l->listener);
        const bool sleep = !l->stopping || l->count > 0;
        pthread_mutex_unlock(&l->lock);
        if (sleep)
            poll(polls, (nfds_t)count, rf_poll_ms(until, rf_now_ns()));
        pthread_mutex_lock(&l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- the job's calls ------------------------------------------------------------------------- */

static int start(struct rf_join_listener *l, int port, const char *terms)
{
    const char *host = "0.0.0.0";
    int listener = -1;
    l->terms = rf_strdup(terms);
    l->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (!l->terms || l->wake_fd < 0)
        return rf_fail(RF_ENOMEM, "no memory for a join_listener");
    const int rc = rf_socket_listen(host, port, true, &listener, &l->port);
    if (rc == RF_EBUSY)
        return rf_fail(RF_EBUSY, "port %d is in use; choose another one for newcomers", port);
    if (rc < 0)
        return rc;
    l->listener.fd = listener;
    if (pthread_create(&l->thread, NULL, serve, l) != 0)
        return rf_fail(RF_ENOMEM, "no thread for newcomers can be started");
    l->running = true;
    return 0;
}

int rf_join_listener_create(int port, const char *key, const char *terms,
                            struct rf_join_listener **out)
{
    struct rf_job_key job_key;
    const char *text = key ? key : rf_env("RF_JOB_KEY");
    RETURN_IF_ERROR(rf_job_key_init(&job_key, text));
    if (!job_key.present)
        return rf_fail(RF_EAUTH, "newcomers must prove that they belong to the job: set RF_JOB_KEY "
                                 "to the same secret text for the job and for them");
    if (port < 0 || port > 65535)
        return rf_fail(RF_EINVAL, "%d is not a port (0 to 65535)", port);
    if (strlen(terms) > RF_TERMS_BYTES)
        return rf_fail(RF_EINVAL, "the terms of a job have at most %d bytes", RF_TERMS_BYTES);
    struct rf_join_listener *l = rf_alloc(sizeof(*l));
    if (!l)
        return rf_fail(RF_ENOMEM, "no memory for a join_listener");
    pthread_mutex_init(&l->lock, NULL);
    rf_cond_init(&l->answered);
    rf_listener_init(&l->listener, -1, RF_JOIN_WORLD_SIZE, &job_key);
    l->listener.admit = admit;
    l->listener.owner = l;
    l->wake_fd = -1;
    const int rc = start(l, port, terms);
    if (rc < 0) {
        const struct rf_error error = *rf_last_error();
        rf_join_listener_close(l, "");
        return rf_fail_error(&error);
    }
    *out = l;
    return 0;
}

void rf_join_listener_close(struct rf_join_listener *l, const char *reason)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->stopping = true;
    for (int i = 0; i < l->count; i++) /* one that cannot be reached sees the connection close */
        if (!l->waiting[i].leaving && refuse(&l->waiting[i], RF_EPEER, reason) < 0)
            l->waiting[i].leaving = true;
    pthread_mutex_unlock(&l->lock);
    if (l->running) {
        wake(l);
        pthread_join(l->thread, NULL);
    }
    rf_listener_close(&l->listener);
    if (l->wake_fd >= 0)
        close(l->wake_fd);
    pthread_cond_destroy(&l->answered);
    pthread_mutex_destroy(&l->lock);
    rf_free(l->terms);
    rf_free(l);
}

int rf_join_listener_port(const struct rf_join_listener *l)
{
    return l->port;
}

static bool is_waiting(const struct newcomer *n)
{
    return n->agreed && !n->leaving;
}

static bool answers(const struct rf_join_listener *l, const struct newcomer *n)
{
    return is_waiting(n) && n->answered_ns >= l->asked_ns;
}

/* Called with l->lock held. */
static int count_answering(const struct rf_join_listener *l)
{
    int count = 0;
    for (int i = 0; i < l->count; i++)
        count += answers(l, &l->waiting[i]);
    return count;
}

static int count_waiting(const struct rf_join_listener *l)
{
    int count = 0;
    for (int i = 0; i < l->count; i++)
        count += is_waiting(&l->waiting[i]);
    return count;
}

int rf_join_listener_waiting(struct rf_join_listener *l)
{
    pthread_mutex_lock(&l->lock);
    const uint64_t until = rf_now_ns() + ANSWER_NS;
    l->asked_ns = rf_now_ns();
    l->next_heartbeat_ns = 0;
    wake(l);
    while (count_answering(l) < count_waiting(l) && rf_cond_wait(&l->answered, &l->lock, until))
        ;
    const int count = count_answering(l);
    pthread_mutex_unlock(&l->lock);
    return count;
}

void rf_join_listener_set_status(struct rf_join_listener *l, const char *text)
{
    pthread_mutex_lock(&l->lock);
    if (strncmp(l->status, text, sizeof(l->status) - 1) != 0) {
        snprintf(l->status, sizeof(l->status), "%s", text);
        l->status_count++;
        wake(l);
    }
    pthread_mutex_unlock(&l->lock);
}

/* Invites the newcomers that have waited longest. Called with l->lock held. */
static void invite_first(struct rf_join_listener *l, int count, const struct rf_growth *growth)
{
    struct rf_invitation invitation = {.port = growth->port, .size = growth->size};
    uint8_t payload[RF_INVITATION_BYTES];
    memcpy(invitation.job, growth->job, sizeof(invitation.job));
    for (int i = 0, called = 0; i < l->count && called < count; i++) {
        if (!answers(l, &l->waiting[i]))
            continue;
        invitation.rank = growth->size - count + called++;
        rf_invitation_write(&invitation, payload);
        struct newcomer *n = &l->waiting[i];
        if (dismiss(n, rf_link_queue(&n->link, RF_FRAME_INVITE, 0, 0, payload, sizeof(payload))) <
            0)
            rf_log("transport", 1, "newcomer %d could not be invited", invitation.rank);
    }
}

int rf_growth_begin(struct rf_join_listener *l, struct rf_control *parent, int count,
                    struct rf_growth *out, int *listener)
{
    struct rf_growth growth = {.size = parent->size + count};
    rf_control_local_address(parent, growth.host, sizeof(growth.host));
    pthread_mutex_lock(&l->lock);
    const int there = count_answering(l);
    int port, rc = 0;
    if (parent->size > 1 && rf_loop_world(parent))
        rc = rf_fail(RF_ENOTSUP,
                     "a job whose ranks are threads of one process cannot admit newcomers");
    else if (count < 1 || there < count)
        rc = rf_fail(RF_EAGAIN, "%d of %d newcomers answer", there, count);
    else
        rc = rf_socket_listen(growth.host, 0, true, listener, &port);
    if (rc == 0) {
        growth.port = port;
        rf_random(growth.job, sizeof(growth.job));
        invite_first(l, count, &growth);
        wake(l);
        *out = growth;
    }
    pthread_mutex_unlock(&l->lock);
    return rc;
}
