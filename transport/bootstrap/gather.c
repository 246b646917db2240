/* SPDX-License-Identifier: MIT
 *
 * Rank 0's side of joining: it listens until all others have joined, and tells them that the job
 * starts, or why not. A foreign connection or a misconfigured rank never ends the job. Called by
 * bootstrap.c; join.c is the others' side.
 */
#include <poll.h>
#include <ringforge/ringforge.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../control/control.h"
#include "../control/socket.h"
#include "base/base.h"
#include "join.h"
#include "kvs.h"
#include "listener.h"

static const uint64_t ANSWER_NS = 3000000000; /* to send the outcome to all */
static const uint64_t WATCH_NS = 50000000;    /* interval between checks of joined ranks */
static const uint64_t REASON_NS = 1000000000; /* to receive the reason of a rank that declines */
static const uint64_t LATE_NS = 5000000000;   /* during which late ranks are told that */

static uint64_t deadline_of(const struct rf_rendezvous *rendezvous)
{
    return rf_after_s(rendezvous->timeout_s);
}

struct gathering {
    struct rf_rendezvous *rendezvous;
    struct rf_link *links;
    int joined; /* without rank 0 */
    struct rf_listener listener;
    /* There will be no job, because a rank declines. */
    bool over;
    int who;
    char why[RF_FRAME_MAX_TEXT];
    uint8_t *told; /* by rank */
    int told_count;
};

/* A connection to each rank and to pending ones, and the files that a process has open anyway. */
static int files_of_rank_0(int size)
{
    return size + RF_LISTENER_MAX_PENDING + 32;
}

/* A rank that has joined may die before the last one joins; then another process may join as that
 * rank. */
static void watch_one(struct gathering *g, int rank)
{
    struct rf_link *link = &g->links[rank];
    uint8_t byte;
    bool gone = recv(link->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
    if (gone || rf_link_flush(link) < 0) {
        rf_log("transport", 0, "rank %d joined and went away again", rank);
        rf_link_close(link);
        g->joined--;
    }
}

/* polls: for all ranks but 0, filled by poll(). */
static void watch_joined(struct gathering *g, const struct pollfd *polls)
{
    for (int rank = 1; rank < g->rendezvous->size; rank++)
        if (g->links[rank].fd >= 0 && polls[rank - 1].fd == g->links[rank].fd &&
            polls[rank - 1].revents)
            watch_one(g, rank);
}

/* Once all have joined, also checks that they are still alive: a job must not start without one. */
static bool all_are_here(struct gathering *g)
{
    if (g->joined + 1 < g->rendezvous->size)
        return false;
    for (int rank = 1; rank < g->rendezvous->size; rank++)
        watch_one(g, rank);
    return g->joined + 1 == g->rendezvous->size;
}

static void note_told(struct gathering *g, int rank)
{
    g->told_count += !g->told[rank];
    g->told[rank] = 1;
}

static int admit(void *owner, int rank, struct rf_link *link)
{
    struct gathering *g = owner;
    if (g->over) {
        note_told(g, rank);
        return rf_fail_rank(RF_EABORT, g->who, "%s", g->why);
    }
    if (g->links[rank].fd >= 0)
        watch_one(g, rank);
    if (g->links[rank].fd >= 0)
        return rf_fail(RF_EBUSY, "rank %d has joined already; two processes have the same rank",
                       rank);
    g->links[rank] = *link;
    g->joined++;
    rf_log("transport", 2, "rank %d has joined (%d of %d)", rank, g->joined + 1,
           g->rendezvous->size);
    return 0;
}

/* A rank declines: its reason follows. */
static int decline(void *owner, int rank, struct rf_link *link)
{
    struct gathering *g = owner;
    struct rf_frame frame;
    char text[RF_FRAME_MAX_TEXT] = "no reason given";
    const uint64_t deadline = rf_now_ns() + REASON_NS;
    note_told(g, rank);
    if (g->over)
        return rf_fail_rank(RF_EABORT, g->who, "%s", g->why);
    link->max_payload = 4 + RF_FRAME_MAX_TEXT;
    if (rf_link_flush_by(link, deadline) == 0 && rf_link_next_by(link, &frame, deadline) == 1 &&
        frame.kind == RF_FRAME_REFUSE)
        rf_frame_text(frame.payload + 4, frame.bytes - 4, text, sizeof(text));
    rf_link_close(link);
    g->over = true;
    g->who = rank;
    snprintf(g->why, sizeof(g->why), "rank %d does not join: %.360s", rank, text);
    return 0;
}

static int fail_missing(struct gathering *g)
{
    char names[160] = "";
    int shown = 0, missing = 0, first = -1;
    for (int rank = 1; rank < g->rendezvous->size; rank++) {
        if (g->links[rank].fd >= 0)
            continue;
        missing++;
        if (first < 0)
            first = rank;
        size_t used = strlen(names);
        if (used + 16 < sizeof(names)) {
            snprintf(names + used, sizeof(names) - used, "%s%d", used ? ", " : "", rank);
            shown++;
        }
    }
    return rf_fail_rank(RF_ETIMEOUT, first,
                        "%s %s%s did not join within %.3g s (%d of %d are here)",
                        missing == 1 ? "rank" : "ranks", names, shown < missing ? ", ..." : "",
                        g->rendezvous->timeout_s, g->joined + 1, g->rendezvous->size);
}

/* Every connection that poll() examines costs rank 0 time at every arrival of another. So joined
 * ranks that have received all their bytes are examined only from time to time. */
static int fill_polls(const struct gathering *g, bool all, struct pollfd *polls)
{
    int count = 0;
    for (int rank = 1; rank < g->rendezvous->size; rank++) { /* poll() ignores -1 */
        const bool output = rf_link_has_output(&g->links[rank]);
        polls[count++] = (struct pollfd){.fd = all || output ? g->links[rank].fd : -1,
                                         .events = POLLIN | (output ? POLLOUT : 0)};
    }
    return count + rf_listener_polls(&g->listener, polls + count);
}

static int fail_files(const struct gathering *g)
{
    char need[160];
    snprintf(need, sizeof(need),
             "rank 0 needs %d beside what its program uses (%d of %d ranks are here)",
             files_of_rank_0(g->rendezvous->size), g->joined + 1, g->rendezvous->size);
    return rf_socket_fail_files(need);
}

static int wait_for_ranks(struct gathering *g)
{
    uint64_t deadline = deadline_of(g->rendezvous);
    int most = g->rendezvous->size + RF_LISTENER_POLLS;
    struct pollfd *polls = rf_alloc((size_t)most * sizeof(*polls));
    if (!polls)
        return rf_fail(RF_ENOMEM, "no memory to wait for %d ranks", g->rendezvous->size);
    int rc = 0;
    uint64_t watch = 0;
    while (!all_are_here(g)) {
        uint64_t now = rf_now_ns(), until = rf_listener_deadline(&g->listener);
        int count = fill_polls(g, now >= watch, polls);
        if (now >= watch)
            watch = now + WATCH_NS;
        if (until > watch)
            until = watch;
        if (now >= deadline) {
            rc = fail_missing(g);
            break;
        }
        if (until > deadline)
            until = deadline;
        if (poll(polls, (nfds_t)count, rf_poll_ms(until, now)) < 0)
            continue; /* a signal */
        watch_joined(g, polls);
        rf_listener_serve(&g->listener);
        if (g->rendezvous->parent &&
            (rc = rf_control_check(g->rendezvous->parent, g->rendezvous->members,
                                   g->rendezvous->member_count)) < 0)
            break;
        if (g->over) {
            rc = rf_fail_rank(RF_EABORT, g->who, "%s", g->why);
            break;
        }
        if (g->listener.out_of_files && g->listener.pending_count == 0) {
            rc = fail_files(g);
            break;
        }
    }
    rf_free(polls);
    return rc;
}

/* Sends the outcome to all ranks that have joined. */
static void send_outcome(struct gathering *g, int status)
{
    const struct rf_error reason = *rf_last_error();
    uint64_t deadline = rf_now_ns() + ANSWER_NS;
    for (int rank = 1; rank < g->rendezvous->size; rank++) {
        struct rf_link *link = &g->links[rank];
        int rc = status < 0 ? rf_link_queue_refusal(link, 0, status, reason.message)
                            : rf_link_queue(link, RF_FRAME_START, 0, 0, NULL, 0);
        if (status < 0 && link->fd >= 0)
            note_told(g, rank);
        /* The control link detects an unreachable rank like any death. */
        if (rc == 0 && link->fd >= 0 && rf_link_flush_by(link, deadline) < 0)
            rf_log("transport", 0, "rank %d went away while the job started", rank);
    }
}

/* Tells late ranks why there is no job, so that they need not wait for it. */
static void tell_late_ranks(struct gathering *g, uint64_t deadline)
{
    struct pollfd polls[RF_LISTENER_POLLS];
    for (uint64_t now; g->told_count + 1 < g->rendezvous->size && (now = rf_now_ns()) < deadline;) {
        const int count = rf_listener_polls(&g->listener, polls);
        uint64_t until = rf_listener_deadline(&g->listener);
        until = until < deadline ? until : deadline;
        if (poll(polls, (nfds_t)count, rf_poll_ms(until, now)) >= 0)
            rf_listener_serve(&g->listener);
    }
    /* They have been answered; wait until they read the answer. */
    while (g->listener.pending_count > 0 && rf_now_ns() < deadline) {
        const int count = rf_listener_polls(&g->listener, polls);
        poll(polls, (nfds_t)count, rf_poll_ms(deadline, rf_now_ns()));
        rf_listener_serve(&g->listener);
    }
}

static bool names_loopback(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "::1") == 0;
}

/* The soft limit is often below the hard one. */
static int check_file_limit(int size)
{
    struct rlimit limit;
    rlim_t need = (rlim_t)files_of_rank_0(size);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= need)
        return 0;
    rlim_t most = limit.rlim_max;
    limit.rlim_cur = need;
    if (need <= most && setrlimit(RLIMIT_NOFILE, &limit) == 0)
        return 0;
    return rf_fail(RF_ENET,
                   "rank 0 needs a connection to each of %d ranks, but may open only %llu files; "
                   "raise the limit with ulimit -Hn %llu",
                   size, (unsigned long long)most, (unsigned long long)need);
}

/* Without a key rank 0 listens on loopback only. With one it listens on all addresses, because the
 * name known to the others need not be an address of this host; unless that name is a loopback
 * name. */
static int open_listener(struct rf_rendezvous *rendezvous, int *listener)
{
    bool loopback = false;
    RETURN_IF_ERROR(check_file_limit(rendezvous->size));
    if (rendezvous->file || rendezvous->kvs) {
        if (rendezvous->key.present)
            rf_host_address(rendezvous->host, sizeof(rendezvous->host));
        else
            snprintf(rendezvous->host, sizeof(rendezvous->host), "127.0.0.1");
        rf_random(rendezvous->key.job, RF_JOB_BYTES);
    }
    RETURN_IF_ERROR(rf_host_is_loopback(rendezvous->host, &loopback));
    if (!loopback && !rendezvous->key.present)
        return rf_fail(RF_EAUTH,
                       "%s is not a loopback address, so ranks must prove that they belong to the "
                       "job: set RF_JOB_KEY to the same secret text on every rank",
                       rendezvous->host);
    bool everywhere = rendezvous->key.present && !names_loopback(rendezvous->host);
    RETURN_IF_ERROR(rf_socket_listen(rendezvous->host, rendezvous->port, everywhere, listener,
                                     &rendezvous->port));
    if (!rendezvous->file)
        return 0;
    int rc = rf_rendezvous_file_write(rendezvous->file, rendezvous->host, rendezvous->port,
                                      rendezvous->key.job);
    if (rc < 0)
        close(*listener);
    return rc;
}

/* The same, with a key made for this job if none is given; publishes both in the key-value store.
 */
static int open_listener_and_publish(struct rf_rendezvous *rendezvous, int *listener)
{
    struct rf_rendezvous_record record = {{0}};
    uint64_t deadline = deadline_of(rendezvous);
    if (!rendezvous->key.present) {
        rf_rendezvous_record_make_key(&record);
        RETURN_IF_ERROR(rf_job_key_init(&rendezvous->key, record.key));
    }
    int rc = open_listener(rendezvous, listener);
    if (rc == 0) { /* otherwise the others read that rank 0 failed */
        snprintf(record.host, sizeof(record.host), "%.63s", rendezvous->host);
        record.port = rendezvous->port;
        memcpy(record.job, rendezvous->key.job, RF_JOB_BYTES);
    }
    struct rf_error reason = *rf_last_error();
    int shared = rf_rendezvous_record_exchange(rendezvous->kvs, true, &record, deadline);
    if (rc == 0 && shared < 0)
        close(*listener);
    return rc < 0 ? rf_fail_error(&reason) : shared;
}

int rf_join_gather(struct rf_rendezvous *rendezvous, struct rf_link *links, int *listener)
{
    struct gathering gathering = {.rendezvous = rendezvous, .links = links};
    if (rendezvous->listens)
        *listener = rendezvous->listener;
    else if (rendezvous->kvs)
        RETURN_IF_ERROR(open_listener_and_publish(rendezvous, listener));
    else
        RETURN_IF_ERROR(open_listener(rendezvous, listener));
    rf_listener_init(&gathering.listener, *listener, rendezvous->size, &rendezvous->key);
    gathering.listener.admit = admit;
    gathering.listener.decline = decline;
    gathering.listener.owner = &gathering;
    gathering.told = rf_alloc((size_t)rendezvous->size);
    if (!gathering.told) {
        rf_listener_close(&gathering.listener);
        return rf_fail(RF_ENOMEM, "no memory to wait for %d ranks", rendezvous->size);
    }
    if (rendezvous->declines) {
        gathering.over = true;
        snprintf(gathering.why, sizeof(gathering.why), "%s", rendezvous->declines);
    }
    rf_log("transport", 2, "rank 0 waits for %d ranks on %s port %d", rendezvous->size - 1,
           rendezvous->host, rendezvous->port);
    int rc = gathering.over ? 0 : wait_for_ranks(&gathering);
    struct rf_error reason = *rf_last_error();
    /* Before anybody can return for the next job, which must not read this address; unless late
     * ranks must still be told that there is no job. */
    if (rendezvous->file && !gathering.over)
        unlink(rendezvous->file);
    if (!rendezvous->declines)
        send_outcome(&gathering, rc);
    if (gathering.over)
        tell_late_ranks(&gathering,
                        rendezvous->declines ? deadline_of(rendezvous) : rf_now_ns() + LATE_NS);
    if (rendezvous->file && gathering.over)
        unlink(rendezvous->file);
    if (!gathering.over && rc == 0)
        gathering.listener.fd = -1; /* goes to the control thread */
    rf_listener_close(&gathering.listener);
    rf_free(gathering.told);
    if (rc < 0) {
        for (int rank = 1; rank < rendezvous->size; rank++)
            rf_link_close(&links[rank]);
        return rf_fail_error(&reason);
    }
    return 0;
}
