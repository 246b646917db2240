/* SPDX-License-Identifier: MIT
 *
 * Joining for all ranks but rank 0: they connect and authenticate until they are accepted or
 * refused with a reason. Called by bootstrap.c, and by others through rf_rendezvous_join; gather.c
 * is rank 0's side.
 */
#include "join.h"

#include <ringforge/ringforge.h>

#include "../control/control.h"
#include "../control/socket.h"
#include "base/base.h"
#include "kvs.h"

static const uint64_t RETRY_NS = 20000000;
enum { MOST_DOUBLINGS = 6 };                    /* of that time, while rank 0 serves others */
static const uint64_t ANSWER_NS = 3000000000;   /* for one step of the handshake, */
static const uint64_t ANSWER_RANK_NS = 5000000; /* and for each rank that may be served earlier */
static const uint64_t STALE_NS = 1000000000;    /* for which a file may be that of an earlier run */
static const uint64_t REASON_NS = 1000000000;   /* for the reason of a rank that declines */

static uint64_t deadline_of(const struct rf_rendezvous *rendezvous)
{
    return rf_after_s(rendezvous->timeout_s);
}

/* who: the other end, for the message. */
static int refusal(const struct rf_frame *frame, const char *who)
{
    char text[400];
    int status = -(int)(rf_get32(frame->payload) & 0xff);
    rf_frame_text(frame->payload + 4, frame->bytes - 4, text, sizeof(text));
    if (status == 0 || status < RF_EAGAIN)
        status = RF_ENET;
    return rf_fail_rank(status, 0, "%s says: %s", who, text);
}

int rf_join_refusal(const struct rf_frame *frame)
{
    return refusal(frame, "rank 0");
}

static int check_kind(const struct rf_frame *frame, int kind, const char *who)
{
    if (frame->kind == RF_FRAME_REFUSE)
        return refusal(frame, who);
    if (frame->kind != kind)
        return rf_fail(RF_ECORRUPT, "control: %s answered out of order", who);
    return 0;
}

int rf_join_prove(const struct rf_job_key *key, struct rf_handshake *h, struct rf_link *link,
                  uint64_t deadline)
{
    const int rank = (int)(h->rank & ~RF_HELLO_DECLINES);
    const char *who = h->name[0] ? "the coordinator" : "rank 0";
    const size_t name = strnlen(h->name, RF_NAME_BYTES);
    struct rf_frame frame;
    uint8_t hello[RF_HELLO_BYTES + RF_NAME_BYTES], proof[RF_PROOF_BYTES];
    rf_random(h->joiner, sizeof(h->joiner));
    rf_handshake_hello(h, hello);
    memcpy(hello + RF_HELLO_BYTES, h->name, name);
    RETURN_IF_ERROR(rf_link_queue(link, RF_FRAME_HELLO, rank, 0, hello, RF_HELLO_BYTES + name));
    RETURN_IF_ERROR(rf_link_flush_by(link, deadline));
    RETURN_IF_ERROR(rf_link_next_by(link, &frame, deadline));
    RETURN_IF_ERROR(check_kind(&frame, RF_FRAME_CHALLENGE, who));
    memcpy(h->listener, frame.payload, sizeof(h->listener));
    rf_handshake_prove(key, h, 'J', proof);
    RETURN_IF_ERROR(rf_link_queue(link, RF_FRAME_PROOF, rank, 0, proof, sizeof(proof)));
    RETURN_IF_ERROR(rf_link_flush_by(link, deadline));
    RETURN_IF_ERROR(rf_link_next_by(link, &frame, deadline));
    RETURN_IF_ERROR(check_kind(&frame, RF_FRAME_WELCOME, who));
    if (rf_handshake_check(key, h, 'H', frame.payload))
        return 0;
    return rf_fail(RF_EAUTH, "%s does not have the key", who);
}

int rf_join_authenticate(const struct rf_rendezvous *rendezvous, struct rf_link *link,
                         uint64_t deadline)
{
    const uint32_t declines = rendezvous->declines ? RF_HELLO_DECLINES : 0;
    struct rf_handshake h = {.version = RF_FRAME_VERSION,
                             .rank = (uint32_t)rendezvous->rank | declines,
                             .size = (uint32_t)rendezvous->size};
    const int rc = rf_join_prove(&rendezvous->key, &h, link, deadline);
    /* A refusal, which is about rank 0, has its own reason. */
    if (rc == RF_EAUTH && rf_last_error()->rank != 0)
        return rf_fail_rank(
            RF_EAUTH, 0,
            "the program that listens at %s port %d does not have the job key, so it is not "
            "rank 0 of this job",
            rendezvous->host, rendezvous->port);
    return rc;
}

/* One attempt, from connecting to being accepted. RF_EAGAIN: another attempt may succeed. *reached:
 * the listener has closed the connection, has asked to try again, or has not answered. */
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
    /* Closed because too many connections are pending, or another program listens there now. */
    *reached = rc == RF_EPEER || rc == RF_ETIMEOUT || rc == RF_ECORRUPT || rc == RF_EAGAIN;
    return *reached ? RF_EAGAIN : rc;
}

/* Rank 0 closes the connection once it has read the reason. */
static int send_reason(const struct rf_rendezvous *rendezvous, struct rf_link *link)
{
    struct rf_frame frame;
    const uint64_t deadline = rf_now_ns() + REASON_NS;
    RETURN_IF_ERROR(rf_link_queue_refusal(link, rendezvous->rank, RF_EABORT, rendezvous->declines));
    RETURN_IF_ERROR(rf_link_flush_by(link, deadline));
    (void)rf_link_next_by(link, &frame, deadline);
    rf_link_close(link);
    return 0;
}

static int wait_for_start(const struct rf_rendezvous *rendezvous, struct rf_link *link,
                          uint64_t deadline)
{
    struct rf_frame frame;
    /* Rank 0 has its own deadline, and its reason for giving up is more specific. */
    int rc = rf_link_next_by(link, &frame, rf_add_ns(deadline, ANSWER_NS));
    if (rc == RF_EPEER)
        return rf_fail_rank(RF_EPEER, 0, "rank 0 went away before all ranks had joined");
    if (rc == RF_ETIMEOUT)
        return rf_fail_rank(RF_ETIMEOUT, 0, "rank 0 did not start the job within %.3g s",
                            rendezvous->timeout_s);
    return rc < 0 ? rc : check_kind(&frame, RF_FRAME_START, "rank 0");
}

/* Thousands of ranks must not retry all at once: each waits its own fraction of a time that
 * doubles. */
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
        if (rendezvous->parent)
            RETURN_IF_ERROR(rf_control_check(rendezvous->parent, rendezvous->members,
                                             rendezvous->member_count));
        if (rf_now_ns() >= deadline) {
            struct rf_error last = *rf_last_error();
            return rf_fail_rank(RF_ETIMEOUT, 0, "rank %d could not join within %.3g s: %.400s",
                                rendezvous->rank, rendezvous->timeout_s, last.message);
        }
        refusals += reached;
        rf_sleep_ns(pause_ns(refusals));
    }
    int rc = rendezvous->declines ? send_reason(rendezvous, link)
                                  : wait_for_start(rendezvous, link, deadline);
    if (rc < 0)
        rf_link_close(link);
    return rc;
}
