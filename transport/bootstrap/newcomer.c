/* SPDX-License-Identifier: MIT
 *
 * Joining a running job: a process waits at rank 0's join listener (join_listener.c) for an
 * invitation, and then joins the larger job like the ranks of the old one. Called by comm.
 */
#include <ringforge/ringforge.h>

#include "../control/control.h"
#include "../control/socket.h"
#include "../transport.h"
#include "base/base.h"
#include "join.h"
#include "join_listener.h"

#define RETRY_NS 50000000ull
#define ANSWER_NS 3000000000ull   /* for one step of the handshake */
#define SILENCE_NS 20000000000ull /* after which rank 0 counts as lost */

/* ---- invitations ----------------------------------------------------------------------------- */

void rf_invitation_write(const struct rf_invitation *invitation, uint8_t out[RF_INVITATION_BYTES])
{
    rf_put32(out, (uint32_t)invitation->port);
    rf_put32(out + 4, (uint32_t)invitation->rank);
    rf_put32(out + 8, (uint32_t)invitation->size);
    memcpy(out + 12, invitation->job, RF_JOB_BYTES);
}

int rf_invitation_read(const uint8_t in[RF_INVITATION_BYTES], struct rf_invitation *out)
{
    const uint32_t port = rf_get32(in), rank = rf_get32(in + 4), size = rf_get32(in + 8);
    if (port < 1 || port > 65535 || size >= RF_JOIN_WORLD_SIZE || rank < 1 || rank >= size)
        return rf_fail(RF_ECORRUPT, "control: rank 0 sent an invalid invitation");
    *out = (struct rf_invitation){.port = (int)port, .rank = (int)rank, .size = (int)size};
    memcpy(out->job, in + 12, RF_JOB_BYTES);
    return 0;
}

/* ---- a newcomer ------------------------------------------------------------------------------ */

static int find_job(const char *url, const char *key, struct rf_rendezvous *rendezvous)
{
    RETURN_IF_ERROR(rf_rendezvous_parse(url, rendezvous));
    RETURN_IF_ERROR(rf_job_key_init(&rendezvous->key, key ? key : rf_env("RF_JOB_KEY")));
    if (!rendezvous->key.present)
        return rf_fail(RF_EAUTH, "who joins a running job must prove to belong to it: set "
                                 "RF_JOB_KEY to the job's");
    rendezvous->rank = 1;
    rendezvous->size = RF_JOIN_WORLD_SIZE;
    return 0;
}

/* RF_EAGAIN: another attempt may succeed. */
static int ask_to_join(const struct rf_rendezvous *rendezvous, uint64_t deadline,
                       struct rf_link *link)
{
    int fd = -1;
    RETURN_IF_ERROR(rf_socket_connect(rendezvous->host, rendezvous->port, deadline, &fd));
    rf_link_init(link, fd, RF_TERMS_BYTES);
    const uint64_t answer = rf_now_ns() + ANSWER_NS;
    const int rc = rf_join_authenticate(rendezvous, link, answer < deadline ? answer : deadline);
    if (rc < 0)
        rf_link_close(link);
    return rc == RF_EPEER || rc == RF_ETIMEOUT || rc == RF_ECORRUPT ? RF_EAGAIN : rc;
}

/* 1: invited; 0: keep waiting. */
static int receive_frame(const struct rf_join_request *request, struct rf_link *link,
                         const struct rf_frame *frame, struct rf_invitation *out)
{
    char text[401];
    switch (frame->kind) {
    case RF_FRAME_HEARTBEAT:
        RETURN_IF_ERROR(rf_link_queue(link, RF_FRAME_HEARTBEAT, 0, 0, NULL, 0));
        return rf_link_flush_by(link, rf_now_ns() + ANSWER_NS);
    case RF_FRAME_NOTE:
        rf_frame_text(frame->payload, frame->bytes, text, sizeof(text));
        if (request->note)
            request->note(request->user, text);
        return 0;
    case RF_FRAME_REFUSE: {
        /* A job that has ended refuses all newcomers: another attempt is useless. */
        const int status = rf_join_refusal(frame);
        return status == RF_EAGAIN ? RF_EINVAL : status;
    }
    case RF_FRAME_INVITE: {
        const int rc = rf_invitation_read(frame->payload, out);
        return rc < 0 ? rc : 1;
    }
    default:
        return rf_fail(RF_ECORRUPT, "control: rank 0 answered out of order");
    }
}

/* RF_EAGAIN: rank 0 is lost. */
static int wait_for_invitation(const struct rf_join_request *request, struct rf_link *link,
                               struct rf_invitation *out)
{
    struct rf_frame frame;
    int rc = rf_link_queue(link, RF_FRAME_TERMS, 0, 0, request->terms, strlen(request->terms));
    if (rc == 0)
        rc = rf_link_flush_by(link, rf_now_ns() + ANSWER_NS);
    while (rc == 0) {
        rc = rf_link_next_by(link, &frame, rf_now_ns() + SILENCE_NS);
        if (rc < 0)
            return RF_EAGAIN;
        rc = receive_frame(request, link, &frame, out);
    }
    return rc < 0 ? rc : 0;
}

int rf_newcomer_wait(const struct rf_join_request *request, struct rf_invitation *out)
{
    struct rf_rendezvous rendezvous = {0};
    RETURN_IF_ERROR(find_job(request->url, request->key, &rendezvous));
    if (strlen(request->terms) > RF_TERMS_BYTES)
        return rf_fail(RF_EINVAL, "the terms of a newcomer have at most %d bytes", RF_TERMS_BYTES);
    for (uint64_t deadline = rf_after_s(request->timeout_s);;) {
        struct rf_link link;
        int rc = ask_to_join(&rendezvous, deadline, &link);
        if (rc == 0) {
            rc = wait_for_invitation(request, &link, out);
            rf_link_close(&link);
            deadline = rf_after_s(request->timeout_s);
        }
        if (rc != RF_EAGAIN)
            return rc;
        if (rf_now_ns() >= deadline) {
            const struct rf_error last = *rf_last_error();
            return rf_fail_rank(RF_ETIMEOUT, 0,
                                "no job admitted this process at %s port %d within %.3g s: %.400s",
                                rendezvous.host, rendezvous.port, request->timeout_s, last.message);
        }
        rf_sleep_ns(RETRY_NS);
    }
}

int rf_newcomer_join(const struct rf_join_request *request, const struct rf_invitation *invitation,
                     double timeout_s, struct rf_control **out)
{
    struct rf_rendezvous rendezvous = {0};
    RETURN_IF_ERROR(find_job(request->url, request->key, &rendezvous));
    rendezvous.port = invitation->port;
    rendezvous.rank = invitation->rank;
    rendezvous.size = invitation->size;
    rendezvous.timeout_s = timeout_s;
    memcpy(rendezvous.key.job, invitation->job, RF_JOB_BYTES);
    return rf_rendezvous_join(&rendezvous, out);
}

/* ---- a rank of the job that grows ------------------------------------------------------------ */

int rf_growth_join(struct rf_control *parent, const struct rf_growth *growth, int listener,
                   const char *key, double timeout_s, struct rf_control **out)
{
    struct rf_rendezvous rendezvous = {.port = growth->port,
                                       .rank = parent->rank,
                                       .size = growth->size,
                                       .timeout_s = timeout_s,
                                       .listens = parent->rank == 0,
                                       .listener = listener,
                                       .parent = parent};
    snprintf(rendezvous.host, sizeof(rendezvous.host), "%.63s", growth->host);
    RETURN_IF_ERROR(rf_job_key_init(&rendezvous.key, key ? key : rf_env("RF_JOB_KEY")));
    memcpy(rendezvous.key.job, growth->job, RF_JOB_BYTES);
    RETURN_IF_ERROR(rf_rendezvous_join(&rendezvous, out));
    (*out)->host = parent->host;
    return 0;
}
