/* SPDX-License-Identifier: MIT
 *
 * Deadlocks: ranks that wait for each other in a cycle, such as two that receive from each other,
 * or that call two communicators in different orders. A rank without progress sends a probe to the
 * rank it waits for. If that rank is also waiting, in any communicator of the family, and has not
 * served the sender, it adds itself and sends the probe on (edge chasing: Chandy, Misra, Haas
 * 1983).
 *
 * A probe that returns to its first rank, which still waits, has found a deadlock: every rank in it
 * was waiting for the next, which had not served it. If the cycle goes through several
 * communicators, it is sent along them, and each of them fails.
 *
 * Called by wait_monitor.c and control_receive.c. Waits of asynchronous calls are not searched,
 * because their callers may still serve others.
 */
#include <ringforge/ringforge.h>

#include "../family.h"
#include "../p2p.h"

enum { POLLS = 64 };

/* Whether the call of this wait cannot end without `rank`, which has not begun it. */
static bool needs(const struct rf_comm *comm, const struct rf_wait_monitor *monitor, int rank)
{
    const struct rf_peer_state *peer = &comm->peers.states[rank];
    if (peer->has_waiting && peer->waiting.contract.sequence >= monitor->mine->sequence)
        return false;
    return rf_call_needs_everybody(monitor->mine) ||
           (monitor->exec && rf_exec_needs(monitor->exec, rank));
}

/* The rank that this one waits for; -1: none, or it may continue by itself. */
static int waits_for(const struct rf_comm *comm, const struct rf_wait_monitor *monitor)
{
    if (!monitor->blocking || monitor->send_blocked || rf_async_busy(comm->async))
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

/* Adds this rank, which waits in `comm`, to the probe, and sends it on. */
static void send_on(struct rf_comm *comm, const struct rf_wait_monitor *monitor,
                    struct rf_probe *probe)
{
    const int to = waits_for(comm, monitor);
    if (to < 0 || to == comm->rank || probe->count >= RF_PROBE_HOPS)
        return;
    struct rf_probe_hop *hop = &probe->hops[probe->count++];
    const struct rf_contract *mine = monitor->mine;
    *hop = (struct rf_probe_hop){.rank = rf_comm_job_rank(comm, comm->rank),
                                 .to = rf_comm_job_rank(comm, to),
                                 .number = comm->membership.number,
                                 .sequence = mine->sequence,
                                 .count = mine->count,
                                 .root = names_a_rank(mine) ? rf_comm_job_rank(comm, mine->root)
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

/* Whether this rank has not served the wait in the hop of `rank`, and will not while it waits
 * itself. */
static bool is_unserved(struct rf_comm *comm, int rank, const struct rf_probe_hop *hop)
{
    const struct rf_contract theirs = contract_of(hop);
    if (!rf_contract_is_p2p(&theirs))
        return comm->history.next_sequence <= hop->sequence;
    /* While this rank waits in another communicator, envelopes are not polled here. */
    for (int i = 0; i < POLLS && comm->wait.monitor->comm != comm; i++)
        if (rf_p2p_needs_call(comm->p2p, rank, &theirs) || rf_p2p_poll(comm->p2p) < 0)
            break;
    return rf_p2p_needs_call(comm->p2p, rank, &theirs);
}

/* The contract of a hop with ranks of the communicator. */
static struct rf_contract local_contract(const struct rf_comm *comm, const struct rf_probe_hop *hop)
{
    struct rf_contract contract = contract_of(hop);
    if (names_a_rank(&contract))
        contract.root = rf_comm_rank_from_job(comm, contract.root);
    return contract;
}

/* Describes a deadlock within one communicator. */
static void describe(const struct rf_comm *comm, const struct rf_probe *probe, char *text,
                     size_t bytes)
{
    char call[100];
    size_t at = (size_t)snprintf(text, bytes, "deadlock: ranks wait for each other: ");
    for (uint32_t i = 0; i < probe->count && at < bytes; i++) {
        const struct rf_contract theirs = local_contract(comm, &probe->hops[i]);
        at += (size_t)snprintf(text + at, bytes - at, "%srank %d waits for rank %d in %s",
                               i ? ", " : "", rf_comm_rank_from_job(comm, probe->hops[i].rank),
                               rf_comm_rank_from_job(comm, probe->hops[i].to),
                               rf_contract_text(&theirs, call, sizeof(call)));
    }
}

/* Describes a deadlock through several communicators, with ranks of the job. */
static void describe_orders(const struct rf_probe *probe, char *text, size_t bytes)
{
    char call[100];
    size_t at = (size_t)snprintf(text, bytes,
                                 "deadlock: call communicators in the same order on all ranks: "
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

/* The ranks' waits end at different times, and a rank whose wait has ended may leave. So each rank
 * is sent the deadlock first, in the communicator in which it waits. */
static void fail_for(struct rf_comm *comm, const struct rf_probe *probe,
                     const struct rf_probe_hop *hop)
{
    struct rf_failure failure = {.status = RF_EMISMATCH,
                                 .rank = rf_comm_rank_from_job(comm, hop->to),
                                 .rank_a = -1,
                                 .rank_b = -1,
                                 .sequence = hop->sequence,
                                 .of_job = true};
    describe_orders(probe, failure.message, sizeof(failure.message));
    rf_comm_send_probe(comm, probe, true);
    rf_comm_fail(comm, &failure, true);
}

/* Fails the communicator in which this rank waits (hop `own`), and the one in which another rank
 * waits for it. */
static int fail_all(struct rf_comm *comm, const struct rf_probe *probe, uint32_t own)
{
    const struct rf_probe_hop *hop = &probe->hops[own];
    const struct rf_probe_hop *before = &probe->hops[(own + probe->count - 1) % probe->count];
    struct rf_comm *other = rf_family_find(comm, before->number);
    if (other) {
        fail_for(other, probe, before);
        other->failure.unreported = true; /* the next call on it returns the error */
    }
    rf_family_release(comm);
    fail_for(comm, probe, hop);
    return rf_fail_error(&comm->failure.error);
}

/* A deadlock between a message and a collective is a mismatch of two calls. */
static int fail_pair(struct rf_comm *comm, const struct rf_probe *probe)
{
    const struct rf_contract first = local_contract(comm, &probe->hops[0]),
                             second = local_contract(comm, &probe->hops[1]);
    const bool swap = rf_contract_is_p2p(&first);
    return rf_comm_fail_mismatch(
        comm, rf_comm_rank_from_job(comm, probe->hops[swap].rank), swap ? &second : &first,
        rf_comm_rank_from_job(comm, probe->hops[!swap].rank), swap ? &first : &second);
}

static int fail_deadlock(struct rf_comm *comm, const struct rf_probe *probe)
{
    struct rf_failure failure = {.status = RF_EMISMATCH,
                                 .rank = rf_comm_rank_from_job(comm, probe->hops[0].to),
                                 .rank_a = -1,
                                 .rank_b = -1,
                                 .sequence = probe->hops[0].sequence};
    /* Prefer the number of a collective: messages are numbered separately. */
    for (uint32_t i = probe->count; i-- > 0;)
        if (!rf_contract_is_p2p(&(struct rf_contract){.op = probe->hops[i].op}))
            failure.sequence = probe->hops[i].sequence;
    describe(comm, probe, failure.message, sizeof(failure.message));
    return rf_comm_fail(comm, &failure, true);
}

/* The probe has returned to its first rank, in the communicator in which that rank waits. */
static int fail_found(struct rf_comm *comm, const struct rf_probe *probe)
{
    for (uint32_t i = 0; i < probe->count; i++)
        if (probe->hops[i].number != comm->membership.number)
            return fail_all(comm, probe, 0);
    const struct rf_contract first = contract_of(&probe->hops[0]),
                             last = contract_of(&probe->hops[probe->count - 1]);
    return probe->count == 2 && rf_contract_is_p2p(&first) != rf_contract_is_p2p(&last)
               ? fail_pair(comm, probe)
               : fail_deadlock(comm, probe);
}

void rf_deadlock_probe(struct rf_comm *comm, const struct rf_wait_monitor *monitor)
{
    struct rf_probe probe = {.number = ++comm->wait.probes_sent};
    send_on(comm, monitor, &probe);
}

/* Whether the hop describes the wait of this rank. */
static bool is_hop(const struct rf_wait_monitor *monitor, const struct rf_probe_hop *hop)
{
    const struct rf_comm *comm = monitor->comm;
    return hop->rank == rf_comm_job_rank(comm, comm->rank) &&
           hop->number == comm->membership.number && hop->sequence == monitor->mine->sequence &&
           hop->op == monitor->mine->op;
}

/* Handles a deadlock found by its first rank. */
static int received_deadlock(const struct rf_wait_monitor *monitor, const struct rf_probe *probe)
{
    for (uint32_t i = 0; i < probe->count; i++)
        if (is_hop(monitor, &probe->hops[i]))
            return fail_all(monitor->comm, probe, i);
    return 0;
}

int rf_deadlock_receive(struct rf_comm *comm, int rank, const struct rf_probe *received, bool found)
{
    const struct rf_wait_monitor *monitor = comm->wait.monitor;
    struct rf_probe probe = *received;
    if (!monitor || probe.count < 1 || probe.count > RF_PROBE_HOPS)
        return 0;
    if (found)
        return received_deadlock(monitor, &probe);
    struct rf_comm *waiting = monitor->comm;
    const struct rf_probe_hop *last = &probe.hops[probe.count - 1];
    const int self = rf_comm_job_rank(comm, comm->rank);
    if (last->rank != rf_comm_job_rank(comm, rank) || last->to != self ||
        last->number != comm->membership.number || !is_unserved(comm, rank, last))
        return 0;
    if (probe.hops[0].rank != self) {
        for (uint32_t i = 1; i < probe.count; i++)
            if (probe.hops[i].rank == self)
                return 0; /* a cycle without the first rank: its members find it themselves */
        send_on(waiting, monitor, &probe);
        return 0;
    }
    /* The probe has returned: check whether this rank still waits in the same call. */
    const int to = waits_for(waiting, monitor);
    const bool waits = is_hop(monitor, &probe.hops[0]) &&
                       probe.number == waiting->wait.probes_sent && monitor->announced &&
                       !monitor->send_blocked && monitor->quiet_activity == monitor->activity &&
                       to >= 0 && rf_comm_job_rank(waiting, to) == probe.hops[0].to;
    return waits ? fail_found(waiting, &probe) : 0;
}
