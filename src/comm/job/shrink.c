/* SPDX-License-Identifier: MIT
 *
 * Survivors: a communicator of the ranks of a failed one that are still running. The transport
 * layer finds them (rf_survivors_join). Here they open the new communicator, and the first of them
 * collects votes: no rank uses it before all have opened it.
 */
#include <ringforge/ringforge.h>

#include "../communicator.h"
#include "../family.h"
#include "../task.h"
#include "transport/transport.h"

#define DEFAULT_TIMEOUT_S 60.0

enum vote { VOTE_READY = 0x53686e6b, VOTE_GO, VOTE_AGAIN };

/* Sent over the new control link, before any other message. */
static int send_vote(struct rf_comm *comm, enum vote vote)
{
    const uint32_t value = vote;
    return comm->links.control->ops->notify(comm->links.control, &value, sizeof(value));
}

static uint32_t vote_of(const struct rf_event *event)
{
    uint32_t value = 0;
    if (event->kind == RF_EVENT_MESSAGE && event->bytes == sizeof(value))
        memcpy(&value, event->payload, sizeof(value));
    return value;
}

/* 1: an event; 0: timeout. */
static int next_event(struct rf_comm *comm, struct rf_event *event, uint64_t deadline_ns)
{
    while (comm->links.control->ops->next_event(comm->links.control, event) == 0) {
        if (rf_now_ns() >= deadline_ns)
            return 0;
        rf_sleep_ns(50000);
    }
    return 1;
}

/* On the first rank: waits until all are ready. RF_EAGAIN: a rank was lost, so retry without it. */
static int collect_votes(struct rf_comm *comm, uint64_t deadline_ns)
{
    struct rf_event event;
    for (int ready = 1; ready < comm->size;) {
        if (!next_event(comm, &event, deadline_ns))
            return rf_fail(RF_ETIMEOUT, "shrink: not all survivors could begin in time");
        if (vote_of(&event) == VOTE_READY)
            ready++;
        else if (event.kind != RF_EVENT_MESSAGE)
            return RF_EAGAIN;
    }
    return send_vote(comm, VOTE_GO);
}

/* On the other ranks: waits for the decision of the first one. If the first one dies, it may have
 * sent its decision to some; so all ready ranks continue, and detect its death in their first
 * operation. */
static int await_decision(struct rf_comm *comm, uint64_t deadline_ns)
{
    struct rf_event event, death = {0};
    RETURN_IF_ERROR(send_vote(comm, VOTE_READY));
    for (;;) {
        if (!next_event(comm, &event, deadline_ns))
            return rf_fail_rank(RF_ETIMEOUT, 0,
                                "shrink: the first survivor did not decide in time");
        if (event.kind == RF_EVENT_DEAD)
            death = event;
        if (vote_of(&event) == VOTE_GO || (event.kind == RF_EVENT_DEAD && event.rank == 0))
            break;
        if (vote_of(&event) == VOTE_AGAIN || event.kind == RF_EVENT_ABORT ||
            (event.kind == RF_EVENT_LEFT && event.rank == 0))
            return RF_EAGAIN;
    }
    if (death.kind == RF_EVENT_DEAD && rf_comm_receive_event(comm, &death) < 0)
        rf_log("comm", 1, "a survivor died at the end of a shrink: %s",
               comm->failure.error.message);
    return 0;
}

/* Whether an error may be due to a survivor that was lost after the members were listed. */
static bool is_of_a_peer(int status)
{
    return status == RF_EPEER || status == RF_EABORT || status == RF_ENET || status == RF_ETIMEOUT;
}

/* Takes ownership of control. RF_EAGAIN: a rank was lost meanwhile. */
static int open_survivors(struct rf_comm *old, struct rf_control *control, const int *members,
                          double timeout_s, struct rf_comm **out)
{
    struct rf_comm *comm = rf_alloc(sizeof(*comm));
    if (!comm) {
        control->ops->leave(control, 0);
        return rf_fail(RF_ENOMEM, "no memory for a communicator");
    }
    const uint64_t deadline = rf_after_s(timeout_s);
    comm->links.control = control;
    comm->rank = control->rank;
    comm->size = control->size;
    comm->settings.flush = old->settings.flush;
    int rc = rf_family_join(comm, old);
    if (rc == 0)
        rc = rf_comm_name_ranks(comm, old, members);
    if (rc == 0)
        rc = rf_split_transport(control, old->links.transport->name, &comm->links.transport,
                                comm->links.reason, sizeof(comm->links.reason));
    struct rf_comm_opts opts = {.timeout_s = old->settings.timeout_s,
                                .start_timeout_s = timeout_s,
                                .checksum = old->settings.checksum};
    rc = rf_comm_adopt(comm, &opts, rc, &comm);
    if (rc < 0)
        return is_of_a_peer(rc) ? RF_EAGAIN : rc;
    if (comm->size > 1)
        rc = comm->rank == 0 ? collect_votes(comm, deadline) : await_decision(comm, deadline);
    if (rc < 0) {
        struct rf_error error = *rf_last_error();
        if (comm->rank == 0)
            (void)!send_vote(comm, VOTE_AGAIN);
        rf_comm_abort(comm, "a survivor was lost; the others try again");
        rf_comm_close(comm);
        return rc == RF_EAGAIN ? rc : rf_fail_error(&error);
    }
    *out = comm;
    return 0;
}

static int check_left_out(struct rf_comm *comm)
{
    struct rf_event event;
    while (comm->links.control->ops->next_event(comm->links.control, &event) == 1)
        if (rf_comm_receive_event(comm, &event) < 0)
            rf_log("comm", 2, "noticed while shrinking: %s", comm->failure.error.message);
    if (comm->failure.left_out)
        return rf_fail_rank(RF_EPEER, comm->rank, "shrink: the others have gone on without rank %d",
                            comm->rank);
    return 0;
}

static int try_once(struct rf_comm *comm, double timeout_s, int *members, struct rf_comm **out)
{
    struct rf_control *control = NULL;
    int count = 0;
    RETURN_IF_ERROR(check_left_out(comm));
    RETURN_IF_ERROR(rf_survivors_join(comm->links.control, timeout_s, members, &count, &control));
    int rc = count == 1 ? check_left_out(comm) : 0;
    if (rc < 0) {
        control->ops->leave(control, 0);
        return rc;
    }
    RETURN_IF_ERROR(open_survivors(comm, control, members, timeout_s, out));
    if (rf_comm_rank(*out) == 0)
        rf_comm_send_left_out(comm, members, count);
    return 0;
}

int rf_comm_shrink(struct rf_comm *comm, double timeout_s, int *old_ranks, struct rf_comm **out)
{
    if (!comm || !out)
        return rf_fail(RF_EINVAL, "shrink: the communicator or out is NULL");
    RETURN_IF_ERROR(rf_check_seconds("shrink", timeout_s));
    RETURN_IF_ERROR(rf_group_refuse(comm, "shrink"));
    rf_family_enter(comm->membership.family);
    timeout_s = timeout_s > 0 ? timeout_s : DEFAULT_TIMEOUT_S;
    rf_async_drain(comm->async, 0);
    int *members = rf_alloc((size_t)comm->size * sizeof(*members));
    if (!members)
        return rf_fail(RF_ENOMEM, "no memory for %d survivors", comm->size);
    /* Each further round is needed because a rank was lost in the previous one. */
    int rc = RF_EAGAIN;
    for (int round = 0; round < comm->size && rc == RF_EAGAIN; round++)
        rc = try_once(comm, timeout_s, members, out);
    if (rc == RF_EAGAIN)
        rc = rf_fail(RF_EPEER, "shrink: a rank was lost in every attempt; is the network down?");
    for (int i = 0; rc == 0 && old_ranks && i < rf_comm_size(*out); i++)
        old_ranks[i] = members[i];
    rf_free(members);
    rf_set_thread_rank(rf_comm_job_rank(comm, comm->rank)); /* adopting has changed it */
    return rc;
}
