/* SPDX-License-Identifier: MIT
 *
 * How the ranks of a job find each other: rank 0 listens until all have joined, the others connect
 * and authenticate until they are accepted or refused with a reason. A foreign connection or a
 * misconfigured rank never ends the job. Called by bootstrap.c, and by others through
 * rf_rendezvous_join.
 */
#include "join.h"

#include <poll.h>
#include <ringforge/ringforge.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../control/socket.h"
#include "base/base.h"
#include "kvs.h"
#include "listener.h"

static const uint64_t RETRY_NS = 20000000;
enum { MOST_DOUBLINGS = 6 };                    /* of that time, where rank 0 has others to serve */
static const uint64_t ANSWER_NS = 3000000000;   /* for one step of the handshake, */
static const uint64_t ANSWER_RANK_NS = 5000000; /* and for each rank that may be served before */
static const uint64_t WATCH_NS = 50000000;      /* how often joined ranks are looked at */
static const uint64_t STALE_NS = 1000000000;    /* how long a file may be that of an earlier run */

static uint64_t deadline_of(const struct rf_rendezvous *rendezvous)
{
    return rf_after_s(rendezvous->timeout_s);
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

struct gathering {
    struct rf_rendezvous *rendezvous;
    struct rf_link *links;
    int joined; /* without rank 0 */
    struct rf_listener listener;
};

/* A connection to each rank, those that join, and what a process has open anyway. */
static int files_of_rank_0(int size)
{
    return size + RF_LISTENER_MAX_PENDING + 32;
}

/* A rank that has joined may die before the last one joins; another process may then join as that
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

/* polls: of all ranks but 0, as poll() has left them. */
static void watch_joined(struct gathering *g, const struct pollfd *polls)
{
    for (int rank = 1; rank < g->rendezvous->size; rank++)
        if (g->links[rank].fd >= 0 && polls[rank - 1].fd == g->links[rank].fd &&
            polls[rank - 1].revents)
            watch_one(g, rank);
}

/* Also whether those that joined are still there, once all have: a job must not start without one.
 */
static bool all_are_here(struct gathering *g)
{
    if (g->joined + 1 < g->rendezvous->size)
        return false;
    for (int rank = 1; rank < g->rendezvous->size; rank++)
        watch_one(g, rank);
    return g->joined + 1 == g->rendezvous->size;
}

static int admit(void *owner, int rank, struct rf_link *link)
{
    struct gathering *g = owner;
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

/* Every connection that poll() looks at costs rank 0 time, at every arrival of another; those that
 * have joined, and have got all their bytes, are looked at from time to time. */
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
        /* The control link notices a rank that cannot be reached, as any death. */
        if (rc == 0 && link->fd >= 0 && rf_link_flush_by(link, deadline) < 0)
            rf_log("transport", 0, "rank %d went away while the job started", rank);
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

/* Without a key rank 0 listens on loopback only. With one it listens on all addresses, since the
 * name that others know need not be an address of this host; unless that name is a loopback name.
 */
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
    if (rc == 0) { /* else the others read that there is none */
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
    gathering.listener.owner = &gathering;
    rf_log("transport", 2, "rank 0 waits for %d ranks on %s port %d", rendezvous->size - 1,
           rendezvous->host, rendezvous->port);
    int rc = wait_for_ranks(&gathering);
    struct rf_error reason = *rf_last_error();
    /* Before anybody may come back for the next job, which must not read this address. */
    if (rendezvous->file)
        unlink(rendezvous->file);
    send_outcome(&gathering, rc);
    if (rc == 0)
        gathering.listener.fd = -1; /* goes to the control thread */
    rf_listener_close(&gathering.listener);
    if (rc < 0) {
        for (int rank = 1; rank < rendezvous->size; rank++)
            rf_link_close(&links[rank]);
        return rf_fail_error(&reason);
    }
    return 0;
}

/* ---- everybody else -------------------------------------------------------------------------- */

int rf_join_refusal(const struct rf_frame *frame)
{
    char text[400];
    int status = -(int)(rf_get32(frame->payload) & 0xff);
    rf_frame_text(frame->payload + 4, frame->bytes - 4, text, sizeof(text));
    if (status == 0 || status < RF_EAGAIN)
        status = RF_ENET;
    return rf_fail_rank(status, 0, "rank 0 says: %s", text);
}

static int check_kind(const struct rf_frame *frame, int kind)
{
    if (frame->kind == RF_FRAME_REFUSE)
        return rf_join_refusal(frame);
    if (frame->kind != kind)
        return rf_fail(RF_ECORRUPT, "control: rank 0 answered out of order");
    return 0;
}

/* The next frame, which must be of this kind. */
static int expect(struct rf_link *link, int kind, uint64_t deadline, struct rf_frame *frame)
{
    RETURN_IF_ERROR(rf_link_next_by(link, frame, deadline));
    return check_kind(frame, kind);
}

int rf_join_authenticate(const struct rf_rendezvous *rendezvous, struct rf_link *link,
                         uint64_t deadline)
{
    struct rf_handshake h = {.version = RF_FRAME_VERSION,
                             .rank = (uint32_t)rendezvous->rank,
                             .size = (uint32_t)rendezvous->size};
    struct rf_frame frame;
    uint8_t hello[RF_HELLO_BYTES], proof[RF_PROOF_BYTES];
    rf_random(h.joiner, sizeof(h.joiner));
    rf_handshake_hello(&h, hello);
    RETURN_IF_ERROR(rf_link_queue(link, RF_FRAME_HELLO, rendezvous->rank, 0, hello, sizeof(hello)));
    RETURN_IF_ERROR(rf_link_flush_by(link, deadline));
    RETURN_IF_ERROR(expect(link, RF_FRAME_CHALLENGE, deadline, &frame));
    memcpy(h.listener, frame.payload, sizeof(h.listener));
    rf_handshake_prove(&rendezvous->key, &h, 'J', proof);
    RETURN_IF_ERROR(rf_link_queue(link, RF_FRAME_PROOF, rendezvous->rank, 0, proof, sizeof(proof)));
    RETURN_IF_ERROR(rf_link_flush_by(link, deadline));
    RETURN_IF_ERROR(expect(link, RF_FRAME_WELCOME, deadline, &frame));
    if (!rf_handshake_check(&rendezvous->key, &h, 'H', frame.payload))
        return rf_fail_rank(RF_EAUTH, 0,
                            "what listens at %s port %d does not know the job key, so it is not "
                            "rank 0 of this job",
                            rendezvous->host, rendezvous->port);
    return 0;
}

/* One attempt, from connecting to being accepted. RF_EAGAIN: another may succeed. *reached: what
 * listens there has answered by closing the connection, by asking to try again, or not at all. */
static int try_once(struct rf_rendezvous *rendezvous, struct rf_link *link, uint64_t deadline,
                    bool *reached)
{
    bool loopback = false;
    int fd = -1;
    if (rendezvous->file)
        RETURN_IF_ERROR(rf_rendezvous_file_read(rendezvous->file, rendezvous->host,
                                                sizeof(rendezvous->host), &rendezvous->port,
                                                rendezvous->key.job));
    if (!rendezvous->key.present) {
        RETURN_IF_ERROR(rf_host_is_loopback(rendezvous->host, &loopback));
        if (!loopback)
            return rf_fail(RF_EAUTH,
                           "%s is not a loopback address, so ranks must prove that they belong to "
                           "the job: set RF_JOB_KEY to the same secret text on every rank",
                           rendezvous->host);
    }
    RETURN_IF_ERROR(rf_socket_connect(rendezvous->host, rendezvous->port, deadline, &fd));
    rf_link_init(link, fd, RF_FRAME_MAX_PAYLOAD);
    uint64_t answer = rf_now_ns() + ANSWER_NS + (uint64_t)rendezvous->size * ANSWER_RANK_NS;
    int rc = rf_join_authenticate(rendezvous, link, answer < deadline ? answer : deadline);
    if (rc == 0)
        return 0;
    rf_link_close(link);
    /* Closed because too many are pending, or another program listens there at the moment. */
    *reached = rc == RF_EPEER || rc == RF_ETIMEOUT || rc == RF_ECORRUPT || rc == RF_EAGAIN;
    return *reached ? RF_EAGAIN : rc;
}

static int wait_for_start(const struct rf_rendezvous *rendezvous, struct rf_link *link,
                          uint64_t deadline)
{
    struct rf_frame frame;
    /* Rank 0 has its own deadline, and its reason for giving up says more. */
    int rc = rf_link_next_by(link, &frame, rf_add_ns(deadline, ANSWER_NS));
    if (rc == RF_EPEER)
        return rf_fail_rank(RF_EPEER, 0, "rank 0 went away before all ranks had joined");
    if (rc == RF_ETIMEOUT)
        return rf_fail_rank(RF_ETIMEOUT, 0, "rank 0 did not start the job within %.3g s",
                            rendezvous->timeout_s);
    return rc < 0 ? rc : check_kind(&frame, RF_FRAME_START);
}

/* Where thousands try, they must not come again all at once: each waits a part of its own of a time
 * that doubles. */
static uint64_t pause_ns(int refusals)
{
    uint32_t random = 0;
    if (refusals == 0)
        return RETRY_NS;
    rf_random(&random, sizeof(random));
    const uint64_t most = RETRY_NS << (refusals < MOST_DOUBLINGS ? refusals : MOST_DOUBLINGS);
    return RETRY_NS + (most - RETRY_NS) * (random >> 16) / 65536;
}

/* Reads the address of rank 0, and the key, from the launcher's key-value store. */
static int read_kvs(struct rf_rendezvous *rendezvous, uint64_t deadline)
{
    struct rf_rendezvous_record record = {{0}};
    RETURN_IF_ERROR(rf_rendezvous_record_exchange(rendezvous->kvs, false, &record, deadline));
    if (record.port == 0)
        return rf_fail_rank(RF_EPEER, 0, "rank 0 could not open the job's listener");
    if (record.key[0])
        RETURN_IF_ERROR(rf_job_key_init(&rendezvous->key, record.key));
    snprintf(rendezvous->host, sizeof(rendezvous->host), "%.63s", record.host);
    rendezvous->port = record.port;
    memcpy(rendezvous->key.job, record.job, RF_JOB_BYTES);
    return 0;
}

int rf_join_connect(struct rf_rendezvous *rendezvous, struct rf_link *link)
{
    uint64_t start = rf_now_ns(), deadline = deadline_of(rendezvous);
    if (rendezvous->kvs)
        RETURN_IF_ERROR(read_kvs(rendezvous, deadline));
    for (int refusals = 0;;) {
        bool reached = false;
        int rc = try_once(rendezvous, link, deadline, &reached);
        if (rc == 0)
            break;
        /* A file of an earlier run may name a port that another job uses now. */
        bool maybe_stale = rendezvous->file &&
                           (rc == RF_EAUTH || rc == RF_EINVAL || rc == RF_EBUSY) &&
                           rf_now_ns() - start < STALE_NS;
        if (rc != RF_EAGAIN && !maybe_stale)
            return rc;
        if (rf_now_ns() >= deadline) {
            struct rf_error last = *rf_last_error();
            return rf_fail_rank(RF_ETIMEOUT, 0, "rank %d could not join within %.3g s: %.400s",
                                rendezvous->rank, rendezvous->timeout_s, last.message);
        }
        refusals += reached;
        rf_sleep_ns(pause_ns(refusals));
    }
    int rc = wait_for_start(rendezvous, link, deadline);
    if (rc < 0)
        rf_link_close(link);
    return rc;
}
