/* SPDX-License-Identifier: MIT
 *
 * Ranks that wait for each other in a circle, as two that receive from each other, or that call two
 * communicators in different orders. Who has been quiet for long sends a probe to the rank it waits
 * for; that one, if it waits itself, in this or in another communicator of the family, and has not
 * done what the sender waits for, adds itself and sends the probe on (edge chasing: Chandy, Misra,
 * Haas 1983). A probe that comes back has found a circle: nobody in it can have gone on, since each
 * has been seen waiting for the next, which has not served it, and the first one still waits. If it
 * has gone through several communicators it is told along them, and every one fails.
 * Called by wait_monitor.c and control_receive.c. Not for what a worker does while its caller goes
 * on.
 */
#include <ringforge/ringforge.h>

#include "family.h"
#include "p2p.h"

enum { POLLS = 64 };

/* Whether this wait's call needs `rank`, which has not begun it, for its end. */
static bool needs(const struct rf_comm *comm, const struct rf_wait_monitor *monitor, int rank)
{
    const struct rf_peer_state *peer = &comm->peers.states[rank];
    if (peer->has_waiting && peer->waiting.contract.sequence >= monitor->mine->sequence)
        return false;
    return rf_call_needs_everybody(monitor->mine) ||
           (monitor->exec && rf_exec_needs(monitor->exec, rank));
}

/* The rank that this one waits for; -1: none, or it may go on by itself. */
static int waits_for(const struct rf_comm *comm, const struct rf_wait_monitor *monitor)
{
    if (!monitor->blocking || monitor->may_send || rf_async_busy(comm->async))
        return -1;
    if (rf_contract_is_p2p(monitor->mine))
        return monitor->peer;
    for (int rank = 0; rank < comm->size; rank++)
        if (rank != comm->rank && needs(comm, monitor, rank))
            return rank;
    return -1;
}

static bool names_a_rank(const struct rf_contract *contract)
{
    return rf_contract_is_p2p(contract) || rf_coll_has_root(contract->op);
}

/* Adds this rank, which waits in `comm`, and sends it on. */
static void send_on(struct rf_comm *comm, const struct rf_wait_monitor *monitor,
                    struct rf_probe *probe)
{
    const int to = waits_for(comm, monitor);
    if (to < 0 || to == comm->rank || probe->count >= RF_PROBE_HOPS)
        return;
    struct rf_probe_hop *hop = &probe->hops[probe->count++];
    const struct rf_contract *mine = monitor->mine;
    *hop = (struct rf_probe_hop){.rank = rf_comm_in_job(comm, comm->rank),
                                 .to = rf_comm_in_job(comm, to),
                                 .number = comm->membership.number,
                                 .sequence = mine->sequence,
                                 .count = mine->count,
                                 .root = names_a_rank(mine) ? rf_comm_in_job(comm, mine->root)
                                                            : mine->root,
                                 .op = mine->op,
                                 .dtype = mine->dtype,
                                 .redop = mine->redop,
                                 .order = mine->order};
    rf_comm_send_probe(comm, probe, false);
}

static struct rf_contract contract_of(const struct rf_probe_hop *hop)
{
    return (struct rf_contract){.sequence = hop->sequence,
                                .count = hop->count,
                                .root = hop->root,
                                .op = hop->op,
                                .dtype = hop->dtype,
                                .redop = hop->redop,
                                .order = hop->order};
}

/* This rank has not done what the hop, of `rank`, waits for, and does not while it waits itself. */
static bool is_unserved(struct rf_comm *comm, int rank, const struct rf_probe_hop *hop)
{
    const struct rf_contract theirs = contract_of(hop);
    if (!rf_contract_is_p2p(&theirs))
        return comm->history.next_sequence <= hop->sequence;
    /* Of what is sent here nobody has taken in the envelope where this rank waits elsewhere. */
    for (int i = 0; i < POLLS && comm->wait.monitor->comm != comm; i++)
        if (rf_p2p_needs_call(comm->p2p, rank, &theirs) || rf_p2p_poll(comm->p2p) < 0)
            break;
    return rf_p2p_needs_call(comm->p2p, rank, &theirs);
}

/* In the communicator's own ranks. */
static struct rf_contract local_contract(const struct rf_comm *comm, const struct rf_probe_hop *hop)
{
    struct rf_contract contract = contract_of(hop);
    if (names_a_rank(&contract))
        contract.root = rf_comm_from_job(comm, contract.root);
    return contract;
}

/* Through one communicator. */
static void describe(const struct rf_comm *comm, const struct rf_probe *probe, char *text,
                     size_t bytes)
{
    char call[100];
    size_t at = (size_t)snprintf(text, bytes, "ranks wait for each other in a circle: ");
    for (uint32_t i = 0; i < probe->count && at < bytes; i++) {
        const struct rf_contract theirs = local_contract(comm, &probe->hops[i]);
        at += (size_t)snprintf(text + at, bytes - at, "%srank %d waits for rank %d in %s",
                               i ? ", " : "", rf_comm_from_job(comm, probe->hops[i].rank),
                               rf_comm_from_job(comm, probe->hops[i].to),
                               rf_contract_text(&theirs, call, sizeof(call)));
    }
}

/* Through several: in those of the job. */
static void describe_orders(const struct rf_probe *probe, char *text, size_t bytes)
{
    char call[100];
    size_t at = (size_t)snprintf(text, bytes,
                                 "call communicators in the same order on all ranks: "
                                 "rank %d",
                                 probe->hops[0].rank);
    for (uint32_t i = 0; i < probe->count && at < bytes; i++) {
        const struct rf_probe_hop *hop = &probe->hops[i];
        const struct rf_contract theirs = contract_of(hop);
        at += (size_t)snprintf(text + at, bytes - at,
                               "%s waits in %s of communicator %u for rank %d", i ? ", which" : "",
                               rf_contract_text(&theirs, call, sizeof(call)), hop->number, hop->to);
    }
}

/* The circle ends for the ranks in it one after the other, and who is out of it may leave: so each
 * hears of it before, in the communicator that it waits in. */
static void fail_for(struct rf_comm *comm, const struct rf_probe *probe,
                     const struct rf_probe_hop *hop)
{
    struct rf_failure failure = {.status = RF_EMISMATCH,
                                 .rank = rf_comm_from_job(comm, hop->to),
                                 .rank_a = -1,
                                 .rank_b = -1,
                                 .sequence = hop->sequence,
                                 .of_job = true};
    describe_orders(probe, failure.message, sizeof(failure.message));
    rf_comm_send_probe(comm, probe, true);
    rf_comm_fail(comm, &failure, true);
}

/* Fails that in which this rank waits, as hop `own` says, and that in which another rank waits for
 * it. */
static int fail_all(struct rf_comm *comm, const struct rf_probe *probe, uint32_t own)
{
    const struct rf_probe_hop *hop = &probe->hops[own];
    const struct rf_probe_hop *before = &probe->hops[(own + probe->count - 1) % probe->count];
    struct rf_comm *other = rf_family_find(comm, before->number);
    if (other) {
        fail_for(other, probe, before);
        other->failure.unreported = true; /* to the next call on it */
    }
    rf_family_release(comm);
    fail_for(comm, probe, hop);
    return rf_fail_error(&comm->failure.error);
}

/* A circle of a message and a collective is no more than two ranks that call different things. */
static int fail_pair(struct rf_comm *comm, const struct rf_probe *probe)
{
    const struct rf_contract first = local_contract(comm, &probe->hops[0]),
                             second = local_contract(comm, &probe->hops[1]);
    const bool swap = rf_contract_is_p2p(&first);
    return rf_comm_fail_mismatch(
        comm, rf_comm_from_job(comm, probe->hops[swap].rank), swap ? &second : &first,
        rf_comm_from_job(comm, probe->hops[!swap].rank), swap ? &first : &second);
}

static int fail_circle(struct rf_comm *comm, const struct rf_probe *probe)
{
    struct rf_failure failure = {.status = RF_EMISMATCH,
                                 .rank = rf_comm_from_job(comm, probe->hops[0].to),
                                 .rank_a = -1,
                                 .rank_b = -1,
                                 .sequence = probe->hops[0].sequence};
    /* Rather an operation, as messages are numbered apart. */
    for (uint32_t i = probe->count; i-- > 0;)
        if (!rf_contract_is_p2p(&(struct rf_contract){.op = probe->hops[i].op}))
            failure.sequence = probe->hops[i].sequence;
    describe(comm, probe, failure.message, sizeof(failure.message));
    return rf_comm_fail(comm, &failure, true);
}

/* The probe has come back to the rank that asked, in the communicator in which it waits. */
static int fail(struct rf_comm *comm, const struct rf_probe *probe)
{
    for (uint32_t i = 0; i < probe->count; i++)
        if (probe->hops[i].number != comm->membership.number)
            return fail_all(comm, probe, 0);
    const struct rf_contract first = contract_of(&probe->hops[0]),
                             last = contract_of(&probe->hops[probe->count - 1]);
    return probe->count == 2 && rf_contract_is_p2p(&first) != rf_contract_is_p2p(&last)
               ? fail_pair(comm, probe)
               : fail_circle(comm, probe);
}

void rf_cycle_probe(struct rf_comm *comm, const struct rf_wait_monitor *monitor)
{
    struct rf_probe probe = {.wait = ++comm->wait.probes_sent};
    send_on(comm, monitor, &probe);
}

/* This rank waits where the hop has it. */
static bool is_hop(const struct rf_wait_monitor *monitor, const struct rf_probe_hop *hop)
{
    const struct rf_comm *comm = monitor->comm;
    return hop->rank == rf_comm_in_job(comm, comm->rank) &&
           hop->number == comm->membership.number && hop->sequence == monitor->mine->sequence &&
           hop->op == monitor->mine->op;
}

/* The circle, as the first of it has found it. */
static int received_circle(const struct rf_wait_monitor *monitor, const struct rf_probe *probe)
{
    for (uint32_t i = 0; i < probe->count; i++)
        if (is_hop(monitor, &probe->hops[i]))
            return fail_all(monitor->comm, probe, i);
    return 0;
}

int rf_cycle_receive(struct rf_comm *comm, int rank, const struct rf_probe *received, bool found)
{
    const struct rf_wait_monitor *monitor = comm->wait.monitor;
    struct rf_probe probe = *received;
    if (!monitor || probe.count < 1 || probe.count > RF_PROBE_HOPS)
        return 0;
    if (found)
        return received_circle(monitor, &probe);
    struct rf_comm *waiting = monitor->comm;
    const struct rf_probe_hop *last = &probe.hops[probe.count - 1];
    const int self = rf_comm_in_job(comm, comm->rank);
    if (last->rank != rf_comm_in_job(comm, rank) || last->to != self ||
        last->number != comm->membership.number || !is_unserved(comm, rank, last))
        return 0;
    if (probe.hops[0].rank != self) {
        for (uint32_t i = 1; i < probe.count; i++)
            if (probe.hops[i].rank == self)
                return 0; /* a circle without the one who asked: its own ranks find it */
        send_on(waiting, monitor, &probe);
        return 0;
    }
    /* Back, and this rank has not moved since. */
    const int to = waits_for(waiting, monitor);
    const bool waits = is_hop(monitor, &probe.hops[0]) && probe.wait == waiting->wait.probes_sent &&
                       monitor->announced && !monitor->may_send &&
                       monitor->quiet_activity == monitor->activity && to >= 0 &&
                       rf_comm_in_job(waiting, to) == probe.hops[0].to;
    return waits ? fail(waiting, &probe) : 0;
}
